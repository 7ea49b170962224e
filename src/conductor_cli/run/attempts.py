"""One call of one worker for one step: its prompt, its place and room, its stream, and what it cost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Finish, Message, Request
from conductor_cli.core.data_policy import withheld_note
from conductor_cli.core.errors import ModelError, PolicyError
from conductor_cli.core.plan import GIVEN, Step
from conductor_cli.core.policy import POLICY_HINT
from conductor_cli.core.pool import Worker
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.prompts import worker_messages
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.models.base import Model
from conductor_cli.run.calls import estimated_tokens, estimated_usage, with_timeouts
from conductor_cli.run.guarding import may_not

if TYPE_CHECKING:
    from conductor_cli.run.workflow import Workflow


class Attempt:
    """The `attempt`-th call for step `number`, to `worker`."""

    def __init__(self, run: Workflow, number: int, worker: Worker, attempt: int) -> None:
        self.run = run
        self.number = number
        self.worker = worker
        self.attempt = attempt
        self.text = ""
        self.finish: Finish = "other"
        self.usage = NO_USAGE
        """What the call cost, once it has ended."""
        self._written = ""
        self._said: Usage | None = None
        self._kept = False

    @property
    def text_is_out(self) -> bool:
        """Whether some of the text has been shown as the answer and cannot be taken back."""
        setting = self.run.setting
        shown = setting.streams_answer and not self.run.nested and self.run.record(self.number).last
        return shown and bool(self.text.strip())

    async def make(self) -> None:
        """Call the worker. Raises `ModelError`, `LimitReached` or `PolicyError`; cancelled, it says what it cost."""
        prompt = self._prompt()
        model = self.run.setting.workers[self.worker.name]
        async with self.run.shared.turn(model), self.run.shared.places:
            reservation = await self.run.shared.reserve(estimated_tokens(prompt), self._wanted(), self.worker.price)
            began = self.run.now()
            try:
                await self._call(model, self._request(prompt, reservation.answer))
            finally:
                self.run.busy.discard(self.number)
                if not self.usage.seconds:
                    self.usage += Usage(seconds=round(self.run.now() - began, 4))
                self.run.shared.settle(reservation, self.usage, self.worker, kept=self._kept)
        self.run.emit(
            ev.StepFinished(
                at=self.run.now(),
                step=self.number,
                attempt=self.attempt,
                text=self.text,
                usage=self.usage,
                finish=self.finish,
            )
        )

    def _prompt(self) -> tuple[Message, ...]:
        run = self.run
        forbidden = may_not(run, self.number, self.worker.name)
        if forbidden:
            raise PolicyError(forbidden, hint=POLICY_HINT)
        record = run.record(self.number)
        seen = seen_by(run, record.step)
        withheld = run.taint.withheld(self.worker.name)
        question = run.taint.seen_by(self.worker.name)
        if run.setting.worker_profile.render is not None and not question.text:
            question = replace(question, text=record.step.subtask)  # it has words for a question only
        messages, notice = worker_messages(
            question, record.step, seen, self.worker, run.setting.worker_profile, final=record.last and run.final,
            withheld=withheld_note(withheld),
        )  # fmt: skip
        if self.attempt == 1:
            missing = [item.number for item in seen if item.answer is None]
            for number in missing:
                run.notice(f"step {number} failed; step {self.number} is told so in its place", self.number)
            if notice:
                run.notice(notice, self.number)
        return messages

    def _wanted(self) -> int:
        """The most tokens that the worker should answer with."""
        return int(self.worker.options.get("max_tokens") or self.run.setting.worker_profile.max_tokens)

    def _request(self, prompt: tuple[Message, ...], most: int) -> Request:
        setting, options = self.run.setting, self.worker.options
        return Request(
            messages=prompt,
            max_tokens=most,
            temperature=options.get("temperature"),
            seed=options.get("seed", setting.seed),
            deadline=setting.timeouts.total,
        )

    async def _call(self, model: Model, request: Request) -> None:
        """Stream the reply. However it ends, `usage` then says what it cost."""
        run = self.run
        run.emit(
            ev.StepStarted(
                at=run.now(), step=self.number, worker=self.worker.name, attempt=self.attempt, prompt=request.messages
            )
        )
        run.busy.add(self.number)
        try:
            await self._stream(model, request)
        except asyncio.CancelledError:
            self.usage = self._spent(request)
            run.stopped(self.number, run.stop_reason(), self.usage)
            raise
        except ModelError as error:
            self._said = error.usage or self._said
            # A call that failed before its first word is taken to have cost nothing.
            begun = self._said is not None or self._written
            self.usage = self._spent(request) if begun else Usage(calls=1)
            raise
        except Exception:
            run.untold += self._spent(request)
            raise
        self.usage = self._spent(request)

    async def _stream(self, model: Model, request: Request) -> None:
        async with with_timeouts(model.stream(request), self.run.setting.timeouts) as chunks:
            async for chunk in chunks:
                self._take(chunk)
        if not self.text.strip():
            raise ModelError("empty_answer", "answered nothing")

    def _take(self, chunk: Chunk) -> None:
        run = self.run
        if chunk.text or chunk.thinking:
            self.text += chunk.text
            self._written += chunk.text + chunk.thinking
            run.emit(
                ev.StepDelta(
                    at=run.now(), step=self.number, attempt=self.attempt, text=chunk.text, thinking=chunk.thinking
                )
            )
        if chunk.note:
            run.notice(f"{self.worker.name}: {chunk.note}", self.number)
        self._said = chunk.usage or self._said
        self._kept = self._kept or chunk.kept
        self.finish = chunk.finish or self.finish

    def _spent(self, request: Request) -> Usage:
        return with_cost(self._said or estimated_usage(request.messages, self._written), self.worker.price)


def seen_by(run: Workflow, step: Step) -> list[SeenStep]:
    """What the access list opens: item 0 is what a nested run was given."""
    items: list[SeenStep] = []
    for number in step.access:
        if number == GIVEN:
            given = run.question.given
            items += [SeenStep(number=GIVEN, worker=g.worker, subtask=g.subtask, answer=g.answer) for g in given]
            continue
        record = run.record(number)
        answer = record.text if record.state == "done" else None
        items.append(SeenStep(number=number, worker=record.worker, subtask=record.step.subtask, answer=answer))
    return items
