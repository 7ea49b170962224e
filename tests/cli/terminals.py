"""Commands in a pseudo-terminal whose screen pyte interprets.

They run in this process or in one of their own.
"""

from __future__ import annotations

import asyncio
import os
import pty
import select
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pexpect
import pexpect.fdpexpect
import ptyprocess
import pyte
import pytest
from prompt_toolkit.application import create_app_session

from conductor_cli.cli import chat_banner, entry, keypress
from tests import fork_server
from tests.cli.stage import COMMAND, OPEN_TERMINALS, Stage
from tests.servers import SeenRequest, Wire, delta, usage
from tests.views.terminals import ForwardScreen

PATIENCE = 60.0


class Terminal:
    """A program in a pseudo-terminal of a given size, with the screen as pyte interprets it."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.raw = ""
        self._screen = ForwardScreen(*size, history=10_000)
        self._stream = pyte.Stream(self._screen)
        self.program: Any = None
        """What runs in it, as pexpect has it; `Inside` is one, too."""

    @property
    def screen(self) -> str:
        """The text on the screen now."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def scrolled(self) -> str:
        """The text on the screen and in its scrollback."""
        top = [
            "".join(row[column].data for column in range(self._screen.columns))
            for row in self._screen.history.top
        ]
        return "\n".join(line.rstrip() for line in (*top, *self._screen.display)).rstrip()

    @property
    def cursor_shown(self) -> bool:
        return not self._screen.cursor.hidden

    def resize(self, columns: int, lines: int) -> None:
        """Change the terminal's size, as a user does who resizes the window."""
        self._screen.resize(lines, columns)
        self.program.setwinsize(lines, columns)

    def until(self, expected: Callable[[str], bool] | str) -> str:
        """Read output until the screen contains a text, or until `expected` accepts the screen.

        Returns the screen.
        """
        wanted = (lambda screen: expected in screen) if isinstance(expected, str) else expected
        end = time.monotonic() + PATIENCE
        while not wanted(self.screen):
            assert time.monotonic() < end, (
                f"the screen never came to be as expected:\n{self.screen}"
            )
            self._read()
        return self.screen

    def end(self) -> int:
        """Read output until the program ends; returns its exit code as a shell reports it."""
        while self._read():
            pass
        self._read_rest()
        self.program.close()
        killed = self.program.signalstatus
        return int(self.program.exitstatus if killed is None else 128 + killed)

    def _read(self) -> bool:
        try:
            text = self.program.read_nonblocking(65536, PATIENCE)
        except pexpect.EOF:
            return False
        self._feed(text)
        return True

    def _read_rest(self) -> None:
        """Read what the kernel hands over after the program has gone; pexpect does not wait."""
        terminal = self.program.child_fd
        with suppress(OSError, ValueError):
            while select.select([terminal], [], [], 0.2)[0]:
                rest = os.read(terminal, 65536)
                if not rest:
                    return
                self._feed(rest.decode("utf-8", "replace"))

    def _feed(self, text: str) -> None:
        self.raw += text
        self._stream.feed(text)


