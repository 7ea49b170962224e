"""Progress as plain lines that are never redrawn: all of them, only notices and problems, or only problems.

Lines are for log files, simple terminals and screen readers; notices and problems are what a script's stderr gets.

What happens in a run, as lines of a log: one after the other, in words. Pure.
"""

from __future__ import annotations

import textwrap
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_count, format_duration
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import ENDED, StepRecord, Trace, describe_revised_plan
from conductor_cli.views.base import Stderr
from conductor_cli.views.run_text import (
    FINISHES,
    apply_without_deltas,
    describe_decision,
    describe_failure,
    describe_next_attempt,
    describe_notice,
    describe_setup,
    describe_totals,
    find_step,
    problem_lines,
    shorten_line,
    tool_name,
)
from conductor_cli.views.run_tree import step_node

WIDTH: Final = 100
"""Characters of a line with somebody's text."""

QUESTION_LINES: Final = 8

MOST_REJECTED: Final = 2
"""The most plans that are not valid which get lines."""

LONGEST_SUBTASK: Final = 60
"""Characters of the subtask of a step that has ended. The log has the whole of it since the step was planned."""


def log_lines(event: ev.Event, trace: Trace, *, stored: bool, asked: bool = False, outer: str = "") -> list[str]:
    """What a log says about `event`, given the trace after it; nothing about streamed texts.

    `asked`: the question is not repeated. `outer` stands before the step numbers of a nested run: `2.`.
    """
    record = find_step(trace, getattr(event, "step", 0))
    match event:
        case ev.NestedEvent() if record is not None and record.nested is not None:
            return log_lines(event.event, record.nested, stored=stored, outer=f"{outer}{record.number}.")
        case ev.RunStarted() if not outer:
            return [*([] if asked else _question(trace.question.text)), describe_setup(trace)]
        case ev.RunFinished() | ev.RunFailed() if not outer:
            return [describe_totals(trace, stored=stored)]
        case ev.PlanRejected() if event.attempt > MOST_REJECTED:
            return []  # a conductor that may try many times writes much the same again
        case ev.PlanRejected():
            hint = f" ({event.hint})" if event.hint else ""
            said = [f"   | {one_line(line)[:WIDTH]}" for line in event.text.splitlines()[-1:]]
            return [_line(outer, "rejected", f"plan, attempt {event.attempt}"), *_text(event.problem + hint), *said]
        case ev.PlanReady(plan=KeepAnswer()):
            return [_line(outer, "done", "the given answer is kept")]
        case ev.PlanDecided() if event.verdict != "approved":
            return [_line(outer, "note", describe_decision(event))]
        case ev.PlanRevised():
            text = describe_revised_plan(event.step, event.workers)
            return textwrap.wrap(_line(outer, "note", text), WIDTH, subsequent_indent="   ")
        case ev.Notice():
            number = f"{outer}{event.step}" if event.step else outer
            return textwrap.wrap(_line(number, "note", event.text), WIDTH, subsequent_indent="   ")
        case ev.ToolCalled() | ev.ToolReturned() if record is not None:
            return _tool_lines(event, record, outer)
        case _ if record is not None:
            return _step_lines(event, record, trace, outer)
        case _:
            return []


def _question(text: str) -> list[str]:
    """The first lines of the question, and how many follow."""
    lines = text.strip().splitlines()
    shown = [row for line in lines[:QUESTION_LINES] for row in textwrap.wrap(one_line(line), WIDTH)[:QUESTION_LINES]]
    left = len(lines) - QUESTION_LINES
    return [*shown[:QUESTION_LINES], *([f"... +{format_count(left, 'line')}"] if left > 0 else [])]


def _step_lines(event: ev.Event, record: StepRecord, trace: Trace, outer: str) -> list[str]:
    """What happens to a step."""
    match event:
        case ev.StepPlanned():
            return [_state_line(record, trace, outer), *_text(record.step.subtask)]
        case ev.StepStarted():
            return [_state_line(record, trace, outer)]
        case ev.StepFailed() if record.state != "failed":
            what = f"attempt {event.attempt}" if event.attempt else "not asked"
            head = _line(f"{outer}{record.number}", "failed", f"{what}; {describe_next_attempt(event)}")
            hint = event.error.hint if event.substitute is not None else ""
            return [head, *_text(describe_failure(event.error)), *_text(f"hint: {hint}" if hint else "")]
        case ev.StepFailed():
            return [_state_line(record, trace, outer), *_text(describe_failure(event.error))]
        case ev.StepStopped() | ev.StepFinished():
            return [_state_line(record, trace, outer), *_text(FINISHES.get(record.finish or "", ""))]
        case _:
            return []


