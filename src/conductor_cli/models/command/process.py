"""A running program: its pipes, the tail of what it complains about, and its end. Linux and macOS."""

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

GUARD: Final = Path(__file__).with_name("guard.py")

PIECE: Final = 64 * 1024
"""Bytes that are read at once."""

TAIL: Final = 8 * 1024
"""Bytes of standard error that are kept: the last ones."""

STOP_SECONDS: Final = 10.0
"""How long to wait for the guard, which ends a program within 0.6 seconds and gives up after 8.5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a program ended: its exit code, the signal that ended it, or why it could not be started."""

    code: int | None = None
    signal: int | None = None
    problem: str = ""


class RunningProgram:
    """A program under its guard. Leave it by `end`, whatever happens: then nothing that it started is left."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._tail = bytearray()
        self._reports = ""
        self._errors = asyncio.create_task(self._keep_tail())
        self._guard = asyncio.create_task(self._watch_guard())
        self._feeder: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, words: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> RunningProgram:
        """Start a program in a directory, with this environment and no other. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno()), *words,
                stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=dict(environ), pass_fds=(theirs.fileno(),),
                # A Ctrl-C at the terminal is for conductor, which then ends the program itself.
                start_new_session=True,
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - the call has no name for it
        return cls(process, ours)

    def feed(self, data: bytes) -> None:
        """Write to standard input and close it, while the output is read. A program need not read any of it."""
        self._feeder = asyncio.create_task(self._feed(data))

    async def read(self) -> bytes:
        """The next piece of standard output, empty at its end."""
        assert self._process.stdout is not None
        return await self._process.stdout.read(PIECE)

    async def ending(self) -> Ending:
        """How the program ended, once it has."""
        await asyncio.wait([self._guard])
        await asyncio.wait([self._errors], timeout=0.2)
        word, _, rest = self._reports.splitlines()[-1].partition(" ") if self._reports else ("", "", "")
        if word == "exit":
            return Ending(code=int(rest))
        if word == "signal":
            return Ending(signal=int(rest))
        return Ending(problem=rest if word == "error" else "its guard was killed")

    @property
    def complaint(self) -> str:
        """The last lines of standard error, as far as they were kept."""
        return self._tail.decode("utf-8", "replace")

    async def end(self) -> None:
        """End the program and everything that it has started, unless it has ended."""
        with suppress(OSError):
            # This alone makes the guard do it, also if the lines below are cancelled.
            self._control.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                # A pipe that is not read to its end would stay open.
                while await self.read():
                    pass
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
        finally:
            tasks = [task for task in (self._errors, self._feeder, self._guard) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._control.close()

    async def _watch_guard(self) -> None:
        """Read what the guard has reported once it has ended; where it was killed, end the program's process group."""
        # Its end is seen here: asyncio's wait() would also wait for the pipes, which what is left may hold.
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while piece := await loop.sock_recv(self._control, 4096):
                self._reports += piece.decode("utf-8", "replace")
        word, _, child = self._reports.strip().partition(" ")
        if word == "child" and child.isdecimal():  # the only line, so the guard could not finish
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(child), signal.SIGKILL)

    async def _feed(self, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(data)
            await stdin.drain()
        stdin.close()
        with suppress(BrokenPipeError, ConnectionResetError):
            await stdin.wait_closed()

    async def _keep_tail(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(PIECE):
            self._tail += piece
            del self._tail[:-TAIL]


def can_run_programs() -> bool:
    """Whether this system has what a guard needs."""
    return os.name == "posix"
