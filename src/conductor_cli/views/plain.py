"""Progress as plain lines that are never redrawn: all of them, only notices and problems, or only problems.

Lines are for log files, simple terminals and screen readers; notices and problems are what a script's stderr gets.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import Clock, Stderr, Timer
from conductor_cli.views.run_text import apply_without_deltas, problem_lines

PATIENCE: Final = 30.0
"""Seconds of silence after which a line says which steps are still working."""

_COLUMN_GAP: Final = re.compile(r"(?<=\S) {3,}")
"""What aligns columns on a screen, and is only noise in a log or to a screen reader."""


class SilentProgress:
    """Writes at most three lines, and only when there is no answer or only a part of one.

    `stored`: the trace is on disk, so the command that resumes the run can be shown.
    """

    def __init__(self, stderr: Stderr, *, stored: bool = True) -> None:
        self._stderr = stderr
        self._stored = stored
        self._trace = Trace()

    def show(self, event: ev.Event) -> None:
        self._trace = apply_without_deltas(self._trace, event)

    def rest(self) -> None:
        """There is nothing to pause."""

    def wake(self) -> None:
        """There was nothing to pause."""

    def close(self) -> None:
        self._write(*problem_lines(self._trace, stored=self._stored))

    def _write(self, *lines: str) -> None:
        self._stderr.write("".join(f"{line}\n" for line in lines))
        self._stderr.flush()


class NoticesProgress(SilentProgress):
    """Also writes each notice, because whoever uses an answer should know how it came about."""

    def show(self, event: ev.Event) -> None:
        super().show(event)
        notice = ev.innermost_event(event)
        if isinstance(notice, ev.Notice):
            step = f"step {notice.step}, " if notice.step else ""
            self._write(f"conductor: {step}note: {one_line(notice.text)}")


class PlainProgress(SilentProgress):
    """Writes what the live tree shows, as a log: each step when it is planned, starts and ends.

    With `tick`, a thread checks every so many seconds whether the steps still working should be named.
    """

    def __init__(
        self, stderr: Stderr, *, stored: bool = True, clock: Clock = time.monotonic, tick: float | None = None
    ) -> None:
        super().__init__(stderr, stored=stored)
        self._resting = self._asking = False
        self._held: list[str] = []
        self._last_line_at = 0.0
        self._clock = clock
        self._event_at, self._event_seen = 0.0, clock()
        self._lock = threading.Lock()  # events and the timer come from different threads
        self._timer = Timer(self.report_working, tick, name="conductor-plain") if tick else None
        if self._timer is not None:
            self._timer.start()

    def show(self, event: ev.Event) -> None:
        # Loaded here, because `text_layout` loads a part of Rich, and the other two kinds of progress need none of it.
        from conductor_cli.views.run_lines import StepLayout, log_lines
        from conductor_cli.views.text_layout import WIDEST, Screen

        with self._lock:
            super().show(event)
            self._event_at, self._event_seen = event.at, self._clock()
            self._asking = isinstance(event, ev.PlanOffered)
            layout = StepLayout(Screen(width=WIDEST, encoding=self._stderr.encoding), event.at)
            lines = log_lines(event, self._trace, layout, stored=self._stored)
            texts = ("".join(text for text, _ in line).rstrip() for line in lines)
            self._add_lines([_COLUMN_GAP.sub("  ", text) for text in texts], event.at)

    def report_working(self) -> None:
        """Name the steps still working after a long silence, unless the user is deciding about a plan."""
        with self._lock:
            if self._trace.run and not self._trace.ended and not (self._resting or self._asking):
                self._add_lines([], self._event_at + self._clock() - self._event_seen)

    def rest(self) -> None:
        self._resting = True

    def wake(self) -> None:
        with self._lock:
            self._resting = False
            self._write(*self._held)
            self._held.clear()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.wake()
        super().close()

    def _add_lines(self, lines: list[str], at: float) -> None:
        if not lines and at - self._last_line_at >= PATIENCE:
            lines = [describe_working(self._trace, at)]
        if lines:
            self._last_line_at = at
        if self._resting:
            self._held += lines
        else:
            self._write(*lines)


def describe_working(trace: Trace, now: float) -> str:
    """Which steps are still working, and for how long."""
    running = [f"step {r.number} for {format_duration(r.seconds(now))}" for r in trace.steps if r.state == "running"]
    return f"still working: {', '.join(running) or 'planning'}, {format_duration(now)} in total"
