"""OpenAI's Files and Batches API, by the `openai` SDK."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest

from conductor_cli.core.errors import StateUnavailable
from conductor_cli.server import batches, files
from conductor_cli.server.client_keys import ClientKeys, make_key
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.records import shared_state
from tests.cli.stage import Stage, refuses, says, stalls
from tests.cli.test_batch import asked_number, echo
from tests.server.plain_api import Serving, serving, until
from tests.servers import SeenRequest, Wire
from tests.state.cluster import Cluster
from tests.state.conftest import postgres

__all__ = ["postgres"]

CHAT = "/v1/chat/completions"
OVER = {"completed", "failed", "expired", "cancelled"}


@pytest.fixture
def repeater(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """One worker, which repeats the number of a question, and fails for 13.

    A batch looks around often.
    """
    stage.configure(workers=("alpha",))
    stage.models["alpha"] = echo
    for name in ("LOOK_SECONDS", "WAIT_SECONDS", "SCAN_SECONDS"):
        monkeypatch.setattr(batches, name, 0.05)
    return stage


@pytest.fixture(params=["files", "postgres"])
def stored(
    request: pytest.FixtureRequest, repeater: Stage, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """The same, with each kind of state."""
    if request.param == "postgres":
        monkeypatch.setenv(
            "CONDUCTOR_LLM_STATE", request.getfixturevalue("postgres").new_database()
        )
    yield repeater
    shared_state.cache_clear()


def client(server: Serving | str, key: str = "none") -> openai.OpenAI:
    url = server if isinstance(server, str) else server.url
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def line(number: int, url: str = CHAT, **fields: Any) -> dict[str, Any]:
    question = f"number {number}"
    body = (
        {"messages": [{"role": "user", "content": question}]}
        if url == CHAT
        else {"input": question}
    )
    return {
        "custom_id": f"q{number}",
        "method": "POST",
        "url": url,
        "body": {"model": "conductor", **body},
        **fields,
    }


def upload(at: openai.OpenAI, lines: list[Any]) -> str:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return at.files.create(file=("q.jsonl", io.BytesIO(text.encode())), purpose="batch").id


def begin(at: openai.OpenAI, source: str | list[Any], url: str = CHAT) -> Any:
    """Begin a batch over a file, or over lines that are uploaded first."""
    file = source if isinstance(source, str) else upload(at, source)
    resource = cast("Any", at.batches)
    return resource.create(
        input_file_id=file, endpoint=url, completion_window="24h", metadata={"for": "a test"}
    )


def over(at: openai.OpenAI, name: str) -> Any:
    return until(lambda: (batch := at.batches.retrieve(name)).status in OVER and batch)


def finished(at: openai.OpenAI, name: str) -> int:
    counts = at.batches.retrieve(name).request_counts
    return counts.completed if counts else 0


def lines_of(at: openai.OpenAI, name: str | None) -> dict[str, Any]:
    return (
        {}
        if name is None
        else {
            answer["custom_id"]: answer
            for answer in map(json.loads, at.files.content(name).text.splitlines())
        }
    )


def test_what_has_no_effect_on_a_file_or_a_batch_is_told(repeater: Stage) -> None:
    """Such as a day on which it should expire: files stay until they are deleted."""
    expiry = {"anchor": "created_at", "seconds": 3600}
    with serving() as server:
        at = client(server)
        content = io.BytesIO(f"{json.dumps(line(1))}\n".encode())
        file = at.files.create(
            file=("q.jsonl", content), purpose="batch", expires_after=cast("Any", expiry)
        )
        batch = at.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            output_expires_after=cast("Any", expiry),
        )
        over(at, batch.id)
    told = [cast("Any", made).conductor["ignored"] for made in (file, batch)]
    assert told == [
        ["expires_after[anchor]", "expires_after[seconds]"],
        ["output_expires_after"],
    ]


@pytest.mark.parametrize("url", [CHAT, "/v1/responses"])
def test_a_batch_is_answered_with_its_failures_in_a_file_of_their_own(
    stored: Stage, url: str
) -> None:
    with serving() as server, client(server) as at:
        begun = begin(at, [line(number, url) for number in range(10, 16)], url)
        assert (begun.status, begun.metadata) == ("validating", {"for": "a test"})
        done = over(at, begun.id)
        assert server.registry._by_id == {}  # its runs are no answers that a client may read again
        counts = done.request_counts
        assert (done.status, counts.total, counts.completed, counts.failed) == (
            "completed",
            6,
            5,
            1,
        )
        answers = lines_of(at, done.output_file_id)
        failures = lines_of(at, done.error_file_id)
        body = answers["q10"]["response"]["body"]
        text = (
            body["choices"][0]["message"]["content"]
            if url == CHAT
            else body["output"][-1]["content"][0]["text"]
        )
        assert (answers["q10"]["response"]["status_code"], text) == (200, "10")
        assert set(answers) == {"q10", "q11", "q12", "q14", "q15"}
        assert failures["q13"]["response"]["status_code"] == 400
        assert "no thirteens" in failures["q13"]["response"]["body"]["error"]["message"]
        assert at.files.retrieve(done.output_file_id).purpose == "batch_output"
        assert [batch.id for batch in at.batches.list().data] == [begun.id]
        assert {file.id for file in at.files.list()} == {
            begun.input_file_id,
            done.output_file_id,
            done.error_file_id,
        }
        with pytest.raises(openai.ConflictError):
            at.batches.cancel(begun.id)
        assert at.files.delete(begun.input_file_id).deleted
        with pytest.raises(openai.NotFoundError):
            at.files.content(begun.input_file_id)


def test_a_request_that_the_planner_refuses_keeps_no_other_waiting(stored: Stage) -> None:
    """As one of a filter of content. The file of answers is there when the rest is done."""

    async def filtered(request: SeenRequest, wire: Wire) -> None:
        await (
            refuses(400, "filtered")
            if "number 10" in str(request.json["messages"])
            else says(stored.plan)
        )(request, wire)

    stored.configure('mode = "ultra"\n[limits]\nattempts = 1', workers=("alpha",))
    stored.models["planner"] = filtered
    with serving() as server, client(server) as at:
        done = over(at, begin(at, [line(number) for number in (10, 11, 12)]).id)
        assert (done.status, done.request_counts.completed, done.request_counts.failed) == (
            "completed",
            2,
            1,
        )
        assert (
            "filtered"
            in lines_of(at, done.error_file_id)["q10"]["response"]["body"]["error"]["message"]
        )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no requests"),
        (["{"], "not valid JSON"),
        (["7"], "must be a JSON object"),
        ([line(1), line(1)], "there twice"),
        ([line(1, custom_id="")], "custom_id"),
        ([line(1, url="/v1/embeddings")], "not a POST to /v1/chat/completions"),
        ([line(1, body=[])], "not an object"),
        ([line(1, body={"stream": True})], "stream"),
        ([line(number) for number in range(4)], "more than 3 lines"),
    ],
)
def test_a_batch_with_a_bad_line_fails_before_anything_is_asked(
    repeater: Stage, monkeypatch: pytest.MonkeyPatch, lines: list[Any], message: str
) -> None:
    monkeypatch.setattr(batches, "MAX_LINES", 3)
    with serving() as server, client(server) as at:
        failed = over(at, begin(at, lines).id)
        assert failed.status == "failed"
        assert message in failed.errors.data[0].message
        assert not repeater.asked("alpha")


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_what_is_finished_is_kept_when_a_batch_does_not_end(
    stored: Stage, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A file that a batch reads cannot be deleted meanwhile."""

    async def slow_after_two(request: SeenRequest, wire: Wire) -> None:
        await (echo if asked_number(request) in {"1", "2"} else stalls())(request, wire)

    stored.models["alpha"] = slow_after_two
    monkeypatch.setattr(batches, "WINDOW_SECONDS", 3 if end == "expired" else 100)
    with serving() as server, client(server) as at:
        begun = begin(at, [line(number) for number in range(1, 6)])
        until(lambda: finished(at, begun.id) >= 2)
        with pytest.raises(openai.ConflictError):
            at.files.delete(begun.input_file_id)
        if end == "cancelled":
            assert at.batches.cancel(begun.id).status == "cancelling"
        done = over(at, begun.id)
        assert (done.status, set(lines_of(at, done.output_file_id))) == (end, {"q1", "q2"})
        failures = lines_of(at, done.error_file_id)
        assert set(failures) == ({"q3", "q4", "q5"} if end == "expired" else set())
        assert all(failure["error"]["code"] == "batch_expired" for failure in failures.values())


