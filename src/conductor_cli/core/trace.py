"""A run as its readers see it: the fold of its events. `apply(trace, event) -> trace`, nothing else.

The live tree, the store's listing, `ask --resume`, evaluation and the run itself look at a `Trace`; folding a stored
file gives the same one as folding the live stream.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeVar, assert_never

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Message
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import KeepAnswer, Plan, Step
from conductor_cli.core.policy import NO_POLICY, Policy
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Usage

StepState = Literal["waiting", "running", "done", "failed", "stopped", "skipped"]
RunState = Literal["planning", "running", "finished", "failed"]

ENDED: Final[frozenset[StepState]] = frozenset({"done", "failed", "stopped", "skipped"})


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step as far as it has come. `worker` is who has it now, which after a substitution is not `step.worker`."""

    number: int
    step: Step
    last: bool
    planned: float
    state: StepState = "waiting"
    worker: str = ""
    attempt: int = 0
    prompt: tuple[Message, ...] = ()
    text: str = ""
    thinking: str = ""
    usage: Usage = Usage()
    finish: Finish | None = None
    error: Failure | None = None
    reason: ev.StopReason | None = None
    retry_at: float | None = None
    started: float | None = None
    ended: float | None = None
    nested: Trace | None = None

    def seconds(self, now: float) -> float:
        """Seconds that the step has taken until `now`, or took in all."""
        return 0.0 if self.started is None else (now if self.ended is None else self.ended) - self.started


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One run as far as it has come. `at` is the time of the newest event."""

    run: str = ""
    time: str = ""
    question: Question = Question(text="")
    pool: Pool = Pool(workers=())
    limits: Limits = Limits()
    mode: ev.Mode = "auto"
    conductor: str = ""
    profile: str = ""
    format: int = ev.FORMAT
    recipient: str = ""
    policy: Policy = NO_POLICY
    resumed: str = ""
    planner_inputs: tuple[str, ...] = ev.EXTRA
    at: float = 0.0
    state: RunState = "planning"
    plan_text: str = ""
    plan: Plan | KeepAnswer | None = None
    planning: Usage = Usage()
    rejected: tuple[ev.PlanRejected, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    notices: tuple[ev.Notice, ...] = ()
    answer: str = ""
    partial: bool = False
    error: Failure | None = None
    usage: Usage = field(default=Usage())

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "failed")

    @property
    def exit_code(self) -> int:
        """0, or what the error or the partial answer asks for. A limit (6) wins over a partial answer (7)."""
        if self.error is not None and (self.state == "failed" or self.error.kind in _STRONGER_THAN_PARTIAL):
            return self.error.exit_code
        return 7 if self.partial else 0

    def done(self) -> dict[int, StepRecord]:
        """The finished steps by number."""
        return {record.number: record for record in self.steps if record.state == "done"}


_STRONGER_THAN_PARTIAL = ("limit", "cancelled", "terminated")


def apply_event(trace: Trace, event: ev.Event) -> Trace:
    """`trace` after `event`."""
    return changed(trace, at=event.at, **_changes(trace, event))


Folded = TypeVar("Folded", "Trace", "StepRecord")


def changed(value: Folded, **changes: Any) -> Folded:  # noqa: ANN401 - the fields of `value`
    """What `dataclasses.replace` gives, in a tenth of its time: this runs twice for every token of every step.

    It is why the two classes here have no slots.
    """
    new = object.__new__(type(value))
    new.__dict__.update(value.__dict__, **changes)
    return new


def _changes(trace: Trace, event: ev.Event) -> dict[str, Any]:  # noqa: PLR0911 - one for each kind of event
    """The fields of the trace that an event changes."""
    match event:
        case (
            ev.StepStarted()
            | ev.StepDelta()
            | ev.StepFailed()
            | ev.StepStopped()
            | ev.StepFinished()
            | ev.NestedEvent()
        ):
            return _of_step(trace, event)
        case ev.RunStarted():
            return _of_start(event)
        case ev.PlanDelta():
            return {"plan_text": trace.plan_text + event.text}
        case ev.StepPlanned() | ev.PlanRejected() | ev.PlanReady() | ev.PlanOffered() | ev.PlanDecided():
            return _of_plan(trace, event)
        case ev.Notice():
            return {"notices": (*trace.notices, event)}
        case ev.RunFinished():
            ending = {"answer": event.answer, "partial": event.partial, "error": event.error}
            return {"state": "finished", "usage": event.usage, **ending}
        case ev.RunFailed():
            return {"state": "failed", "error": event.error, "usage": event.usage}
        case _:
            assert_never(event)


_STARTED: Final = tuple(item.name for item in fields(ev.RunStarted) if item.name != "at")


def _of_start(event: ev.RunStarted) -> dict[str, Any]:
    return {name: getattr(event, name) for name in _STARTED}


_PlanEvent = ev.StepPlanned | ev.PlanRejected | ev.PlanReady | ev.PlanOffered | ev.PlanDecided


def _of_plan(trace: Trace, event: _PlanEvent) -> dict[str, Any]:
    match event:
        case ev.StepPlanned():
            return {"steps": (*trace.steps, _planned(event))}
        case ev.PlanRejected():
            return {"rejected": (*trace.rejected, event), **_spent(trace, event)}
        case ev.PlanReady():
            return {"plan": event.plan, "state": "running", **_spent(trace, event)}
        case ev.PlanDecided() if event.verdict != "approved":
            return {"plan": None, "plan_text": "", "steps": (), "state": "planning"}
        case _:
            return {}


def _planned(event: ev.StepPlanned) -> StepRecord:
    step = Step(worker=event.worker, subtask=event.subtask, access=event.access)
    return StepRecord(number=event.step, step=step, last=event.last, planned=event.at, worker=event.worker)


def _spent(trace: Trace, event: ev.PlanRejected | ev.PlanReady) -> dict[str, Any]:
    return {"planning": trace.planning + event.usage, "usage": trace.usage + event.usage}


_StepEvent = ev.StepStarted | ev.StepDelta | ev.StepFailed | ev.StepStopped | ev.StepFinished | ev.NestedEvent


def _of_step(trace: Trace, event: _StepEvent) -> dict[str, Any]:
    for index, record in enumerate(trace.steps):
        if record.number == event.step:
            steps = (*trace.steps[:index], _step(record, event), *trace.steps[index + 1 :])
            if isinstance(event, (ev.StepStarted, ev.StepDelta, ev.NestedEvent)):
                return {"steps": steps}
            return {"steps": steps, "usage": trace.usage + event.usage}
    return {}


def _step(record: StepRecord, event: _StepEvent) -> StepRecord:
    match event:
        case ev.StepStarted():
            return _begin(record, event)
        case ev.StepDelta():
            return changed(record, text=record.text + event.text, thinking=record.thinking + event.thinking)
        case ev.StepFailed():
            return _fail(record, event)
        case ev.StepStopped():
            state: StepState = "stopped" if record.started is not None else "skipped"
            return changed(
                record,
                state=state,
                reason=event.reason,
                usage=record.usage + event.usage,
                retry_at=None,
                ended=event.at,
            )
        case ev.StepFinished():
            return changed(
                record, state="done", text=event.text, finish=event.finish, error=None,
                usage=record.usage + event.usage, ended=event.at,
            )  # fmt: skip
        case ev.NestedEvent():
            return changed(record, nested=apply_event(record.nested or Trace(), event.event))
        case _:
            assert_never(event)


def _begin(record: StepRecord, event: ev.StepStarted) -> StepRecord:
    return changed(
        record, state="running", worker=event.worker, attempt=event.attempt, prompt=event.prompt, text="",
        thinking="", retry_at=None, started=event.at if record.started is None else record.started,
    )  # fmt: skip


def _fail(record: StepRecord, event: ev.StepFailed) -> StepRecord:
    record = changed(record, error=event.error, usage=record.usage + event.usage)
    if event.retry_in is not None:
        return changed(record, retry_at=event.at + event.retry_in)
    if event.substitute is not None:
        return changed(record, worker=event.substitute)
    return changed(record, state="failed", ended=event.at)
