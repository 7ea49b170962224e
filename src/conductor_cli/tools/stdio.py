"""A server of tools as a program: started with few variables, bounded in what it may write, ended with its children.

The SDK has a transport of its own for this; it takes up to six seconds to end a program that ignores its end, reads
lines of any length, and leaves standard error to whoever owns it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from conductor_cli.core.formatting import format_count
from conductor_cli.core.sanitize import one_line

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

LONGEST_MESSAGE: Final = 16 << 20
"""Bytes of one message. A program that sends a longer one is ended."""
MOST_GARBAGE: Final = 1000
"""Lines that are no message, such as a program's own remarks. After so many of them it is ended."""
KEPT_STDERR: Final = 4096
"""Bytes of standard error that are kept, for the reason why a program ended."""
GRACE: Final = 0.3
"""Seconds that a program has to end by itself after its input ends, and again after SIGTERM."""


class ServerProgram:
    """One program that serves tools. `problem` says why it cannot be used any more; empty while it can."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._env = env
        self._stderr = b""
        self._stderr_ended = asyncio.Event()
        self.problem = ""

    @asynccontextmanager
    async def transport(self) -> AsyncGenerator[TransportStreams, None]:
        """The program's messages in both directions. Raises `OSError` where it cannot be started."""
        import anyio
        from mcp.client.stdio import get_default_environment
        from mcp.shared.message import SessionMessage

        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env={**get_default_environment(), **self._env},
            start_new_session=sys.platform != "win32", limit=LONGEST_MESSAGE,
        )  # fmt: skip
        to_session, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, from_session = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            assert process.stdout is not None
            garbage = 0
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with to_session:
                    while line := await self._next_line(process.stdout):
                        message = _parse(line)
                        garbage += isinstance(message, Exception)
                        if garbage > MOST_GARBAGE:
                            self.problem = f"it wrote {format_count(garbage, 'line')} that are no message"
                            return
                        await to_session.send(message)

        async def write() -> None:
            assert process.stdin is not None
            async with from_session:
                async for message in from_session:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    try:
                        process.stdin.write(text.encode() + b"\n")
                        await process.stdin.drain()
                    except (OSError, RuntimeError):  # RuntimeError: the pipe is closed
                        return

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                group.start_soon(write)
                group.start_soon(self._read_stderr, process)
                try:
                    yield read_stream, write_stream
                finally:
                    with anyio.CancelScope(shield=True):
                        await end_process(process)
                    group.cancel_scope.cancel()
        finally:
            kill_group(process)
            _close_pipes(process)
            for stream in (to_session, read_stream, write_stream, from_session):
                stream.close()

    async def _next_line(self, stdout: asyncio.StreamReader) -> bytes:
        """The next line; empty at the end, or where the program is not read any further."""
        try:
            line = await stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._stderr_ended.wait()
            self.problem = self.problem or f"it has ended{self._last_words()}"
            return b""
        except asyncio.LimitOverrunError:
            self.problem = f"it sent a message of more than {LONGEST_MESSAGE >> 20} MiB"
            return b""
        except OSError as error:
            self.problem = f"it cannot be read: {error.strerror}"
            return b""
        return line

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while piece := await process.stderr.read(KEPT_STDERR):
            self._stderr = (self._stderr + piece)[-KEPT_STDERR:]
        self._stderr_ended.set()

    def _last_words(self) -> str:
        lines = [one_line(line) for line in self._stderr.decode("utf-8", "replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "")
        return f": {last:.200}" if last else ""


def _parse(line: bytes) -> SessionMessage | Exception:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError) as error:
        return error


async def end_process(process: asyncio.subprocess.Process) -> None:
    """End a program and all that it has started, within about twice `GRACE`."""
    if process.stdin is not None:
        with suppress(OSError, RuntimeError):
            process.stdin.close()
    if not await _ended(process):
        _signal_group(process, signal.SIGTERM)
        await _ended(process)
    kill_group(process)
    await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> bool:
    """Whether the program ends within `GRACE`. What it has started may hold its pipes open, so those do not count."""
    loop = asyncio.get_running_loop()
    due = loop.time() + GRACE
    while process.returncode is None and loop.time() < due:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.005)
    return process.returncode is not None


def kill_group(process: asyncio.subprocess.Process) -> None:
    """Kill the program and all that it has started."""
    _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close our ends of the pipes, also of those that something which left the group holds open."""
    # No public name reaches the transport; the SDK does the same.
    transport = getattr(process, "_transport", None)
    with suppress(PermissionError):
        if transport is not None:
            transport.close()


def _signal_group(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, number)
