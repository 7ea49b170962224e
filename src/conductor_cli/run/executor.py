"""Doing a step: attempts at it, waits between them, substitutes.

Or, for worker `self`, a nested run.

There is no other retry layer. An attempt is repeated only when the same call may succeed a moment
later, and never once its text has gone where it cannot be taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message
from conductor_cli.core.errors import Failure, LimitReached, ModelError, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import POLICY_HINT, substitutes
from conductor_cli.core.question import NESTED, Given
from conductor_cli.core.trace import ENDED
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.key_hints import with_key_hint
from conductor_cli.run.attempt import Attempt, retry_wait, steps_seen_by
from conductor_cli.run.state import Nesting, RunState
from conductor_cli.run.tool_loop import tell_of_changes

FATAL: Final = frozenset({"auth", "missing", "file"})
"""Reasons that will not change within a run: the worker is not asked again."""


class _WorkerStep:
    """A step that workers do.

    One after the other, until one of them has done it or nobody is left.
    """

    def __init__(self, state: RunState, number: int) -> None:
        self._state = state
        self._number = number
        # Some, where another process has begun the step
        self._attempt = state.record(number).attempt
        self._tried: list[str] = []

    async def run(self) -> Failure | None:
        worker = self._first_worker()
        state = self._state
        try:
            while worker is not None:
                with state.resources.circuits.calling(state.team.pool[worker]):
                    worker = await self._make_attempts(worker)
        except LimitReached as error:
            if state.record(self._number).state not in ENDED:
                state.stop_step(self._number, "limit")
            return error.failure
        return None

    def _first_worker(self) -> str | None:
        """Return the planned worker, or another one where it cannot be asked or is skipped for a
        time.
        """
        state = self._state
        name = self._state.record(self._number).step.worker
        failure = state.resources.down.get(name)
        if failure is None and (forbidden := state.call_violation(self._number, name)):
            failure = Failure(kind="policy", message=forbidden, hint=POLICY_HINT)
        if failure is None and name not in state.team.pool:
            hint = "list the workers: conductor workers list"
            failure = Failure(
                kind="config",
                message=f"no worker is named {name}",
                hint=hint,
                reason="worker_unknown",
            )
        if failure is not None:
            self._tried.append(name)
            substitute = self._substitute()
        else:
            failure = state.resources.skipped.get(name)
            substitute = self._substitute(besides=name) if failure is not None else None
            if failure is None or substitute is None or substitute in state.resources.skipped:
                return name
        self._fail(failure, substitute=substitute)
        return substitute

    async def _make_attempts(self, name: str) -> str | None:
        """Make all attempts with one worker. Returns who is to try next, if anyone."""
        state = self._state
        self._tried.append(name)
        turn = 0
        repair = tuple[Message, ...]()
        while True:
            turn += 1
            self._attempt += 1
            call = Attempt(state, self._number, state.team.pool[name], self._attempt, repair)
            try:
                await call.make()
            except PolicyError as error:
                self._fail(error.failure)
                return None
            except ModelError as error:
                failure = replace(
                    with_key_hint(call.worker, error.failure), message=f"{name}: {error.message}"
                )
                if error.reason in FATAL:
                    state.resources.down[name] = failure
                # No retry once the run is ending, nor after text that the user has already seen as
                # the answer.
                if state.ending.failure is not None or call.text_is_out:
                    state.work.text_is_out = call.text_is_out
                    self._fail(failure, call.usage)
                    return None
                wait = None
                if error.reason == "schema":  # once, whatever the limit on attempts
                    wait = 0.0
                elif error.retryable and turn < state.limits.attempts:
                    skipped = state.resources.skipped
                    if name not in skipped or self._substitute() in (None, *skipped):
                        wait = retry_wait(turn + 1, error.retry_after, state.orchestra.random)
                if wait is None:
                    if error.reason == "connect":
                        state.resources.down[name] = failure  # other steps need not find out again
                    substitute = self._substitute()
                    self._fail(failure, call.usage, substitute=substitute)
                    if substitute is not None:
                        tell_of_changes(state, self._number)
                    return substitute
                self._fail(failure, call.usage, retry_in=wait)
                repair = call.repair
                if not repair:  # otherwise what was done with tools stays in the messages
                    tell_of_changes(state, self._number)
                await asyncio.sleep(wait)
            else:
                return None

    def _substitute(self, besides: str = "") -> str | None:
        """Return who may do the step instead.

        It sees of the question no less than the planned worker would.

        A worker that is skipped comes after all others: where nobody else is left, there is nothing
        to lose.
        """
        state = self._state
        planned = state.record(self._number).step.worker
        skipped = state.resources.skipped
        names = substitutes(state.team.pool, {*self._tried, *state.resources.down, besides})
        for name in sorted(names, key=lambda name: name in skipped):
            sees_all = state.policy.may_replace(name, planned) and state.media_access.may_replace(
                name, planned
            )
            if sees_all and not state.call_violation(self._number, name):
                return name
        return None

    def _fail(
        self,
        error: Failure,
        usage: Usage = NO_USAGE,
        *,
        retry_in: float | None = None,
        substitute: str | None = None,
    ) -> None:
        self._state.work.add_error(self._number, error)
        failed = ev.StepFailed(
            at=self._state.stream.now(),
            step=self._number,
            attempt=self._attempt,
            error=error,
            usage=usage,
            retry_in=retry_in,
            substitute=substitute,
        )
        self._state.stream.emit(failed)


async def run_step(
    state: RunState, number: int, read_nested: Callable[[RunState], AsyncIterator[ev.Event]]
) -> Failure | None:
    """Do step `number` and report all that happens as events.

    Returns what ends the whole run, if anything does.

    A step on worker `self` is a run of its own over the same pool, which `read_nested` starts; its
    events come as `NestedEvent`.
    """
    record = state.record(number)
    if record.step.worker != SELF:
        return await _WorkerStep(state, number).run()

    def fail(failure: Failure, usage: Usage = NO_USAGE) -> None:
        state.work.add_error(number, failure)
        state.stream.emit(
            ev.StepFailed(at=state.stream.now(), step=number, attempt=1, error=failure, usage=usage)
        )

    if state.team.model is None:
        fail(Failure(kind="conductor", message="a review needs a planner", reason="no_planner"))
        return None
    if state.nesting.depth_left <= 0:
        fail(
            Failure(
                kind="worker", message="runs cannot be nested any deeper", reason="nesting_limit"
            )
        )
        return None
    forbidden = state.call_violation(number, SELF)
    if forbidden:
        fail(Failure(kind="policy", message=forbidden, hint=POLICY_HINT))
        return None
    state.stream.emit(
        ev.StepStarted(at=state.stream.now(), step=number, worker=SELF, attempt=1, prompt=())
    )
    # The question is the same, with the subtask and the answers that the step sees.
    step = record.step
    earlier = state.resumed.steps if state.resumed is not None else ()
    given = tuple(
        Given(worker=item.worker, subtask=item.subtask, answer=item.answer)
        for item in steps_seen_by(state, step)
        if item.answer is not None
    )
    text = f"{state.question.text}{NESTED}{step.subtask}"
    nested_id = f"{state.id}.{number}"
    nested = RunState(
        id=nested_id,
        orchestra=state.orchestra,
        spec=replace(
            state.spec,
            id=nested_id,
            question=replace(state.question, text=text, given=given, parent=state.id),
            plan=None,
            resume=next((record.nested for record in earlier if record.number == number), None),
            approves=False,
        ),
        resources=state.resources,
        nesting=Nesting(
            depth_left=state.nesting.depth_left - 1,
            reviews=max(state.nesting.reviews - 1, 0),
            final=state.nesting.final and record.last,
            nested=True,
            given_holds_files=state.policy.receives_files(
                step, state.policy.hold_files(state.steps_before(number))
            ),
        ),
    )
    state.work.busy.add(number)
    try:
        async for event in read_nested(nested):
            state.stream.emit(ev.NestedEvent(at=state.stream.now(), step=number, event=event))
    except asyncio.CancelledError:
        for event in nested.stream.unread_events():
            state.stream.emit(ev.NestedEvent(at=state.stream.now(), step=number, event=event))
        state.stop_step(number, usage=nested.trace.usage)
        raise
    trace = nested.trace
    stopped_by = nested.ending.failure
    limit = stopped_by if stopped_by is not None and stopped_by.kind == "limit" else None
    if trace.state == "finished":
        # The text of a finished step must equal its joined deltas, so the answer comes as one
        # delta.
        state.stream.emit(
            ev.StepDelta(at=state.stream.now(), step=number, attempt=1, text=trace.answer)
        )
        finished = ev.StepFinished(
            at=state.stream.now(),
            step=number,
            attempt=1,
            text=trace.answer,
            usage=trace.usage,
            finish="tool" if trace.tool_calls else "stop",
            tool_calls=trace.tool_calls,
        )
        state.stream.emit(finished)
        return limit
    failure = trace.error or Failure(
        kind="internal", message="the nested run ended without a reason"
    )
    if failure.kind in ("limit", "cancelled", "terminated"):
        state.stop_step(number, "limit" if limit is not None else None, usage=trace.usage)
        return limit
    fail(failure, trace.usage)
    # An error of our own in a nested run is one of the whole run.
    return failure if failure.kind == "internal" else limit
