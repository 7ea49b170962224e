"""Doing a step: attempts at it, waits between them, substitutes; for worker `self`, a nested run.

There is no other retry layer. An attempt is repeated only when the same call may succeed a moment
later, and never once its text has gone where it cannot be taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Message
from conductor_cli.core.errors import Failure, LimitReached, ModelError, PolicyError
from conductor_cli.core.plan import SELF
from conductor_cli.core.policy import POLICY_HINT, substitutes
from conductor_cli.core.pool import Worker
from conductor_cli.core.question import NESTED, Given
from conductor_cli.core.trace import ENDED, Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.key_hints import with_key_hint
from conductor_cli.run.attempt import Attempt, retry_wait, steps_seen_by
from conductor_cli.run.state import Nesting, RunState
from conductor_cli.run.tool_loop import tell_of_changes

FATAL_REASONS: Final = frozenset({"auth", "missing", "file"})
"""Reasons that will not change within a run: the worker is not asked again."""

MAY_BE_THE_SCHEMA: Final = frozenset({"overloaded", "broken", "empty_answer"})
"""How servers fail that break down over a field which holds a reply to a JSON Schema."""


class _WorkerStep:
    """A step that workers try one after the other, until one has done it or nobody is left."""

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
        """Return the planned worker; another one where that cannot be asked, or is skipped now."""
        name = self._state.record(self._number).step.worker
        failure = self._objection_to(name)
        if failure is not None:
            self._tried.append(name)
            substitute = self._substitute()
            self._fail(failure, substitute=substitute)
            return substitute
        skipped = self._state.resources.skipped
        if name not in skipped:
            return name
        substitute = self._substitute(besides=name)
        if substitute is None or substitute in skipped:
            return name
        self._fail(skipped[name], substitute=substitute)
        return substitute

    def _objection_to(self, name: str) -> Failure | None:
        """Return why a worker cannot be asked; None where it can."""
        state = self._state
        failure = state.resources.down.get(name)
        if failure is not None:
            return failure
        forbidden = state.call_violation(self._number, name)
        if forbidden:
            return Failure(kind="policy", message=forbidden, hint=POLICY_HINT)
        if name in state.team.pool:
            return None
        return Failure(
            kind="config",
            message=f"no worker is named {name}",
            hint="list the workers: conductor workers list",
            reason="worker_unknown",
        )

    async def _make_attempts(self, name: str) -> str | None:
        """Make all attempts with one worker. Returns who is to try next, if anyone."""
        state = self._state
        self._tried.append(name)
        turn = 0
        repair = tuple[Message, ...]()
        constrains = True
        while True:
            turn += 1
            self._attempt += 1
            worker = state.team.pool[name]
            call = Attempt(
                state, self._number, worker, self._attempt, repair, constrains=constrains
            )
            try:
                await call.make()
            except PolicyError as error:
                self._fail(error.failure)
                return None
            except ModelError as error:
                failure = self._failure_of(error, worker)
                # No retry once the run is ending, nor after text that the user has already seen as
                # the answer.
                if state.ending.failure is not None or call.text_is_out:
                    if call.text_is_out:
                        state.work.keep_shown_text()
                    self._fail(failure, call.usage)
                    return None
                seconds = self._seconds_to_wait(error, name, turn)
                if seconds is None:
                    return self._give_up_worker(error, failure, call)
                self._fail(failure, call.usage, retry_in=seconds)
                repair = call.repair
                if error.reason in MAY_BE_THE_SCHEMA and call.holds_to_schema:
                    constrains = False
                    self._tell_of_words_only(name)
                if not repair:  # otherwise what was done with tools stays in the messages
                    tell_of_changes(state, self._number)
                await asyncio.sleep(seconds)
            else:
                return None

    def _failure_of(self, error: ModelError, worker: Worker) -> Failure:
        """Return the failure of an attempt; where no other can succeed, the worker is given up."""
        failure = with_key_hint(worker, error.failure)
        failure = replace(failure, message=f"{worker.name}: {error.message}")
        if error.reason in FATAL_REASONS:
            self._state.resources.give_up_worker(worker.name, failure)
        return failure

    def _tell_of_words_only(self, name: str) -> None:
        text = (
            f"{name} is asked again with the JSON Schema in words only, because it may have failed "
            "by the field for it"
        )
        self._state.stream.notice(text, self._number, recovered=True)

    def _seconds_to_wait(self, error: ModelError, name: str, turn: int) -> float | None:
        """Return seconds until the same worker is asked again; None where it is not."""
        state = self._state
        if error.reason == "schema":  # once, whatever the limit on attempts
            return 0.0
        if not error.retryable or turn >= state.limits.attempts:
            return None
        skipped = state.resources.skipped
        # A worker that is skipped by now is asked again only where nobody better is left.
        if name in skipped and self._substitute() not in (None, *skipped):
            return None
        return retry_wait(turn + 1, error.retry_after, state.orchestra.random)

    def _give_up_worker(self, error: ModelError, failure: Failure, call: Attempt) -> str | None:
        """Return who does the step instead, if anyone."""
        if error.reason == "connect":  # other steps need not find out again
            self._state.resources.give_up_worker(call.worker.name, failure)
        substitute = self._substitute()
        self._fail(failure, call.usage, substitute=substitute)
        if substitute is not None:
            tell_of_changes(self._state, self._number)
        return substitute

    def _substitute(self, besides: str = "") -> str | None:
        """Return who may do the step instead: nobody who sees less than the planned worker.

        A worker that is skipped comes after all others: where nobody else is left, there is nothing
        to lose.
        """
        state = self._state
        planned = state.record(self._number).step.worker
        skipped = state.resources.skipped
        names = substitutes(state.team.pool, {*self._tried, *state.resources.down, besides})
        for name in sorted(names, key=lambda name: name in skipped):
            sees_all = state.policy.may_replace(name, planned)
            sees_media = state.media_access.may_replace(name, planned)
            if sees_all and sees_media and not state.call_violation(self._number, name):
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
    if state.record(number).step.worker != SELF:
        return await _WorkerStep(state, number).run()
    objection = _nesting_objection(state, number)
    if objection is not None:
        _fail_nested(state, number, objection)
        return None
    state.stream.emit(
        ev.StepStarted(at=state.stream.now(), step=number, worker=SELF, attempt=1, prompt=())
    )
    nested = _nested_state(state, number)
    with state.work.busy_with(number):
        try:
            async for event in read_nested(nested):
                _pass_on(state, number, event)
        except asyncio.CancelledError:
            for event in nested.stream.unread_events():
                _pass_on(state, number, event)
            state.stop_step(number, usage=nested.trace.usage)
            raise
    return _end_nested(state, number, nested)


def _nesting_objection(state: RunState, number: int) -> Failure | None:
    """Return why a step may not be a run of its own; None where it may."""
    if state.team.model is None:
        return Failure(kind="conductor", message="a review needs a planner", reason="no_planner")
    if state.nesting.depth_left <= 0:
        message = "runs cannot be nested any deeper"
        return Failure(kind="worker", message=message, reason="nesting_limit")
    forbidden = state.call_violation(number, SELF)
    if not forbidden:
        return None
    return Failure(kind="policy", message=forbidden, hint=POLICY_HINT)


def _nested_state(state: RunState, number: int) -> RunState:
    """Return the state of a nested run: of the same question, with the subtask and what it sees."""
    record = state.record(number)
    step = record.step
    text = f"{state.question.text}{NESTED}{step.subtask}"
    given = []
    for item in steps_seen_by(state, step):
        if item.answer is not None:
            given.append(Given(worker=item.worker, subtask=item.subtask, answer=item.answer))
    nested_id = f"{state.id}.{number}"
    spec = replace(
        state.spec,
        id=nested_id,
        question=replace(state.question, text=text, given=tuple(given), parent=state.id),
        plan=None,
        resume=_earlier_nested(state, number),
        approves=False,
    )
    held_files = state.policy.hold_files(state.steps_before(number))
    nesting = Nesting(
        depth_left=state.nesting.depth_left - 1,
        reviews=max(state.nesting.reviews - 1, 0),
        final=state.nesting.final and record.last,
        nested=True,
        given_holds_files=state.policy.receives_files(step, held_files),
    )
    nested = RunState(
        id=nested_id,
        orchestra=state.orchestra,
        spec=spec,
        resources=state.resources,
        nesting=nesting,
    )
    # What the nested run asks the user stops the clock of the whole run
    nested.ending.time_limit = state.ending.time_limit
    return nested


def _earlier_nested(state: RunState, number: int) -> Trace | None:
    """Return what the run that is resumed has of the nested run of a step."""
    if state.resumed is None:
        return None
    for record in state.resumed.steps:
        if record.number == number:
            return record.nested
    return None


def _pass_on(state: RunState, number: int, event: ev.Event) -> None:
    state.stream.emit(ev.NestedEvent(at=state.stream.now(), step=number, event=event))


def _fail_nested(state: RunState, number: int, failure: Failure, usage: Usage = NO_USAGE) -> None:
    state.work.add_error(number, failure)
    failed = ev.StepFailed(
        at=state.stream.now(), step=number, attempt=1, error=failure, usage=usage
    )
    state.stream.emit(failed)


def _end_nested(state: RunState, number: int, nested: RunState) -> Failure | None:
    """End a step whose run has ended. Returns what ends the run around it, too."""
    trace = nested.trace
    ended_by = nested.ending.failure
    limit = None
    if ended_by is not None and ended_by.kind == "limit":
        limit = ended_by
    if trace.state == "finished":
        _finish_nested(state, number, trace)
        return limit
    failure = trace.error or Failure(
        kind="internal", message="the nested run ended without a reason"
    )
    if failure.kind in ("limit", "cancelled", "terminated"):
        if limit is not None:
            state.stop_step(number, "limit", usage=trace.usage)
        else:
            state.stop_step(number, None, usage=trace.usage)
        return limit
    _fail_nested(state, number, failure, trace.usage)
    # An error of our own in a nested run is one of the whole run.
    if failure.kind == "internal":
        return failure
    return limit


def _finish_nested(state: RunState, number: int, trace: Trace) -> None:
    # The text of a finished step must equal its joined deltas, so the answer comes as one delta.
    stream = state.stream
    stream.emit(ev.StepDelta(at=stream.now(), step=number, attempt=1, text=trace.answer))
    finish: Finish = "stop"
    if trace.tool_calls:
        finish = "tool"
    finished = ev.StepFinished(
        at=stream.now(),
        step=number,
        attempt=1,
        text=trace.answer,
        usage=trace.usage,
        finish=finish,
        tool_calls=trace.tool_calls,
    )
    stream.emit(finished)
