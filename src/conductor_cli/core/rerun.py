"""Resetting a run so that it is run again from one of its steps, by `Conductor.run(resume=...)`. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import Plan
from conductor_cli.core.trace import StepRecord, Trace


def reset_from_step(trace: Trace, number: int, worker: str | None = None) -> Trace:
    """The run with step `number` and all later ones still to do; step `number` by `worker` if one is given.

    Raises `UsageError` if there is no such step, or if a step before it has no answer to start from.
    """
    check_step_exists(trace, number)
    missing = [record.number for record in trace.steps if record.number < number and record.state != "done"]
    if missing:
        raise UsageError(
            f"step {missing[0]} of run {trace.run} has no answer", hint=f"run it again from step {missing[0]}"
        )
    again = frozenset(record.number for record in trace.steps if record.number >= number)
    return _reset(trace, again, number, worker)


def reset_step(trace: Trace, number: int, worker: str | None = None) -> Trace:
    """The run with step `number` and those that see it, directly or not, still to do. Raises `UsageError`."""
    check_step_exists(trace, number)
    again = {number}
    for record in trace.steps:
        if again & {*record.step.access}:
            again.add(record.number)
    return _reset(trace, again, number, worker)


def check_step_exists(trace: Trace, number: int) -> None:
    """Raise `UsageError` if the run has no such step."""
    if number not in [record.number for record in trace.steps]:
        count = len(trace.steps)
        hint = f"it has {format_count(count, 'step')}"
        raise UsageError(f"run {trace.run} has no step {number}", hint=hint)


def _reset(trace: Trace, again: Collection[int], number: int, worker: str | None) -> Trace:
    def waiting(record: StepRecord) -> StepRecord:
        """The step as it was planned, without anything it did, a nested run included."""
        step = replace(record.step, worker=worker) if worker and record.number == number else record.step
        return StepRecord(number=record.number, step=step, last=record.last, planned=record.planned, worker=step.worker)

    steps = tuple(waiting(record) if record.number in again else record for record in trace.steps)
    plan = trace.plan
    if isinstance(plan, Plan):
        plan = replace(plan, steps=tuple(record.step for record in steps))
    return replace(trace, steps=steps, plan=plan, answer="", partial=False, error=None, state="running")
