"""One run: the stream of its events, its end, and the only task group of the program.

Planning and steps are tasks of that group. What they do is in `planning` and `steps`; here stands when they start and
how a run ends. The queue to the reader is unbounded, so that no reader holds a worker up: its size is bounded by the
token limits, and ending it can never block.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import NOTHING, Usage
from conductor_cli.core.question import Question
from conductor_cli.core.schedule import Schedule
from conductor_cli.core.trace import ENDED, StepRecord, Trace, apply
from conductor_cli.run.beginning import begin
from conductor_cli.run.ending import answer_of, failure_of, internal
from conductor_cli.run.planning import make_plan
from conductor_cli.run.steps import run_step

if TYPE_CHECKING:
    from conductor_cli.run.conductor import Conductor
    from conductor_cli.run.shared import Shared

log = logging.getLogger(__name__)

StopKind = Literal["cancelled", "terminated", "limit"]

PLANNING: Final = 0
_SAID: Final = {"cancelled": "interrupted", "terminated": "terminated", "limit": "a limit was reached"}
_REASONS: Final[dict[str, ev.StopReason]] = {"limit": "limit", "cancelled": "cancelled", "terminated": "cancelled"}
_UNNEEDED: Final = Failure(kind="cancelled", message="nobody waits for this answer any more")


class Run:
    """The events of one run, in order: `async for event in run`. Readable once.

    `trace` is the run so far. `stop` ends it early; the stream still ends with `RunFinished` or `RunFailed`.
    """

    def __init__(  # noqa: PLR0913 - what a run is told once and never changes
        self, *, setting: Conductor, question: Question, run_id: str, shared: Shared, plan: Plan | None = None,
        resume: Trace | None = None, depth_left: int = 1, appended: int = 0, final: bool = True, nested: bool = False,
        only_plan: bool = False,
    ) -> None:  # fmt: skip
        self.id = run_id
        self.setting = setting
        self.question = question
        self.shared = shared
        self.given_plan = plan
        self.resumed = resume
        self.depth_left = depth_left
        self.appended = appended
        self.final = final
        self.nested = nested
        self.only_plan = only_plan
        self.trace = Trace()
        self.stopped_by: Failure | None = None
        """What ends the run before its time."""
        self.draining = False
        """Nothing new is started any more; what runs may end."""
        self.errors: dict[int, list[Failure]] = {}
        """What went wrong in each step, attempt by attempt."""
        self.busy: set[int] = set()
        """Steps that a worker or a nested run is working on; other steps that have a task wait for something."""
        self.inner: dict[int, Run] = {}
        """The nested runs that go on, by step."""
        self.untold = NOTHING
        """What the conductor used for text that no event of planning tells of."""
        self._schedule = Schedule(setting.limits.parallel, {worker.name: worker.parallel for worker in setting.pool})
        self._events: asyncio.Queue[ev.Event | None] = asyncio.Queue()
        self._start = setting.clock()
        self._group: asyncio.TaskGroup | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """Planning under 0, steps under their numbers."""
        self._over = asyncio.Event()
        self._broken: Failure | None = None
        self._why: ev.StopReason | None = None
        self._read = False

    # What a reader does

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        if self._read:
            raise RuntimeError("the events of a run can be read only once")
        self._read = True
        driver = asyncio.create_task(self._drive())
        try:
            while (event := await self._events.get()) is not None:
                yield event
            await driver
        finally:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver

    def rest(self) -> Iterator[ev.Event]:
        """What is left in the stream of a run whose reader was interrupted, its end among it."""
        while not self._events.empty():
            event = self._events.get_nowait()
            if event is not None:
                yield event

    def stop(self, reason: StopKind, after: Literal["now", "running"] = "now", message: str = "") -> None:
        """End the run: at once, or when the calls that are running have ended. Finished steps are kept."""
        if self._over.is_set():
            return
        self._drain(Failure(kind=reason, message=message or _SAID[reason]))
        for inner in self.inner.values():
            inner.stop(reason, after, message)
        if after == "now" or not self._schedule.running:
            self._over.set()

    # What planning and steps do

    def now(self) -> float:
        """Seconds since the run began."""
        return round(self.setting.clock() - self._start, 4)

    def emit(self, event: ev.Event) -> None:
        """Put an event on the stream and fold it into `trace`."""
        self.trace = apply(self.trace, event)
        self._events.put_nowait(event)

    def notice(self, text: str, step: int = 0) -> None:
        self.emit(ev.Notice(at=self.now(), text=text, step=step))

    def planned(self, number: int, step: Step, *, last: bool) -> None:
        """A step of the plan is complete: show it, and start it as soon as it may."""
        self.show(number, step, last=last)
        self._schedule.add(number, step.worker, step.access)
        self.advance()

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

    def stopped(self, number: int, reason: ev.StopReason, usage: Usage = NOTHING) -> None:
        self.emit(ev.StepStopped(at=self.now(), step=number, reason=reason, usage=usage))

    def stop_reason(self) -> ev.StopReason:
        """Why steps are stopped when the run ends now."""
        if self._why is not None:
            return self._why
        return "unneeded" if self.stopped_by is None else _REASONS.get(self.stopped_by.kind, "cannot")

    def reach_limit(self, failure: Failure) -> None:
        """A limit leaves no room for another call: nothing new starts, what runs may end."""
        self.stop("limit", "running", failure.message)

    def break_down(self, failure: Failure, number: int | None = None) -> None:
        """A fault of the program itself, in step `number` if it is open: the run ends at once, and with this."""
        record = None if number is None else self.record(number)
        if record is not None and record.state not in ENDED:
            attempt = record.attempt or 1
            self.emit(ev.StepFailed(at=self.now(), step=record.number, attempt=attempt, error=failure, usage=NOTHING))
        self._broken = self._broken or failure
        self._drain(failure)
        self._over.set()

    def advance(self) -> None:
        """Start every step that may start now; see whether the run is over."""
        if self._group is None or self._over.is_set():
            return
        for number in [] if self.draining or self.only_plan else self._schedule.ask():
            self._begin(number, self._step(number), f"step {number}")
        if self._answered() or self._idle():
            self._over.set()

    # What happens inside

    def _begin(self, number: int, work: Coroutine[None, None, None], name: str) -> None:
        """Start planning or a step. What follows from its end hangs on the task: one cancelled at once never runs."""
        assert self._group is not None
        self._tasks[number] = task = self._group.create_task(work, name=name)
        task.add_done_callback(partial(self._is_over, number))

    def _is_over(self, number: int, _: asyncio.Task[None]) -> None:
        self.ended(number)
        self.advance()

    async def _drive(self) -> None:
        try:
            self._start = self.setting.clock()
            begin(self)
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._begin(PLANNING, self._plan(), "plan")
                await self._wait_for_the_end()
            self._finish()
        except asyncio.CancelledError:
            self._finish()
            raise
        finally:
            self._events.put_nowait(None)

    async def _wait_for_the_end(self) -> None:
        """Until the run is over, or its reader is gone; then whatever still runs is cancelled."""
        try:
            async with asyncio.timeout(None if self.nested else self.setting.limits.seconds):
                await self._over.wait()
        except TimeoutError:
            self.stop("limit", "now", f"the limit of {self.setting.limits.seconds:g} s is reached")
        except asyncio.CancelledError:
            self._drain(Failure(kind="cancelled", message="interrupted"))
            self._over.set()
            raise
        finally:
            self._cancel_rest()

    async def _plan(self) -> None:
        """Plan; a failure to plan ends the run."""
        try:
            failure = await make_plan(self)
        except Exception as error:  # a fault here must not leave the stream without its end
            log.debug("planning broke", exc_info=True)
            failure = internal(error)
            self.break_down(failure)
        if failure is not None:
            self._drain(failure)

    async def _step(self, number: int) -> None:
        try:
            await run_step(self, number)
        except Exception as error:  # a fault here must not leave the stream without its end
            log.debug("step %d broke", number, exc_info=True)
            self.break_down(internal(error), number)
        finally:
            self.busy.discard(number)
            if self.record(number).state not in ENDED:
                self.stopped(number, self.stop_reason())

    def _answered(self) -> bool:
        """Whether the step whose answer is the run's has ended and the plan is whole."""
        return self.trace.plan is not None and any(r.last and r.state in ENDED for r in self.trace.steps)

    def _idle(self) -> bool:
        """Whether nothing runs and nothing will."""
        waiting = self._schedule.waiting and not self.only_plan
        return not self._schedule.running and (self.draining or not (waiting or not self._tasks[PLANNING].done()))

    def _drain(self, failure: Failure) -> None:
        """Start nothing new, and end what has not reached a worker yet."""
        self.stopped_by = self.stopped_by or failure
        self.draining = True
        for number, task in self._tasks.items():
            # Whoever calls this from inside such a task is about to end by itself.
            if number not in self.busy and not task.done() and task is not asyncio.current_task():
                task.cancel()

    def _cancel_rest(self) -> None:
        """Cancel what still runs: nobody waits for it when the answer is there."""
        for inner in self.inner.values():
            inner.abandon(self.stopped_by or _UNNEEDED, self.stop_reason())
        for task in self._tasks.values():
            task.cancel()

    def abandon(self, failure: Failure, why: ev.StopReason) -> None:
        """End a nested run because the one around it has ended."""
        if not self._over.is_set():
            self._why = why
            self._drain(failure)
            self._over.set()

    def _finish(self) -> None:
        """End the stream with the answer, the best there is of it, or the reason why there is none."""
        usage = self.trace.usage + self.untold
        if self.only_plan and self.trace.plan is not None:
            self.emit(ev.RunFinished(at=self.now(), answer="", usage=usage))
            return
        for record in self.trace.steps:
            if record.state not in ENDED:
                self.stopped(record.number, self.stop_reason())
        answer, partial = answer_of(self.trace, self.question)
        if self._broken is not None or answer is None:
            self.emit(ev.RunFailed(at=self.now(), error=self._broken or failure_of(self), usage=usage))
            return
        error = failure_of(self) if partial else None
        self.emit(ev.RunFinished(at=self.now(), answer=answer, usage=usage, partial=partial, error=error))
