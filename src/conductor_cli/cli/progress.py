"""The progress display of downloads, checks and evaluations on standard error, and what still runs.

It is a bar where the terminal can redraw, and a line every few seconds elsewhere. A pipe or a file
gets these lines, too: minutes of silence while gigabytes arrive look like a program that hangs.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.output import print_notice
from conductor_cli.cli.signals import suspendable
from conductor_cli.core.formatting import format_duration, format_size
from conductor_cli.core.terminal_text import one_line
from conductor_cli.system.terminal_tables import crop_text, terminal_width
from conductor_cli.views.base import cannot_redraw

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from conductor_cli.config.settings import Settings


PERIOD_SECONDS: Final = 5.0  # Seconds between two plain lines about one task


class ProgressDisplay:
    """Shows nothing; the base of the displays that do.

    One task is shown at a time, the one that was updated last.
    """

    def update(self, label: str, done: int, total: int = 0, detail: str = "") -> None:
        """So much of the task called `label` is done; `total` is 0 while it is unknown."""


class ProgressLines(ProgressDisplay):
    """A line when a task begins, and one every few seconds after that."""

    def __init__(self, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit = unit
        self._clock = clock
        self._label: str | None = None
        self._shown = 0.0
        self._began = 0.0
        self._first = 0

    def update(self, label: str, done: int, total: int = 0, detail: str = "") -> None:
        now = self._clock()
        finished = bool(total) and done >= total
        if label != self._label:
            self._label = label
            self._shown = now
            self._began = now
            self._first = done
            due = not finished
        else:
            due = now - self._shown >= PERIOD_SECONDS
        # The end of a download is announced by its command; the end of an evaluation's runs is not.
        if due or (finished and self._unit != "bytes"):
            self._shown = now
            amount = f"{done:,} of {total:,} {self._unit}"
            if self._unit == "bytes":
                amount = f"{format_size(done)} of {format_size(total)}"
            parts = (one_line(label), amount if total else "", detail, self._time_left(done, total))
            print_notice(", ".join(filter(None, parts)))

    def _time_left(self, done: int, total: int) -> str:
        """Return how long the rest takes at the pace so far; empty where that is not known."""
        seconds = self._clock() - self._began
        pace = done - self._first
        if pace <= 0 or done >= total or seconds <= 0:
            return ""
        return f"about {format_duration(seconds / pace * (total - done))} left"


class ProgressBar(ProgressDisplay):
    """One bar at the bottom of the terminal, gone when the block ends."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._label: str | None = None
        self._task: TaskID | None = None

    def update(self, label: str, done: int, total: int = 0, detail: str = "") -> None:
        if label != self._label or self._task is None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._label = label
            shown = crop_label(label, self._bar.console.width)
            self._task = self._bar.add_task(
                shown, total=total or None, completed=done, detail=detail
            )
        self._bar.update(self._task, completed=done, total=total or None, detail=detail)


@contextmanager
def show_progress(
    settings: Settings, *, quiet: bool, unit: str = "bytes"
) -> Iterator[ProgressDisplay]:
    """Show progress until the block ends.

    `unit` is what is counted: bytes, or a plural such as `runs`.
    """
    from conductor_cli.views.output_formats import OutputContext, choose_progress

    context = OutputContext(color=settings["output.color"], quiet=quiet)
    # `auto` shows nothing in a pipe while a run goes on; downloads and evaluations take minutes and
    # show lines.
    terminal = sys.stderr.isatty()
    setting = settings["output.progress"]
    kind = choose_progress("answer", setting, context)
    if setting == "auto" and not terminal and not quiet:
        kind = "plain"
    if kind == "tree" and terminal:
        from rich import progress

        from conductor_cli.views.base import Stderr

        console = context.open_console(Stderr(sys.stderr))
        columns: list[ProgressColumn] = [progress.TextColumn("{task.description}", markup=False)]
        min_width_of_bar = 100 if unit == "bytes" else 60
        if console.width >= min_width_of_bar:
            columns.append(progress.BarColumn())
        if unit == "bytes":
            columns.append(progress.DownloadColumn())
            if console.width >= 60:
                columns.append(progress.TransferSpeedColumn())
        else:
            columns += [progress.MofNCompleteColumn(), progress.TextColumn(unit)]
            columns.append(progress.TextColumn("{task.fields[detail]}", markup=False))
        columns.append(progress.TimeRemainingColumn(compact=True))
        shown = progress.Progress(*columns, console=console, transient=True)
        with suspendable(), shown as bar:
            yield ProgressBar(bar)
    else:
        yield ProgressDisplay() if kind == "none" else ProgressLines(unit)


def crop_label(label: str, width: int) -> str:
    """Return the label without the beginning of a long file name.

    Its end tells the files of one model apart.
    """
    verb, _, name = one_line(label).rpartition(" ")
    room = max(8, width - 50)
    if len(name) > room:
        name = f"…{name[1 - room :]}"
    return f"{verb} {name}".strip()


RUNNING_PERIOD_SECONDS: Final = 0.5  # Between two drawings


class RunningLine:
    """Names what runs and for how long: `waiting for fast 3 s, slow 3 s`.

    It is drawn only where `shown`.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()
        self._drawn = False

    def start(self, name: str) -> None:
        with self._lock:
            self._started[name] = time.monotonic()

    @contextmanager
    def finished(self, name: str) -> Iterator[None]:
        """Take `name` for ended; what the block prints stands above the line."""
        with self._lock:
            self._started.pop(name, None)
            self._write("")
            yield
        self.draw()

    def draw(self) -> None:
        """Draw the line as it is now.

        What began this moment is not shown: most of it ends at once.
        """
        with self._lock:
            now = time.monotonic()
            parts = list[str]()
            for name, begun in self._started.items():
                seconds = now - begun
                if seconds >= RUNNING_PERIOD_SECONDS:
                    parts.append(f"{name} {format_duration(seconds, tenths=False)}")
            self._write(f"waiting for {', '.join(parts)}" if parts else "")

    def erase(self) -> None:
        with self._lock:
            self._write("")

    def _write(self, text: str) -> None:
        if self._shown and (text or self._drawn):
            with suppress(OSError, ValueError):  # ValueError: the stream is closed
                sys.stderr.write("\r\x1b[2K" + crop_text(text, terminal_width(sys.stderr) - 1))
                sys.stderr.flush()
            self._drawn = bool(text)


@contextmanager
def show_running(*, quiet: bool) -> Iterator[RunningLine]:
    """Show what runs until the block ends, where standard error is a terminal that can redraw."""
    line = RunningLine(shown=not quiet and sys.stderr.isatty() and not cannot_redraw(os.environ))
    ended = threading.Event()

    def draw() -> None:
        while not ended.wait(RUNNING_PERIOD_SECONDS):
            line.draw()

    drawing = threading.Thread(target=draw, name="conductor-running", daemon=True)
    drawing.start()
    try:
        yield line
    finally:
        ended.set()
        drawing.join()
        line.erase()
