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

GUARD: Final = Path(__file__).with_name("process_guard.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnding:
    """How a program ended: its exit code, the signal that ended it, or why it could not be started."""

    code: int | None = None
    signal: int | None = None
    problem: str = ""


class GuardedProgram:
    """A program and its guard. `process` is the guard, with the pipes of the program; `watch` must be running."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self.process = process
        self._control = control
        self._reports = ""

    @classmethod
    async def start(
        cls, words: Sequence[str], *, environ: Mapping[str, str], cwd: Path | None = None, limit: int = 1 << 16
    ) -> GuardedProgram:
        """Start a program with this environment and no other; a line that is read may have `limit` bytes.

        Raises `OSError` where the guard cannot be started. Whether the program could be is in `ending`.
        """
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno()), *words,
                stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=dict(environ), pass_fds=(theirs.fileno(),),
                # A Ctrl-C at the terminal is for conductor, which then ends the program itself.
                start_new_session=True, limit=limit,
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)  # noqa: FBT003 - the call has no name for it
        return cls(process, ours)

    async def watch(self) -> None:
        """Read what the guard reports until it ends; where it was killed, end the program's process group."""
        # Its end is seen here: asyncio's wait() would also wait for the pipes, which what is left may hold.
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while piece := await loop.sock_recv(self._control, 4096):
                self._reports += piece.decode("utf-8", "replace")
        word, _, child = self._reports.strip().partition(" ")
        if word == "child" and child.isdecimal():  # the only line, so the guard could not finish
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(int(child), signal.SIGKILL)

    @property
    def ending(self) -> ProgramEnding:
        """How the program ended, once `watch` has."""
        word, _, rest = self._reports.splitlines()[-1].partition(" ") if self._reports else ("", "", "")
        if word == "exit":
            return ProgramEnding(code=int(rest))
        if word == "signal":
            return ProgramEnding(signal=int(rest))
        return ProgramEnding(problem=rest if word == "error" else "its guard was killed")

    def end(self) -> None:
        """Have the guard end the program and everything that it has started. It needs nobody to wait for it."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let go of the guard, which then does the same as after `end`."""
        self._control.close()


def can_run_programs() -> bool:
    """Return whether this system has what a guard needs."""
    return os.name == "posix"
