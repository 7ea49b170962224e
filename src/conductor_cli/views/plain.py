"""One line an event, in words, never redrawn: for a log file, a dumb terminal, or a screen reader.

Text that comes in pieces makes no lines of its own. While nothing else happens, a line every 30 seconds of the run says
which steps are still working.
"""

from __future__ import annotations

import threading
import time
from typing import Final, assert_never

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.base import Clock, Stderr
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    apply_without_deltas,
    compare_single_workers,
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
from conductor_cli.views.timer import Timer

PATIENCE: Final = 30.0
"""Seconds after which a line says that a step is still working."""


class PlainProgress:
    """The lines of one run, nested runs included. `kept`: the trace is on disk, so its id is worth naming.

    With `tick`, a thread looks every so many seconds whether something should be said; without, only the events say it.
    """

    def __init__(
        self, stderr: Stderr, *, kept: bool = True, clock: Clock = time.monotonic, tick: float | None = None
    ) -> None:
        self._stderr = stderr
        self._kept = kept
        self._trace = Trace()
        self._resting = self._asking = False
        self._held: list[str] = []
        self._said = 0.0
        self._clock = clock
        self._at, self._seen = 0.0, clock()
        self._lock = threading.Lock()
        self._timer = Timer(self.wait, tick, name="conductor-plain") if tick else None
        if self._timer is not None:
            self._timer.start()

    def show(self, event: ev.Event) -> None:
        with self._lock:
            self._show(event)

    def wait(self) -> None:
        """Say that something is still working, if nothing was said for long. Who is asked about a plan has quiet."""
        with self._lock:
            at = self._at + self._clock() - self._seen
            if self._trace.run and not self._trace.ended and not (self._resting or self._asking):
                self._still(at)

    def _show(self, event: ev.Event) -> None:
        self._trace = apply_without_deltas(self._trace, event)
        self._at, self._seen = event.at, self._clock()
        self._asking = isinstance(event, ev.PlanOffered)
        line = describe_event(event, self._trace, kept=self._kept)
        if line:
            self._say(line, event.at)
        else:
            self._still(event.at)

    def _still(self, at: float) -> None:
        if at - self._said >= PATIENCE:
            self._say(describe_working(self._trace, at), at)

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
        self._write(*problem_lines(self._trace, kept=self._kept))

    def _say(self, line: str, at: float) -> None:
        self._said = at
        if self._resting:
            self._held.append(line)
        else:
            self._write(line)

    def _write(self, *lines: str) -> None:
        self._stderr.write("".join(f"{line}\n" for line in lines))
        self._stderr.flush()


def describe_event(event: ev.Event, trace: Trace, *, kept: bool = False) -> str:
    """What `event` says, given the trace after it. Empty for a piece of text."""
    said = ""
    match event:
        case ev.PlanDelta() | ev.StepDelta():
            pass
        case ev.RunStarted():
            said = f"run {one_line(event.run)}: {describe_setup(trace)}: {quote_text(question_line(trace))}"
        case ev.StepPlanned() | ev.PlanRejected() | ev.PlanReady() | ev.PlanOffered() | ev.PlanDecided():
            said = _planning(event)
        case ev.StepStarted() | ev.StepFailed() | ev.StepStopped() | ev.StepFinished():
            said = f"step {event.step} {_step(event, trace)}"
        case ev.NestedEvent():
            said = _inside(event, trace)
        case ev.Notice():
            said = f"{f'step {event.step}, ' if event.step else ''}note: {one_line(event.text)}"
        case ev.RunFinished() | ev.RunFailed():
            beside = compare_single_workers(trace)
            said = f"run {_ended(event)}: {describe_totals(trace, kept=kept)}{beside and f'; {beside}'}"
        case _:
            assert_never(event)
    return said


def describe_working(trace: Trace, now: float) -> str:
    """Which steps are still working, and for how long."""
    running = [f"step {r.number} for {format_duration(r.seconds(now))}" for r in trace.steps if r.state == "running"]
    return f"still working: {', '.join(running) or 'planning'}, {format_duration(now)} in all"


def _ended(event: ev.RunFinished | ev.RunFailed) -> str:
    if isinstance(event, ev.RunFailed):
        return "failed"
    return "finished with a partial answer" if event.partial else "finished"


def _planning(event: ev.StepPlanned | ev.PlanRejected | ev.PlanReady | ev.PlanOffered | ev.PlanDecided) -> str:
    match event:
        case ev.StepPlanned():
            last = ", gives the answer" if event.last else ""
            who = f"{one_line(event.worker)}, {describe_access(event.access)}{last}"
            return f"step {event.step} planned: {who}: {quote_text(event.subtask)}"
        case ev.PlanRejected():
            hint = f" ({one_line(event.hint)})" if event.hint else ""
            return f"plan rejected, attempt {event.attempt}: {one_line(event.problem)}{hint}: {quote_text(event.text)}"
        case ev.PlanReady(plan=KeepAnswer()):
            return "plan ready: the given answer is accepted as it stands"
        case ev.PlanReady():
            return f"plan ready: {format_count(event.usage.tokens_out, 'token')}"
        case ev.PlanOffered():
            return "plan offered: it waits for the user's word"
        case ev.PlanDecided():
            return describe_decision(event)


def _step(event: ev.StepStarted | ev.StepFailed | ev.StepStopped | ev.StepFinished, trace: Trace) -> str:
    record = next((record for record in trace.steps if record.number == event.step), None)
    match event:
        case ev.StepStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"started: {one_line(event.worker)}{again}"
        case ev.StepFailed():
            return f"failed, attempt {event.attempt}: {describe_failure(event.error)}; {describe_next_attempt(event)}"
        case ev.StepStopped():
            return f"stopped: {REASONS[event.reason]}"
        case ev.StepFinished():
            how = FINISHES.get(event.finish, "")
            paid = format_cost(event.usage)
            spent = f"{_took(record, event.at)}{format_count(event.usage.tokens_out, 'token')}{paid and f', {paid}'}"
            said = "" if record and record.last else f": {quote_text(event.text)}"
            return f"finished: {spent}{how and f', {how}'}{said}"


def _took(record: StepRecord | None, now: float) -> str:
    return f"{format_duration(record.seconds(now))}, " if record else ""


def _inside(event: ev.NestedEvent, trace: Trace) -> str:
    record = next((record for record in trace.steps if record.number == event.step), None)
    line = describe_event(event.event, record.nested if record and record.nested else Trace())
    return line and f"step {event.step}, inside: {line}"
