"""`conductor mcp` as a process: one client over standard input and output, from its first message to its last.

Standard input and output as the transport of an MCP server: one JSON-RPC message per line, each of bounded size.

While the server runs, descriptor 0 leads to the null device and 1 to standard error, so that nothing in this process,
and no child of it, can read from the protocol or print into it. The SDK's own transport has no bound for a line, drops
what is no message, and does not end while a client does not read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.errors import ConfigError

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

if TYPE_CHECKING:
    from conductor_cli.server.options import ServerOptions
    from conductor_cli.server.runs import Runs


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

GRACE: Final = 1.0
"""Seconds that a client has to read the last messages."""

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


class Output:
    """Writes to a file on a thread of its own, which the end of the process does not wait for."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Write all of it. Raises `OSError`; cancelled, it leaves the thread to write on."""
        done = self._loop.create_future()
        self._waiting.put((data, done))
        await done

    def _write(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            while True:
                data, done = self._waiting.get()
                error: OSError | None = None
                try:
                    rest = memoryview(data)
                    while rest:
                        rest = rest[os.write(self._file, rest) :]
                except OSError as refused:
                    error = refused
                self._loop.call_soon_threadsafe(_settle, done, error)


def _settle(done: asyncio.Future[None], error: OSError | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)


@asynccontextmanager
async def stdio_streams() -> AsyncIterator[tuple[Any, Any]]:
    """The two streams that the SDK's server reads and writes, over this process's stdin and stdout.

    Messages that are too large or no JSON-RPC are answered here. Raises a group of `OSError` where stdout is closed.
    """
    import anyio

    lines, output = Lines(_take(0, os.devnull)), Output(_take(1))
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    written = anyio.Event()

    async def write_messages() -> None:
        async with outgoing:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await output.write(text.encode() + b"\n")
        written.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_messages, lines, incoming, write.clone())
        tasks.start_soon(write_messages)
        yield read, write
        with anyio.move_on_after(GRACE):
            await written.wait()
        tasks.cancel_scope.cancel()


def _take(number: int, instead: str = "") -> int:
    """A descriptor that only this process has for one of the standard streams.

    The stream's own number leads to the file `instead`, or to standard error.
    """
    private = os.dup(number)
    other = os.open(instead, os.O_RDONLY) if instead else os.dup(2)
    os.dup2(other, number)
    os.close(other)
    return private


async def _read_messages(lines: Lines, send: Any, write: Any) -> None:  # noqa: ANN401 - streams of the SDK
    """Pass on each message. At the end of the input the stream is closed, which ends the server."""
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    async with send, write:
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


log = logging.getLogger(__name__)

ENDING: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""The signals that end the server. Windows has no SIGHUP."""


def serve_stdio(options: ServerOptions, version: str) -> int:
    """Serve one client until it closes standard input, or a signal comes. Returns the exit code.

    Raises `ConfigError` where the settings cannot be read, or the extra `tools` is not installed.
    """
    check_sdk()
    from conductor_cli.server.runs import Runs

    runs = Runs(options)
    runs.settings()
    # The revision of 2026 replaces log messages and progress of this form. Clients speak the older revisions.
    warnings.filterwarnings("ignore", message=".*deprecated as of 2026-07-28")
    return asyncio.run(_serve(runs, version))


def check_sdk() -> None:
    """Raise `ConfigError` where the SDK cannot be imported."""
    try:
        import mcp.server.lowlevel.server  # noqa: F401 - whether it can be imported
    except ImportError as error:
        raise ConfigError(
            f"an MCP server needs the package mcp, which cannot be imported: {error}",
            hint='pip install "conductor-llm[tools]"',
        ) from error


async def _serve(runs: Runs, version: str) -> int:
    serving = asyncio.create_task(_serve_client(runs, version))
    code = 0

    def end(number: signal.Signals) -> None:
        nonlocal code
        code = 128 + number
        serving.cancel()

    loop = asyncio.get_running_loop()
    for number in ENDING:
        # A program under nohup ignores SIGHUP, and goes on doing so. Windows has no such handlers.
        with suppress(NotImplementedError, RuntimeError):
            if signal.getsignal(number) != signal.SIG_IGN:
                loop.add_signal_handler(number, end, number)
    try:
        with suppress(asyncio.CancelledError):
            await serving
    finally:
        await runs.close()
    return code


async def _serve_client(runs: Runs, version: str) -> None:
    """Serve the client on standard input and output. One that has closed both has only ended."""
    from conductor_cli.server.mcp.handlers import Handlers

    server = Handlers(runs, version).server
    try:
        async with stdio_streams() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    except* (BrokenPipeError, ConnectionResetError):
        log.info("the client has closed standard output")
