"""`conductor mcp` as a process.

Its protocol, its end, and the forms and the example of docs/mcp.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.core.trace import Trace
from conductor_cli.server.mcp import handlers, process, tools
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import SOURCE, TWO, Stage, says, stalls
from tests.server.mcp.clients import Heard, RawClient, answer_of, process_client, run_of, text_of
from tests.server.plain_api import until

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated as of")


def stored(stage: Stage) -> list[Trace]:
    store = TraceStore(stage.traces)
    return [store.trace(run) for run in store.runs()]


def test_a_client_gets_an_answer_and_hears_of_each_step(stage: Stage) -> None:
    stage.plan = TWO
    heard = Heard()

    async def talk() -> None:
        async with process_client(stage, mode="legacy") as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["ask", "plan", "run", "trace"]
            result = await client.call_tool(
                "ask", {"question": "Why?"}, progress_callback=heard.on_progress
            )
            assert text_of(result).startswith("beta answers\n[run ")
            assert "2 steps by alpha, beta" in text_of(result)
            assert run_of(result) == stored(stage)[0].run

    asyncio.run(talk())
    shares, lines = zip(*heard.progress, strict=True)
    assert list(shares) == sorted(set(shares))
    assert shares[-1] == 1.0
    # A step may start before the rest of the plan is there.
    for line in (
        "step 1 planned: alpha",
        "step 1( of 2)? started: alpha",
        "step 2 of 2 finished: beta",
        "finished",
    ):
        assert any(re.match(line, heard_line) for heard_line in lines), lines


def test_a_cancelled_call_ends_its_workers_and_the_server_goes_on(stage: Stage) -> None:
    stage.models["alpha"] = stalls("half an")

    async def talk() -> None:
        async with process_client(stage, mode="auto") as client:
            call = asyncio.create_task(client.call_tool("ask", {"question": "Why?"}))
            await asyncio.to_thread(wait_until_asked, stage)
            call.cancel()
            assert await asyncio.to_thread(stage.asked("alpha")[0].closed.wait, 30)
            stage.models["alpha"] = says("all of it")
            result = await client.call_tool("ask", {"question": "And now?"})
            assert answer_of(result) == "all of it"

    asyncio.run(talk())
    newest, cancelled = stored(stage)
    assert (newest.state, cancelled.ended) == ("finished", True)
    assert cancelled.error is not None
    assert cancelled.error.kind == "cancelled"


def wait_until_asked(stage: Stage, times: int = 1) -> None:
    until(lambda: len(stage.asked("alpha")) >= times)


def asking(stage: Stage, *questions: str) -> RawClient:
    """A client whose questions a worker has begun to answer, and does not end."""
    stage.models["alpha"] = stalls("half an")
    client = RawClient(stage)
    client.initialize()
    for number, question in enumerate(questions, start=1):
        client.call("ask", {"question": question}, number)
    wait_until_asked(stage, len(questions))
    return client


@pytest.mark.parametrize(
    "leave", [RawClient.close, RawClient.vanish], ids=["ends its input", "vanishes"]
)
def test_a_client_that_leaves_ends_server_and_runs(
    stage: Stage, leave: Callable[[RawClient], object]
) -> None:
    assert leave(asking(stage, "Why?", "How?")) == (0, "")
    assert {trace.question.text for trace in stored(stage)} == {"Why?", "How?"}
    assert all(trace.ended and trace.error is not None for trace in stored(stage))


def test_a_client_that_does_not_read_holds_up_neither_run_nor_end(stage: Stage) -> None:
    client = RawClient(stage)
    client.initialize()
    for number in range(1, 30):
        client.send("tools/list", {}, number)
    client.call("ask", {"question": "Why?"}, 100)
    wait_until_asked(stage)
    until(lambda: has_finished(stage))
    client.close_input()
    assert client.process.wait(60) == 0
    client.process.stdin = None
    client.process.communicate()


def has_finished(stage: Stage) -> bool:
    with suppress(UsageError):  # its first line is being written
        return [trace.state for trace in stored(stage)] == ["finished"]
    return False


def test_a_signal_ends_the_server_and_keeps_the_trace(stage: Stage) -> None:
    client = asking(stage, "Why?")
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(30) == 143
    assert stored(stage)[0].ended
    client.process.communicate()


def test_bad_messages_are_answered_and_do_no_harm(stage: Stage) -> None:
    client = RawClient(stage)
    assert client.initialize()["result"]["serverInfo"]["name"] == "conductor"
    for line in (b"{", b"[]", b"\xff\xfe", b'{"jsonrpc": "2.0"}', b"[" * 100_000):
        client.write(line)
        assert client.answer(None)["error"]["code"] == -32700, line[:20]
    wrong = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": [1]}'
    client.write(wrong)
    assert client.answer(7)["error"]["code"] == -32700  # whoever asked does not wait
    client.write(b'{"jsonrpc": "2.0", "id": 7, "result": [1]}')
    assert client.answer(None)["error"]["code"] == -32700  # nobody here asked this 7
    client.write(b"")
    client.send("no/such", {}, 1)
    assert client.answer(1)["error"]["code"] == -32601
    client.send("tools/call", {"arguments": {}}, 2)
    assert client.answer(2)["error"]["code"] == -32602
    large = "x" * (50 << 20)
    client.call("ask", {"question": large}, 3)
    assert "larger than 16 MiB" in client.answer(3)["result"]["content"][0]["text"]
    client.write(
        b'{"method":"tools/call","params":{"name":"ask","arguments":{"question":"%s"}},"jsonrpc":"2.0","id":4}'
        % large.encode()
    )
    assert client.answer(4)["result"]["isError"]
    client.call("ask", {"question": "Why?"}, 5)
    assert client.answer(5)["result"]["content"][0]["text"] == "alpha answers"
    assert peak_memory(client.process.pid) < 350
    assert client.close() == (0, "")


def test_a_call_with_the_id_of_another_one_costs_nothing(stage: Stage) -> None:
    """Cancelling that id would end only one of them."""
    client = asking(stage, "Why?")
    ids = (1, "1")
    for request in ids:
        message = {"jsonrpc": "2.0", "id": request, "method": "tools/call"}
        params = {"name": "ask", "arguments": {"question": "How?"}}
        client.write(json.dumps(message | {"params": params}).encode())
        error_text = client.answer(None)["error"]["message"]
        assert error_text == "another request with the id 1 is not answered yet"
    client.send("notifications/cancelled", {"requestId": 1})
    assert stage.asked("alpha")[0].closed.wait(30)
    for request in (2, 2):  # it is free again once the answer is out
        client.call("trace", {}, request)
        assert "Why?" in client.answer(request)["result"]["content"][0]["text"]
    assert client.close() == (0, "")
    assert len(stage.asked("alpha")) == 1


@pytest.mark.parametrize("request_id", ["1.5", "null", "[1]", '{"a": 1}', "true"])
def test_a_request_whose_id_is_of_another_type_is_answered(stage: Stage, request_id: str) -> None:
    client = RawClient(stage)
    client.initialize()
    client.write(f'{{"jsonrpc": "2.0", "id": {request_id}, "method": "tools/list"}}'.encode())
    error = client.answer(None)["error"]
    assert error == {
        "code": -32600,
        "message": "the id of a request must be a text or a whole number",
    }
    assert client.close() == (0, "")


def peak_memory(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text("utf-8")
    return next(
        int(line.split()[1]) // 1000 for line in status.splitlines() if line.startswith("VmHWM")
    )


def test_broken_settings_end_the_server_at_once(stage: Stage) -> None:
    stage.config.write_text("[limits]\nstepps = 3\n")
    assert stage.ends(3, "mcp", told="stepps").out == ""


PAGE: Final = (Path(__file__).resolve().parents[3] / "docs/mcp.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_form_starts_the_command() -> None:
    claude, code = map(json.loads, blocks("json"))
    (codex,) = map(tomllib.loads, blocks("toml"))
    forms: list[dict[str, Any]] = [
        claude["mcpServers"]["conductor"],
        code["servers"]["conductor"],
        codex["mcp_servers"]["conductor"],
    ]
    assert [(form["command"], form["args"]) for form in forms] == [("conductor", ["mcp"])] * 3
    lines = re.findall(r"(?:claude|codex) mcp add [^\n`]*", PAGE)
    assert len(lines) == 2
    assert all(shlex.split(line)[-3:] == ["--", "conductor", "mcp"] for line in lines)


def test_the_example_runs(tmp_path: Path) -> None:
    """The client of the page gets an answer from the demo models."""
    (example,) = blocks("python")
    command = tmp_path / "conductor"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m conductor_cli "$@"\n')
    command.chmod(0o755)
    parameters = f"env={{'PYTHONPATH': {str(SOURCE)!r}}}, command={str(command)!r}"
    code = example.replace('command="conductor"', parameters)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.stdout == "SIRAP\n", done.stderr


def test_the_bounds_are_those_of_the_code() -> None:
    assert (process.MAX_MESSAGE, tools.MAX_ATTACHED_FILES, tools.MAX_GIVEN_STEPS) == (
        16 << 20,
        100,
        20,
    )
    assert (handlers.MAX_RESULT_TEXT, handlers.MAX_CALLS) == (100_000, 16)
    assert all(
        limit in PAGE
        for limit in ("16 MiB", "100 files", "20 steps", "100,000 characters", "Sixteen calls")
    )
