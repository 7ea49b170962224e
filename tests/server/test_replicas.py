"""Two servers over one database: what one does, the other knows.

While it is away, and when one of them leaves.
"""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from conductor_cli.core.errors import ConfigError
from conductor_cli.server.http.process import HttpServer, access_rules, listen_at
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.run_registry import RunRegistry
from conductor_cli.state.postgres import database as module
from conductor_cli.state.postgres.records import shared_state
from tests.cli.stage import Stage, refuses, says, stalls
from tests.server.plain_api import QUESTION, Serving, deltas, events, serving, text_of, until
from tests.server.test_tool_turns import Talk, asks, by_turns
from tests.state.cluster import Cluster
from tests.state.conftest import postgres

__all__ = ["postgres"]

Two = tuple[Serving, Serving]


@pytest.fixture
def replicas(stage: Stage, postgres: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    """Each has a state of its own, as two processes have."""
    monkeypatch.setenv("CONDUCTOR_LLM_STATE", postgres.new_database())
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.2)
    with ExitStack() as stack:
        yield stack.enter_context(serving()), stack.enter_context(serving())
    shared_state.cache_clear()


def respond(server: Serving, key: str = "", **fields: Any) -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    body = {"model": "conductor-mini", "input": "Why?", **fields}
    return httpx.post(f"{server.url}/v1/responses", json=body, headers=headers, timeout=30)


def test_a_response_is_there_on_every_replica(stage: Stage, replicas: Two) -> None:
    """It is read, streamed on, continued, listed on the page and deleted where it was not made."""
    first, second = replicas
    made = respond(first).json()
    url = f"{second.url}/v1/responses/{made['id']}"
    read = httpx.get(url).json()
    assert (text_of(read), read["status"], read["model"]) == (
        "alpha answers",
        "completed",
        "conductor-mini",
    )
    streamed = events(httpx.get(url, params={"stream": "true"}).text)
    last = {"stream": "true", "starting_after": streamed[-1]["sequence_number"] - 1}
    rest = events(httpx.get(url, params=last).text)
    assert [event["type"] for event in rest] == ["response.completed"]
    runs = httpx.get(f"{second.url}/v1/conductor/runs").json()["runs"]
    assert [run["run"] for run in runs] == [made["id"].removeprefix("resp_")]
    continued = respond(second, input="And?", previous_response_id=made["id"])
    assert continued.json()["previous_response_id"] == made["id"]
    assert b"Why?" in stage.asked("alpha")[-1].body
    assert httpx.delete(url).json()["deleted"] is True
    assert httpx.get(url).status_code == 404


def test_a_run_that_goes_on_is_followed_from_another_replica(stage: Stage, replicas: Two) -> None:
    """It is in progress there until it ends where it is driven."""
    first, second = replicas
    stage.models["alpha"] = stalls("First ")
    threading.Thread(target=respond, args=(first,), kwargs={"stream": True}, daemon=True).start()
    until(lambda: stage.asked("alpha"))
    run = first.registry.going_on[0].id
    url = f"{second.url}/v1/responses/resp_{run}"
    read = until(lambda: (reply := httpx.get(url)).status_code == 200 and reply)
    assert read.json()["status"] == "in_progress"
    stream_text = ""
    with httpx.stream("GET", url, params={"stream": "true"}, timeout=20) as answer:
        for line in answer.iter_lines():
            stream_text += f"{line}\n"
            if "output_text.delta" in line and line.startswith("data: "):
                first.registry.cancel(run)
    kinds = [event["type"] for event in events(stream_text)]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.incomplete")
    assert deltas(events(stream_text)) == ["First "]


def test_a_request_with_an_idempotency_key_is_one_run_on_all_replicas(
    stage: Stage, replicas: Two
) -> None:
    """Sent to both at once or later.

    For another request the key is refused, and a run that failed is tried again.
    """
    first, second = replicas
    with ThreadPoolExecutor() as pool:
        made = [
            answer.json() for answer in pool.map(lambda server: respond(server, "k1"), replicas)
        ]
    made.append(respond(second, "k1").json())
    assert len({response["id"] for response in made}) == 1
    assert [text_of(response) for response in made] == ["alpha answers"] * 3
    assert len(stage.asked("alpha")) == 1
    refused = respond(second, "k1", input="Else?")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")
    stage.models["alpha"] = says("")
    stage.models["beta"] = says("")
    assert respond(first, "k2").status_code >= 500
    stage.models["alpha"] = says("now")
    stage.models["beta"] = says("now")
    assert text_of(respond(second, "k2").json()) == "now"


