"""A server of tools as a program.

Started with few variables, bounded in what it may write, ended with its children.

The SDK has a transport of its own for this; it takes up to six seconds to end a program that
ignores its end, reads lines of any length, and leaves standard error to whoever owns it. Replies
over HTTP are bounded here, too.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from conductor_cli.core.bounded_parsing import has_more_values
from conductor_cli.core.formatting import format_count
from conductor_cli.core.json_rpc import WholeLetters, find_message_id, without_half_letters
from conductor_cli.core.terminal_text import one_line
from conductor_cli.programs.guarded_program import GuardedProgram, can_run_programs
from conductor_cli.programs.network_environment import describe_withheld, network_environment

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from httpx2 import AsyncByteStream
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage


MAX_MESSAGE: Final = 16 << 20  # Bytes of one message. A program that sends a longer one is ended
MAX_VALUES: Final = 250_000  # Of the JSON of one message: each takes time and memory to read
MAX_GARBAGE: Final = 1000
"""Lines that are no message, such as a program's own remarks. After so many of them it is ended."""
GRACE_SECONDS: Final = 0.3
"""Seconds that a program has to end by itself after its input ends. Then it gets SIGTERM, and
SIGKILL after 0.5.
"""
KILL_SECONDS: Final = 0.8
"""Seconds in which the guard has killed what does not end. It goes on by itself where that is too
short.
"""


class ServerProgram:
    """One program that serves tools.

    `problem` says why it cannot be used any more; empty while it can.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        # A plain name must stay one
        self._command = (os.path.expanduser(command[0]), *command[1:])  # noqa: PTH111
        self._env = env
        self.problem = ""
        self._is_being_ended = False  # By us, which is no problem of the program

    @asynccontextmanager
    async def transport(self) -> AsyncGenerator[TransportStreams, None]:
        """The program's messages in both directions.

        Raises `OSError` where it cannot be started.
        """
        import anyio
        from mcp.shared.message import SessionMessage

        program = await self._start()
        process = program.process
        to_session, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write_stream, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read_messages, program, to_session)
                group.start_soon(_write_messages, process, from_session)
                try:
                    yield read_stream, write_stream
                finally:
                    self._is_being_ended = True
                    with anyio.CancelScope(shield=True):
                        await _end(program)
                    group.cancel_scope.cancel()
        finally:
            program.stop()  # once more, where a second cancellation broke off what ends it
            _close_pipes(process)
            for stream in (to_session, read_stream, write_stream, from_session):
                stream.close()

    async def _start(self) -> GuardedProgram:
        from mcp.client.stdio import get_default_environment

        if not can_run_programs():
            raise OSError(0, "programs run on Linux and macOS; on Windows use WSL")
        environ = {
            **get_default_environment(),
            **network_environment(os.environ),
            **self._env,
        }
        return await GuardedProgram.start(self._command, environ=environ, limit=MAX_MESSAGE)

    async def _read_messages(
        self,
        program: GuardedProgram,
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        """Send each message to the session, until the program ends or writes too much else."""
        import anyio

        stdout = program.process.stdout
        assert stdout is not None
        garbage = 0
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with to_session:
                while line := await self._next_line(program, stdout):
                    message = _read_message(line)
                    if isinstance(message, Exception):
                        garbage += 1
                        message = _failed_answer(line) or message
                    if garbage > MAX_GARBAGE:
                        lines = format_count(garbage, "line")
                        self.problem = f"it wrote {lines} that are no message"
                        return
                    await to_session.send(message)

    async def _next_line(self, program: GuardedProgram, stdout: asyncio.StreamReader) -> bytes:
        """Return the next line; empty at the end, or where the program is not read any further."""
        try:
            return await stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            if not self._is_being_ended:
                self.problem = self.problem or await self._how_it_ended(program)
        except asyncio.LimitOverrunError:
            self.problem = f"it sent a message of more than {MAX_MESSAGE >> 20} MiB"
        except OSError as error:
            self.problem = f"it cannot be read: {error.strerror}"
        return b""

    async def _how_it_ended(self, program: GuardedProgram) -> str:
        """By its last words, and by what it was not given.

        Without any, by its exit code or signal, as far as those are known by then.
        """
        withheld = describe_withheld(os.environ, self._env)
        if withheld:
            return f"{await self._last_words(program)}; {withheld}"
        return await self._last_words(program)

    async def _last_words(self, program: GuardedProgram) -> str:
        ending = await program.ending(GRACE_SECONDS)
        if ending.problem:
            return f"{self._command[0]} cannot be started: {ending.problem}"
        lines = [one_line(line) for line in program.complaint.splitlines()]
        last_lines = [line[:200] for line in lines if line][-3:]
        if last_lines:
            return f"it has ended: {' | '.join(last_lines)}"
        if ending.signal is not None:
            return f"it has ended by signal {ending.signal}"
        if ending.code:
            return f"it has ended with exit code {ending.code}"
        return "it has ended"


def _read_message(line: bytes) -> SessionMessage | Exception:
    """Return the message of a line, or what is wrong with it."""
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    line = without_half_letters(line)
    try:
        if has_more_values(line, MAX_VALUES):
            raise ValueError(f"it has more than {MAX_VALUES:,} values")
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, RecursionError) as error:
        return error


def _failed_answer(line: bytes) -> SessionMessage | None:
    """Return an error in place of an answer that cannot be read: whoever asked waits for one.

    None for another line, and where its id cannot be read.
    """
    from mcp.shared.message import SessionMessage
    from mcp.types import ErrorData, JSONRPCError

    message_id = None
    if b'"method"' not in line:
        message_id = find_message_id(line, line)
    if message_id is None:
        return None
    text = f"its answer is no JSON-RPC message, or has more than {MAX_VALUES:,} values"
    failure = ErrorData(code=-32700, message=text)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message_id, error=failure))


async def _write_messages(
    process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    """Write each message of the session as a line, until the program's input is closed."""
    assert process.stdin is not None
    async with from_session:
        async for message in from_session:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()
            except (OSError, RuntimeError):  # RuntimeError: the pipe is closed
                return


