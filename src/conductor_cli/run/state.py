"""The state of one run, in parts that each write what they hold: others call their methods.

- `stream`: its events and its trace (`event_stream`), which is written by nothing else.
- `planning`: the plan under way, which only `planner` sets.
- `work`: what steps have come to.
- `ending`: what ends the run early.
- `schema_faults`: what answers break of the JSON Schema of the question.

`RunState` itself holds the schedule of the steps. What makes a step ready calls `wake`, by which
the runner starts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message
from conductor_cli.core.continuation import without_outdated
from conductor_cli.core.data_policy import DataPolicy, MediaAccess, find_media_access
from conductor_cli.core.errors import Failure, UsageError
from conductor_cli.core.json_answer import NumberTooLarge, json_values_in, read_strictly
from conductor_cli.core.plan import (
    SELF,
    Decision,
    KeepAnswer,
    Plan,
    RejectedPlan,
    Revision,
    Schedule,
    Step,
)
from conductor_cli.core.pool import Limits, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.reading import Reading, nobody_reads, reading_of, too_small
from conductor_cli.core.trace import ENDED, NO_TRACE, StepRecord, Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.programs.schema_check import CheckStopped, find_fault
from conductor_cli.run.event_stream import EventStream
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
        value = read_strictly(answer)
    except NumberTooLarge as error:
        return str(error)
    except (ValueError, RecursionError):
        return NOT_JSON
    try:
        return await find_fault(schema, value)
    except CheckStopped:
        return NOT_CHECKED


def with_fault(messages: tuple[Message, ...], answer: str, fault: str) -> tuple[Message, ...]:
    """Return the messages by which a worker is asked for its answer again."""
    correction = (
        f"Your answer does not follow the JSON Schema: {fault}. Give the whole answer again, as "
        "that one JSON value and nothing else: no explanation, no code fence."
    )
    return (
        *messages,
        Message(role="assistant", content=answer),
        Message(role="user", content=correction),
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


class SchemaFaults:
    """Checks answers against the JSON Schema of a question, each answer once."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._schema = schema
        self._faults: dict[str, str] = {}

    async def find(self, answer: str) -> str:
        """Return what an answer breaks of the schema; empty where it breaks nothing."""
        if self._schema is None:
            return ""
        if answer not in self._faults:
            self._faults[answer] = await schema_fault(answer, self._schema)
        return self._faults[answer]

    async def read(self, answer: str) -> tuple[str, str]:
        """Return the one value that an answer holds, and what that breaks of the schema.

        It is the answer itself where there is no schema, no value, or more than one that could be
        meant.
        """
        if self._schema is None:
            return answer, ""
        values = json_values_in(answer)
        if len(values) == 1:
            return values[0], await self.find(values[0])
        fitting = [value for value in values if not await self.find(value)]
        if len(fitting) == 1:
            return fitting[0], ""
        return answer, await self.find(answer)


@dataclass(slots=True)
class PlanUnderWay:
    """How far the plan of a run has come."""

    # No step is started before the user has approved the plan
    awaits_approval: bool
    # What the user decides about the plan that was offered
    decision: asyncio.Future[Decision] | None = None
    # What the rest of the plan is planned anew with, once that has begun
    revision: Revision | None = None
    rejected: tuple[RejectedPlan, ...] = ()
    began_at: float = 0.0
    """Seconds of the run at which the plan was begun, which is later than 0 where the user had an
    earlier one.
    """
    was_lost: bool = False
    """Whether another process was planning, and is gone: its call is not counted yet."""

    @property
    def given_up(self) -> tuple[int, ...]:
        """Steps that another plan took the place of. Nobody is shown that they were there."""
        if self.revision is not None:
            return self.revision.hidden
        return ()


@dataclass(slots=True)
class StepWork:
    """What the attempts at all steps have come to."""

    text_is_out: bool = False
    """Whether a part of the answer was shown that cannot be taken back, and its step has failed."""
    unreported_usage: Usage = NO_USAGE
    """What was used for text that no event accounts for."""
    _errors: dict[int, list[Failure]] = field(default_factory=dict)
    _busy: set[int] = field(default_factory=set)
    _cut_replies: dict[int, Failure] = field(default_factory=dict)

    @contextmanager
    def busy_with(self, number: int) -> Iterator[None]:
        """Let a worker or a nested run work on a step, which ends with the run only at once.

        Other steps that have a task wait for something.
        """
        self._busy.add(number)
        try:
            yield
        finally:
            self._busy.discard(number)

    def is_busy(self, number: int) -> bool:
        """Return whether a worker or a nested run is working on a step."""
        return number in self._busy

    def add_error(self, number: int, failure: Failure) -> None:
        """Remember what went wrong in an attempt at a step."""
        self._errors.setdefault(number, []).append(failure)

    def errors_of(self, number: int) -> Sequence[Failure]:
        """Return what went wrong in a step, attempt by attempt."""
        return self._errors.get(number, [])

    def add_cut_reply(self, number: int, failure: Failure) -> None:
        """Remember why the reply of a step has no end."""
        self._cut_replies[number] = failure

    def cut_reply_of(self, number: int) -> Failure | None:
        """Return why the reply of a step has no end; None where it has one."""
        return self._cut_replies.get(number)

    def add_unreported_usage(self, usage: Usage) -> None:
        """Count what no event of a step will account for."""
        self.unreported_usage += usage

    def keep_shown_text(self) -> None:
        """Remember that text of a failed step was shown that cannot be taken back."""
        self.text_is_out = True


