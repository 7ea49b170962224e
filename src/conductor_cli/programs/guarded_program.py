"""A program under its guard, the script beside this file. Linux and macOS."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PIECE_BYTES: Final = 64 * 1024  # bytes that are read at once
TAIL_BYTES: Final = 8 * 1024  # bytes of standard error that are kept: the last ones
STOP_SECONDS: Final = 10.0
"""How long to wait for the guard, which ends a program within 0.6 seconds and gives up after
8.5.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnding:
    """How a program ended.

    Its exit code, the signal that ended it, or why it could not be started.
    """

    code: int | None = None
    signal: int | None = None
    problem: str = ""


class GuardedProgram:
    """A program and its guard. `process` is the guard, with the pipes of the program.

    Leave it by `end` or `close`, whatever happens: then nothing that it started is left.
    """

    def __init__(self, process: Process, control: socket.socket) -> None:
        self.process = process
        self._control = control
        self._reports = ""
        self._tail = bytearray()
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self._keep_tail())]

    @classmethod
    async def start(
        cls,
        words: Sequence[str],
        *,
        environ: Mapping[str, str],
        cwd: Path | None = None,
        limit: int = 1 << 16,
    ) -> GuardedProgram:
        """Start a program with this environment and no other.

        A line that is read may have `limit` bytes.

        Raises `OSError` where the guard cannot be started. Whether the program could be, `ending`
        says.
        """
        ours, theirs = socket.socketpair()
        guard = str(Path(__file__).with_name("process_guard.py"))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-S",
                guard,
                str(theirs.fileno()),
                *words,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=cwd,
                env=dict(environ),
                pass_fds=(theirs.fileno(),),
                # A Ctrl-C at the terminal is for conductor, which then ends the program itself.
                start_new_session=True,
                limit=limit,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - the call has no name for it
        return cls(process, ours)

    def feed(self, content: bytes) -> None:
        """Write to standard input and close it, while the output is read.

        A program need not read any of it.
        """
        stdin = self.process.stdin
        assert stdin is not None

        async def write() -> None:
            with suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(content)
                await stdin.drain()
            stdin.close()
            with suppress(BrokenPipeError, ConnectionResetError):
                await stdin.wait_closed()

        self._tasks.append(asyncio.create_task(write()))

    async def read(self) -> bytes:
        """Return the next piece of standard output, empty at its end."""
        assert self.process.stdout is not None
        return await self.process.stdout.read(PIECE_BYTES)

    @property
    def complaint(self) -> str:
        """The last lines of standard error."""
        return self._tail.decode("utf-8", "replace")

    async def ending(self, seconds: float | None = None) -> ProgramEnding:
        """Return how the program ended, once it has.

        After so many seconds, as far as that is known.
        """
        guard, errors = self._tasks[:2]
        await asyncio.wait([guard], timeout=seconds)
        await asyncio.wait([errors], timeout=0.2)
        last_report = ""
        if self._reports:
            last_report = self._reports.splitlines()[-1]
        word, _, rest = last_report.partition(" ")
        if word == "exit":
            return ProgramEnding(code=int(rest))
        if word == "signal":
            return ProgramEnding(signal=int(rest))
        if word == "error":
            return ProgramEnding(problem=rest)
        if guard.done():
            return ProgramEnding(problem="its guard was killed")
        return ProgramEnding(problem="")

    def stop(self) -> None:
        """Have the guard end the program and everything that it has started.

        It needs nobody to wait for it.
        """
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    async def end(self) -> None:
        """End the program and everything that it has started, unless it has ended."""
        self.stop()  # this alone suffices, also if the lines below are cancelled
        try:
            async with asyncio.timeout(STOP_SECONDS):
                # A pipe that is not read to its end would stay open.
                while await self.read():
                    pass
                await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
        finally:
            await self.close()

    async def close(self) -> None:
        """Let go of the guard, which then does the same as after `stop`."""
        self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._control.close()

    async def _keep_tail(self) -> None:
        assert self.process.stderr is not None
        while piece := await self.process.stderr.read(PIECE_BYTES):
            self._tail += piece
            del self._tail[:-TAIL_BYTES]

    async def _watch(self) -> None:
        """Read what the guard reports until it ends.

        Where it was killed, end the program's process group.
        """
        # Its end is seen here: asyncio's wait() would also wait for the pipes, which what is left
        # may hold.
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while piece := await loop.sock_recv(self._control, 4096):
                self._reports += piece.decode("utf-8", "replace")
        word, _, child = self._reports.strip().partition(" ")
        if word == "child" and child.isdecimal():  # the only line, so the guard could not finish
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(child), signal.SIGKILL)


def can_run_programs() -> bool:
    """Return whether this system has what a guard needs."""
    return os.name == "posix"
