"""One run: the stream of its events, its end, and the only task group of the program.

Planning and steps are tasks of that group. What they do is in `planning` and `steps`; here stands when they start and
how a run ends. The queue to the reader is unbounded, so that no reader holds a worker up: its size is bounded by the
token limits, and ending it can never block.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure
from conductor_cli.core.trace import ENDED
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.run.approval import Decision, have_approved
from conductor_cli.run.beginning import begin
from conductor_cli.run.ending import answer_of, failure_of, internal, is_other_than_asked
from conductor_cli.run.planning import make_plan
from conductor_cli.run.steps import run_step
from conductor_cli.run.workflow import StopKind, Workflow

log = logging.getLogger(__name__)

PLANNING: Final = 0
_SAID: Final = {"cancelled": "interrupted", "terminated": "terminated", "limit": "a limit was reached"}
_UNNEEDED: Final = Failure(kind="cancelled", message="nobody waits for this answer any more")


@dataclass(kw_only=True, eq=False)
class Run(Workflow):
    """The events of one run, in order: `async for event in run`. Readable once.

    `trace` is the run so far. `stop` ends it early; the stream still ends with `RunFinished` or `RunFailed`.
    """

    _group: asyncio.TaskGroup | None = field(init=False, default=None)
    _tasks: dict[int, asyncio.Task[None]] = field(init=False, default_factory=dict)
    """Planning under 0, steps under their numbers."""
    _over: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _broken: Failure | None = field(init=False, default=None)
    _read: bool = field(init=False, default=False)
    _ends: asyncio.Timeout | None = field(init=False, default=None)
    """The limit on its seconds."""
    _word: asyncio.Future[Decision] | None = field(init=False, default=None)
    """Where the user's word on the plan is waited for."""

    # What a reader does

    async def __aiter__(self) -> AsyncIterator[ev.Event]:
        if self._read:
            raise RuntimeError("the events of a run can be read only once")
        self._read = True
        driver = asyncio.create_task(self._drive())
        try:
            while (event := await self._next()) is not None:
                yield event
            await driver
        finally:
            driver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await driver

    def stop(self, kind: StopKind, after: Literal["now", "running"] = "now", failure: Failure | None = None) -> None:
        """End the run: at once, or when the calls that are running have ended. Finished steps are kept."""
        if self._over.is_set():
            return
        self._drain(failure or Failure(kind=kind, message=_SAID[kind]))
        for inner in self.nested_runs.values():
            inner.stop(kind, after, failure)
        if after == "now" or not self._schedule.running:
            self._over.set()

    def decide(self, decision: Decision) -> None:
        """The user's word on the plan that is offered; without one waiting for it, nothing."""
        if self._word is not None and not self._word.done():
            self._word.set_result(decision)

    # What planning and steps ask for

    async def decision(self) -> Decision:
        """What the user says of the plan that is offered. The time they take counts against no limit."""
        loop, end = asyncio.get_running_loop(), self._ends
        began, due = loop.time(), end.when() if end is not None else None
        if end is not None:
            end.reschedule(None)
        self._word = loop.create_future()
        decision = await self._word
        if end is not None and due is not None:
            end.reschedule(due + loop.time() - began)
        return decision

    def break_down(self, failure: Failure, number: int | None = None) -> None:
        """A fault of the program itself, in step `number` if it is open: the run ends at once, and with this."""
        record = None if number is None else self.record(number)
        if record is not None and record.state not in ENDED:
            attempt = record.attempt or 1
            self.emit(ev.StepFailed(at=self.now(), step=record.number, attempt=attempt, error=failure, usage=NO_USAGE))
        self._broken = self._broken or failure
        self._drain(failure)
        self._over.set()

    def advance(self) -> None:
        """Start every step that may start now; see whether the run is over."""
        if self._group is None or self._over.is_set():
            return
        for number in [] if self.draining or self.only_plan or self.held else self._schedule.ask():
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
            self._put(None)

    async def _wait_for_the_end(self) -> None:
        """Until the run is over, or its reader is gone; then whatever still runs is cancelled."""
        try:
            async with asyncio.timeout(None if self.nested else self.setting.limits.seconds) as self._ends:
                await self._over.wait()
        except TimeoutError:
            most = self.setting.limits.seconds or 0.0
            message = f"the limit of {most:g} s is reached"
            failure = Failure(kind="limit", message=message, reason="limit_time", suggested_limit=f"{2 * most:g}")
            self.stop("limit", "now", failure)
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
            if failure is None and self.held and not self._over.is_set():
                failure = await have_approved(self)
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
        for inner in self.nested_runs.values():
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
        if not partial and not self.nested and is_other_than_asked(answer, self.question):
            partial, error = True, Failure(kind="partial", message="the answer is no JSON, as the schema asks for")
        self.emit(ev.RunFinished(at=self.now(), answer=answer, usage=usage, partial=partial, error=error))
