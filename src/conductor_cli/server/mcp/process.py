"""`conductor mcp` as a process, which serves one client over standard input and output.

A line is one JSON-RPC message of bounded size. While the server runs, descriptor 0 leads to
the null device and 1 to standard error, so that nothing in this process, and no child of it, can
read from the protocol or print into it. The SDK's transport gets files of ours, because its own
have no bound for a line, drop what is no message, and do not end while a client does not read.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.json_rpc import find_message_id, without_half_letters
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.http.process import handle_endings
from conductor_cli.system.event_loop import run_async

if TYPE_CHECKING:
    from conductor_cli.server.options import ServerOptions
    from conductor_cli.server.runs.run_starter import RunStarter

log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of one message, as of a file that a question attaches. More is a mistake: no worker reads
it.
"""

# Bytes at either end of a message that is too large in which its id is looked for
_ENDS: Final = 4096


class Output:
    """Writes to a file on a thread of its own, which the end of the process does not wait for."""

    def __init__(self, file: int) -> None:
        self.unanswered = set[str]()  # The ids of requests that are not answered yet
        self._file = file
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        threading.Thread(target=self._write, name="stdout", daemon=True).start()

    async def write(self, text: str) -> None:
        """Write all of it. Raises `OSError`; cancelled, it leaves the thread to write on."""
        head = text[:_ENDS]
        if '"method"' not in head:
            self.unanswered.discard(str(find_message_id(head.encode("utf-8", "replace"), b"")))
        done = self._loop.create_future()
        self._waiting.put((text.encode(), done))
        await done

    async def flush(self) -> None:
        """Do nothing: nothing waits."""

    def _write(self) -> None:
        def settle(done: asyncio.Future[None], error: OSError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            while True:
                content, done = self._waiting.get()
                error: OSError | None = None
                try:
                    rest = memoryview(content)
                    while rest:
                        rest = rest[os.write(self._file, rest) :]
                except OSError as refused:
                    error = refused
                self._loop.call_soon_threadsafe(settle, done, error)


class Input:
    """The messages of a file, read on a thread of its own.

    The end of the process does not wait for it. What is too large or no JSON-RPC is answered on
    `output`.
    """

    def __init__(self, file: int, output: Output) -> None:
        self._file = file
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[tuple[bytes, bytes] | None] = asyncio.Queue()
        self._room = threading.Semaphore(2)  # messages that are read and not yet handled
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield each message. What is none is answered, with its id where that can be read."""
        from mcp_types import (
            JSONRPCNotification,
            JSONRPCRequest,
            jsonrpc_message_adapter,
        )

        while (read := await self._lines.get()) is not None:
            self._room.release()
            line, head = read
            if head:
                await self._output.write(_too_large(head, line))
                continue
            line = without_half_letters(line)
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                error = {"code": -32700, "message": "the line is not a JSON-RPC message"}
                request = None
                if b'"method"' in line:  # a response has the id of another request
                    request = find_message_id(line, line)
                await self._output.write(_line(request, error=error))
                continue
            problem = ""
            if isinstance(message, JSONRPCRequest):
                problem = self._begin(message.id)
            elif isinstance(message, JSONRPCNotification) and _has_id(line):
                problem = "the id of a request must be a text or a whole number"
            if problem:
                await self._output.write(_line(None, error={"code": -32600, "message": problem}))
            else:
                yield line.decode()

    def _begin(self, request: int | str) -> str:
        """Note a request; returns why it cannot be answered, empty where it can.

        With the id of another one neither could be cancelled alone, and both might cost. The SDK
        takes `7` and `"7"` for the same id.
        """
        name = str(request)
        if name in self._output.unanswered:
            return f"another request with the id {one_line(name):.60} is not answered yet"
        self._output.unanswered.add(name)
        return ""

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            with suppress(OSError):
                self._read_lines()
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _read_lines(self) -> None:
        """Give each line; of one that is too large its end, and its beginning beside it."""
        line = bytearray()
        head = b""
        size = 0
        while piece := os.read(self._file, 1 << 20):
            *whole, rest = piece.split(b"\n")
            for number, part in enumerate((*whole, rest)):
                size += len(part)
                line += part
                if size > MAX_MESSAGE:
                    head = head or bytes(line[:_ENDS])
                    del line[:-_ENDS]
                if number < len(whole):
                    if line.strip():
                        self._room.acquire()
                        self._loop.call_soon_threadsafe(self._lines.put_nowait, (bytes(line), head))
                    line = bytearray()
                    head = b""
                    size = 0


def _has_id(line: bytes) -> bool:
    """Return whether a message has an id, of whatever type."""
    return b'"id"' in line and "id" in json.loads(line)


def _too_large(head: bytes, tail: bytes) -> str:
    """Return the answer to a message that is too large.

    To a call of a tool it is one that the client's model reads. Programs write the id at the front
    or at the back.
    """
    request = find_message_id(head, tail)
    text = f"the message is larger than {MAX_MESSAGE >> 20} MiB: give less text"
    if request is None or b'"tools/call"' not in head:
        return _line(request, error={"code": -32600, "message": text})
    return _line(request, result={"content": [{"type": "text", "text": text}], "isError": True})


def _line(request: int | str | None, **fields: Any) -> str:  # noqa: ANN401 - any JSON value
    return json.dumps({"jsonrpc": "2.0", "id": request, **fields}) + "\n"


def serve_stdio(options: ServerOptions, version: str) -> int:
    """Serve one client until it closes standard input, or a signal comes. Returns the exit code.

    Raises `ConfigError` where the settings cannot be read, or the extra `tools` is not installed.
    """
    from conductor_cli.server.runs.run_starter import RunStarter

    starter = RunStarter(options)
    starter.settings()
    # The revision of 2026 replaces log messages and progress of this form. Clients speak the older
    # revisions.
    warnings.filterwarnings("ignore", message=".*deprecated as of 2026-07-28")
    return run_async(_serve(starter, version))


async def _serve(starter: RunStarter, version: str) -> int:
    """Serve the client on standard input and output. One that has closed both has only ended."""
    import anyio
    from mcp.server.stdio import stdio_server

    from conductor_cli.server.mcp.handlers import Handlers

    code = 0

    async def serve() -> None:
        server = Handlers(starter, version).server
        output = Output(take_stream(1))
        files: Any = {"stdin": Input(take_stream(0, os.devnull), output), "stdout": output}
        try:
            with anyio.CancelScope() as scope:
                async with stdio_server(**files) as (read, write):
                    await server.run(read, write, server.create_initialization_options())
                    # The client may not read the last messages
                    scope.deadline = anyio.current_time() + 1.0
        except* (BrokenPipeError, ConnectionResetError):
            log.info("the client has closed standard output")

    def end(number: int) -> None:
        nonlocal code
        code = number
        serving.cancel()

    serving = asyncio.create_task(serve())
    handle_endings(end)
    try:
        with suppress(asyncio.CancelledError):
            await serving
    finally:
        await starter.close()
    return code


def take_stream(number: int, instead: str = "") -> int:
    """Return a descriptor that only this process has for one of the standard streams.

    The stream's own number leads to the file `instead`, or to standard error.
    """
    private = os.dup(number)
    other = os.open(instead, os.O_RDONLY) if instead else os.dup(2)
    os.dup2(other, number)
    os.close(other)
    return private
