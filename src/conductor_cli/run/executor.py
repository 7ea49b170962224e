"""Doing a step: attempts at it, waits between them, substitutes; or, for worker `self`, a nested run.

There is no other retry layer. An attempt is repeated only when the same call may succeed a moment later, and never
once its text has gone where it cannot be taken back.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import Failure, LimitReached, ModelError, PolicyError
from conductor_cli.core.plan import SELF, Step
from conductor_cli.core.policy import POLICY_HINT, substitutes
from conductor_cli.core.question import Given, Question
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.run.attempt import Attempt, steps_seen_by
from conductor_cli.run.retries_and_timeouts import retry_wait
from conductor_cli.run.state import NestedRun, RunState, Scheduler

FATAL: Final = frozenset({"auth", "missing", "file"})
"""Reasons that will not change within a run: the worker is not asked again."""


async def run_step(state: RunState, scheduler: Scheduler, number: int) -> None:
    """Do step `number` and report all that happens as events. Only cancellation comes out of it as an exception."""
    worker = state.record(number).step.worker
    if worker == SELF:
        await _NestedStep(state, scheduler, number).run()
    else:
        await _WorkerStep(state, scheduler, number).run(worker)


class _WorkerStep:
    """A step that workers do: one after the other, until one of them has done it or nobody is left."""

    def __init__(self, state: RunState, scheduler: Scheduler, number: int) -> None:
        self._state = state
        self._scheduler = scheduler
        self._number = number
        self._attempt = 0
        self._tried: list[str] = []

    async def run(self, planned: str) -> None:
        worker: str | None = self._planned_or_substitute(planned)
        while worker is not None:
            worker = await self._ask(worker)

    def _planned_or_substitute(self, name: str) -> str | None:
        """The planned worker, or another one where it cannot be asked."""
        state = self._state
        forbidden = state.call_violation(self._number, name)
        failure = state.resources.down.get(name)
        if failure is None and forbidden:
            failure = Failure(kind="policy", message=forbidden, hint=POLICY_HINT)
        if failure is None and name not in state.config.pool:
            hint = "list the workers: conductor workers list"
            failure = Failure(kind="config", message=f"no worker is named {name}", hint=hint, reason="worker_unknown")
        if failure is None:
            return name
        self._tried.append(name)
        state.add_error(self._number, failure)
        substitute = self._substitute()
        if substitute is None:
            self._attempt += 1
            self._fail(failure)
            return None
        state.notice(f"{name} is not available ({failure.message}); asking {substitute} instead", self._number)
        return substitute

    async def _ask(self, name: str) -> str | None:
        """Make all attempts with one worker. Returns who is to try next, if anyone."""
        state = self._state
        self._tried.append(name)
        turn = 0
        while True:
            turn += 1
            self._attempt += 1
            call = Attempt(state, self._number, state.config.pool[name], self._attempt)
            try:
                await call.make()
            except LimitReached as error:
                # Calls that are running have their tokens and money reserved, so they may end.
                self._scheduler.stop("limit", "running", error.failure)
                state.stop_step(self._number, "limit")
                return None
            except PolicyError as error:
                state.add_error(self._number, error.failure)
                self._fail(error.failure)
                return None
            except ModelError as error:
                failure = replace(error.failure, message=f"{name}: {error.failure.message}")
                state.add_error(self._number, failure)
                if error.reason in FATAL:
                    state.resources.mark_down(name, failure)
                # No retry once the run is ending, nor after text that the user has already seen as the answer.
                if state.draining or call.text_is_out:
                    self._fail(failure, call.usage)
                    return None
                if not error.retryable or turn >= state.config.limits.attempts:
                    if error.reason == "connect":
                        state.resources.mark_down(name, failure)  # other steps need not find out again
                    substitute = self._substitute()
                    self._fail(failure, call.usage, substitute=substitute)
                    return substitute
                wait = retry_wait(turn + 1, error.retry_after, state.config.random)
                self._fail(failure, call.usage, retry_in=wait)
                await asyncio.sleep(wait)
            else:
                return None

    def _substitute(self) -> str | None:
        """Who may do the step instead: it sees of the question no less than the planned worker would."""
        state = self._state
        planned = state.record(self._number).step.worker
        for name in substitutes(state.config.pool, {*self._tried, *state.resources.down}):
            if state.policy.may_replace(name, planned) and not state.call_violation(self._number, name):
                return name
        return None

    def _fail(
        self, error: Failure, usage: Usage = NO_USAGE, *, retry_in: float | None = None, substitute: str | None = None
    ) -> None:
        failed = ev.StepFailed(
            at=self._state.now(), step=self._number, attempt=self._attempt, error=error, usage=usage,
            retry_in=retry_in, substitute=substitute,
        )  # fmt: skip
        self._state.emit(failed)


class _NestedStep:
    """A step on worker `self`: a run of its own over the same pool, whose events come as `NestedEvent`."""

    def __init__(self, state: RunState, scheduler: Scheduler, number: int) -> None:
        self._state = state
        self._scheduler = scheduler
        self._number = number

    async def run(self) -> None:
        state, number = self._state, self._number
        failure = self._impossible()
        if failure is not None:
            self._fail(failure)
            return
        state.emit(ev.StepStarted(at=state.now(), step=number, worker=SELF, attempt=1, prompt=()))
        step = state.record(number).step
        holds_files = state.policy.receives_files(step, state.policy.hold_files(state.steps_before(number)))
        nested = self._scheduler.open_nested(number, self._question(step), holds_files=holds_files)
        state.mark_busy(number)
        try:
            async for event in nested:
                state.emit(ev.NestedEvent(at=state.now(), step=number, event=event))
        except asyncio.CancelledError:
            for event in nested.state.queue.drain():
                state.emit(ev.NestedEvent(at=state.now(), step=number, event=event))
            state.stop_step(number, usage=nested.state.trace.usage)
            raise
        finally:
            self._scheduler.close_nested(number)
        self._finish(nested)

    def _impossible(self) -> Failure | None:
        if self._state.config.model is None:
            message = "a step on the conductor itself needs a conductor model"
            return Failure(kind="conductor", message=message, reason="no_planner")
        if self._state.depth_left <= 0:
            return Failure(kind="worker", message="runs cannot be nested any deeper", reason="nesting_limit")
        forbidden = self._state.call_violation(self._number, SELF)
        return Failure(kind="policy", message=forbidden, hint=POLICY_HINT) if forbidden else None

    def _question(self, step: Step) -> Question:
        question = self._state.question
        given = tuple(
            Given(worker=item.worker, subtask=item.subtask, answer=item.answer)
            for item in steps_seen_by(self._state, step)
            if item.answer is not None
        )
        text = f"{question.text}\n\nWithin this question, the subtask is: {step.subtask}"
        return replace(question, text=text, given=given, parent=self._state.id)

    def _finish(self, nested: NestedRun) -> None:
        """Turn the end of the nested run into the end of its step."""
        state, number, trace = self._state, self._number, nested.state.trace
        stopped_by = nested.state.stopped_by
        if stopped_by is not None and stopped_by.kind == "limit":
            self._scheduler.stop("limit", "running", stopped_by)
        if trace.state == "finished":
            # The text of a finished step must equal its joined deltas, so the answer comes as one delta.
            state.emit(ev.StepDelta(at=state.now(), step=number, attempt=1, text=trace.answer))
            state.emit(
                ev.StepFinished(
                    at=state.now(), step=number, attempt=1, text=trace.answer, usage=trace.usage, finish="stop"
                )
            )
            return
        failure = trace.error or Failure(kind="internal", message="the nested run ended without a reason")
        if failure.kind in ("limit", "cancelled", "terminated"):
            state.stop_step(number, usage=trace.usage)
            return
        self._fail(failure, trace.usage)
        # An error of our own in a nested run is one of the whole run.
        if failure.kind == "internal":
            self._scheduler.crash(failure)

    def _fail(self, failure: Failure, usage: Usage = NO_USAGE) -> None:
        state = self._state
        state.add_error(self._number, failure)
        state.emit(ev.StepFailed(at=state.now(), step=self._number, attempt=1, error=failure, usage=usage))
