"""The state of one run: its trace, the events nobody has read yet, and what has gone wrong so far.

The planner and the executor add steps and events to it. What makes a step ready calls `wake`, by
which the runner starts it. It also checks an answer against its JSON Schema, and tells the worker
what is wrong with it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message
from conductor_cli.core.continuation import without_outdated
from conductor_cli.core.data_policy import DataPolicy, MediaAccess, find_media_access
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import (
    Decision,
    KeepAnswer,
    Plan,
    RejectedPlan,
    Revision,
    Schedule,
    Step,
)
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import Question
from conductor_cli.core.trace import StepRecord, Trace, apply_event
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.programs.schema_check import CheckStopped, find_fault
from conductor_cli.run.orchestra import Orchestra, RunResources
from conductor_cli.run.spec import RunSpec, Team

NOT_JSON: Final = "it is not JSON"
NOT_CHECKED: Final = "the check takes too much time or memory"


async def schema_fault(answer: str, schema: Mapping[str, Any]) -> str:
    """Return what an answer breaks of a JSON Schema; empty where it breaks nothing.

    A schema that cannot be used asks only for JSON. A check that had to be stopped is the fault
    `NOT_CHECKED`.
    """
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return NOT_JSON
    try:
        return await find_fault(schema, value)
    except CheckStopped:
        return NOT_CHECKED


def with_fault(messages: tuple[Message, ...], answer: str, fault: str) -> tuple[Message, ...]:
    """Return the messages by which a worker is asked for its answer again."""
    told = (
        f"Your answer does not follow the JSON Schema: {fault}. Give the whole answer again, as "
        "that one JSON value "
        "and nothing else: no explanation, no code fence."
    )
    return (
        *messages,
        Message(role="assistant", content=answer),
        Message(role="user", content=told),
    )


T = TypeVar("T")

StopKind = Literal["cancelled", "terminated", "limit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nesting:
    """Where a run stands among the runs that are steps of one another."""

    depth_left: int = 1  # How deep steps on the planner itself may still nest
    reviews: int = 0  # How many are appended to the plan
    final: bool = True  # The answer goes to the user
    nested: bool = False  # This run is a step of another
    given_holds_files: bool = False  # Item 0 of a nested run may quote the attached files


@dataclass(kw_only=True, eq=False)
class RunState:
    """What one run was given, and how far it has come."""

    id: str
    orchestra: Orchestra
    spec: RunSpec
    resources: RunResources
    nesting: Nesting

    team: Team = field(init=False)
    limits: Limits = field(init=False)
    seed: int | None = field(init=False)
    awaits_approval: bool = field(init=False)  # No step is started before the user approves
    resumed: Trace | None = field(init=False)
    """The run whose finished steps are reused; or this run, where its process was lost: it goes on
    behind its end.
    """
    repeated: tuple[int, ...] = field(init=False, default=())
    """Finished steps of the resumed run that are done again, because they had to do without the
    answer of another.
    """
    policy: DataPolicy = field(init=False)  # The policy, applied to this question
    media_access: MediaAccess = field(init=False)  # Who can see the images of the question
    trace: Trace = field(init=False, default_factory=Trace)
    unread: deque[ev.Event | None] = field(init=False, default_factory=deque)
    """Events that wait to be read; None marks the end. Unbounded, so that a slow reader cannot hold
    up a worker.
    """
    # What the reader waits for
    reader: asyncio.Future[None] | None = field(init=False, default=None)
    all_read: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    """Set while the reader waits for more, until the start is announced."""
    schedule: Schedule = field(init=False)
    wake: Callable[[], None] = field(init=False, default=lambda: None)
    """Starts every step that may start now, and notices when the run is over."""
    decision: asyncio.Future[Decision] | None = field(init=False, default=None)
    """What the user decides about the plan that was offered."""
    time_limit: asyncio.Timeout | None = field(init=False, default=None)
    stopped_by: Failure | None = field(init=False, default=None)
    """What ends the run early. From then on nothing new is started; what runs may end."""
    errors: dict[int, list[Failure]] = field(init=False, default_factory=dict)
    """What went wrong in each step, attempt by attempt."""
    busy: set[int] = field(init=False, default_factory=set)
    """Steps that a worker or a nested run is working on. Other steps that have a task wait for
    something.
    """
    # What was used for text that no event accounts for
    unreported_usage: Usage = field(init=False, default=NO_USAGE)
    revision: Revision | None = field(init=False, default=None)
    """What the rest of the plan is planned anew with, once that has begun."""
    text_is_out: bool = field(init=False, default=False)
    """Whether a part of the answer was shown that cannot be taken back, and its step has failed."""
    rejected_plans: tuple[RejectedPlan, ...] = field(init=False, default=())
    planning_since: float = field(init=False, default=0.0)
    """Seconds of the run at which the plan was begun, which is later than 0 where the user had an
    earlier one.
    """
    _schema_faults: dict[str, str] = field(init=False, default_factory=dict)
    """What each answer that was checked breaks of the JSON Schema of the question."""
    _stop_reason: ev.StopReason | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        spec = self.spec
        self.team = self.orchestra.team_of(spec)
        self.limits = self.orchestra.limits_of(spec)
        self.seed = self.orchestra.seed_of(spec)
        self.awaits_approval = spec.approves
        self.resumed = spec.resume
        self._start = self.orchestra.clock()
        if self.resumed is not None and self.is_takeover:
            self.trace = self.resumed
            failed = {
                record.number: [each.error for each in record.failed] for record in self.trace.steps
            }
            self.errors = {number: errors for number, errors in failed.items() if errors}
        elif self.resumed is not None:
            earlier = self.resumed.done()
            self.resumed = without_outdated(self.resumed)
            self.repeated = tuple(number for number in earlier if number not in self.resumed.done())
        single = self.team.mode == "mini" and spec.plan is None and self.resumed is None
        self.policy = DataPolicy(
            self.team.pool_policy,
            self.team.pool.names,
            self.question,
            resumed=self.resumed,
            needs_files=single or self.nesting.given_holds_files,
        )
        shown = {worker.name: self.policy.question_for(worker.name) for worker in self.team.pool}
        self.media_access = find_media_access(self.question, shown, self.team.pool)
        self.discard_plan()

    @property
    def question(self) -> Question:
        return self.spec.question

    @property
    def is_takeover(self) -> bool:
        """Whether the run was begun by another process, and goes on here under its id."""
        return self.resumed is not None and self.resumed.run == self.id

    # The stream of events

    def restart_clock(self) -> None:
        """Count the seconds from now on.

        A run begins when its events are first read, or goes on then.
        """
        self._start = self.orchestra.clock() - self.trace.at
        self.planning_since = 0.0

    def now(self) -> float:
        """Return seconds since the run began, to the millisecond, in which a trace keeps the times
        of pieces.
        """
        return round(self.orchestra.clock() - self._start, 3)

    def emit(self, event: ev.Event) -> None:
        """Add an event to the trace, and give it to the reader."""
        self.trace = apply_event(self.trace, event)
        self.put(event)

    def put(self, event: ev.Event | None) -> None:
        """Give an event to the reader; None after the last one."""
        self.unread.append(event)
        if self.reader is not None and not self.reader.done():
            self.reader.set_result(None)

    async def next_event(self) -> ev.Event | None:
        while not self.unread:  # what `asyncio.Queue` does besides costs more than all the rest
            self.all_read.set()
            self.reader = asyncio.get_running_loop().create_future()
            await self.reader
        return self.unread.popleft()

    def unread_events(self) -> Iterator[ev.Event]:
        while self.unread:
            event = self.unread.popleft()
            if event is not None:
                yield event

    def notice(self, text: str, step: int = 0, *, recovered: bool = False) -> None:
        self.emit(ev.Notice(at=self.now(), text=text, step=step, recovered=recovered))

    def announce_step(self, number: int, step: Step, *, last: bool) -> None:
        planned = ev.StepPlanned(
            at=self.now(),
            step=number,
            worker=step.worker,
            subtask=step.subtask,
            access=step.access,
            last=last,
        )
        self.emit(planned)

    def add_step(self, number: int, step: Step, *, last: bool) -> None:
        self.announce_step(number, step, last=last)
        self.schedule.add(number, step.worker, step.access)
        self.wake()

    def finish_plan(
        self, plan: Plan | KeepAnswer, usage: Usage = NO_USAGE, prompt: tuple[Message, ...] = ()
    ) -> None:
        self.emit(ev.PlanReady(at=self.now(), plan=plan, usage=usage, prompt=prompt))
        self.wake()

    def discard_plan(self) -> None:
        per_worker = {worker.name: worker.parallel for worker in self.team.pool}
        self.schedule = Schedule(self.limits.parallel, per_worker)
        self.planning_since = self.now()

    async def answer_of_user(self, answer: asyncio.Future[T]) -> T:
        """Return what the user says.

        The time that they take does not count against the limit on seconds.
        """
        loop = asyncio.get_running_loop()
        limit = self.time_limit
        began = loop.time()
        due = limit.when() if limit is not None else None
        if limit is not None:
            limit.reschedule(None)
        given = await answer
        if limit is not None and due is not None:
            limit.reschedule(due + loop.time() - began)
        return given

    def stop_step(
        self, number: int, reason: ev.StopReason | None = None, usage: Usage = NO_USAGE
    ) -> None:
        """End a step without an answer; without a `reason` for the one that stops the whole run."""
        self.emit(
            ev.StepStopped(
                at=self.now(), step=number, reason=reason or self.stop_reason, usage=usage
            )
        )

    # What is known of the run

    def record(self, number: int) -> StepRecord:
        return next(record for record in self.trace.steps if record.number == number)

    def current_plan(self, reasoning: str = "") -> Plan:
        return Plan(
            steps=tuple(record.step for record in self.trace.steps), reasoning=reasoning.strip()
        )

    def steps_before(self, number: int | None = None) -> tuple[Step, ...]:
        """Return the steps before step `number`, or all of them, each with the worker that really
        has it.
        """
        return tuple(
            replace(record.step, worker=record.worker)
            for record in self.trace.steps
            if number is None or record.number < number
        )

    @property
    def given_up(self) -> tuple[int, ...]:
        """Steps that another plan took the place of. Nobody is shown that they were there."""
        return self.revision.hidden if self.revision is not None else ()

    def call_violation(self, number: int, worker: str) -> str:
        """Return why step `number` may not be sent to `worker`, whoever it was planned for.

        Empty where it may.
        """
        planned = self.record(number).step
        step = planned if planned.worker == worker else replace(planned, worker=worker)
        return self.policy.violation(self.steps_before(number), step)

    async def schema_fault(self, answer: str) -> str:
        """Return what an answer breaks of the question's JSON Schema.

        Empty where it breaks nothing.
        """
        if self.question.schema is None:
            return ""
        if answer not in self._schema_faults:
            self._schema_faults[answer] = await schema_fault(answer, self.question.schema)
        return self._schema_faults[answer]

    @property
    def stop_reason(self) -> ev.StopReason:
        if self._stop_reason is not None:
            return self._stop_reason
        if self.stopped_by is None:
            return "not_needed"
        reasons: dict[str, ev.StopReason] = {
            "limit": "limit",
            "cancelled": "cancelled",
            "terminated": "cancelled",
        }
        return reasons.get(self.stopped_by.kind, "run_failed")

    # What happens to the run

    def begin_stop(self, failure: Failure, reason: ev.StopReason | None = None) -> None:
        self._stop_reason = self._stop_reason or reason
        self.stopped_by = self.stopped_by or failure
