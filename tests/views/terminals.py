"""Streams that claim to be terminals, and an emulator that shows what was written to them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyte

from conductor_cli.core.events import Event
from conductor_cli.core.trace import Trace, apply_event, fold
from conductor_cli.views.base import OutputContext, RunView, Stderr
from conductor_cli.views.tree import TreeProgress

if TYPE_CHECKING:
    from rich.console import Console


def trace_of(events: Iterable[Event]) -> Trace:
    """A run after these events."""
    trace = Trace()
    for event in events:
        trace = apply_event(trace, event)
    return trace


def play(view: RunView, events: Iterable[Event]) -> None:
    """Show a view a whole run."""
    for event, trace in fold(events):
        view.show(event, trace)
    view.close()


class Sink(io.StringIO):
    """A stream that records what is written.

    It rejects characters that its encoding lacks, as a real one does.
    """

    def __init__(self, *, terminal: bool = False, encoding: str = "utf-8") -> None:
        super().__init__(newline="")
        self._terminal = terminal
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override] # the base class has a plain attribute
        return self._encoding

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        text.encode(self._encoding)
        return super().write(text)


def open_console(
    stream: Stderr, *, color: bool = False, width: int = 80, height: int = 24
) -> Console:
    """A console of a fixed size."""
    context = OutputContext(
        stdout=io.StringIO(),
        stderr=io.StringIO(),
        environ={},
        color="always" if color else "never",
        width=width,
        height=height,
    )
    return context.open_console(stream)


def without_ours(written: str) -> str:
    """Without what a view may command.

    Colours, an erased line, one line up or down, the cursor, the line's start.
    """
    return re.sub(r"\x1b\[(?:[0-9;]*m|2K|1[AB]|\?25[lh])|\r", "", written)


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Drawn:
    """A tree on a terminal of a fixed size, drawn after every event and at no other time."""

    def __init__(
        self,
        *,
        width: int = 80,
        height: int = 24,
        encoding: str = "utf-8",
        shared: bool = False,
        color: bool = False,
        reflows: bool = True,
    ) -> None:
        self.width = width
        self.height = height
        self.sink = Sink(terminal=True, encoding=encoding)
        self.clock = Clock()
        self.console = open_console(Stderr(self.sink), color=color, width=width, height=height)
        self.trace = Trace()
        self.tree = TreeProgress(self.console, shared=shared, reflows=reflows, clock=self.clock)

    def show(self, event: Event, *, draw: bool = True) -> None:
        self.clock.now = event.at
        self.trace = apply_event(self.trace, event)
        self.tree.show(event, self.trace)
        if draw:
            self.tree.draw()

    def play(self, events: Iterable[Event], *, close: bool = True) -> None:
        for event in events:
            self.show(event)
        if close:
            self.tree.close()

    def resize(self, width: int) -> None:
        self.width = width
        self.console.width = width

    def live(self) -> list[str]:
        """The live part as it would be drawn now."""
        return ["".join(text for text, _ in line) for line in self.tree.live()]

    def screen(self) -> list[str]:
        """Everything on the terminal, including what has scrolled away."""
        return emulated(self.sink.getvalue(), self.width, self.height)


class ForwardScreen(pyte.HistoryScreen):
    """A screen that keeps what has scrolled away, and on which nobody pages back.

    pyte's own looks for a page that was turned before and after each event, by a method in Python
    that is called for each attribute: half of what it takes to read what a program has written.
    """

    __getattribute__ = object.__getattribute__


def emulated(written: str, width: int, height: int) -> list[str]:
    """The lines that a terminal of this size shows, and has shown, after `written`."""
    screen = ForwardScreen(width, height, history=10_000)
    stream = pyte.Stream(screen)
    stream.feed(written.replace("\n", "\r\n"))
    top = ["".join(line[column].data for column in range(width)) for line in screen.history.top]
    lines = [line.rstrip() for line in (*top, *screen.display)]
    while lines and not lines[-1]:
        lines.pop()
    return lines


class Reflowing:
    """A terminal without colours that wraps its lines when it becomes narrower.

    Or it `keeps` them, as old ones do.
    """

    def __init__(self, width: int, *, keeps: bool = False) -> None:
        self.width = width
        self._keeps = keeps
        self._lines = [""]
        self._row = 0
        self._column = 0

    def feed(self, written: str) -> None:
        for code, text in re.findall(r"\x1b\[([?0-9]*[A-Za-z])|([^\x1b]+)", written):
            if text:
                self._write(text)
            elif code.endswith("A"):
                self._row = max(0, self._row - int(code[:-1]))
            elif code == "2K":
                self._rows()[self._row] = ""

    def shown(self) -> list[str]:
        """All rows that are not empty."""
        return [line for line in self._lines if line]

    def resize(self, width: int) -> None:
        """The cursor stays at its text."""
        below = len(self._lines) - self._row
        if not self._keeps:
            lines = []
            for line in self._lines:
                starts = range(0, len(line) or 1, width)
                lines += [line[start : start + width] for start in starts]
            self._lines = lines
        self.width = width
        self._row = len(self._lines) - below

    def _rows(self) -> list[str]:
        self._lines += [""] * (self._row + 1 - len(self._lines))
        return self._lines

    def _write(self, text: str) -> None:
        for char in text:
            if char == "\r":
                self._column = 0
            elif char == "\n":
                self._row = self._row + 1
                self._column = 0
                self._rows()
            else:
                row = self._rows()[self._row]
                self._lines[self._row] = (
                    row[: self._column].ljust(self._column) + char + row[self._column + 1 :]
                )
                self._column += 1
