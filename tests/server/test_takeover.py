"""Runs that outlive their server.

Another one goes on with them, and the first one, if it comes back, cannot write.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from conductor_cli.core.errors import TakenOver, UsageError
from conductor_cli.server import batches
from conductor_cli.state import opening as home
from conductor_cli.state.postgres import served_files
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.records import SharedState, shared_state
from conductor_cli.state.postgres.served_files import SharedServedFiles
from tests.cli.stage import THREE, Stage, says
from tests.cli.test_batch import asked_number
from tests.server.plain_api import (
    QUESTION,
    Serving,
    address_of,
    deltas,
    events,
    serving,
    text_of,
    until,
)
from tests.server.test_batches import begin, client, line, over
from tests.servers import Script, SeenRequest, Wire, delta
from tests.state.cluster import Cluster
from tests.state.conftest import postgres

__all__ = ["postgres"]

PRICED = "price = { input = 0.0, output = 1000.0 }\n"  # an answer of `says` costs 0.007 dollars
ANSWER = 7_000_000  # the same in billionths
ASKED = {"model": "conductor", "input": "Why?", "background": True}


@dataclass
class Pair:
    """A server that is a process, and one of this process, over one database."""

    stage: Stage
    state: SharedState
    url: str
    process: subprocess.Popen[bytes]
    other: Serving

    def begin(self) -> str:
        """Ask the process in the background; returns the id of the run."""
        made = httpx.post(f"{self.url}/v1/responses", json=ASKED, timeout=30).json()
        assert (made["status"], made["background"]) in {("queued", True), ("in_progress", True)}, (
            made
        )
        return str(made["id"].removeprefix("resp_"))

    def query(self, statement: str) -> list[Any]:
        return self.state.database.call(statement)

    def expire(self, table: str = "leases") -> None:
        """Let the time of the leases be over."""
        self.query(f"UPDATE conductor_{table} SET until = clock_timestamp() - interval '1 s'")

    def kill(self) -> None:
        self.process.kill()
        self.expire()

    def ended(self, run: str) -> dict[str, Any]:
        """The response of a run once the other server has it whole."""
        return ended(self.other.url, run)

    def wrote(self, run: str, word: bytes) -> bool:
        """Whether the trace has a word."""
        with suppress(UsageError):
            return word in self.state.traces.lines_of(run)
        return False

    def stream(self, run: str, **options: Any) -> str:
        url = f"{self.other.url}/v1/responses/resp_{run}?stream=true"
        return httpx.get(url, timeout=30, **options).text


def read(url: str, run: str) -> dict[str, Any]:
    answer = httpx.get(f"{url}/v1/responses/resp_{run}", timeout=30)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def ended(url: str, run: str) -> dict[str, Any]:
    until(lambda: read(url, run)["status"] not in ("queued", "in_progress"), "the end")
    return read(url, run)


def text_in(stream: str) -> str:
    """All that a stream tells, piece by piece."""
    return "".join(event["delta"] for event in events(stream) if "delta" in event)


def once(*pieces: str, then: Script, go: threading.Event | None = None) -> Script:
    """A model that streams `pieces` to who asks first, and no end before `go`.

    To all others it is `then`.
    """
    requests = list[SeenRequest]()

    async def script(request: SeenRequest, wire: Wire) -> None:
        requests.append(request)
        if len(requests) > 1:
            await then(request, wire)
            return
        await wire.head()
        await wire.frames(*map(delta, pieces))
        await (wire.stall() if go is None else asyncio.to_thread(go.wait, 60))
        await wire.frames(delta(finish="stop"), "[DONE]")

    return script


def is_up(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/readyz", timeout=10).status_code == 200
    return False


@pytest.fixture
def pair(stage: Stage, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setenv("CONDUCTOR_LLM_STATE", postgres.new_database())
    stage.plan = THREE
    stage.configure(workers={"alpha": PRICED, "beta": PRICED})
    with ExitStack() as stack:
        other = stack.enter_context(serving())
        process = stack.enter_context(
            stage.start("serve", "--port", "0", stderr=subprocess.DEVNULL)
        )
        stack.callback(process.kill)
        url = address_of(process)
        until(lambda: process.poll() is None and is_up(url), "the server")
        state = home.open_state(other.registry.starter.settings().paths)
        assert isinstance(state, SharedState)
        yield Pair(stage, state, url, process, other)
    shared_state.cache_clear()


def test_a_run_whose_server_is_killed_is_finished_by_another(pair: Pair) -> None:
    """Only the step in flight is called again; its first call counts in full.

    Nobody who reads on sees a gap.
    """
    stage = pair.stage
    stage.models["beta"] = once("half", then=says("beta answers"))
    run = pair.begin()
    until(lambda: stage.asked("beta") and pair.wrote(run, b"step_finished"), "a step")
    paid = "SELECT count(*) FROM conductor_calls WHERE owner IS NULL AND worker = 'alpha'"
    until(lambda: pair.query(paid) == [(1,)], "its cost, which is settled behind the step")
    before = threading.Thread(target=lambda: streams.append(pair.stream(run)))
    streams = list[str]()
    before.start()
    pair.kill()
    response = pair.ended(run)
    assert (response["status"], text_of(response)) == ("completed", "alpha answers")
    assert [len(stage.asked(name)) for name in ("planner", "alpha", "beta")] == [1, 2, 2]
    assert pair.state.traces.check(run).faults == ()
    assert [step.state for step in pair.state.traces.trace(run).steps] == ["done"] * 3
    bill = (
        "SELECT count(*) FILTER (WHERE owner IS NULL), count(owner), sum(cost) FILTER (WHERE owner "
        "IS NULL)"
        " FROM conductor_calls WHERE worker IN ('alpha', 'beta')"
    )
    until(lambda: pair.query(bill) == [(3, 1, 3 * ANSWER)], "the bill, settled behind the run")
    assert pair.query("SELECT 1 FROM conductor_leases") == []
    before.join(30)
    whole = pair.stream(run)
    assert text_in(streams[0]) == text_in(whole)
    ids = [line.removeprefix("id: ") for line in whole.splitlines() if line.startswith("id: ")]
    middle = ids[len(ids) // 2]
    assert middle.startswith(f"resp_{run}:")
    rest = pair.stream(run, headers={"last-event-id": middle})
    assert text_in(whole).endswith(text_in(rest))
    assert len(events(whole)) - len(events(rest)) == ids.index(middle) + 1


def test_a_stream_is_read_on_behind_what_its_client_saw(pair: Pair) -> None:
    """A piece is committed before a client sees it: the next server must know that it is out."""
    stage = pair.stage
    stage.plan = "alpha | - | Answer it."
    stage.models["alpha"] = once("half", " of it", then=says("alpha answers"))
    lines = list[str]()
    with httpx.stream(
        "POST", f"{pair.url}/v1/responses", json=ASKED | {"stream": True}, timeout=30
    ) as answer:
        for line in answer.iter_lines():
            lines.append(line)
            if line == "" and " of it" in lines[-2]:
                pair.kill()
                break
    last = lines[-4].removeprefix("id: ")
    run = last.removeprefix("resp_").partition(":")[0]
    assert pair.ended(run)["status"] == "completed"
    received = [
        *events("\n".join(lines)),
        *events(pair.stream(run, headers={"last-event-id": last})),
    ]
    shown = "".join(deltas(received))
    (whole,) = [event["text"] for event in received if event["type"] == "response.output_text.done"]
    assert shown == whole == "half of it\n\nalpha answers"


def test_a_server_that_comes_back_late_writes_nothing_and_calls_nobody(pair: Pair) -> None:
    """It was only stopped.

    What its call returns later is paid, and is no part of the run that another has.
    """
    stage = pair.stage
    go = threading.Event()
    stage.models["beta"] = once("late", then=says("beta answers"), go=go)
    run = pair.begin()
    until(lambda: stage.asked("beta") and pair.wrote(run, b"step_finished"), "a step")
    pair.process.send_signal(signal.SIGSTOP)
    pair.expire()
    assert text_of(pair.ended(run)) == "alpha answers"
    lines = pair.state.traces.lines_of(run)
    go.set()
    pair.process.send_signal(signal.SIGCONT)
    open_holds = "SELECT count(*) FROM conductor_calls WHERE owner IS NOT NULL"
    until(lambda: pair.query(open_holds) == [(0,)], "the late call to be settled")
    assert text_of(ended(pair.url, run)) == "alpha answers", (
        "the late server reads what the other one wrote"
    )
    assert pair.state.traces.lines_of(run) == lines
    assert [len(stage.asked(name)) for name in ("planner", "alpha", "beta")] == [1, 2, 2]


def test_a_run_is_cancelled_by_a_server_that_does_not_drive_it(pair: Pair) -> None:
    stage = pair.stage
    stage.models["beta"] = once("half", then=says("no"))
    run = pair.begin()
    until(lambda: stage.asked("beta"), "a call")
    answer = httpx.post(f"{pair.other.url}/v1/responses/resp_{run}/cancel", timeout=30)
    assert answer.json()["status"] == "cancelled"
    assert until(lambda: stage.asked("beta")[0].closed.wait(0.1), "the call to be broken off")
    assert pair.ended(run)["status"] in ("cancelled", "incomplete")
    assert len(stage.asked("beta")) == 1


def test_a_run_that_was_only_announced_is_begun_by_another(pair: Pair) -> None:
    """A server that was told to take a run and was killed before it began loses nothing."""
    pair.process.send_signal(signal.SIGSTOP)
    job = json.dumps(
        {"path": "/v1/responses", "body": ASKED, "origin": "serve", "key": "k", "purpose": None}
    )
    run = "20991231-235959-00000a"
    pair.query(
        "INSERT INTO conductor_leases (run, owner, until, size, written, job) VALUES"
        f" ('{run}', 'gone', clock_timestamp() + interval '1 min', 0, 0, '{job}')"
    )
    assert read(pair.other.url, run)["status"] == "queued"
    pair.expire()
    assert text_of(pair.ended(run)) == "alpha answers"


def test_a_server_that_is_told_to_end_hands_its_runs_over(pair: Pair) -> None:
    """At the second signal, and nobody waits for its lease.

    What is out of an answer stays in a stream.
    """
    stage = pair.stage
    stage.plan = "alpha | - | Answer it."
    stage.models["alpha"] = once("half", then=says("alpha answers"))
    run = pair.begin()
    until(lambda: pair.wrote(run, b"half"), "a part of the answer")
    pair.process.send_signal(signal.SIGTERM)
    until(lambda: not is_up(pair.url), "the server to leave")
    pair.process.send_signal(signal.SIGTERM)
    pair.process.wait(30)
    assert text_of(pair.ended(run)) == "alpha answers"
    assert "".join(deltas(events(pair.stream(run)))) == "half\n\nalpha answers"
    assert [len(stage.asked(name)) for name in ("planner", "alpha")] == [1, 2]


def test_a_client_that_repeats_its_key_gets_the_run_that_another_server_took(pair: Pair) -> None:
    stage = pair.stage
    stage.models["beta"] = once("half", then=says("beta answers"))

    def ask(url: str) -> httpx.Response:
        return httpx.post(
            f"{url}/v1/chat/completions",
            json=QUESTION,
            headers={"idempotency-key": "k"},
            timeout=60,
        )

    def cut_off() -> None:
        with suppress(httpx.HTTPError):
            ask(pair.url)

    first = threading.Thread(target=cut_off)
    first.start()
    runs = "SELECT run FROM conductor_runs"
    until(lambda: any(pair.wrote(run, b"step_finished") for (run,) in pair.query(runs)), "a step")
    until(lambda: stage.asked("beta"), "a call")
    pair.kill()
    first.join(30)
    answer = ask(pair.other.url).json()
    assert answer["choices"][0]["message"]["content"] == "alpha answers"
    assert [len(stage.asked(name)) for name in ("planner", "beta")] == [1, 2]
    assert len(pair.query(runs)) == 1


def test_a_batch_whose_server_is_killed_is_finished_by_another(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer that was stored is asked for again, and each request has one line at the end."""
    monkeypatch.setattr(batches, "SCAN_SECONDS", 0.1)
    stage = pair.stage
    stage.plan = "alpha | - | Say it."
    lines = list[str]()
    stored = threading.Event()

    async def answer(request: SeenRequest, wire: Wire) -> None:
        lines.append(asked_number(request))
        if not stored.is_set() and len(lines) > 3:
            await wire.stall()
        await says("done")(request, wire)

    stage.models["alpha"] = answer
    with client(pair.url) as at:
        begun = begin(at, [line(number) for number in range(8)])
    find = f"SELECT count(*) FROM conductor_pieces WHERE id <> '{begun.input_file_id}'"
    until(lambda: pair.query(find)[0][0] and len(lines) > 5, "some answers")
    pair.process.kill()
    before = b"".join(pair.state.served_files.content(f"file-{begun.id[6:-1]}0")).decode()  # type: ignore[arg-type]
    stored.set()
    pair.expire("served")
    with client(pair.other) as at:
        done = over(at, begun.id)
        answers = at.files.content(done.output_file_id).text
    assert done.status == "completed"
    assert before
    assert answers.startswith(before)
    assert sorted(json.loads(line)["custom_id"] for line in answers.splitlines()) == [
        f"q{n}" for n in range(8)
    ]
    kept = {json.loads(line)["custom_id"] for line in before.splitlines()}
    assert all(lines.count(name[1:]) == 1 for name in kept)


