"""What planning and steps work on: a plan while it is being written and executed.

The state of one run, its events, and the few things that planning, steps and nested runs may do to it. When things
start and how they end is the business of `stream.Run`, which is one of these.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.data_flow import NO_PROVENANCE, Provenance
from conductor_cli.core.data_policy import DataPolicy
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan, RejectedPlan, Step
from conductor_cli.core.question import Question
from conductor_cli.core.schedule import Schedule
from conductor_cli.core.trace import StepRecord, Trace, apply_event
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run.config import RunConfig
from conductor_cli.run.resources import RunResources

if TYPE_CHECKING:
    from conductor_cli.run.approval import Decision

StopKind = Literal["cancelled", "terminated", "limit"]

_REASONS: Final[dict[str, ev.StopReason]] = {"limit": "limit", "cancelled": "cancelled", "terminated": "cancelled"}


@dataclass(kw_only=True, eq=False)
class Workflow(ABC):
    """One run as planning and steps see it.

    It is told once: `given_plan` instead of planning, `resumed` the run whose finished steps it takes over,
    `depth_left` how deep steps on the conductor itself may nest, `appended` how many reviews are put behind the plan,
    `final` whether its answer goes to the user, `nested` whether a step of another run is waiting for it, `held`
    whether nothing starts before the user has taken the plan (see `approval`); then it is false. `carried`
    is what a nested run's item 0 may hold.
    """

    id: str
    setting: RunConfig
    question: Question
    shared: RunResources
    given_plan: Plan | None = None
    resumed: Trace | None = None
    depth_left: int = 1
    appended: int = 0
    final: bool = True
    nested: bool = False
    only_plan: bool = False
    held: bool = False
    carried: Provenance = NO_PROVENANCE

    taint: DataPolicy = field(init=False)
    """The policy, at work on this question."""
    trace: Trace = field(init=False, default_factory=Trace)
    """The run so far."""
    stopped_by: Failure | None = field(init=False, default=None)
    """What ends the run before its time."""
    draining: bool = field(init=False, default=False)
    """Nothing new is started any more; what runs may end."""
    errors: dict[int, list[Failure]] = field(init=False, default_factory=dict)
    """What went wrong in each step, attempt by attempt."""
    busy: set[int] = field(init=False, default_factory=set)
    """Steps that a worker or a nested run is working on; other steps that have a task wait for something."""
    nested_runs: dict[int, Workflow] = field(init=False, default_factory=dict)
    """The nested runs that go on, by step."""
    untold: Usage = field(init=False, default=NO_USAGE)
    """What the conductor used for text that no event of planning tells of."""
    refused: tuple[RejectedPlan, ...] = field(init=False, default=())
    """The plans that the user did not take, and why."""
    _why: ev.StopReason | None = field(init=False, default=None)
    _events: deque[ev.Event | None] = field(init=False, default_factory=deque)
    """What has not been read yet; None behind the last one. `asyncio.Queue` takes far longer for each token."""
    _news: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._start = self.setting.clock()
        self._schedule = self._new_schedule()
        alone = self.setting.mode == "mini" and self.given_plan is None and self.resumed is None
        self.taint = DataPolicy(
            self.setting.pool_policy, self.setting.pool.names, self.question, given=self.carried, single=alone
        )

    def _new_schedule(self) -> Schedule:
        per_worker = {worker.name: worker.parallel for worker in self.setting.pool}
        return Schedule(self.setting.limits.parallel, per_worker)

    # What the run around it does

    @abstractmethod
    def __aiter__(self) -> AsyncIterator[ev.Event]:
        """The events, in order; readable once."""

    @abstractmethod
    def stop(self, kind: StopKind, after: Literal["now", "running"] = "now", failure: Failure | None = None) -> None:
        """End the run: at once, or when the calls that are running have ended. Finished steps are kept."""

    @abstractmethod
    def advance(self) -> None:
        """Start every step that may start now; see whether the run is over."""

    @abstractmethod
    def break_down(self, failure: Failure, number: int | None = None) -> None:
        """A fault of the program itself, in step `number` if it is open: the run ends at once, and with this."""

    @abstractmethod
    def abandon(self, failure: Failure, why: ev.StopReason) -> None:
        """End a nested run because the one around it has ended."""

    @abstractmethod
    async def decision(self) -> Decision:
        """What the user says of the plan that is offered."""

    # What planning and steps do

    def now(self) -> float:
        """Seconds since the run began."""
        return round(self.setting.clock() - self._start, 4)

    def emit(self, event: ev.Event) -> None:
        """Put an event on the stream and fold it into `trace`."""
        self.trace = apply_event(self.trace, event)
        self._put(event)

    def _put(self, event: ev.Event | None) -> None:
        self._events.append(event)
        self._news.set()

    async def _next(self) -> ev.Event | None:
        while not self._events:
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    def notice(self, text: str, step: int = 0) -> None:
        self.emit(ev.Notice(at=self.now(), text=text, step=step))

    def planned(self, number: int, step: Step, *, last: bool) -> None:
        """A step of the plan is complete: show it, and start it as soon as it may."""
        self.show(number, step, last=last)
        self._schedule.add(number, step.worker, step.access)
        self.advance()

    def take_back(self) -> None:
        """Forget what was planned, of which nothing was started."""
        self._schedule = self._new_schedule()

    def show(self, number: int, step: Step, *, last: bool) -> None:
        self.emit(
            ev.StepPlanned(
                at=self.now(), step=number, worker=step.worker, subtask=step.subtask, access=step.access, last=last
            )
        )

    def ended(self, number: int) -> None:
        """A step needs nothing any more: those that see it may start."""
        self._schedule.tell(number)

    def record(self, number: int) -> StepRecord:
        """The step as far as it has come."""
        return next(record for record in self.trace.steps if record.number == number)

    def stopped(self, number: int, reason: ev.StopReason, usage: Usage = NO_USAGE) -> None:
        self.emit(ev.StepStopped(at=self.now(), step=number, reason=reason, usage=usage))

    def stop_reason(self) -> ev.StopReason:
        """Why steps are stopped when the run ends now."""
        if self._why is not None:
            return self._why
        return "not_needed" if self.stopped_by is None else _REASONS.get(self.stopped_by.kind, "run_failed")

    def reach_limit(self, failure: Failure) -> None:
        """A limit leaves no room for another call: nothing new starts, what runs may end."""
        self.stop("limit", "running", failure)

    def rest(self) -> Iterator[ev.Event]:
        """What is left in the stream of a run whose reader was interrupted, its end among it."""
        while self._events:
            event = self._events.popleft()
            if event is not None:
                yield event
