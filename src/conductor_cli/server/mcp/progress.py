"""Progress of a run for a client: a share done that only grows, and a line for each step's change. Pure."""

from __future__ import annotations

from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_count, format_duration
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import ENDED, Trace
from conductor_cli.views.run_text import describe_failure, describe_next_attempt, quote_text, tokens_so_far

PLANNING: Final = 0.1
"""The share that is done when the plan is ready."""

LEAST: Final = 0.001
"""The protocol asks for a higher share each time, also where nothing was finished."""

MOST: Final = 0.999
"""The share before the end of the run."""


class ProgressReport:
    """Says of each event whether a client should hear of it, and what."""

    def __init__(self) -> None:
        self._share = 0.0

    def after(self, event: ev.Event, trace: Trace) -> tuple[float, str] | None:
        """The share done, above the last one, and one line; None where there is nothing to tell."""
        text = describe_event(event, trace)
        if not text:
            return None
        return self._grown(
            1.0 if isinstance(event, ev.RunFinished | ev.RunFailed) else min(share_done(trace), MOST)
        ), text

    def meanwhile(self, trace: Trace) -> tuple[float, str]:
        """The same while nothing happens: who is waited for."""
        return self._grown(self._share), describe_waiting(trace)

    def _grown(self, share: float) -> float:
        if share <= self._share:
            # In ever smaller steps, so that it stays below 1 however much there is to tell.
            share = self._share + min(LEAST, (1.0 - self._share) / 2)
        self._share = share
        return share


def share_done(trace: Trace) -> float:
    """How much of a run is done. A step that runs counts a third; a plan that is being written, little."""
    weights = sum(
        1.0 if record.state in ENDED else 0.33 if record.state == "running" else 0.0 for record in trace.steps
    )
    steps = max(len(trace.steps), 1)
    if trace.plan is None:
        return PLANNING * len(trace.steps) / MAX_STEPS + (1 - PLANNING) * weights / max(MAX_STEPS, steps)
    return PLANNING + (1 - PLANNING) * weights / steps


def describe_event(event: ev.Event, trace: Trace) -> str:  # noqa: C901, PLR0911 - one for each kind of event
    """One line about an event that a client should hear of; empty for any other."""
    match event:
        case ev.RunStarted():
            return "started"
        case ev.StepPlanned():
            return f"step {event.step} planned: {_name(event.worker)}, {quote_text(event.subtask)}"
        case ev.PlanReady():
            return f"plan ready: {format_count(len(trace.steps), 'step')}"
        case ev.PlanRejected():
            return f"plan not valid, trying again: {one_line(event.problem):.200}"
        case ev.StepStarted():
            again = f", attempt {event.attempt}" if event.attempt > 1 else ""
            return f"{_step(event, trace)} started: {_name(event.worker)}{again}"
        case ev.StepFinished():
            return f"{_step(event, trace)} finished: {_worker(event, trace)}, {format_duration(event.usage.seconds)}"
        case ev.StepFailed():
            rest = "" if event.final else f"; {describe_next_attempt(event)}"
            return f"{_step(event, trace)} failed: {_worker(event, trace)}, {describe_failure(event.error)}{rest}"
        case ev.StepStopped():
            return f"{_step(event, trace)} stopped: {event.reason.replace('_', ' ')}"
        case ev.ToolCalled():
            return f"{_step(event, trace)}: {_worker(event, trace)} calls {_name(event.call.name)}"
        case ev.NestedEvent():
            record = next((item for item in trace.steps if item.number == event.step), None)
            nested = describe_event(event.event, record.nested if record and record.nested else Trace())
            return f"step {event.step}, nested run: {nested}" if nested else ""
        case ev.RunFinished():
            return "finished with a part of the answer" if event.partial else "finished"
        case ev.RunFailed():
            return f"failed: {describe_failure(event.error)}"
    return ""


def describe_waiting(trace: Trace) -> str:
    """`waiting for alpha, about 120 tokens so far`, or that the plan is being written."""
    running = [record for record in trace.steps if record.state == "running"]
    parts = [
        f"{_name(record.worker)} (about {format_count(tokens_so_far(record), 'token')} so far)" for record in running
    ]
    return f"waiting for {', '.join(parts)}" if parts else "planning" if trace.plan is None else "waiting"


_StepEvent = ev.StepStarted | ev.StepFinished | ev.StepFailed | ev.StepStopped | ev.ToolCalled


def _step(event: _StepEvent, trace: Trace) -> str:
    return f"step {event.step} of {len(trace.steps)}" if trace.plan is not None else f"step {event.step}"


def _worker(event: _StepEvent, trace: Trace) -> str:
    """Who had the step when the event happened. A failed attempt belongs to the worker before the substitute."""
    record = next((item for item in trace.steps if item.number == event.step), None)
    if record is None:
        return "a worker"
    if isinstance(event, ev.StepFailed) and record.failed:
        return _name(record.failed[-1].worker)
    return _name(record.worker)


def _name(name: str) -> str:
    return one_line(name)[:80]
