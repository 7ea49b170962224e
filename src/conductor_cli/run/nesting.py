"""A step on worker `self`: a run of its own over the same pool, whose events come as `Inner`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import SELF, Step
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.question import Given, Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run.attempts import seen_by
from conductor_cli.run.guarding import carried, may_not

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


async def run_nested(run: Workflow, number: int) -> None:
    """Do step `number` by asking the conductor about it."""
    failure = _impossible(run, number)
    if failure is not None:
        _fail(run, number, failure)
        return
    run.emit(ev.StepStarted(at=run.now(), step=number, worker=SELF, attempt=1, prompt=()))
    inner = _nested(run, number)
    run.nested_runs[number] = inner
    run.busy.add(number)
    try:
        async for event in inner:
            run.emit(ev.NestedEvent(at=run.now(), step=number, event=event))
    except asyncio.CancelledError:
        for event in inner.rest():
            run.emit(ev.NestedEvent(at=run.now(), step=number, event=event))
        run.stopped(number, run.stop_reason(), inner.trace.usage)
        raise
    finally:
        del run.nested_runs[number]
    _close(run, number, inner)


def _impossible(run: Workflow, number: int) -> Failure | None:
    if run.setting.model is None:
        return Failure(kind="conductor", message="there is no conductor model for a step on itself")
    if run.depth_left <= 0:
        return Failure(kind="worker", message="the conductor cannot be asked any deeper")
    forbidden = may_not(run, number, SELF)
    return Failure(kind="policy", message=forbidden, hint=POLICY_HINT) if forbidden else None


def _nested(run: Workflow, number: int) -> Workflow:
    record = run.record(number)
    return type(run)(
        setting=run.setting, question=_question(run, record.step), id=f"{run.id}.{number}", shared=run.shared,
        resumed=_earlier(run, number), depth_left=run.depth_left - 1, appended=max(run.appended - 1, 0),
        final=run.final and record.last, nested=True, carried=carried(run, number),
    )  # fmt: skip


def _earlier(run: Workflow, number: int) -> Trace | None:
    """The same nested run as far as it came in the run that is resumed."""
    steps = run.resumed.steps if run.resumed is not None else ()
    return next((record.nested for record in steps if record.number == number), None)


def _question(run: Workflow, step: Step) -> Question:
    given = tuple(
        Given(worker=item.worker, subtask=item.subtask, answer=item.answer)
        for item in seen_by(run, step)
        if item.answer is not None
    )
    text = f"{run.question.text}\n\nWithin this question, the subtask is: {step.subtask}"
    return replace(run.question, text=text, given=given, parent=run.id)


def _close(run: Workflow, number: int, inner: Workflow) -> None:
    """Turn the end of a nested run into the end of its step."""
    trace = inner.trace
    reached = inner.stopped_by is not None and inner.stopped_by.kind == "limit"
    if inner.stopped_by is not None and reached:
        run.reach_limit(inner.stopped_by)
    if trace.state == "finished":
        run.emit(ev.StepDelta(at=run.now(), step=number, attempt=1, text=trace.answer))
        run.emit(
            ev.StepFinished(at=run.now(), step=number, attempt=1, text=trace.answer, usage=trace.usage, finish="stop")
        )
        return
    failure = trace.error or Failure(kind="internal", message="the nested run ended without a reason")
    if failure.kind in ("limit", "cancelled", "terminated"):
        run.stopped(number, run.stop_reason(), trace.usage)
        return
    _fail(run, number, failure, trace.usage)
    if failure.kind == "internal":
        run.break_down(failure)


def _fail(run: Workflow, number: int, failure: Failure, usage: Usage = NO_USAGE) -> None:
    run.errors.setdefault(number, []).append(failure)
    run.emit(ev.StepFailed(at=run.now(), step=number, attempt=1, error=failure, usage=usage))
