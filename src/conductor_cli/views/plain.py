"""Progress as plain lines that are never redrawn: one per event, only notices and problems, or only problems.

Lines are for log files, simple terminals and screen readers; notices and problems are what a script's stderr gets.
"""

from __future__ import annotations

import threading
import time
from typing import Final, assert_never

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import Clock, Stderr, Timer
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    apply_without_deltas,
    describe_access,
    describe_decision,
    describe_failure,
    describe_next_attempt,
    describe_setup,
    describe_totals,
    problem_lines,
    question_line,
    quote_text,
)

PATIENCE: Final = 30.0
"""Seconds of silence after which a line says which steps are still working."""


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
        if isinstance(ev.innermost_event(event), ev.Notice):
            self._write(f"conductor: {describe_event(event, self._trace)}")


class PlainProgress(SilentProgress):
    """Writes a line per event, those of nested runs included; streamed text has no lines.

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
        with self._lock:
            super().show(event)
            self._event_at, self._event_seen = event.at, self._clock()
            self._asking = isinstance(event, ev.PlanOffered)
            if line := describe_event(event, self._trace, stored=self._stored):
                self._add_line(line, event.at)
            else:
                self._add_working_line(event.at)

    def report_working(self) -> None:
        """Name the steps still working after a long silence, unless the user is deciding about a plan."""
        with self._lock:
            if self._trace.run and not self._trace.ended and not (self._resting or self._asking):
                self._add_working_line(self._event_at + self._clock() - self._event_seen)

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

    def _add_working_line(self, at: float) -> None:
        if at - self._last_line_at >= PATIENCE:
            self._add_line(describe_working(self._trace, at), at)

    def _add_line(self, line: str, at: float) -> None:
        self._last_line_at = at
        if self._resting:
            self._held.append(line)
        else:
            self._write(line)


def describe_event(event: ev.Event, trace: Trace, *, stored: bool = False) -> str:  # noqa: C901, PLR0911, PLR0912 - one per event
    """What `event` says in one line, given the trace after it. Empty for a piece of text."""
    record = next((record for record in trace.steps if record.number == getattr(event, "step", 0)), None)
    match event:
        case ev.PlanDelta() | ev.StepDelta():
            return ""
        case ev.RunStarted():
            return f"run {one_line(event.run)}: {describe_setup(trace)}: {quote_text(question_line(trace))}"
        case ev.StepPlanned():
            last = ", gives the answer" if event.last else ""
            who = f"{one_line(event.worker)}, {describe_access(event.access)}{last}"
            return f"step {event.step} planned: {who}: {quote_text(event.subtask)}"
        case ev.PlanRejected():
            hint = f" ({one_line(event.hint)})" if event.hint else ""
            return f"plan rejected, attempt {event.attempt}: {one_line(event.problem)}{hint}: {quote_text(event.text)}"
        case ev.PlanReady(plan=KeepAnswer()):
            return "plan ready: the given answer is kept"
        case ev.PlanReady():
            return f"plan ready: {format_count(event.usage.tokens_out, 'token')}"
        case ev.PlanOffered():
            return "plan offered: waiting for the user's decision"
        case ev.PlanDecided():
            return describe_decision(event)
        case ev.StepStarted():
            attempt = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"step {event.step} started: {one_line(event.worker)}{attempt}"
        case ev.StepFailed():
            why = f"{describe_failure(event.error)}; {describe_next_attempt(event)}"
            return f"step {event.step} failed, attempt {event.attempt}: {why}"
        case ev.StepStopped():
            return f"step {event.step} stopped: {REASONS[event.reason]}"
        case ev.StepFinished():
            took = format_duration(record.seconds(event.at)) if record else ""
            tokens, ending = format_count(event.usage.tokens_out, "token"), FINISHES.get(event.finish, "")
            facts = ", ".join(filter(None, (took, tokens, format_cost(event.usage), ending)))
            # The answering step's text is the answer, which standard output has.
            text = "" if record and record.last else f": {quote_text(event.text)}"
            return f"step {event.step} finished: {facts}{text}"
        case ev.NestedEvent():
            line = describe_event(event.event, record.nested if record and record.nested else Trace())
            return line and f"step {event.step}, nested: {line}"
        case ev.Notice():
            return f"{f'step {event.step}, ' if event.step else ''}note: {one_line(event.text)}"
        case ev.RunFinished() | ev.RunFailed():
            partial = isinstance(event, ev.RunFinished) and event.partial
            state = "failed" if isinstance(event, ev.RunFailed) else "finished"
            totals = describe_totals(trace, stored=stored)
            return f"run {state}{' with a partial answer' if partial else ''}: {totals}"
        case _:
            assert_never(event)


def describe_working(trace: Trace, now: float) -> str:
    """Which steps are still working, and for how long."""
    running = [f"step {r.number} for {format_duration(r.seconds(now))}" for r in trace.steps if r.state == "running"]
    return f"still working: {', '.join(running) or 'planning'}, {format_duration(now)} in total"