def test_a_batch_goes_on_after_a_restart_and_asks_no_finished_request_again(stored: Stage) -> None:
    async def stuck_after_three(request: SeenRequest, wire: Wire) -> None:
        await (echo if int(asked_number(request)) < 3 else stalls())(request, wire)

    stored.models["alpha"] = stuck_after_three
    with serving() as server, client(server) as at:
        begun = begin(at, [line(number) for number in range(6)])
        until(lambda: finished(at, begun.id) >= 3)
    stored.models["alpha"] = echo
    with serving() as server, client(server) as at:
        done = over(at, begun.id)
        assert (done.status, done.request_counts.completed) == ("completed", 6)
        assert set(lines_of(at, done.output_file_id)) == {f"q{number}" for number in range(6)}
    numbers = [asked_number(request) for request in stored.asked("alpha")]
    assert all(numbers.count(number) == 1 for number in "012")


def test_batches_of_one_file_do_not_disturb_each_other(stored: Stage) -> None:
    with serving() as server, client(server) as at:
        source = upload(at, [line(number) for number in range(20, 40)])
        for begun in [begin(at, source) for _ in range(3)]:
            done = over(at, begun.id)
            assert (done.status, done.request_counts.completed) == ("completed", 20)
            assert set(lines_of(at, done.output_file_id)) == {
                f"q{number}" for number in range(20, 40)
            }


