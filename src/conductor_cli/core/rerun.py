"""A run to be run again from one of its steps on: what `Conductor.run(resume=...)` takes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Plan
from conductor_cli.core.trace import StepRecord, Trace


def reset_from_step(trace: Trace, number: int, worker: str | None = None) -> Trace:
    """The run with step `number` and all behind it still to do, step `number` by `worker` where one is named.

    Raises `UsageError` where there is no such step, or the one before it has no answer to start from.
    """
    check_step_exists(trace, number)
    again = frozenset(record.number for record in trace.steps if record.number >= number)
    missing = [record.number for record in trace.steps if record.number < number and record.state != "done"]
    if missing:
        hint = f"run it again from there: --from {missing[0]}"
        raise UsageError(f"step {missing[0]} of run {trace.run} has no answer", hint=hint)
    return _reset(trace, again, number, worker)


def reset_step(trace: Trace, number: int, worker: str | None = None) -> Trace:
    """The run with step `number` and those that see it, directly or not, still to do; the rest stays as it is.

    Raises `UsageError` where there is no such step.
    """
    check_step_exists(trace, number)
    again = {number}
    for record in trace.steps:
        if again & {*record.step.access}:
            again.add(record.number)
    return _reset(trace, again, number, worker)


def check_step_exists(trace: Trace, number: int) -> None:
    """Raise `UsageError` where a run has no such step."""
    if number not in [record.number for record in trace.steps]:
        count = len(trace.steps)
        hint = f"it has {count} step{'s' if count != 1 else ''}"
        raise UsageError(f"run {trace.run} has no step {number}", hint=hint)


def _reset(trace: Trace, again: Collection[int], number: int, worker: str | None) -> Trace:
    steps = tuple(
        _waiting(record, worker if record.number == number else None) if record.number in again else record
        for record in trace.steps
    )
    plan = trace.plan
    if isinstance(plan, Plan):
        plan = replace(plan, steps=tuple(record.step for record in steps))
    return replace(trace, steps=steps, plan=plan, answer="", partial=False, error=None, state="running")


def _waiting(record: StepRecord, worker: str | None) -> StepRecord:
    """The step as it was planned, on another worker where one is named; nothing of it is done, also none within it."""
    step = replace(record.step, worker=worker) if worker else record.step
    return StepRecord(number=record.number, step=step, last=record.last, planned=record.planned, worker=step.worker)