def _tool_lines(event: ev.ToolCalled | ev.ToolReturned, record: StepRecord, outer: str) -> list[str]:
    """A call that begins, with its arguments, or one that has ended, with its result."""
    number = f"{outer}{record.number}"
    call_id = event.call.id if isinstance(event, ev.ToolCalled) else event.call_id
    called = (event.attempt, event.turn, call_id)
    use = next((use for use in record.tools if (use.attempt, use.turn, use.call.id) == called), None)
    if use is None:
        return []
    if isinstance(event, ev.ToolCalled):
        return [_line(number, "tool running", f"{tool_name(use)} {shorten_line(event.call.arguments, WIDTH)}")]
    what = f"{tool_name(use)}, {format_duration(event.seconds)}:"
    return [_line(number, "tool failed" if event.error else "tool done", f"{what} {shorten_line(event.text, WIDTH)}")]


def _state_line(record: StepRecord, trace: Trace, outer: str) -> str:
    """A step as it is now: number, state, worker, what is special, figures."""
    node = step_node(record, trace, outer)
    subtask = textwrap.shorten(one_line(node.label), LONGEST_SUBTASK, placeholder=" ...") if node.state in ENDED else ""
    status = "" if node.status == node.state else node.status
    remark = "" if node.state == "waiting" and status else node.remark
    details = ", ".join(filter(None, (remark, status, subtask)))
    texts = map(one_line, (node.name, details, *node.figures))
    return f"{node.number:>2} {node.state}  {'  '.join(filter(None, texts))}"


def _line(number: str, state: str, text: str) -> str:
    return f"{number.rstrip('.'):>2} {state}  {one_line(text)}"


def _text(text: str) -> list[str]:
    """A text of somebody's, under its line."""
    return [f"   {line}" for line in textwrap.wrap(one_line(text), WIDTH - 3)]


class SilentProgress:
    """Writes at most three lines, and only when there is no answer or only a part of one.

    `stored`: the trace is on disk, so the command that resumes the run can be shown.
    """

    def __init__(self, stderr: Stderr, *, stored: bool = True) -> None:
        self._stderr = stderr
        self._stored = stored
        self._trace = Trace()
        self._told: list[ev.Notice] = []

    def show(self, event: ev.Event) -> None:
        self._trace = apply_without_deltas(self._trace, event)

    def rest(self) -> None:
        """There is nothing to pause."""

    def wake(self) -> None:
        """There was nothing to pause."""

    def close(self) -> None:
        self._write(*problem_lines(self._trace, stored=self._stored))

    def _newly_told(self) -> list[str]:
        """Lines about what the reader should know and was not told before."""
        known, self._told = set(self._told), self._trace.told()
        return [f"conductor: {describe_notice(notice)}" for notice in self._told if notice not in known]

    def _write(self, *lines: str) -> None:
        if lines:
            self._stderr.write("".join(f"{line}\n" for line in lines))
            self._stderr.flush()


class NoticesProgress(SilentProgress):
    """Also writes each notice and what was recovered, because whoever uses an answer should know how it came about."""

    def show(self, event: ev.Event) -> None:
        super().show(event)
        self._write(*self._newly_told())


class PlainProgress(SilentProgress):
    """Writes what the live tree shows, as a log: each step when it is planned, starts and ends."""

    def __init__(self, stderr: Stderr, *, stored: bool = True, asked: bool = False) -> None:
        """`asked`: the question stands on the terminal already."""
        super().__init__(stderr, stored=stored)
        self._asked = asked
        self._resting = False
        self._held: list[str] = []

    def show(self, event: ev.Event) -> None:
        super().show(event)
        self._held += log_lines(event, self._trace, stored=self._stored, asked=self._asked)
        if not self._resting:
            self.wake()

    def rest(self) -> None:
        self._resting = True

    def wake(self) -> None:
        self._resting = False
        self._write(*self._held)
        self._held.clear()

    def close(self) -> None:
        self.wake()
        super().close()
