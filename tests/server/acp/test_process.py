"""`conductor acp` as a process: what it writes, how it ends, and lines that no editor should send."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from tests.cli.stage import Stage, finished, stalls, stopped


class RawEditor:
    """Writes lines to `conductor acp`, and reads its lines, each of which must be JSON."""

    def __init__(self, stage: Stage, *arguments: str) -> None:
        self.process = stage.start("acp", *arguments, stdin=subprocess.PIPE)
        self.numbers = 0

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(line + b"\n")
        while view:  # an unbuffered pipe takes a part of it
            view = view[self.process.stdin.write(view) :]

    def send(self, method: str, **params: Any) -> int:
        self.numbers += 1
        message = {"jsonrpc": "2.0", "id": self.numbers, "method": method, "params": params}
        self.write(json.dumps(message).encode())
        return self.numbers

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        message: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert message["jsonrpc"] == "2.0"
        return message

    def answer(self, number: int | None) -> dict[str, Any]:
        while True:
            message = self.read()
            if "method" not in message and message["id"] == number:
                return message

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.answer(self.send(method, **params))

    def open(self, stage: Stage) -> str:
        self.call("initialize", protocolVersion=1, clientCapabilities={})
        opened = self.call("session/new", cwd=str(stage.home), mcpServers=[])
        return str(opened["result"]["sessionId"])

    def ask(self, session: str) -> int:
        return self.send(
            "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Why?"}]
        )


def test_an_editor_gets_answers_and_errors_and_nothing_else_on_stdout(stage: Stage) -> None:
    editor = RawEditor(stage)
    session = editor.open(stage)
    assert editor.answer(editor.ask(session))["result"] == {"stopReason": "end_turn"}
    editor.write(b"this is no JSON")
    assert editor.answer(None)["error"]["code"] == -32700
    assert editor.call("session/fly", sessionId=session)["error"]["code"] == -32601
    assert editor.call("session/prompt", sessionId=session)["error"]["code"] == -32602
    halves = [{"type": "text", "text": "half a letter: \ud83d, a whole one: \U0001f600"}]
    number = editor.send("session/prompt", sessionId=session, prompt=halves)
    assert editor.answer(number)["result"] == {"stopReason": "end_turn"}
    sent = stage.asked("alpha")[-1].json["messages"][-1]["content"]
    assert "half a letter: \ufffd, a whole one: \U0001f600" in sent
    unknown = editor.call("session/prompt", sessionId="acp-1", prompt=[])
    assert "there is no session" in unknown["error"]["message"]
    editor.write(b'{"jsonrpc": "2.0", "id": 77, "x": "' + b"x" * (17 << 20) + b'"}')
    assert "larger than 16 MiB" in editor.answer(77)["error"]["message"]
    done = finished(editor.process)
    assert (done.code, done.out) == (0, "")
    assert "Traceback" not in done.err


def test_the_end_of_the_editor_and_a_signal_stop_the_run_and_store_its_end(stage: Stage) -> None:
    stage.models["alpha"] = stalls("It begins")
    for ends, code in ((finished, 0), (stopped, 130)):
        editor = RawEditor(stage)
        editor.ask(editor.open(stage))
        while "It begins" not in str(editor.read()):
            pass
        done = ends(editor.process)
        assert done.code == code, done
        assert "Traceback" not in done.err
        shown = stage.ok("trace", "list", "--json").json
        assert shown[0]["state"] == "cancelled"


def test_the_request_of_a_prompt_can_be_cancelled(stage: Stage) -> None:
    """As the protocol has it for every request; notifications that nobody knows are passed over."""
    stage.models["alpha"] = stalls("It begins")
    editor = RawEditor(stage)
    number = editor.ask(editor.open(stage))
    while "It begins" not in str(editor.read()):
        pass
    for method, request in (
        ("cancel_request", 99),
        ("cancel_request", [number]),
        ("trace", number),
    ):
        params = {"requestId": request}
        line = {"jsonrpc": "2.0", "method": f"$/{method}", "params": params}
        editor.write(json.dumps(line).encode())
    assert editor.call("$/trace")["error"]["code"] == -32601
    line = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": number}}
    editor.write(json.dumps(line).encode())
    assert editor.answer(number)["result"] == {"stopReason": "cancelled"}
    done = finished(editor.process)
    assert (done.code, done.err) == (0, "")


def test_settings_that_cannot_be_read_are_told_before_the_protocol_begins(stage: Stage) -> None:
    stage.config.write_text("[limits]\ncalls = 'many'\n")
    done = stage.fails(3, "acp")
    assert done.out == ""
    assert "limits.calls" in done.err
