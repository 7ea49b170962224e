"""MCP clients for tests.

The SDK's own over a real process or in this one, and a pipe for what no SDK would send.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters

from conductor_cli.server.mcp.handlers import Handlers
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.runs.run_starter import RunStarter
from tests.cli.stage import COMMAND, Stage

if TYPE_CHECKING:
    from mcp_types import CallToolResult


@dataclass
class Heard:
    """What a client was told while it waited."""

    progress: list[tuple[float, str]] = field(default_factory=list)

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        assert total == 1.0
        self.progress.append((progress, message or ""))


def process_client(stage: Stage, *arguments: str, mode: str = "legacy") -> Client:
    program, *words = COMMAND
    server = StdioServerParameters(
        command=program, args=[*words, "mcp", *arguments], env=stage.environ()
    )
    return Client(server, mode=mode)


@asynccontextmanager
async def inside_client(**options: Any) -> AsyncIterator[Client]:
    starter = RunStarter(ServerOptions(**{"flags": {}, **options}))
    try:
        server = Handlers(starter, "0").server
        async with Client(server, mode="legacy") as client:
            yield client
    finally:
        await starter.close()


def text_of(result: CallToolResult) -> str:
    return "\n".join(getattr(part, "text", "") for part in result.content)


def answer_of(result: CallToolResult) -> str:
    assert not result.is_error
    return getattr(result.content[0], "text", "")


def run_of(result: CallToolResult) -> str:
    match = re.search(r"(?:\[run |run=)([\w-]+)", text_of(result))
    assert match is not None
    return match[1]


class RawClient:
    """Writes lines to `conductor mcp`, and reads its lines, each of which must be JSON."""

    def __init__(self, stage: Stage, *arguments: str, **streams: Any) -> None:
        self.process = stage.start("mcp", *arguments, stdin=subprocess.PIPE, **streams)

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        view = memoryview(line + b"\n")
        while view:  # an unbuffered pipe takes a part of it
            view = view[self.process.stdin.write(view) :]

    def send(
        self, method: str, params: Mapping[str, Any] | None = None, request: int | None = None
    ) -> None:
        message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.write(json.dumps(message | ({"id": request} if request is not None else {})).encode())

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def answer(self, request: int | str | None) -> Any:
        while True:
            message = self.read()
            if "method" not in message and message["id"] == request:
                return message

    def initialize(self) -> Any:
        client = {"name": "raw", "version": "0"}
        self.send(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client},
            0,
        )
        answer = self.answer(0)
        self.send("notifications/initialized")
        return answer

    def call(self, name: str, arguments: Mapping[str, Any], request: int) -> None:
        self.send("tools/call", {"name": name, "arguments": arguments}, request)

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, (err or b"").decode()

    def vanish(self) -> tuple[int, str]:
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        self.close_input()
        with process.stderr:
            return process.wait(60), process.stderr.read().decode()