class Inside(pexpect.fdpexpect.fdspawn):  # type: ignore[misc]  # pexpect has no types
    """The command on a thread of this process, which has a pseudo-terminal for its streams.

    It gets no signals.
    """

    signalstatus = None

    def __init__(
        self, arguments: Sequence[str], size: tuple[int, int], environ: dict[str, str]
    ) -> None:
        user, self._own = pty.openpty()
        super().__init__(user, encoding="utf-8", timeout=PATIENCE)
        termios.tcsetwinsize(user, size[::-1])
        self.exitstatus = 1
        self._patch = pytest.MonkeyPatch()
        for name, value in environ.items():
            self._patch.setenv(name, value)
        self._patch.delenv("COLUMNS", raising=False)
        # Rich asks the streams that Python started with.
        self._patch.setattr(
            os, "get_terminal_size", lambda _=1: os.terminal_size(termios.tcgetwinsize(user)[::-1])
        )
        self._patch.setattr(keypress, "TERMINAL", os.ttyname(self._own))
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            self._patch.setattr(sys, name, open(self._own, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        self._thread = threading.Thread(target=self._run, args=(arguments,), daemon=True)
        self._thread.start()
        OPEN_TERMINALS.append(self)

    def _run(self, arguments: Sequence[str]) -> None:
        chat_banner.print_banner.cache_clear()  # a process prints it once
        try:
            with create_app_session():  # a prompt of its own on these streams
                self.exitstatus = entry.run_command_line(arguments)
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # the terminal is gone
                    stream.flush()
            os.close(self._own)

    def setwinsize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.child_fd, (rows, columns))

    def sendeof(self) -> None:
        self.send("\x04")

    def read_nonblocking(self, size: int = 1, timeout: float = PATIENCE) -> str:
        try:
            return str(super().read_nonblocking(size, timeout))
        except OSError:  # the other end is closed
            raise pexpect.EOF("the command has ended") from None

    def close(self, force: bool = False) -> None:
        """Wait for the command, which finds its terminal gone if it still waits for somebody."""
        if self not in OPEN_TERMINALS:
            return
        OPEN_TERMINALS.remove(self)
        if not force:
            self._thread.join(PATIENCE)
        super().close()
        self._thread.join(PATIENCE)
        self._patch.undo()


class ForkedInTerminal(pexpect.spawn):  # type: ignore[misc]  # pexpect has no types
    """A command that was forked, in a pseudo-terminal, as pexpect has any other."""

    def _spawnpty(
        self, words: list[bytes], env: dict[str, str], dimensions: tuple[int, int], **_: Any
    ) -> Any:
        user, program_end = pty.openpty()
        termios.tcsetwinsize(program_end, dimensions)
        arguments = [os.fsdecode(word) for word in words[len(COMMAND) :]]
        process = fork_server.start(arguments, env, [program_end] * 3, has_terminal=True)
        os.close(program_end)
        return ptyprocess.PtyProcess(process, user)


def start_in_terminal(
    stage: Stage,
    *arguments: str,
    size: tuple[int, int] = (80, 24),
    command: tuple[str, ...] = (),
    **env: str,
) -> Any:
    """Start a command in a terminal and return it as pexpect has it.

    It runs in this process, where starting it takes no time, unless `command` is what starts it.
    """
    environ = {"TERM": "xterm-256color", **env}
    if not command:
        return Inside(arguments, size, environ)
    environ = stage.environ(environ)
    environ.pop("COLUMNS")
    spawn = pexpect.spawn
    if command == COMMAND and fork_server.can_start(arguments, environ):
        spawn = ForkedInTerminal
    return spawn(
        command[0],
        [*command[1:], *arguments],
        dimensions=size[::-1],
        env=environ,
        encoding="utf-8",
        timeout=PATIENCE,
    )


@contextmanager
def terminal(
    stage: Stage, *arguments: str, size: tuple[int, int] = (80, 24), **how: Any
) -> Iterator[Terminal]:
    """Start a command in a terminal with a screen; it is ended at the end of the block."""
    opened = Terminal(size)
    opened.program = start_in_terminal(stage, *arguments, size=size, **how)
    try:
        yield opened
    finally:
        try:
            opened.program.close(force=True)
        except pexpect.ExceptionPexpect:  # a busy machine takes longer to end what was killed
            opened.program.ptyproc.wait()


class Gate:
    """A fake model that sends its answer in pieces, each when the test releases it."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self._open = threading.Semaphore(0)

    def let(self, count: int = 1) -> None:
        self._open.release(count)

    async def __call__(self, request: SeenRequest, wire: Wire) -> None:
        await wire.head()
        for piece in self.pieces:
            await asyncio.to_thread(self._open.acquire, timeout=PATIENCE)
            await wire.frames(delta(piece))
        await wire.frames(delta(finish="stop"), usage(), "[DONE]")
