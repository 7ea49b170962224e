"""One run: the stream of its events, its end, and the only task group of the program.

Planning and steps are tasks of that group. What they do is in `planning` and `steps`; here stands when they start and
how a run ends. The queue to the reader is unbounded, so that no reader holds a worker up: its size is bounded by the
token limits, and ending it can never block.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Usage
from conductor_cli.core.question import Question
from conductor_cli.core.schedule import Schedule
from conductor_cli.core.trace import ENDED, StepRecord, Trace, apply
from conductor_cli.run.ending import answer_of, failure_of
from conductor_cli.run.planning import make_plan
from conductor_cli.run.steps import run_step

if TYPE_CHECKING:
    from conductor_cli.core.ledger import Ledger
    from conductor_cli.run.conductor import Conductor

log = logging.getLogger(__name__)

StopKind = Literal["cancelled", "terminated", "limit"]


class Run:
    """The events of one run, in order: `async for event in run`. Readable once.

    `trace` is the run so far. `stop` ends it early; the stream still ends with `RunFinished` or `RunFailed`.
    """

    def __init__(
        self, *, setting: Conductor, question: Question, run_id: str, ledger: Ledger, plan: Plan | None,
        resume: Trace | None, depth_left: int, appended: int, final: bool = True, nested: bool = False,
        only_plan: bool = False,
    ) -> None:  # fmt: skip
        self.id = run_id
        self.setting = setting
        self.question = question
        self.ledger = ledger
        self.given_plan = plan
        self.resumed = resume
        self.depth_left = depth_left
        self.appended = appended
        self.final = final
        self.nested = nested
        self.only_plan = only_plan
        self.trace = Trace()
        self.down: dict[str, Failure] = dict(setting.absent)
        """Workers that need not be asked again in this run, and why."""
        self.errors: dict[int, list[Failure]] = {}
        """What went wrong in each step, attempt by attempt."""
        self.limit: Failure | None = None
        """The limit that was reached, if one was."""
        self.room = asyncio.Event()
        """Set whenever a call was settled: a step that waits for room in the ledger looks again."""
        self._schedule = Schedule(setting.limits.parallel, {worker.name: worker.parallel for worker in setting.pool})
        self._events: asyncio.Queue[ev.Event | None] = asyncio.Queue()
        self._start = setting.clock()
        self._group: asyncio.TaskGroup | None = None
        self._planner: asyncio.Task[None] | None = None
        self._steps: dict[int, asyncio.Task[None]] = {}
        self._over = asyncio.Event()
        self._stopped: Failure | None = None
        self._draining = False
        self._reasons: dict[int, ev.StopReason] = {}

    # What a reader does

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
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
        """End the run: at once, or when the steps that are running have ended. Finished steps are kept."""
        if self._over.is_set():
            return
        said = message or {"cancelled": "interrupted", "terminated": "terminated", "limit": "a limit was reached"}[reason]
        self._stopped = self._stopped or Failure(kind=reason, message=said)
        self._draining = True
        if self._planner is not None:
            self._planner.cancel()
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
        self.emit(
            ev.StepPlanned(
                at=self.now(), step=number, worker=step.worker, subtask=step.subtask, access=step.access, last=last
            )
        )
        self._schedule.add(number, step.worker, step.access)
        self.advance()

    def finished_before(self, record: StepRecord) -> None:
        """A step that an earlier run finished: its text is taken over and costs nothing now."""
        number, step = record.number, record.step
        shown = ev.StepPlanned(
            at=self.now(), step=number, worker=step.worker, subtask=step.subtask, access=step.access, last=record.last
        )
        started = ev.StepStarted(at=self.now(), step=number, worker=record.worker, attempt=1, prompt=record.prompt)
        text = ev.StepDelta(at=self.now(), step=number, attempt=1, text=record.text)
        done = ev.StepFinished(
            at=self.now(), step=number, attempt=1, text=record.text, usage=Usage(), finish=record.finish or "stop"
        )
        for event in (shown, started, text, done):
            self.emit(event)
        self._schedule.tell(number)

    def record(self, number: int) -> StepRecord:
        """The step as far as it has come."""
        return next(record for record in self.trace.steps if record.number == number)

    def reason(self, number: int) -> ev.StopReason:
        """Why a cancelled step was stopped."""
        return self._reasons.get(number) or self._stop_reason()

    def reach_limit(self, failure: Failure) -> None:
        """A limit leaves no room for another call: nothing new starts, what runs may end."""
        self.limit = self.limit or failure
        self.stop("limit", "running", failure.message)

    def _stop_reason(self) -> ev.StopReason:
        """Why steps are stopped when the run ends now."""
        if self._stopped is None:
            return "unneeded"
        reasons: dict[str, ev.StopReason] = {"limit": "limit", "cancelled": "cancelled", "terminated": "cancelled"}
        return reasons.get(self._stopped.kind, "cannot")

    def advance(self) -> None:
        """Start every step that may start now; see whether the run is over."""
        if self._group is None or self._over.is_set():
            return
        for number in [] if self._draining or self.only_plan else self._schedule.ask():
            self._steps[number] = self._group.create_task(self._step(number), name=f"step {number}")
        planning = self._planner is None or not self._planner.done()
        waiting = self._schedule.waiting and not self.only_plan
        idle = not self._schedule.running and (self._draining or not (waiting or planning))
        if self._answered() or idle:
            self._over.set()

    # What happens inside

    async def _drive(self) -> None:
        try:
            self.emit(self._started())
            for name, why in () if self.nested else self.setting.absent.items():
                self.notice(f"{name} is left out: {why.message}")
            async with asyncio.TaskGroup() as group:
                self._group = group
                deadline = self._watch_the_clock()
                self._planner = group.create_task(self._plan(), name="plan")
                await self._over.wait()
                deadline.cancel()
                self._cancel_rest()
            self._finish()
        except asyncio.CancelledError:
            self._stopped = self._stopped or Failure(kind="cancelled", message="interrupted")
            self._finish()
            raise
        except BaseExceptionGroup as group_error:
            log.exception("a task of the run failed")
            self._fail(_internal(group_error.exceptions[0]))
        finally:
            self._events.put_nowait(None)

    def _started(self) -> ev.RunStarted:
        setting = self.setting
        name = "plan file" if self.given_plan is not None and setting.model is None else setting.name
        return ev.RunStarted(
            at=self.now(), run=self.id, time=setting.wall().isoformat(timespec="milliseconds"), question=self.question,
            pool=setting.pool, limits=setting.limits, mode=setting.mode, conductor=name, profile=setting.profile.name,
        )  # fmt: skip

    def _watch_the_clock(self) -> asyncio.TimerHandle:
        seconds = self.setting.limits.seconds
        loop = asyncio.get_running_loop()
        if seconds is None or self.nested:
            return loop.call_later(1e9, lambda: None)
        return loop.call_later(seconds, self.stop, "limit", "now", f"the limit of {seconds:g} s is reached")

    async def _plan(self) -> None:
        """Plan, then see whether anything is left to do; a failure to plan ends the run."""
        failure = await make_plan(self)
        if failure is not None:
            self._stopped = self._stopped or failure
            self._draining = True
        asyncio.get_running_loop().call_soon(self.advance)

    async def _step(self, number: int) -> None:
        try:
            await run_step(self, number)
        except asyncio.CancelledError:
            if self.record(number).state not in ENDED:
                self.stopped(number, self.reason(number))
            raise
        finally:
            self._schedule.tell(number)
            self.advance()

    def stopped(self, number: int, reason: ev.StopReason, usage: Usage = Usage()) -> None:  # noqa: B008 - frozen
        self.emit(ev.StepStopped(at=self.now(), step=number, reason=reason, usage=usage))

    def _answered(self) -> bool:
        """Whether the step whose answer is the run's has ended and the plan is whole."""
        return self.trace.plan is not None and any(r.last and r.state in ENDED for r in self.trace.steps)

    def _cancel_rest(self) -> None:
        """Cancel what still runs: nobody waits for it when the answer is there."""
        reason = self._stop_reason()
        if self._planner is not None:
            self._planner.cancel()
        for number, task in self._steps.items():
            self._reasons[number] = reason
            task.cancel()

    def _finish(self) -> None:
        """End the stream with the answer, the best there is of it, or the reason why there is none."""
        if self.only_plan and self.trace.plan is not None:
            self.emit(ev.RunFinished(at=self.now(), answer="", usage=self.trace.usage))
            return
        for record in self.trace.steps:
            if record.state not in ENDED:
                self.stopped(record.number, self._stop_reason())
        answer, partial = answer_of(self.trace, self.question)
        error = failure_of(self, partial=partial) if partial or answer is None else None
        if answer is None:
            self._fail(error or Failure(kind="internal", message="the run ended without an answer"))
            return
        self.emit(
            ev.RunFinished(at=self.now(), answer=answer, usage=self.trace.usage, partial=partial, error=error)
        )

    def _fail(self, failure: Failure) -> None:
        self.emit(ev.RunFailed(at=self.now(), error=failure, usage=self.trace.usage))

    @property
    def stopped_by(self) -> Failure | None:
        """What ended the run before its time."""
        return self._stopped


def _internal(error: BaseException) -> Failure:
    return Failure(
        kind="internal",
        message=f"a fault of conductor itself: {type(error).__name__}: {error}",
        hint="run again with --debug and report what it prints",
    )