def test_while_the_database_is_away_requests_get_503_and_others_go_on(
    stage: Stage, replicas: Two, postgres: Cluster
) -> None:
    """Never 401, no call of a worker, no address.

    Ready within seconds of its return, also where it was away first.
    """
    first, _ = replicas
    assert respond(first).status_code == 200
    called = len(stage.asked("alpha"))
    started = False
    postgres.control("stop", "--mode", "immediate")
    try:
        shared_state.cache_clear()
        with serving() as late:
            for server in (first, late):
                for answer in (
                    respond(server),
                    respond(server, stream=True),
                    httpx.get(f"{server.url}/readyz"),
                ):
                    assert answer.status_code == 503
                    assert not any(
                        word in answer.text
                        for word in ("127.0.0.1", str(postgres.port), "postgresql://")
                    )
                assert respond(server).headers["retry-after"] == "2"
                assert httpx.get(f"{server.url}/livez").status_code == 200
            assert httpx.get(f"{first.url}/v1/conductor/runs").status_code == 503
            assert len(stage.asked("alpha")) == called
            postgres.control("start")
            started = True
            until(lambda: {respond(server).status_code for server in (first, late)} == {200})
    finally:
        if not started:
            postgres.control("start")


def test_the_results_of_tools_may_go_to_another_replica(stage: Stage, replicas: Two) -> None:
    """The database has the secret that signs the ids of calls, so the worker that asked goes on."""
    stage.models["alpha"] = by_turns(asks("a.py"), says("Done."))
    talk = Talk(replicas[0], "responses")
    talk.ask()
    talk.give()
    talk.server = replicas[1]
    talk.ask()
    assert talk.text == "Done."
    assert (len(stage.asked("planner")), len(stage.asked("alpha"))) == (1, 2)
    assert stage.asked("alpha")[1].json["messages"][-1]["tool_call_id"] == "own0"


def ready(server: Serving) -> tuple[int, list[str]]:
    answer = httpx.get(f"{server.url}/readyz", timeout=10)
    return answer.status_code, answer.json().get("missing", [])


def block_state(stage: Stage) -> None:
    """A file stands where the directory of what is spent should be."""
    directory = stage.home / "state/conductor-llm/spending"
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.touch()


@pytest.mark.parametrize(
    ("happens", "messages"),
    [
        (lambda stage: None, (200, [])),
        (block_state, (503, ["state"])),
        (lambda stage: stage.server.close(), (503, ["planner"])),
        (lambda stage: setattr(stage.server, "script", refuses(503)), (503, ["planner"])),
        (lambda stage: setattr(stage.server, "script", refuses(404)), (200, [])),
    ],
    ids=["all is there", "state away", "planner away", "planner loading", "planner without a list"],
)
def test_ready_asks_state_and_planner_and_alive_nobody(
    stage: Stage, happens: Callable[[Stage], None], messages: tuple[int, list[str]]
) -> None:
    with serving() as server:
        happens(stage)
        assert ready(server) == messages
        assert httpx.get(f"{server.url}/livez").json() == {"status": "ok"}


def test_a_server_that_ends_takes_requests_until_its_balancer_knows(stage: Stage) -> None:
    with serving() as server:
        assert ready(server) == (200, [])
        server.server.stop()
        assert [ready(server)[1] for _ in range(2)] == [["server"]] * 2
        assert (
            httpx.post(f"{server.url}/v1/chat/completions", json=QUESTION, timeout=20).status_code
            == 200
        )
        assert ready(server)[0] == 503
        server.thread.join(30)
        assert not server.thread.is_alive()


@pytest.mark.parametrize("has_balancer", [False, True])
def test_a_second_signal_ends_the_pause_and_the_runs(stage: Stage, *, has_balancer: bool) -> None:
    """Without a balancer there is no pause.

    With one that never comes back, the second signal ends it.
    """
    stage.models["alpha"] = stalls("Half ")
    with serving() as server:
        if has_balancer:
            ready(server)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(
                httpx.post, f"{server.url}/v1/chat/completions", json=QUESTION, timeout=20
            )
            until(lambda: stage.asked("alpha"))
            server.server.stop()
            server.server.stop()
            assert asking.result(30).status_code == 503
        server.thread.join(30)
        assert not server.thread.is_alive()


def test_a_server_that_cannot_be_loaded_ends_with_its_error_and_refuses_who_waits(
    stage: Stage,
) -> None:
    def load() -> RunRegistry:
        raise ConfigError("a package is damaged")

    opened = listen_at("127.0.0.1", 0)
    address = opened.getsockname()
    with pytest.raises(ConfigError, match="a package is damaged"):
        HttpServer(
            load, access_rules(ServerOptions(flags={}).settings(), "127.0.0.1"), opened
        ).run()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
