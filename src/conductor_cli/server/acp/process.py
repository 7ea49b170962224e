"""`conductor acp` as a process: one editor over standard input and output.

The lines are those of `conductor mcp`, with the same bounds: a thread reads and a thread writes,
and nothing else in this process, nor a child of it, can read from the protocol or print into it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.config.files import chosen_file
from conductor_cli.server.http.process import handle_endings
from conductor_cli.server.mcp.process import Input, Output, take_stream
from conductor_cli.system.event_loop import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from conductor_cli.server.options import ServerOptions

log = logging.getLogger(__name__)


def serve_editor(options: ServerOptions, version: str, *, approves: bool = True) -> int:
    """Serve one editor until it closes standard input, or a signal comes. Returns the exit code.

    Without `approves` no plan is shown before it runs, also where a policy asks for that. Raises
    `ConfigError` where the settings cannot be read.
    """
    options.settings()
    # Each session names its directory, which becomes that of this process
    file = chosen_file(os.environ, options.config)
    if file is not None:
        options = replace(options, config=str(file.absolute()))
    return run_async(_serve(options, version, approves=approves))


async def _serve(options: ServerOptions, version: str, *, approves: bool) -> int:
    from acp.agent.connection import AgentSideConnection

    from conductor_cli.server.acp.agent import EditorAgent

    code = 0

    def end(number: int) -> None:
        nonlocal code
        code = number
        serving.cancel()

    async def serve() -> None:
        output = Output(take_stream(1))
        lines = Input(take_stream(0, os.devnull), output)
        # Its interface has methods that no editor calls of an agent that does not offer them
        offered: Any = agent
        transport = StdioTransport(lines, output, serving.cancel)
        connection = AgentSideConnection(offered, transport, listening=False)
        try:
            await connection.listen()
        finally:
            await agent.close()
            await connection.close()

    agent = EditorAgent(options, version, approves=approves)
    serving = asyncio.create_task(serve())
    handle_endings(end)
    with suppress(asyncio.CancelledError):
        await serving
    return code


CANCEL_REQUEST: Final = "$/cancel_request"
"""The notification that ends a request, which the SDK does not know."""


class StdioTransport:
    """The transport of the SDK over bounded lines. `on_lost` is called once nobody reads any more.

    The SDK's own has no bound for a line, and leaves a request unanswered whose error it cannot
    write as JSON.

    Where the editor ends the request of a prompt, the SDK is told that its session is cancelled,
    which is the same. Others end soon by themselves, and notifications of the protocol that nobody
    here knows may be passed over.
    """

    def __init__(self, lines: Input, output: Output, on_lost: Callable[[], object]) -> None:
        self._lines = aiter(lines)
        self._output = output
        self._on_lost = on_lost
        self._prompted: dict[object, object] = {}  # Sessions by requests that are not answered

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. Raises `ConnectionError` where the editor has closed its end."""
        if "method" not in message:
            self._prompted.pop(message.get("id"), None)
        if message.get("params", message) is None:
            del message["params"]
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)
        try:
            await self._output.write(line.encode("utf-8", "replace").decode() + "\n")
        except OSError as error:
            log.info("the editor has closed standard output")
            self._on_lost()
            raise ConnectionError("the editor has closed standard output") from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message, or None at the end."""
        async for line in self._lines:
            message: dict[str, Any] = json.loads(line)
            method = message.get("method", "")
            params = message.get("params") or {}
            if method == "session/prompt" and "id" in message:
                self._prompted[message["id"]] = params.get("sessionId")
            if not method.startswith("$/") or "id" in message:
                return message
            session = self._session_of(params.get("requestId"))
            if method == CANCEL_REQUEST and session is not None:
                return {**message, "method": "session/cancel", "params": {"sessionId": session}}
        return None

    def _session_of(self, request: object) -> object:
        """Return the session whose prompt a request is; None for another one."""
        if not isinstance(request, int | str):
            return None
        return self._prompted.get(request)

    async def close(self) -> None:
        """Do nothing: nothing waits."""
