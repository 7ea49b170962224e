"""Runs that outlive their connections.

Joining, leaving, waiting for a turn, and the end of the server.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from subprocess import Popen
from types import FrameType
from typing import Any

import httpx
import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.server.api import apis
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.http import process
from conductor_cli.server.http.access import Principal
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs import run_registry, run_starter
from conductor_cli.server.runs.narration import AnswerText, Piece, ResponseStream
from conductor_cli.server.runs.run_registry import (
    AnsweredAtOnce,
    FairQueue,
    QueuePlace,
    RegistryLimits,
    RunRegistry,
    ServedRun,
    Subscriber,
)
from conductor_cli.server.runs.run_starter import RunStarter, ServedJob
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import Stage, refuses, says
from tests.server.plain_api import (
    QUESTION,
    PlainApi,
    PlainEncoder,
    Serving,
    address_of,
    serving,
    until,
)
from tests.servers import SeenRequest, Wire, delta, usage

pytestmark = pytest.mark.usefixtures("plain")


def test_a_piece_is_written_at_once_only_to_who_has_all_before_it() -> None:
    written = list[str]()
    takes = [True, False, True]

    def write(piece: Piece) -> bool:
        written.append(piece.text if isinstance(piece, AnswerText) else "")
        return takes.pop(0)

    async def read() -> None:
        run = ServedRun("run", "key", ResponseStream())
        reader = Subscriber(run, heartbeat=60)
        reader.write = write
        run.readers.add(reader)

        async def add(text: str, *, at_once: bool = True) -> list[Piece]:
            """What a client that waits gets from `pieces` when this is added."""
            reading = asyncio.create_task(reader.pieces())
            await asyncio.sleep(0)
            run.add(AnswerText(text), at_once=at_once)
            await asyncio.sleep(0)
            if not reading.done():
                reading.cancel()
                return []
            return reading.result() or []

        run.add(AnswerText("early "), at_once=True)  # nobody waits yet
        assert await reader.pieces() == [AnswerText("early ")]
        assert await add("one ") == []
        assert await add("refused ") == [AnswerText("refused ")]
        assert await add("told with others ", at_once=False) == [AnswerText("told with others ")]
        assert await add("two ") == []
        assert reader.taken == run.size

    asyncio.run(read())
    assert written == ["one ", "refused ", "two "]


def test_a_client_of_a_whole_answer_is_woken_once_and_holds_nothing_up() -> None:
    async def read() -> None:
        run = ServedRun("run", "key", ResponseStream())
        reader = Subscriber(run, heartbeat=60, takes_pieces=False)
        run.readers.add(reader)
        reading = asyncio.create_task(reader.pieces())
        await asyncio.sleep(0)
        run.add(AnswerText("x" * (2 * run_registry.MAX_UNREAD)), at_once=True)
        assert run.keeps_up.is_set()
        await asyncio.sleep(0)
        assert not reader.woken.is_set()
        run.end(RequestError(500, "internal", "the run has failed"))
        assert await reading is None
        reader.close()

    asyncio.run(read())


class Gate(threading.Event):
    """A model that says one word, waits until it is set, and says another."""

    async def opened(self, wire: Wire) -> None:
        # Another thread opens it
        while not self.is_set() and not wire.gone.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def script(self, _: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta("First "))
        await self.opened(wire)
        await wire.frames(delta("second."), delta(finish="stop"), usage(), "[DONE]")


@pytest.fixture
def gate(stage: Stage) -> Gate:
    """What alpha is."""
    stage.models["alpha"] = (gate := Gate()).script
    return gate


def read_until_text(server: Serving) -> str:
    with server.open() as response:
        next(line for line in response.iter_lines() if json.loads(line)[0] == "text")
        return str(response.headers["x-request-id"])


def limited(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    monkeypatch.setattr(run_registry, "RegistryLimits", partial(RegistryLimits, **limits))


def test_a_client_that_comes_back_goes_on_with_its_run_and_pays_once(
    stage: Stage, gate: Gate
) -> None:
    with serving() as server:
        run = read_until_text(server)
        until(lambda: not server.registry.find(run).readers)  # type: ignore[union-attr]
        again = ThreadPoolExecutor().submit(server.ask)
        until(lambda: server.registry.find(run).readers)  # type: ignore[union-attr]
        gate.set()
        answer = again.result()
    assert (answer.headers["x-request-id"], answer.json()["text"]) == (run, "First second.")
    assert len(stage.asked("alpha")) == 1


def test_an_answer_that_was_lost_at_its_end_is_there_for_a_while(stage: Stage, gate: Gate) -> None:
    with serving() as server:
        run = read_until_text(server)
        gate.set()
        until(lambda: server.registry.find(run).ended)  # type: ignore[union-attr]
        lost = server.stream()
        anew = server.ask()
    assert "".join(text for kind, text in lost if kind == "text") == "First second."
    assert anew.headers["x-request-id"] != run
    assert len(stage.asked("alpha")) == 2


def test_equal_requests_at_one_moment_are_runs_of_their_own(stage: Stage, gate: Gate) -> None:
    with serving() as server, ThreadPoolExecutor() as pool:
        pending = [pool.submit(server.ask) for _ in range(3)]
        until(lambda: len(stage.asked("alpha")) == 3)
        again = [pool.submit(ask_with, server, {"x-stainless-retry-count": "1"}) for _ in range(3)]
        until(lambda: [len(served.readers) for served in server.registry.going_on] == [2, 2, 2])
        gate.set()
        runs = [
            {future.result().headers["x-request-id"] for future in sent}
            for sent in (pending, again)
        ]
    assert len(runs[0]) == 3
    assert runs[0] == runs[1]


def ask_with(server: Serving, headers: dict[str, str], question: str = "Why?") -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/chat/completions",
        json={"question": question},
        headers=headers,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("header", "first", "second", "resend", "runs"),
    [
        ("idempotency-key", "one", "one", 60.0, 1),
        ("thread-id", "one", "one", 0.0, 1),
        ("thread-id", "one", "two", 0.0, 2),
        ("x-claude-code-session-id", "one", "one", 0.0, 1),
        ("x-session-id", "one", "one", 0.0, 1),
        ("x-session-id", "one", "one", 60.0, 2),
        ("x-stainless-retry-count", "0", "0", 0.0, 2),
    ],
)
def test_a_request_sent_again_is_joined_while_its_first_reader_is_there(
    stage: Stage, gate: Gate, header: str, first: str, second: str, resend: float, runs: int
) -> None:
    with serving() as server, ThreadPoolExecutor() as pool:
        hub = server.registry
        hub.limits.resend = resend
        pending = [pool.submit(ask_with, server, {header: first})]
        until(lambda: hub.going_on)
        pending.append(pool.submit(ask_with, server, {header: second}))
        until(lambda: sum(len(served.readers) for served in hub.going_on) == 2)
        gate.set()
        answers = [future.result() for future in pending]
    assert len({answer.headers["x-request-id"] for answer in answers}) == runs
    assert [answer.json()["text"] for answer in answers] == ["First second."] * 2


def test_a_run_that_failed_is_tried_anew(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, grace=0.0)
    stage.models["alpha"] = refuses(400)
    stage.models["beta"] = refuses(400)
    with serving() as server:
        assert server.ask().status_code == 400
        stage.models["alpha"] = Gate().script
        run = read_until_text(server)
        until(lambda: server.registry.find(run).ended)  # type: ignore[union-attr]
        stage.models["alpha"] = says("Because.")
        again = ask_with(server, {"x-stainless-retry-count": "1"})
    assert (again.status_code, again.json()["text"]) == (200, "Because.")


def test_a_run_that_nobody_reads_is_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, grace=0.0)
    stage.models["alpha"] = Gate().script
    with serving() as server:
        run = read_until_text(server)
        assert stage.asked("alpha")[0].closed.wait(30)
        until(lambda: server.registry.find(run).ended)  # type: ignore[union-attr]
    assert TraceStore(stage.traces).ended(run).error.kind == "cancelled"  # type: ignore[union-attr]


def test_requests_wait_for_their_turn_and_too_many_are_refused(
    stage: Stage, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, queue=1)
    monkeypatch.setenv("CONDUCTOR_LLM_SERVE_PARALLEL", "1")
    with serving() as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.ask, "One?")
        until(lambda: stage.asked("alpha"))
        second = pool.submit(server.ask, "Two?")
        until(lambda: len(server.registry.going_on) == 2)
        third = server.ask("Three?")
        assert len(stage.asked("alpha")) == 1
        gate.set()
        assert [future.result().status_code for future in (first, second)] == [200, 200]
    assert (third.status_code, third.json()["error"]["code"], third.headers["retry-after"]) == (
        429,
        "busy",
        "5",
    )


def test_who_sends_many_requests_does_not_keep_others_waiting(
    stage: Stage, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_SERVE_PARALLEL", "1")
    keys = {
        name: stage.inside("serve", "keys", "add", name).out.split()[-1] for name in ("many", "few")
    }
    with serving() as server, ThreadPoolExecutor() as pool:
        futures = []
        for count, name in enumerate(("many", "many", "many", "many", "few"), start=1):
            headers = {"authorization": f"Bearer {keys[name]}"}
            futures.append(pool.submit(ask_with, server, headers, question=f"Why {name}?"))
            until(lambda count=count: len(server.registry.going_on) == count)  # type: ignore[misc]
        gate.set()
        assert [future.result().status_code for future in futures] == [200] * 5
    assert ["few" in request.body.decode() for request in stage.asked("alpha")].index(True) == 2


def test_silence_is_filled_with_signs_of_life(gate: Gate) -> None:
    pieces = []
    with serving() as server:
        server.registry.limits.heartbeat = 0.05
        with server.open() as response:
            for line in response.iter_lines():
                pieces.append(json.loads(line))
                if pieces.count(["heartbeat", ""]) == 3:
                    gate.set()
    assert (pieces[0], pieces[-1]) == (["begin", ""], ["end", "First second."])


def long_answer(server: Serving, gate: Gate) -> tuple[httpx.Response, bytes]:
    server.registry.limits.heartbeat = 0.05
    url = f"{server.url}/v1/chat/completions"
    body = b""
    with httpx.stream("POST", url, json={"question": "Why?"}, timeout=30) as response:
        for piece in response.iter_raw():
            body += piece
            if body.count(b"\n") >= 2:
                gate.set()
    return response, body


def test_a_whole_answer_that_takes_long_begins_with_line_ends(gate: Gate) -> None:
    with serving() as server:
        response, body = long_answer(server, gate)
    assert body.startswith(b"\n\n")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["text"] == "First second."
    assert json.loads(body)["run"] == response.headers["x-request-id"]


def test_an_error_after_the_line_ends_has_the_form_of_the_api(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()

    async def script(_: SeenRequest, wire: Wire) -> None:
        await wire.head()
        await gate.opened(wire)
        await wire.frames(delta("Half of "))
        wire.cut()

    stage.models["alpha"] = script
    stage.models["beta"] = script
    with serving() as server:
        response, body = long_answer(server, gate)
        monkeypatch.setattr(PlainEncoder, "whole", fail)
        gate = Gate()
        stage.models["alpha"] = gate.script
        other, fault = long_answer(server, gate)
    assert (response.status_code, json.loads(body)["error"]["code"]) == (200, "workers_failed")
    assert (other.status_code, json.loads(fault)["error"]["code"]) == (200, "internal_error")
    assert "a prompt" not in caplog.text


def fail(*_: object) -> bytes:
    raise ValueError("a prompt")


@pytest.mark.parametrize("broken", ["text", "end", "heartbeat"])
def test_a_stream_whose_encoder_fails_has_an_end(
    stage: Stage,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: str,
) -> None:
    monkeypatch.setattr(PlainEncoder, broken, fail)
    with serving() as server:
        if broken == "heartbeat":
            server.registry.limits.heartbeat = 0.05
        else:
            gate.set()
        pieces = server.stream()
    assert pieces[-1] == ("failed", "internal_error")
    logged = [
        record.getMessage()
        for record in caplog.records
        if "cannot be written" in record.getMessage()
    ]
    assert len(logged) == 1
    assert "ValueError at test_run_registry.py:" in logged[0]
    assert "a prompt" not in caplog.text


def test_an_encoder_that_cannot_tell_its_failure_is_replaced(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[PlainEncoder]()

    def encoder(*_: object) -> PlainEncoder:
        made.append(PlainEncoder())
        if len(made) == 1:
            monkeypatch.setattr(made[0], "text", fail)
            monkeypatch.setattr(made[0], "failed", fail)
        return made[-1]

    monkeypatch.setattr(PlainApi, "encoder", encoder)
    stage.models["alpha"] = says("Because.")
    with serving() as server:
        assert server.stream()[-1] == ("failed", "internal_error")


@pytest.fixture
def started(stage: Stage) -> Iterator[tuple[str, Popen[bytes]]]:
    with stage.start("serve", "--port", "0") as command:
        yield address_of(command), command
        command.kill()


def test_a_server_that_ends_lets_running_requests_end(
    stage: Stage, gate: Gate, started: tuple[str, Popen[bytes]]
) -> None:
    url, command = started
    with ThreadPoolExecutor() as pool:
        pending = pool.submit(httpx.post, f"{url}/v1/chat/completions", json=QUESTION, timeout=30)
        until(lambda: stage.asked("alpha"))
        # One that comes before the server has seen the signal is answered, too
        stage.models["alpha"] = says("Another answer.")
        command.send_signal(signal.SIGTERM)
        until(
            lambda: (
                httpx.post(f"{url}/v1/chat/completions", json=QUESTION, timeout=30).status_code
                == 503
            )
        )
        gate.set()
        assert pending.result().json()["choices"][0]["message"]["content"] == "First second."
    assert command.wait(60) == 128 + signal.SIGTERM


def test_a_second_signal_ends_at_once(stage: Stage, started: tuple[str, Popen[bytes]]) -> None:
    url, command = started
    stage.models["alpha"] = Gate().script
    body = {**QUESTION, "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=30) as response:
        lines = response.iter_lines()
        next(line for line in lines if "First" in line)
        command.send_signal(signal.SIGINT)
        time.sleep(0.2)
        command.send_signal(signal.SIGINT)
        rest = "\n".join(lines)
    assert '"error"' in rest
    assert command.wait(60) == 128 + signal.SIGINT
    assert TraceStore(stage.traces).ended(response.headers["x-request-id"]).error is not None


def test_without_a_port_a_free_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = process.listen_at("127.0.0.1", 0)
    number = listening.getsockname()[1]
    monkeypatch.setattr(process, "PORT", number)
    other = process.listen_at("127.0.0.1", None)
    assert other.getsockname()[1] != number
    with pytest.raises(UsageError, match=f"127.0.0.1:{number}"):
        process.listen_at("127.0.0.1", number)
    listening.close()
    other.close()


def take_turns(turns: FairQueue, owners: str) -> list[QueuePlace]:
    turns_taken = [turns.take(owner) for owner in owners]
    assert None not in turns_taken
    return [turn for turn in turns_taken if turn is not None]


def test_owners_take_turns_and_each_is_served_in_its_own_order() -> None:
    turns = FairQueue(1, 100)
    owners = ""
    running, *waiting = take_turns(turns, "aaaabbc")
    while waiting:
        turns.leave(running)
        running = next(turn for turn in waiting if turn.granted.is_set())
        waiting.remove(running)
        owners += running.owner
    assert owners == "abcaba"


def test_a_place_is_given_back_by_who_leaves_before_its_turn() -> None:
    turns = FairQueue(1, 100)
    running, first, second = take_turns(turns, "aab")
    turns.leave(first)
    turns.leave(running)
    assert second.granted.is_set()
    turns.leave(second)
    assert turns.waiting == 0
    assert take_turns(turns, "c")[0].granted.is_set()


def test_one_owner_alone_cannot_fill_the_queue() -> None:
    turns = FairQueue(1, 8)
    take_turns(turns, "a" * 7)
    assert turns.take("a") is None
    assert turns.waiting == 6
    take_turns(turns, "bc")
    assert turns.take("d") is None


class Request(ClientRequest):
    """A request that can be watched."""

    __slots__ = ("__weakref__",)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Request]]:
    references = list[weakref.ref[Request]]()
    api = PlainApi()
    parse = api.parse

    def watched(body: dict[str, object]) -> Request:
        read = parse(body)
        request = Request(
            **{name: getattr(read, name) for name in ClientRequest.__dataclass_fields__}
        )
        references.append(weakref.ref(request))
        return request

    monkeypatch.setattr(api, "parse", watched)
    monkeypatch.setitem(apis.APIS, "/v1/chat/completions", api)
    return references


def test_nothing_of_a_request_is_held_after_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, requests: list[weakref.ref[Request]]
) -> None:
    limited(monkeypatch, grace=0.0)
    with serving() as server:
        assert [server.ask(model=name).status_code for name in ("conductor", "nobody")] == [
            200,
            404,
        ]
        stage.models["alpha"] = refuses(400)
        stage.models["beta"] = refuses(400)
        assert server.ask("Fail?").status_code == 400
        stage.models["alpha"] = Gate().script
        run = read_until_text(server)
        until(lambda: server.registry.find(run).ended)  # type: ignore[union-attr]

        def all_gone() -> bool:
            gc.collect()
            return not any(request() for request in requests)

        until(all_gone)
    assert len(requests) == 4


def test_a_server_remembers_its_newest_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_starter, "MAX_STARTED", 2)
    with serving() as server:
        ids = [server.ask().headers["x-request-id"] for _ in range(3)]
        assert list(server.registry.starter.started) == ids[1:]


def test_what_is_kept_of_ended_runs_is_bounded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_registry, "MAX_KEPT", 2500)
    stage.models["alpha"] = says("a" * 400)
    with serving() as server:
        ids = [server.ask().headers["x-request-id"] for _ in range(4)]
        registry = server.registry
        kept = registry._by_id
        # A client has its answer a moment before the run is counted among those that ended
        until(lambda: 1200 * len(kept) <= registry._kept <= 2500, "the end of the last run")
        assert list(kept) == ids[-len(kept) :]


def test_no_run_is_joined_or_ended_by_reading_through_those_that_are_kept() -> None:
    """The instructions of the registry are counted, for ten kept runs and for a thousand."""
    few = asyncio.run(count_instructions(kept=10))
    assert asyncio.run(count_instructions(kept=1000)) == few


async def count_instructions(*, kept: int) -> int:
    """What it takes to join, to begin and to end runs of equal requests beside those kept."""
    registry = RunRegistry(RunStarter(ServerOptions(flags={})))

    async def answer(run: str) -> ServedJob:
        raise AnsweredAtOnce("Hi.")

    async def run_to_end() -> None:
        served = registry.begin("key", answer, ResponseStream(), principal=Principal())
        assert served.task is not None
        reader = registry.open(served)
        await served.task
        await asyncio.sleep(0)
        registry.close(reader, delivered=True)

    for _ in range(kept):
        await run_to_end()
    count = 0

    def watch(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != run_registry.__file__:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        assert registry.join("key") is None
        assert registry.join("key", in_session=True) is None
        assert registry.join("key", is_retry=True) is not None
        await run_to_end()
    finally:
        sys.settrace(before)
    return count