@dataclass(slots=True)
class RunEnding:
    """What ends a run early. From then on nothing new is started; what runs may end."""

    failure: Failure | None = None
    time_limit: asyncio.Timeout | None = None
    """That of the whole run: a nested one has none of its own."""
    _reason: ev.StopReason | None = None

    def begin(self, failure: Failure, reason: ev.StopReason | None = None) -> None:
        """End the run; the first failure and the first reason count."""
        self._reason = self._reason or reason
        self.failure = self.failure or failure

    @property
    def reason(self) -> ev.StopReason:
        """Why a step is stopped now."""
        if self._reason is not None:
            return self._reason
        if self.failure is None:
            return "not_needed"
        reasons: dict[str, ev.StopReason] = {
            "limit": "limit",
            "cancelled": "cancelled",
            "terminated": "cancelled",
        }
        return reasons.get(self.failure.kind, "run_failed")

    async def answer_of_user(self, answer: asyncio.Future[T]) -> T:
        """Return what the user says.

        The time that they take does not count against the limit on seconds.
        """
        loop = asyncio.get_running_loop()
        limit = self.time_limit
        began = loop.time()
        due = None
        if limit is not None:
            due = limit.when()
        if limit is not None:
            limit.reschedule(None)
        decision = await answer
        if limit is not None and due is not None:
            limit.reschedule(due + loop.time() - began)
        return decision


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

    stream: EventStream = field(init=False)
    planning: PlanUnderWay = field(init=False)
    _schedule: Schedule = field(init=False)
    work: StepWork = field(init=False, default_factory=StepWork)
    ending: RunEnding = field(init=False, default_factory=RunEnding)
    schema_faults: SchemaFaults = field(init=False)
    wake: Callable[[], None] = field(init=False, default=lambda: None)
    """Starts every step that may start now, and notices when the run is over."""

    def __post_init__(self) -> None:
        spec = self.spec
        self.team = self.orchestra.team_of(spec)
        self.limits = self.orchestra.limits_of(spec)
        self.seed = self.orchestra.seed_of(spec)
        self.planning = PlanUnderWay(awaits_approval=spec.approves)
        self.schema_faults = SchemaFaults(spec.question.schema)
        self.resumed = spec.resume
        trace = NO_TRACE
        if self.resumed is not None and self.is_takeover:
            trace = self.resumed
            for record in trace.steps:
                for attempt in record.failed:
                    self.work.add_error(record.number, attempt.error)
        elif self.resumed is not None:
            earlier = self.resumed.done()
            self.resumed = without_outdated(self.resumed)
            done = self.resumed.done()
            self.repeated = tuple(number for number in earlier if number not in done)
        self.stream = EventStream(self.orchestra.clock, trace)
        is_single = self.team.mode == "mini" and spec.plan is None and self.resumed is None
        self.policy = DataPolicy(
            self.team.pool_policy,
            self.team.pool.names,
            self.question,
            resumed=self.resumed,
            needs_files=is_single or self.nesting.given_holds_files,
        )
        shown = {worker.name: self.policy.question_for(worker.name) for worker in self.team.pool}
        self.media_access = find_media_access(self.question, shown, self.team.pool)
        self.discard_plan()

    @property
    def question(self) -> Question:
        return self.spec.question

    @property
    def trace(self) -> Trace:
        return self.stream.trace

    @property
    def is_takeover(self) -> bool:
        """Whether the run was begun by another process, and goes on here under its id."""
        return self.resumed is not None and self.resumed.run == self.id

    def restart_clock(self) -> None:
        """Count the seconds of the run and of its planning from now on."""
        self.stream.restart_clock()
        self.planning.began_at = 0.0

    # The plan

    def announce_step(self, number: int, step: Step, *, last: bool) -> None:
        """Announce a step that is not to be started."""
        planned = ev.StepPlanned(
            at=self.stream.now(),
            step=number,
            worker=step.worker,
            subtask=step.subtask,
            access=step.access,
            last=last,
        )
        self.stream.emit(planned)

    def add_step(self, number: int, step: Step, *, last: bool) -> None:
        """Announce a step, and have it started once it is ready."""
        self.announce_step(number, step, last=last)
        self._schedule.add(number, step.worker, step.access)
        self.wake()

    def take_over_step(self, record: StepRecord) -> None:
        """Have a step that another process announced started once it is ready, unless it ended."""
        self._schedule.add(record.number, record.step.worker, record.step.access)
        if record.state in ENDED:
            self._schedule.mark_ended(record.number)

    def leave_out_step(self, number: int) -> None:
        """End a step that was not started, because another plan takes the place of its own."""
        self._schedule.mark_ended(number)
        self.stop_step(number, "plan_revised")

    def take_ready_steps(self) -> list[int]:
        """Return the steps that may start now, which run from then on."""
        return self._schedule.take_ready()

    def release_step(self, number: int) -> None:
        """Note that a step does not run any more, so that those that wait for it may start."""
        self._schedule.mark_ended(number)

    @property
    def has_running_steps(self) -> bool:
        return bool(self._schedule.running)

    @property
    def waiting_steps(self) -> tuple[int, ...]:
        """The steps that have not been started, in the order of their numbers."""
        return self._schedule.waiting

    def finish_plan(
        self, plan: Plan | KeepAnswer, usage: Usage = NO_USAGE, prompt: tuple[Message, ...] = ()
    ) -> None:
        """Announce that the plan is complete."""
        ready = ev.PlanReady(at=self.stream.now(), plan=plan, usage=usage, prompt=prompt)
        self.stream.emit(ready)
        self.wake()

    def discard_plan(self) -> None:
        """Begin a plan from nothing."""
        per_worker = {worker.name: worker.parallel for worker in self.team.pool}
        self._schedule = Schedule(self.limits.parallel, per_worker)
        self.planning.began_at = self.stream.now()

    def stop_step(
        self, number: int, reason: ev.StopReason | None = None, usage: Usage = NO_USAGE
    ) -> None:
        """End a step without an answer; without a `reason` for the one that stops the whole run."""
        stopped = ev.StepStopped(
            at=self.stream.now(), step=number, reason=reason or self.ending.reason, usage=usage
        )
        self.stream.emit(stopped)

    # What is known of the run

    def record(self, number: int) -> StepRecord:
        for record in self.trace.steps:
            if record.number == number:
                return record
        raise LookupError(f"the run has no step {number}")

    def reading_of(self, worker: Worker) -> Reading:
        """Return how a worker reads the question, as the policy lets it see that."""
        model = self.team.workers.get(worker.name)
        has_tools = (
            self.team.worker_profile.reads_directories
            and model is not None
            and "tools" in model.features
        )
        question = self.policy.question_for(worker.name)
        return reading_of(question, worker, self.team.worker_profile, has_tools=has_tools)

    def leave_out_small_workers(self) -> None:
        """Ask no worker in this run that cannot read the question whole.

        Raises `UsageError` where no other one is left.
        """
        profile = self.team.worker_profile
        small_workers: list[Worker] = []
        readers = 0
        for worker in self.team.pool:
            if worker.kind == SELF or worker.name not in self.policy.allowed:
                continue
            if worker.name in self.resources.down:
                continue
            if self.reading_of(worker) == "none":
                small_workers.append(worker)
            else:
                readers += 1
        if not small_workers:
            return
        question = self.policy.question_for(small_workers[0].name)
        if not readers and not self.is_takeover:
            message, hint = nobody_reads(question, small_workers, profile)
            raise UsageError(message, hint=hint)
        for worker in small_workers:
            question = self.policy.question_for(worker.name)
            self.resources.give_up_worker(worker.name, too_small(question, worker, profile))

    def current_plan(self, reasoning: str = "") -> Plan:
        return Plan(
            steps=tuple(record.step for record in self.trace.steps), reasoning=reasoning.strip()
        )

    def steps_before(self, number: int | None = None) -> tuple[Step, ...]:
        """Return the steps before step `number`, or all of them.

        Each is with the worker that really has it.
        """
        steps = []
        for record in self.trace.steps:
            if number is not None and record.number >= number:
                continue
            step = record.step
            if step.worker != record.worker:
                step = replace(step, worker=record.worker)
            steps.append(step)
        return tuple(steps)

    def call_violation(self, number: int, worker: str) -> str:
        """Return why step `number` may not be sent to `worker`, whoever it was planned for.

        Empty where it may.
        """
        planned = self.record(number).step
        step = planned
        if planned.worker != worker:
            step = replace(planned, worker=worker)
        return self.policy.violation(self.steps_before(number), step)