def test_a_server_that_lost_a_batch_writes_nothing_more_of_it(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first one gives no sign of life by itself, which could come before the second one asks
    monkeypatch.setattr(served_files, "SEND_SECONDS", 3600.0)
    url = postgres.new_database()
    name = f"batch_{'0' * 24}"
    first, second = (SharedServedFiles(tmp_path / name, Database(url)) for name in ("one", "other"))
    record = {"id": name, "object": "batch", "owner": "", "created_at": 1, "status": "in_progress"}
    first.write(record)
    with first.held(name, ["file-1"]) as late:
        late.append("file-1", b"first\n")
        assert late.size("file-1") == 6
        with pytest.raises(BlockingIOError), second.held(name, ["file-1"]):
            pass
        Database(url).call("UPDATE conductor_served SET until = clock_timestamp() - interval '1 s'")
        with second.held(name, ["file-1"]) as mine:
            assert mine.path("file-1").read_bytes() == b"first\n"
            late.append("file-1", b"late\n")
            for act in (lambda: late.size("file-1"), lambda: late.write(record)):
                with pytest.raises(TakenOver):
                    act()
            mine.append("file-1", b"second\n")
            mine.write(record)
    assert b"".join(first.content("file-1")) == b"first\nsecond\n"  # type: ignore[arg-type]
    with first.held(name, []):  # both have let it go
        assert len([*(tmp_path / "one/working").iterdir()]) == 1
