"""Progress as plain lines that are never redrawn: all of them, only notices and problems, or only problems.

Lines are for log files, simple terminals and screen readers; notices and problems are what a script's stderr gets.
"""

from __future__ import annotations

import textwrap
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_count
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import RunView, Stderr
from conductor_cli.views.run_text import (
    MAX_QUOTE,
    describe_notice,
    describe_setup,
    describe_totals,
    log_lines,
    problem_lines,
)

QUESTION_LINES: Final = 8


class SilentProgress(RunView):
    """Writes at most three lines, and only when there is no answer or only a part of one.

    `stored`: the trace is on disk, so the command that resumes the run can be shown.
    """

    def __init__(self, stderr: Stderr, *, stored: bool = True) -> None:
        self._stderr = stderr
        self._stored = stored
        self._trace = Trace()

    def show(self, _: ev.Event, trace: Trace) -> None:
        self._trace = trace

    def close(self) -> None:
        self._write(problem_lines(self._trace, stored=self._stored))

    def _write(self, lines: list[str]) -> None:
        if lines:
            self._stderr.write("".join(f"{line}\n" for line in lines))
            self._stderr.flush()


class NoticesProgress(SilentProgress):
    """Also writes each notice and what was recovered, because whoever uses an answer should know how it came about."""

    def __init__(self, stderr: Stderr, *, stored: bool = True) -> None:
        super().__init__(stderr, stored=stored)
        self._told: list[ev.Notice] = []

    def show(self, event: ev.Event, trace: Trace) -> None:
        self._trace = trace
        if not isinstance(ev.innermost_event(event), ev.PlanDelta | ev.StepDelta):
            known, self._told = set(self._told), trace.all_notices()
            self._write([f"conductor: {describe_notice(notice)}" for notice in self._told if notice not in known])


class PlainProgress(SilentProgress):
    """Writes what the live tree shows, as a log: each step when it is planned, starts and ends."""

    def __init__(self, stderr: Stderr, *, stored: bool = True, asked: bool = False) -> None:
        """`asked`: the question stands on the terminal already."""
        super().__init__(stderr, stored=stored)
        self._asked = asked
        self._paused = False
        self._held: list[str] = []

    def show(self, event: ev.Event, trace: Trace) -> None:
        self._trace = trace
        match event:
            case ev.RunStarted():
                question = [] if self._asked else _question_lines(trace.question.text)
                self._held += [*question, describe_setup(trace)]
            case ev.RunFinished() | ev.RunFailed():
                self._held.append(describe_totals(trace, stored=self._stored))
            case _:
                self._held += log_lines(event, trace)
        if not self._paused:
            self.resume()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._write(self._held)
        self._held.clear()

    def close(self) -> None:
        self.resume()
        super().close()


def _question_lines(text: str) -> list[str]:
    """The first lines of the question, and how many follow."""
    lines = text.strip().splitlines()
    rows = [row for line in lines[:QUESTION_LINES] for row in textwrap.wrap(one_line(line), MAX_QUOTE)[:QUESTION_LINES]]
    left = len(lines) - QUESTION_LINES
    return [*rows[:QUESTION_LINES], *([f"... +{format_count(left, 'line')}"] if left > 0 else [])]
