"""One call of one worker for one step: its prompt, its place in the queue, its stream, and what it cost."""

from __future__ import annotations

import asyncio

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Finish, Message, Request
from conductor_cli.core.data_policy import withheld_note
from conductor_cli.core.errors import ModelError, PolicyError
from conductor_cli.core.estimate import estimated_tokens, estimated_usage
from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.prompts import worker_messages
from conductor_cli.core.recovery import describe_failed_attempts
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.models.base import Model
from conductor_cli.run.retries_and_timeouts import with_timeouts
from conductor_cli.run.state import RunState


class Attempt:
    """The `attempt`-th call for step `number`, to `worker`."""

    def __init__(self, state: RunState, number: int, worker: Worker, attempt: int) -> None:
        self._state = state
        self._number = number
        self._worker = worker
        self._attempt = attempt
        self._text = ""
        self._written = ""
        self._finish: Finish = "other"
        self._reported: Usage | None = None
        self._cached = False
        self._failed = False
        self.usage = NO_USAGE
        """What the call cost, once it has ended."""

    @property
    def text_is_out(self) -> bool:
        """Whether some of the text has been shown as the answer and cannot be taken back."""
        state = self._state
        shown = state.config.streams_answer and not state.nested and state.record(self._number).last
        return shown and bool(self._text.strip())

    async def make(self) -> None:
        """Call the worker. Raises `ModelError`, `LimitReached` or `PolicyError`; cancelled, it reports what it cost."""
        state, resources = self._state, self._state.resources
        prompt = self._prompt()
        model = state.config.workers[self._worker.name]
        longest = int(self._worker.options.get("max_tokens") or state.config.worker_profile.max_tokens)
        # Turn, slot, reservation: always in this order, so that no two calls wait for each other.
        async with resources.turn(model), resources.call_slots:
            reservation = await resources.reserve(estimated_tokens(prompt), longest, self._worker.price)
            began = state.now()
            try:
                await self._call(model, self._request(prompt, reservation.answer))
            finally:
                state.busy.discard(self._number)
                if not self.usage.seconds:
                    self.usage += Usage(seconds=round(state.now() - began, 4))
                resources.settle(
                    reservation, self.usage, self._worker, cached=self._cached, failed=self._failed
                )  # fmt: skip
        finished = ev.StepFinished(
            at=state.now(), step=self._number, attempt=self._attempt, text=self._text, usage=self.usage,
            finish=self._finish,
        )  # fmt: skip
        state.emit(finished)

    def _prompt(self) -> tuple[Message, ...]:
        state, profile = self._state, self._state.config.worker_profile
        # Checked again although the plan was: by now a substitute may do the step, or one that it sees.
        forbidden = state.call_violation(self._number, self._worker.name)
        if forbidden:
            raise PolicyError(forbidden, hint=POLICY_HINT)
        record = state.record(self._number)
        seen = steps_seen_by(state, record.step)
        question = state.policy.question_for(self._worker.name)
        messages, notice = worker_messages(
            question,
            record.step,
            seen,
            self._worker,
            profile,
            final=record.last and state.final,
            withheld=withheld_note(state.policy.withheld(self._worker.name)),
        )
        if self._attempt == 1:
            for missing in (item.number for item in seen if item.answer is None):
                text = f"step {missing} failed, so step {self._number} runs without its answer"
                why = describe_failed_attempts(state.record(missing).failed)
                state.notice(f"{text}: {why}" if why else text, self._number, recovered=True)
            if notice:
                state.notice(notice, self._number, recovered=True)
        return messages

    def _request(self, prompt: tuple[Message, ...], most: int) -> Request:
        config, options = self._state.config, self._worker.options
        return Request(
            messages=prompt,
            max_tokens=most,
            temperature=options.get("temperature"),
            seed=options.get("seed", config.seed),
            deadline=config.timeouts.total,
        )

    async def _call(self, model: Model, request: Request) -> None:
        """Stream the reply. However it ends, `usage` then says what it cost."""
        state = self._state
        started = ev.StepStarted(
            at=state.now(), step=self._number, worker=self._worker.name, attempt=self._attempt, prompt=request.messages
        )
        state.emit(started)
        state.busy.add(self._number)
        try:
            await self._stream(model, request)
        except asyncio.CancelledError:
            self.usage = self._spent(request)
            state.stop_step(self._number, usage=self.usage)
            raise
        except ModelError as error:
            self._failed = True
            self._reported = error.usage or self._reported
            # A call that failed before its first word counts as free.
            begun = self._reported is not None or self._written
            self.usage = self._spent(request) if begun else Usage(calls=1)
            raise
        except Exception:
            # An error of our own: no event of the step will carry what the call cost.
            state.unreported_usage += self._spent(request)
            raise
        self.usage = self._spent(request)

    async def _stream(self, model: Model, request: Request) -> None:
        async with with_timeouts(model.stream(request), self._state.config.timeouts) as chunks:
            async for chunk in chunks:
                self._take(chunk)
        if not self._text.strip():
            raise ModelError("empty_answer", "the answer is empty")

    def _take(self, chunk: Chunk) -> None:
        state = self._state
        if chunk.text or chunk.thinking:
            self._text += chunk.text
            self._written += chunk.text + chunk.thinking
            delta = ev.StepDelta(
                at=state.now(), step=self._number, attempt=self._attempt, text=chunk.text, thinking=chunk.thinking
            )
            state.emit(delta)
        if chunk.note:
            state.notice(f"{self._worker.name}: {chunk.note}", self._number)
        self._reported = chunk.usage or self._reported
        self._cached = self._cached or chunk.from_cache
        self._finish = chunk.finish or self._finish

    def _spent(self, request: Request) -> Usage:
        return with_cost(self._reported or estimated_usage(request.messages, self._written), self._worker.price)


def steps_seen_by(state: RunState, step: Step) -> list[SeenStep]:
    """What a step's access list opens; item 0 is what a nested run was given."""
    items: list[SeenStep] = []
    for number in step.access:
        if number == GIVEN:
            given = state.question.given
            items += [SeenStep(number=GIVEN, worker=g.worker, subtask=g.subtask, answer=g.answer) for g in given]
            continue
        record = state.record(number)
        answer = record.text if record.state == "done" else None
        items.append(SeenStep(number=number, worker=record.worker, subtask=record.step.subtask, answer=answer))
    return items