def test_a_database_that_is_away_fails_no_request_of_a_batch(
    repeater: Stage, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_STATE", postgres.new_database())
    monkeypatch.setattr(batches, "AWAY_SECONDS", 0.05)
    away = threading.Event()
    refusals = list[Database]()
    connection = Database._connection

    def connect(self: Database) -> Any:
        if away.is_set():
            refusals.append(self)
            raise StateUnavailable("the database is away", reason="state")
        return connection(self)

    monkeypatch.setattr(Database, "_connection", connect)
    with serving() as server, client(server) as at:
        begun = begin(at, [line(number) for number in range(20, 80)])
        until(lambda: finished(at, begun.id) >= 5)
        away.set()
        until(lambda: len(refusals) >= 10)
        away.clear()
        done = over(at, begun.id)
        assert (done.status, done.request_counts.completed, done.error_file_id) == (
            "completed",
            60,
            None,
        )
        assert len(at.files.content(done.output_file_id).text.splitlines()) == 60
    shared_state.cache_clear()


@pytest.fixture
def keys(repeater: Stage) -> dict[str, str]:
    """Two keys; the first has money for two answers a day, of 0.007 each."""
    prices = {"alpha": "input = 0, output = 1000", "planner": "input = 0, output = 0"}
    tables = {name: f"price = {{ {price} }}\nmax_tokens = 7" for name, price in prices.items()}
    repeater.configure(workers=tables, conductor="planner")
    client_keys = ClientKeys(repeater.config.parent)
    made = dict[str, str]()
    for name, most in (("ann", Decimal("0.015")), ("ben", None)):
        key, made[name] = make_key(name)
        client_keys.add(replace(key, max_cost_day=most))
    return made


def test_each_client_sees_its_own_and_a_limit_of_the_day_lets_a_batch_wait(
    repeater: Stage, keys: dict[str, str]
) -> None:
    with (
        serving() as server,
        client(server, keys["ann"]) as ann,
        client(server, keys["ben"]) as ben,
    ):
        begun = begin(ann, [line(number) for number in range(3)])
        until(lambda: finished(ann, begun.id) >= 2)
        waiting: Any = ann.batches.retrieve(begun.id)
        assert (waiting.status, waiting.request_counts.failed) == ("in_progress", 0)
        for look in (ben.batches.retrieve, ben.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                look(begun.id)
        for read in (ben.files.retrieve, ben.files.content, ben.files.delete):
            with pytest.raises(openai.NotFoundError):
                read(begun.input_file_id)
        assert (list(ben.batches.list()), list(ben.files.list())) == ([], [])
        ann.batches.cancel(begun.id)
        done = over(ann, begun.id)
        assert (done.status, len(lines_of(ann, done.output_file_id))) == ("cancelled", 2)
    assert "ann" in repeater.ok("cost", "--by", "key").out


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"purpose": "assistants"}, 400, "purpose"),
        ({}, 400, "purpose"),
        ({"purpose": "batch"}, 413, "0 MB"),
    ],
)
def test_an_upload_is_bounded_and_says_what_it_is_for(
    repeater: Stage,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, str],
    status: int,
    message: str,
) -> None:
    monkeypatch.setattr(files, "MAX_UPLOAD", 10)
    with serving() as server:
        answer = httpx.post(f"{server.url}/v1/files", data=fields, files={"file": ("a", b"x" * 11)})
        assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True)
        names = ("../../x", "file-" + "0" * 24)
        assert {
            httpx.get(f"{server.url}/v1/files/{name}/content").status_code for name in names
        } == {404}
        for limit in ("0", "x", "000001" + "0" * 6, "9" * 5000):
            listed = httpx.get(f"{server.url}/v1/files", params={"limit": limit})
            assert listed.status_code == 400, limit
    assert not list(Path(repeater.home).glob("state/conductor-llm/files/*"))