async def _end(program: GuardedProgram) -> None:
    """End the program and all that it has started: by the end of its input, then by its guard."""
    process = program.process
    if process.stdin is not None:
        with suppress(OSError, RuntimeError):
            process.stdin.close()
    if not await _ended(process, GRACE_SECONDS):
        program.stop()
        await _ended(process, KILL_SECONDS)
    await program.close()


def _close_pipes(process: Process) -> None:
    """Close our ends, also of pipes that something which left the group holds open.

    No public name reaches the transport; the SDK does the same.
    """
    pipes = getattr(process, "_transport", None)
    with suppress(PermissionError):
        if pipes is not None:
            pipes.close()


async def _ended(process: Process, seconds: float) -> bool:
    """Return whether the guard ends in time.

    It ends after the program and all that the program has started.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    # wait() would wait for pipes as well
    while process.returncode is None and loop.time() < due:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return process.returncode is not None


def bounded_stream(stream: AsyncByteStream, too_long: Callable[[str], None]) -> AsyncByteStream:
    """Return the same bytes up to `MAX_MESSAGE`.

    Then `too_long` is told why, and reading raises `httpx2.ReadError`.
    """
    from httpx2 import AsyncByteStream, ReadError

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            read = 0
            async for piece in stream:
                read += len(piece)
                if read > MAX_MESSAGE:
                    why = f"it sent a message of more than {MAX_MESSAGE >> 20} MiB"
                    too_long(why)
                    raise ReadError(why)
                yield piece

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


def readable_stream(stream: AsyncByteStream) -> AsyncByteStream:
    """Return the same bytes with whole letters, as those of a program are read."""
    from httpx2 import AsyncByteStream

    class Readable(AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes, None]:
            letters = WholeLetters()
            async for piece in stream:
                yield letters.feed(piece)
            yield letters.end()

        async def aclose(self) -> None:
            await stream.aclose()

    return Readable()
