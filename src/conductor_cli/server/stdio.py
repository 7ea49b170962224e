"""Standard input and output as the transport of an MCP server: one JSON-RPC message per line, each of bounded size.

The SDK's transport does the rest; while it serves, descriptor 1 leads to standard error, so that nothing in this
process can print into the protocol.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of one message, as of a file that a question attaches. More is a mistake: no worker reads it."""

_PIECE: Final = 1 << 20
_ENDS: Final = 4096
"""Bytes at either end of a message that is too large in which its id is looked for."""

_HELD: Final = 2
"""Messages that are read and not yet handled."""

_ID: Final = rb'"id"\s*:\s*(\d{1,18}|"[^"\\\\]{1,200}")'
_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[a-z/]+"\s*,\s*)?' + _ID)
_LAST_ID: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
"""Codes of JSON-RPC 2.0."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A message that was dropped. `id` is that of the request, None where it was not found."""

    id: int | str | None
    calls_tool: bool = False


class Lines:
    """The lines of a file, read on a thread of its own, which the end of the process does not wait for."""

    def __init__(self, file: int, largest: int = LARGEST) -> None:
        self._file = file
        self._largest = largest
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | TooLarge | None] = asyncio.Queue()
        self._room = threading.Semaphore(_HELD)
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes | TooLarge]:
        while (line := await self._lines.get()) is not None:
            self._room.release()
            yield line

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            with suppress(OSError):
                self._read_lines()
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _read_lines(self) -> None:
        line, head, size = bytearray(), b"", 0
        while piece := os.read(self._file, _PIECE):
            *whole, rest = piece.split(b"\n")
            for number, part in enumerate((*whole, rest)):
                size += len(part)
                line += part
                if size > self._largest:
                    head = head or bytes(line[:_ENDS])
                    del line[:-_ENDS]
                if number < len(whole):
                    self._give(_too_large(head, bytes(line)) if head else bytes(line))
                    line, head, size = bytearray(), b"", 0

    def _give(self, line: bytes | TooLarge) -> None:
        if isinstance(line, bytes) and not line.strip():
            return
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


def _too_large(head: bytes, tail: bytes) -> TooLarge:
    """What is known of a message by its two ends: programs write the id at the front or at the back."""
    found = _FIRST_ID.match(head) or _LAST_ID.search(tail)
    text = found[1].decode("utf-8", "replace") if found is not None else ""
    request = text.strip('"') if text.startswith('"') else int(text) if text else None
    return TooLarge(id=request, calls_tool=b'"tools/call"' in head)


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's two streams over this process's stdin and stdout; children find an empty stdin.

    Messages that are too large or no JSON-RPC are answered here.
    """
    import anyio
    from mcp.server.stdio import stdio_server

    lines = Lines(_take_stdin())
    # The SDK claims stdout; its reader of stdin has no bound for a line, so it is given nothing to read.
    async with stdio_server(stdin=cast("Any", _nothing())) as (_, write):
        send, receive = anyio.create_memory_object_stream[Any](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read_messages, lines, send, write)
            yield receive, write
            tasks.cancel_scope.cancel()


def _take_stdin() -> int:
    """A descriptor of standard input that only this process has; 0 leads to the null device from now on."""
    private = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return private


async def _nothing() -> AsyncIterator[str]:
    nothing: tuple[str, ...] = ()
    for line in nothing:
        yield line


async def _read_messages(lines: Lines, send: Any, write: Any) -> None:  # noqa: ANN401 - streams of the SDK
    """Pass on each message. At the end of the input the stream is closed, which ends the server."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    async with send:
        async for line in lines:
            if isinstance(line, TooLarge):
                await write.send(_refusal(line))
                continue
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                await write.send(_error(None, PARSE_ERROR, "the line is not a JSON-RPC message"))
                continue
            await send.send(SessionMessage(message))


def _refusal(line: TooLarge) -> SessionMessage:
    """The answer to a message that is too large; to a call of a tool it is one that the client's model reads."""
    from mcp.shared.message import SessionMessage
    from mcp_types import CallToolResult, JSONRPCResponse, TextContent

    text = f"the message is larger than {LARGEST >> 20} MiB: give less text"
    if line.id is None or not line.calls_tool:
        return _error(line.id, INVALID_REQUEST, text)
    result = CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
    data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=line.id, result=data))


def _error(request: int | str | None, code: int, message: str) -> SessionMessage:
    from mcp.shared.message import SessionMessage
    from mcp_types import ErrorData, JSONRPCError

    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=code, message=message)))
