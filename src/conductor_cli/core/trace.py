"""A run as its readers see it: the fold of its events by `apply_event(trace, event) -> trace`.

The live tree, the store's listing, a resumed run, evaluation and the run itself look at a `Trace`;
folding a stored file gives the same one as folding the live stream.

Something is *recovered* when the run goes on although an attempt failed, another worker than
planned answered, or the planner's output was not a valid plan. The fold keeps these facts, and
every reader says them in the words made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Final, Literal, assert_never

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Attachment, Finish, Message, ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.formatting import format_count
from conductor_cli.core.plan import KeepAnswer, Plan, Step
from conductor_cli.core.policy import NO_POLICY, Policy
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.question import Question
from conductor_cli.core.usage import NO_USAGE, Usage

# Characters of an error's message or hint in a line about something recovered
MAX_REASON: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """An attempt at a step that failed. `started` and `ended` are seconds since the run began.

    `started` is None for a worker that was not asked at all, because it cannot be used in this run.
    With `retry_in` the same worker was asked again after so many seconds; with `substitute` another
    one; with neither the step has failed.
    """

    worker: str
    attempt: int
    started: float | None
    ended: float
    error: Failure
    usage: Usage
    retry_in: float | None = None
    substitute: str | None = None

    @property
    def message(self) -> str:
        return self.error.message.removeprefix(f"{self.worker}: ")


def describe_failed_attempts(failed: Sequence[FailedAttempt]) -> str:
    """Return how often each worker failed, why, and what to do about it where that is known.

    Such as `a failed 3 times: server error (500); b was not asked: key missing (401)`.
    """
    parts = []
    for worker, group in groupby(failed, lambda attempt: attempt.worker):
        attempts = list(group)
        last = attempts[-1]
        if last.started is None:
            outcome = "was not asked"
        elif len(attempts) == 1:
            outcome = "failed"
        else:
            outcome = f"failed {format_count(len(attempts), 'time')}"
            if any(attempt.message != last.message for attempt in attempts):
                outcome += ", the last time"
        parts.append(f"{worker} {outcome}: {_with_hint(last.message, last.error.hint)}")
    return "; ".join(parts)


def describe_revised_plan(
    step: int, workers: Sequence[str], failed: Sequence[FailedAttempt] = ()
) -> str:
    """Say that the planner was asked for the rest of the plan, and why: `step 2 could not …`."""
    who = ""
    if workers:
        who = f" by {' or '.join(workers)}"
    why = ""
    if failed:
        why = f": {describe_failed_attempts(failed)}"
    return (
        f"step {step} could not be done{who}{why}; the planner was asked for the rest of the plan"
    )


def describe_left_out(worker: str, why: Failure) -> str:
    """Return a worker of the pool that takes no part in the run, and why."""
    return f"{worker} is left out: {_with_hint(why.message, why.hint)}"


def _with_hint(message: str, hint: str) -> str:
    if hint:
        return f"{_shorten(message)}; hint: {_shorten(hint)}"
    return _shorten(message)


def _shorten(text: str) -> str:
    if len(text) <= MAX_REASON:
        return text
    return f"{text[: MAX_REASON - 4].rstrip()} ..."


Offer = ev.PlanOffered | ev.ToolOffered | ev.InputAsked
"""What a person is asked to approve."""


def describe_approval(offer: Offer) -> str:
    """Return what a run waits for: `approval of the plan`, `approval of fs.write_file`.

    Or `an answer to fs`, a server of tools that wants to know something.
    """
    if isinstance(offer, ev.PlanOffered):
        return "approval of the plan"
    if isinstance(offer, ev.InputAsked):
        return f"an answer to {offer.server}"
    return f"approval of {offer.server}.{offer.call.name}"


StepState = Literal["waiting", "running", "done", "failed", "stopped", "skipped"]
RunState = Literal["planning", "running", "finished", "failed"]
Outcome = Literal["finished", "partial", "cancelled", "failed", "running", "interrupted"]
"""How a run stands for a reader: `cancelled` is a run that a person, a client or a signal ended,
also with a part of the answer; `interrupted` one whose process is gone.
"""

ENDED: Final[frozenset[StepState]] = frozenset({"done", "failed", "stopped", "skipped"})


@dataclass(frozen=True, kw_only=True)
class ToolRecord:
    """One call of a tool, in reply number `turn` of an attempt.

    `ended` is None while the call runs.
    """

    attempt: int
    turn: int
    call: ToolCall
    server: str
    started: float
    ended: float | None = None
    text: str = ""
    error: bool = False
    read_only: bool = False
    tool: str = ""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step as far as it has come.

    `worker` is who has it now, which after a substitution is not `step.worker`.

    `failed` are the attempts that failed, in order, and `attempted` is when the newest attempt
    began. `tools` are the calls of tools of all attempts, in the order in which they began.
    `tool_calls` are those that the client of the server has to make, and `provider_data` is what
    the worker's adapter needs when the conversation goes on.
    """

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
    usage: Usage = NO_USAGE
    finish: Finish | None = None
    stop_sequence: str = ""
    error: Failure | None = None
    reason: ev.StopReason | None = None
    retry_at: float | None = None
    started: float | None = None
    attempted: float | None = None
    ended: float | None = None
    failed: tuple[FailedAttempt, ...] = ()
    tools: tuple[ToolRecord, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    provider_data: Mapping[str, Any] = field(default_factory=dict)
    nested: Trace | None = None

    def seconds(self, now: float) -> float:
        if self.started is None:
            return 0.0
        if self.ended is None:
            return now - self.started
        return self.ended - self.started


NO_PLANNER: Final = "none"  # What a run without a planner has as the name of its planner
PLAN_FILE: Final = "plan file"  # The same, of a run of a plan that was given


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One run as far as it has come. `at` is the time of the newest event.

    `revised` says what the rest of the plan was planned anew for. `recovered` says in words what
    the run recovered by itself; `all_notices` has these words and the notices of all nested runs
    too. `offer` is what the run itself waits for a person to approve, and `waited` are the seconds
    of the waits that are over; `waits_for` and `seconds_waited` include nested runs.
    """

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
    planner_saw_files: bool = True
    planner_worker: str = ""
    origin: str = ""
    at: float = 0.0
    state: RunState = "planning"
    prompt_read: ev.PromptRead | None = None
    plan_text: str = ""
    plan: Plan | KeepAnswer | None = None
    planning: Usage = NO_USAGE
    rejected: tuple[ev.PlanRejected, ...] = ()
    revised: ev.PlanRevised | None = None
    steps: tuple[StepRecord, ...] = ()
    notices: tuple[ev.Notice, ...] = ()
    recovered: tuple[ev.Notice, ...] = ()
    answer: str = ""
    partial: bool = False
    tool_calls: tuple[ToolCall, ...] = ()
    error: Failure | None = None
    usage: Usage = NO_USAGE
    offer: Offer | None = None
    waited: float = 0.0

    @property
    def waits_for(self) -> Offer | None:
        """What a person has to approve before the run, or one that is nested in it, goes on."""
        if self.ended:
            return None
        if self.offer is not None:
            return self.offer
        for record in self.steps:
            if record.state == "running" and record.nested is not None:
                offer = record.nested.waits_for
                if offer is not None:
                    return offer
        return None

    def seconds_waited(self, now: float) -> float:
        """Return for how long the run did nothing but wait for a person, until second `now`."""
        seconds = self.waited
        if self.offer is not None and not self.ended:
            seconds += _seconds_of_wait(self, self.offer, now)
        for record in self.steps:
            if record.nested is not None and record.started is not None:
                seconds += record.nested.seconds_waited(now - record.started)
        return seconds

    @property
    def ended(self) -> bool:
        return self.state in ("finished", "failed")

    @property
    def is_unplanned(self) -> bool:
        """Whether the question went to one worker as it is, without a planner."""
        return self.conductor == NO_PLANNER

    @property
    def planner(self) -> str:
        """The planner's name and file hash, or what planned in its place."""
        return self.conductor

    @property
    def stored(self) -> bool:
        return not any(notice.reason == "trace_not_stored" for notice in self.notices)

    @property
    def exit_code(self) -> int:
        """0, or the code of the error or of a partial answer.

        A limit (6) wins over a partial answer (7).
        """
        stronger = ("limit", "cancelled", "terminated")
        if self.error is not None and (self.state == "failed" or self.error.kind in stronger):
            return self.error.exit_code
        if self.partial:
            return 7
        return 0

    @property
    def cancelled(self) -> bool:
        return self.error is not None and self.error.kind in ("cancelled", "terminated")

    def outcome(self, *, live: bool = False) -> Outcome:
        if not self.ended:
            if live:
                return "running"
            return "interrupted"
        if self.cancelled:
            return "cancelled"
        if self.state == "failed":
            return "failed"
        if self.partial:
            return "partial"
        return "finished"

    def done(self) -> dict[int, StepRecord]:
        return {record.number: record for record in self.steps if record.state == "done"}

    def all_notices(self) -> list[ev.Notice]:
        """Return all that a reader should know about how the answer came about.

        Notices and what was recovered, by time.
        """
        notices = {*self.notices, *self.recovered}
        for record in self.steps:
            if record.nested is not None:
                notices.update(_notices_of_nested(record, record.nested))
        return sorted(notices, key=lambda notice: (notice.at, notice.step, notice.text))


NO_TRACE: Final = Trace()  # Of a run that has not begun


def find_step(trace: Trace, number: int) -> StepRecord | None:
    """Return the step of this number; None where the run has none."""
    for record in trace.steps:
        if record.number == number:
            return record
    return None


def has_notice(notices: Iterable[ev.Notice], text: str) -> bool:
    """Return whether one of these notices has this text."""
    return any(notice.text == text for notice in notices)


def find_answering_step(trace: Trace) -> StepRecord | None:
    """Return the step whose answer is the run's; None before it is planned."""
    for record in trace.steps:
        if record.last:
            return record
    return None


def _notices_of_nested(record: StepRecord, nested: Trace) -> Iterator[ev.Notice]:
    """Yield the notices of a step's nested run as notices of the step."""
    for notice in nested.all_notices():
        text = f"its nested run: {notice.text}"
        if notice.step:
            text = f"step {notice.step} of {text}"
        at = (record.started or 0.0) + notice.at
        yield replace(notice, at=at, step=record.number, text=text)


def apply_event(trace: Trace, event: ev.Event) -> Trace:
    """Return `trace` after `event`."""
    return fast_replace(trace, at=event.at, **_changes(trace, event))


def fold(events: Iterable[ev.Event]) -> Iterator[tuple[ev.Event, Trace]]:
    """Yield each event of a run with the trace after it, as a run that is going on does."""
    trace = Trace()
    for event in events:
        trace = apply_event(trace, event)
        yield event, trace


_STARTED: Final = tuple(
    item.name for item in fields(ev.RunStarted) if item.name not in {"at", "planner"}
)
"""The fields of a trace that its first event has. It has the planner as `conductor` for good."""


def _changes(trace: Trace, event: ev.Event) -> dict[str, Any]:
    match event:
        case ev.RunStarted():
            return {name: getattr(event, name) for name in _STARTED}
        case ev.PromptRead():
            return {"prompt_read": event}
        case ev.PlanDelta():
            return {"plan_text": trace.plan_text + event.text}
        case ev.StepPlanned():
            return {"steps": (*trace.steps, _planned_step(event))}
        case ev.PlanRejected():
            return {"rejected": (*trace.rejected, event), **_with_planning(trace, event.usage)}
        case ev.PlanReady():
            return {
                "plan": event.plan,
                "state": "running",
                "steps": _steps_of_ready_plan(trace, event),
                "recovered": _recovered_by_ready_plan(trace, event),
                **_with_planning(trace, event.usage),
            }
        case ev.PlanOffered() | ev.ToolOffered() | ev.InputAsked():
            return _after_wait(trace, event.at) | {"offer": event}
        case ev.PlanDecided():
            if event.verdict == "approved":
                return _after_wait(trace, event.at)
            discarded = {"plan": None, "plan_text": "", "steps": (), "state": "planning"}
            return discarded | _after_wait(trace, event.at)
        case ev.PlanRevised():
            return _changes_of_revised_plan(trace, event)
        case ev.Notice():
            recovered = trace.recovered
            if event.recovered:
                recovered = (*trace.recovered, event)
            return {"notices": (*trace.notices, event), "recovered": recovered}
        case ev.RunFinished():
            return {
                "state": "finished",
                "usage": event.usage,
                "answer": event.answer,
                "partial": event.partial,
                "error": event.error,
                "tool_calls": event.tool_calls,
                **_after_wait(trace, event.at),
            }
        case ev.RunFailed():
            ended = {"state": "failed", "error": event.error, "usage": event.usage}
            return ended | _after_wait(trace, event.at)
        case _:
            for index, record in enumerate(trace.steps):
                if record.number == event.step:
                    return _changes_of_step(trace, index, event)
            return {}


def _planned_step(event: ev.StepPlanned) -> StepRecord:
    step = Step(worker=event.worker, subtask=event.subtask, access=event.access)
    return StepRecord(
        number=event.step, step=step, last=event.last, planned=event.at, worker=event.worker
    )


def _with_planning(trace: Trace, usage: Usage) -> dict[str, Usage]:
    """Return the usages of a trace after a request to the planner."""
    return {"planning": trace.planning + usage, "usage": trace.usage + usage}


def _steps_of_ready_plan(trace: Trace, event: ev.PlanReady) -> tuple[StepRecord, ...]:
    """Return the steps of a whole plan; where none was announced as the last, the newest is."""
    steps = trace.steps
    is_whole = isinstance(event.plan, Plan) and len(event.plan.steps) == len(steps)
    if steps and is_whole and not any(record.last for record in steps):
        return (*steps[:-1], fast_replace(steps[-1], last=True))
    return steps


def _recovered_by_ready_plan(trace: Trace, event: ev.PlanReady) -> tuple[ev.Notice, ...]:
    # A plan that the planner did not write has no prompt.
    if not event.prompt or not trace.rejected:
        return trace.recovered
    rejected = trace.rejected[-1]
    fault = "the planner failed"
    if rejected.reason == "plan_invalid":
        fault = "the planner's output was not a valid plan"
    text = f"{fault}: {_shorten(rejected.problem)}; the planner was asked again"
    # It may be an earlier plan that was repaired: one that the user has rejected since.
    if has_notice(trace.recovered, text):
        return trace.recovered
    return (*trace.recovered, ev.Notice(at=event.at, text=text, recovered=True))


def _changes_of_revised_plan(trace: Trace, event: ev.PlanRevised) -> dict[str, Any]:
    failed: tuple[FailedAttempt, ...] = ()
    for record in trace.steps:
        if record.number == event.step:
            failed = record.failed
            break
    text = describe_revised_plan(event.step, event.workers, failed)
    plan_text = trace.plan_text
    if plan_text:
        plan_text += "\n\n"
    return {
        "plan": None,
        "state": "planning",
        "revised": event,
        "recovered": (*trace.recovered, ev.Notice(at=event.at, text=text, recovered=True)),
        "plan_text": plan_text,
        "steps": tuple(fast_replace(record, last=False) for record in trace.steps),
    }


_StepEvent = (
    ev.StepStarted
    | ev.StepDelta
    | ev.ToolCalled
    | ev.ToolReturned
    | ev.StepFailed
    | ev.StepStopped
    | ev.StepFinished
    | ev.NestedEvent
)


def _changes_of_step(trace: Trace, index: int, event: _StepEvent) -> dict[str, Any]:
    record = trace.steps[index]
    steps = (*trace.steps[:index], _record_after(record, event), *trace.steps[index + 1 :])
    if trace.offer is not None and _ends_wait(event, trace.offer):
        waited = _after_wait(trace, event.at)
        return waited | _changes_of_step(fast_replace(trace, **waited), index, event)
    if not isinstance(event, (ev.StepFailed, ev.StepStopped, ev.StepFinished)):
        return {"steps": steps}
    changes: dict[str, Any] = {"steps": steps, "usage": trace.usage + event.usage}
    is_recovered = bool(record.failed) or record.worker != record.step.worker
    if isinstance(event, ev.StepFinished) and is_recovered:
        text = _describe_recovered_step(record)
        notice = ev.Notice(at=event.at, step=event.step, text=text, recovered=True)
        changes["recovered"] = (*trace.recovered, notice)
    return changes


def _ends_wait(event: _StepEvent, offer: Offer) -> bool:
    """Return whether an event says that the person has decided, or that nobody waits any more."""
    if isinstance(offer, ev.PlanOffered) or event.step != offer.step:
        return False
    if isinstance(offer, ev.InputAsked) and isinstance(event, ev.ToolReturned):
        return (event.attempt, event.turn) == (offer.attempt, offer.turn)
    if isinstance(offer, ev.ToolOffered) and isinstance(event, ev.ToolCalled):
        return (event.attempt, event.turn, event.call.id) == (
            offer.attempt,
            offer.turn,
            offer.call.id,
        )
    return isinstance(event, ev.StepStarted | ev.StepFailed | ev.StepStopped | ev.StepFinished)


def _after_wait(trace: Trace, at: float) -> dict[str, Any]:
    """Return what changes when a person is not waited for any more."""
    if trace.offer is None:
        return {}
    return {"offer": None, "waited": trace.waited + _seconds_of_wait(trace, trace.offer, at)}


def _seconds_of_wait(trace: Trace, offer: Offer, at: float) -> float:
    """Return the seconds from an offer to `at`; none where another step ran meanwhile."""
    if isinstance(offer, ev.PlanOffered):  # before which no step begins
        return max(0.0, at - offer.at)
    for record in trace.steps:
        if record.number == offer.step or record.started is None:
            continue
        if record.ended is None or record.ended > offer.at:
            return 0.0
    return max(0.0, at - offer.at)


def _describe_recovered_step(record: StepRecord) -> str:
    """Say how a step came to its answer that another worker, or a later attempt, has given."""
    planned = record.step.worker
    how = f"instead of {planned}"
    if record.worker == planned:
        how = f"at attempt {len(record.failed) + 1}"
    text = f"{record.worker} answered {how}"
    if record.failed:
        text += f"; {describe_failed_attempts(record.failed)}"
    return text


def _record_after(record: StepRecord, event: _StepEvent) -> StepRecord:
    match event:
        case ev.StepStarted():
            started = record.started
            if started is None:
                started = event.at
            return fast_replace(
                record,
                state="running",
                worker=event.worker,
                attempt=event.attempt,
                prompt=event.prompt,
                text="",
                thinking="",
                retry_at=None,
                started=started,
                attempted=event.at,
            )
        case ev.StepDelta():
            return fast_replace(
                record, text=record.text + event.text, thinking=record.thinking + event.thinking
            )
        case ev.ToolCalled():
            return _with_tool_call(record, event)
        case ev.ToolReturned():
            return _with_tool_result(record, event)
        case ev.StepFailed():
            return _with_failure(record, event)
        case ev.StepStopped():
            state: StepState = "stopped"
            if record.started is None:
                state = "skipped"
            return fast_replace(
                record,
                state=state,
                reason=event.reason,
                usage=record.usage + event.usage,
                retry_at=None,
                ended=event.at,
            )
        case ev.StepFinished():
            return fast_replace(
                record,
                state="done",
                text=event.text,
                finish=event.finish,
                stop_sequence=event.stop_sequence,
                error=None,
                usage=record.usage + event.usage,
                ended=event.at,
                tool_calls=event.tool_calls,
                provider_data=event.provider_data,
            )
        case ev.NestedEvent():
            return fast_replace(record, nested=apply_event(record.nested or Trace(), event.event))
        case _:
            assert_never(event)


def _with_tool_call(record: StepRecord, event: ev.ToolCalled) -> StepRecord:
    call = ToolRecord(
        attempt=event.attempt,
        turn=event.turn,
        call=event.call,
        server=event.server,
        started=event.at,
        read_only=event.read_only,
        tool=event.tool,
    )
    # What was written before the call is not the answer.
    return fast_replace(record, tools=(*record.tools, call), text="")


def _with_tool_result(record: StepRecord, event: ev.ToolReturned) -> StepRecord:
    ended = (event.attempt, event.turn, event.call_id)
    tools = []
    for call in record.tools:
        if (call.attempt, call.turn, call.call.id) == ended:
            call = fast_replace(  # noqa: PLW2901 - the same call, with its result
                call,
                ended=event.at,
                text=event.text,
                error=event.error,
                attachments=event.attachments,
            )
        tools.append(call)
    return fast_replace(record, tools=tuple(tools))


def _with_failure(record: StepRecord, event: ev.StepFailed) -> StepRecord:
    started = None
    if event.attempt:
        started = record.attempted
    failed = FailedAttempt(
        worker=record.worker,
        attempt=event.attempt,
        started=started,
        ended=event.at,
        error=event.error,
        usage=event.usage,
        retry_in=event.retry_in,
        substitute=event.substitute,
    )
    record = fast_replace(
        record,
        error=event.error,
        usage=record.usage + event.usage,
        failed=(*record.failed, failed),
    )
    if event.retry_in is not None:
        return fast_replace(record, retry_at=event.at + event.retry_in)
    if event.substitute is not None:
        return fast_replace(record, worker=event.substitute)
    return fast_replace(record, state="failed", ended=event.at)
