"""What a person types at the terminal: one key, one line, or text while no prompt is shown.

`Keyboard` works also where stdin is a pipe, and on any thread. Its waiting can be ended, since a
run that is stopped meanwhile needs no answer any more.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TERMINAL: Final = "/dev/tty"
CTRL_D: Final = b"\x04"
_NO_KEY: Final = b"\0"
ESCAPE: Final = "\x1b"
_SEQUENCES: Final = ("[", "O")  # What follows Escape where one key sends several characters
# The terminals whose mode is changed now, each with its mode before and the one that it has now
_changed: Final[list[tuple[int, list[Any], list[Any]]]] = []
MAX_LINE_BYTES: Final = 4096  # Bytes of a line that a terminal takes, with its end
PASTE_SECONDS: Final = 0.2  # Within which the next piece of what is pasted comes
SEQUENCE_SECONDS: Final = 0.1  # Within which the rest of a key comes that begins with Escape


class NoAnswer(Exception):
    """There is no answer.

    The terminal is gone, its input has ended, or somebody ended the waiting.
    """


class Nudged(NoAnswer):
    """Somebody ended this waiting only, since what is asked may have an answer by now."""


class Keyboard:
    """The terminal that this process belongs to. Close it."""

    def __init__(self) -> None:
        """Raises `OSError` where there is none, as on Windows."""
        renew_after_stops()
        self.file = os.open(TERMINAL, os.O_RDWR)
        # A byte in this pipe ends the waiting in `_read`, which no exception from another thread
        # could do.
        self._woken, self._wake = os.pipe()
        self._is_over = False

    def wake(self) -> None:
        """End the waiting, now and later. From any thread."""
        self._is_over = True
        self.nudge()

    def nudge(self) -> None:
        """End the waiting of now with `Nudged`. From any thread."""
        with suppress(OSError):
            os.write(self._wake, b".")

    @property
    def woken(self) -> bool:
        return bool(select.select([self._woken], [], [], 0)[0])

    def key(self, ask: Callable[[], object]) -> str:
        """Return the key that answers what `ask` shows, without Enter; earlier keys are dropped.

        A key that sends several characters, such as an arrow, is `ESCAPE`. Raises `NoAnswer`.
        """
        # The question is shown last: a key that follows it at once must not be among those that are
        # dropped.
        with _terminal_mode(self.file, echo=False, lines=False):
            ask()
            return self._read_key()

    def line(self) -> str:
        """Return the next line, edited as the terminal does it, without its end; Ctrl-D ends it.

        Raises `NoAnswer`.
        """
        with _terminal_mode(self.file):
            return self._read(MAX_LINE_BYTES).rstrip("\r\n")

    def text(self) -> str:
        """Return the next line, with the further lines where several were pasted at once.

        Raises `NoAnswer`.
        """
        typed = self.line()
        # The last line of what was pasted may have no end, and a terminal gives whole lines only.
        with _terminal_mode(self.file, lines=False, keeps=True):
            while select.select([self.file, self._woken], [], [], PASTE_SECONDS)[0] == [self.file]:
                typed += "\n" + self._read(MAX_LINE_BYTES).rstrip("\r\n")
        return typed

    def _read_key(self) -> str:
        """Return the next key.

        An arrow sends `ESC [ A`, in pieces where the connection is slow. The letter at its end must
        answer nothing.
        """
        key = self._read(1)
        if key != ESCAPE or not select.select([self.file], [], [], SEQUENCE_SECONDS)[0]:
            return key
        if self._read(1) in _SEQUENCES:
            # The function keys of a Linux console have two brackets: `ESC [ [ A`
            while (letter := self._read(1)) == "[" or not "@" <= letter <= "~":
                pass
        return ESCAPE

    def _read(self, most: int) -> str:
        try:
            ready = select.select([self.file, self._woken], [], [])[0]
            is_nudged = self._woken in ready and not self._is_over
            if is_nudged:
                os.read(self._woken, MAX_LINE_BYTES)
            typed = b""
            if self._woken not in ready:
                typed = os.read(self.file, most)
        except OSError:
            is_nudged = False
            typed = b""
        if is_nudged:
            raise Nudged
        if typed in (b"", CTRL_D):
            raise NoAnswer
        return typed.decode("utf-8", "replace")

    def close(self) -> None:
        for file in (self.file, self._woken, self._wake):
            with suppress(OSError):
                os.close(file)


@contextmanager
def _terminal_mode(
    file: int,
    *,
    end: bytes = CTRL_D,
    echo: bool = True,
    lines: bool = True,
    keeps: bool = False,
    drops: bool = True,
) -> Iterator[None]:
    """Have the terminal take `end` for the end of what is typed, and show that with `echo`.

    Raises `NoAnswer`.

    Without `lines` it gives each key as it is pressed, and drops what was typed before, unless it
    `keeps` that. Ctrl-C interrupts, and with `drops` also drops what was typed before it.
    """
    import termios

    try:
        before = termios.tcgetattr(file)
        # Index 3 holds the local flags and index 6 the control characters; see `termios.tcgetattr`.
        wanted = [*before[:6], [*before[6]]]
        wanted[6][termios.VEOF] = end
        if not echo:
            wanted[3] &= ~termios.ECHO
        if not drops:
            wanted[3] |= termios.NOFLSH
        if not lines:
            wanted[3] &= ~termios.ICANON
            wanted[6][termios.VMIN] = 1
            wanted[6][termios.VTIME] = 0
        is_kept = lines or keeps
        termios.tcsetattr(file, termios.TCSADRAIN if is_kept else termios.TCSAFLUSH, wanted)
    except termios.error:
        raise NoAnswer from None
    renew_after_stops()
    _changed.append((file, before, wanted))
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(file, termios.TCSADRAIN, before)
        _changed.remove((file, before, wanted))


def renew_after_stops() -> None:
    """Have terminals get the changed mode again where this process goes on after Ctrl-Z.

    The shell gives a terminal its own mode meanwhile, so what is typed unseen would be shown.
    """
    # Not on Windows; and on a thread Python sets no handlers, so whoever starts one calls this.
    with suppress(AttributeError, ValueError):
        signal.signal(signal.SIGCONT, _renew_modes)


def _renew_modes(*_: object) -> None:
    import termios

    for file, _before, wanted in _changed.copy():
        with suppress(OSError, termios.error):  # the terminal has gone
            is_in_front = os.tcgetpgrp(file) == os.getpgrp()
            gives_lines = bool(termios.tcgetattr(file)[3] & termios.ICANON)
            # A prompt that reads single keys has its own mode, which no shell has changed.
            if is_in_front and gives_lines:
                termios.tcsetattr(file, termios.TCSANOW, wanted)


@contextmanager
def unseen_typing(file: int) -> Iterator[None]:
    """Show nothing of what is typed, also after a stop by Ctrl-Z. What is no terminal stays."""
    with ExitStack() as stack:
        with suppress(NoAnswer):
            stack.enter_context(_terminal_mode(file, echo=False))
        yield


def restore_terminal() -> None:
    """Give the terminal its first mode back for a process that ends at once.

    What was typed is no line for a shell.
    """
    if not _changed:
        return
    import termios

    file, before, _ = _changed[0]
    with suppress(termios.error):
        termios.tcflush(file, termios.TCIFLUSH)
        termios.tcsetattr(file, termios.TCSANOW, before)


def has_terminal() -> bool:
    """Return whether a person sees stderr and can answer."""
    try:
        Keyboard().close()
        return sys.stderr.isatty()
    except (OSError, ValueError):
        return False


def keep_typed_text(*, echo: bool = True) -> AbstractContextManager[None]:
    """Have the terminal keep what is typed until a prompt reads it, Ctrl-D included.

    Show it only with `echo`.

    Without this, a terminal turns Ctrl-D into an end of input that no prompt can read. Text that is
    not shown also survives a Ctrl-C, which stops the run during which it was typed.
    """
    if sys.platform == "win32":
        return nullcontext()
    return _terminal_mode(sys.stdin.fileno(), end=_NO_KEY, echo=echo, drops=echo)
