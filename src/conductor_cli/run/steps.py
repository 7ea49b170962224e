"""A step: attempts at it, waits between them, substitutes; or, for worker `self`, a nested run.

There is no other retry layer. An attempt is repeated only when the same call may succeed a moment later, and never
once its text has gone where it cannot be taken back.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Finish, Request
from conductor_cli.core.errors import Failure, LimitReached, ModelError
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.plan import GIVEN, SELF, Step
from conductor_cli.core.policy import substitutes
from conductor_cli.core.pool import Usage, Worker, priced
from conductor_cli.core.prompts import Seen, worker_messages
from conductor_cli.core.question import Given, Question
from conductor_cli.run.calls import estimated, within

if TYPE_CHECKING:
    from conductor_cli.run.stream import Run

BACKOFF: Final = 0.5
"""Seconds before the second attempt; doubled for each one after it, and jittered by a half either way."""
LONGEST_WAIT: Final = 30.0
"""The longest wait before another attempt, whatever a server asks for."""
FATAL: Final = frozenset({"auth", "missing", "file"})
"""Reasons that will not change within a run: the worker is not asked again."""


async def run_step(run: Run, number: int) -> None:
    """Do step `number` and put all that happens on the stream. Only cancellation comes out of it as an exception."""
    record = run.record(number)
    if record.step.worker == SELF:
        await _nested(run, number, record.step)
        return
    worker: str | None = record.step.worker
    tried: list[str] = []
    attempt = 0
    if worker in run.down:
        tried.append(worker)
        worker = _next(run, tried)
        if worker is None:
            _fail(run, number, 1, run.down[tried[0]])
            return
        run.notice(f"{tried[0]} is not available ({run.down[tried[0]].message}); {worker} takes its place", number)
    while worker is not None:
        attempt, worker = await _try_worker(run, number, worker, attempt, tried)


async def _try_worker(run: Run, number: int, name: str, attempt: int, tried: list[str]) -> tuple[int, str | None]:
    """All attempts at a step by one worker. Returns the last attempt's number and who is to try next, if anyone."""
    tried.append(name)
    for turn in range(1, run.setting.limits.attempts + 1):
        attempt += 1
        call = _Attempt(run, number, run.setting.pool[name], attempt)
        try:
            await call.make()
        except LimitReached as error:
            run.reach_limit(error.failure)
            run.stopped(number, "limit")
            return attempt, None
        except ModelError as error:
            failure = replace(error.failure, message=f"{name}: {error.failure.message}")
            run.errors.setdefault(number, []).append(failure)
            if error.reason in FATAL:
                run.down[name] = failure
            if call.text_is_out:
                _fail(run, number, attempt, failure, call.usage)
                return attempt, None
            if error.retryable and turn < run.setting.limits.attempts:
                wait = _wait(run, turn, error.retry_after)
                _fail(run, number, attempt, failure, call.usage, retry_in=wait)
                await asyncio.sleep(wait)
                continue
            substitute = _next(run, tried)
            _fail(run, number, attempt, failure, call.usage, substitute=substitute)
            return attempt, substitute
        return attempt, None
    return attempt, None


def _next(run: Run, tried: list[str]) -> str | None:
    return next(iter(substitutes(run.setting.pool, {*tried, *run.down})), None)


def _wait(run: Run, turn: int, retry_after: float | None) -> float:
    if retry_after is not None:
        return min(max(retry_after, 0.0), LONGEST_WAIT)
    return round(min(BACKOFF * 2 ** (turn - 1) * run.setting.random.uniform(0.5, 1.5), LONGEST_WAIT), 3)


def _fail(
    run: Run, number: int, attempt: int, error: Failure, usage: Usage = Usage(), *,  # noqa: B008 - frozen
    retry_in: float | None = None, substitute: str | None = None,
) -> None:  # fmt: skip
    run.emit(
        ev.StepFailed(
            at=run.now(), step=number, attempt=attempt, error=error, usage=usage, retry_in=retry_in, substitute=substitute
        )
    )


class _Attempt:
    """One call of one worker for one step."""

    def __init__(self, run: Run, number: int, worker: Worker, attempt: int) -> None:
        self.run = run
        self.number = number
        self.worker = worker
        self.attempt = attempt
        self.text = ""
        self.usage = Usage()
        self.finish: Finish = "other"

    @property
    def text_is_out(self) -> bool:
        """Whether some of the text has been shown as the answer and cannot be taken back."""
        setting = self.run.setting
        return bool(self.text) and setting.streams_answer and not self.run.nested and self.run.record(self.number).last

    async def make(self) -> None:
        """Call the worker. Raises `ModelError` or `LimitReached`; on cancellation, says what the call had cost."""
        request = self._request()
        reservation = await self._reserve(request)
        request = replace(request, max_tokens=min(request.max_tokens or reservation.answer, reservation.answer))
        self.run.emit(
            ev.StepStarted(
                at=self.run.now(), step=self.number, worker=self.worker.name, attempt=self.attempt, prompt=request.messages
            )
        )
        try:
            await self._stream(request)
        except asyncio.CancelledError:
            self.usage = priced(estimated(request, self.text), self.worker.price)
            self.run.stopped(self.number, self.run.reason(self.number), self.usage)
            raise
        except ModelError:
            self.usage = priced(estimated(request, self.text), self.worker.price) if self.text else Usage(calls=1)
            raise
        finally:
            self.run.ledger.settle(reservation, self.usage)
            self.run.room.set()
        self.run.emit(
            ev.StepFinished(
                at=self.run.now(), step=self.number, attempt=self.attempt, text=self.text, usage=self.usage,
                finish=self.finish,
            )  # fmt: skip
        )

    def _request(self) -> Request:
        run = self.run
        record = run.record(self.number)
        seen = _seen(run, record.step)
        messages, notice = worker_messages(
            run.question, record.step, seen, self.worker, run.setting.worker_profile, final=record.last and run.final
        )
        if notice and self.attempt == 1:
            run.notice(notice, self.number)
        if self.attempt == 1:
            for item in seen:
                if item.answer is None:
                    run.notice(f"step {item.number} failed; step {self.number} is told so in its place", self.number)
        options = self.worker.options
        return Request(
            messages=messages,
            max_tokens=int(options.get("max_tokens", run.setting.worker_profile.max_tokens)),
            temperature=options.get("temperature"),
            seed=options.get("seed", run.setting.seed),
            deadline=run.setting.patience.total,
        )

    async def _reserve(self, request: Request) -> Reservation:
        """Room in the ledger, waiting for running calls to settle where that may make room."""
        read = estimated(request, "").tokens_in
        wanted = request.max_tokens or 0
        while (reservation := self.run.ledger.reserve(read, wanted, self.worker.price)) is None:
            self.run.room.clear()
            await self.run.room.wait()
        return reservation

    async def _stream(self, request: Request) -> None:
        model = self.run.setting.workers[self.worker.name]
        usage: Usage | None = None
        began = self.run.now()
        async with aclosing(within(model.stream(request), self.run.setting.patience)) as chunks:
            async for chunk in chunks:
                if chunk.text or chunk.thinking:
                    self.text += chunk.text
                    self.run.emit(
                        ev.StepDelta(
                            at=self.run.now(), step=self.number, attempt=self.attempt, text=chunk.text,
                            thinking=chunk.thinking,
                        )  # fmt: skip
                    )
                if chunk.note:
                    self.run.notice(f"{self.worker.name}: {chunk.note}", self.number)
                usage = chunk.usage or usage
                self.finish = chunk.finish or self.finish
        if not self.text.strip():
            raise ModelError("empty", "answered nothing")
        said = usage or estimated(request, self.text)
        self.usage = replace(priced(said, self.worker.price), seconds=round(self.run.now() - began, 4))


def _seen(run: Run, step: Step) -> list[Seen]:
    """What the access list opens: item 0 is what a nested run was given."""
    items: list[Seen] = []
    for number in step.access:
        if number == GIVEN:
            items += [Seen(number=GIVEN, worker=g.worker, subtask=g.subtask, answer=g.answer) for g in run.question.given]
            continue
        record = run.record(number)
        answer = record.text if record.state == "done" else None
        items.append(Seen(number=number, worker=record.worker, subtask=record.step.subtask, answer=answer))
    return items


async def _nested(run: Run, number: int, step: Step) -> None:
    """A step on worker `self`: a run of its own over the same pool and ledger; its events come as `Inner`."""
    from conductor_cli.run.stream import Run as NestedRun  # noqa: PLC0415 - a run nests runs

    if run.depth_left <= 0 or run.setting.model is None:
        _fail(run, number, 1, Failure(kind="worker", message="the conductor cannot be asked any deeper"))
        return
    inner = NestedRun(
        setting=run.setting, question=_nested_question(run, step), run_id=f"{run.id}.{number}", ledger=run.ledger,
        plan=None, resume=None, depth_left=run.depth_left - 1, appended=max(run.appended - 1, 0),
        final=run.final and run.record(number).last, nested=True,
    )  # fmt: skip
    inner.down = run.down
    run.emit(ev.StepStarted(at=run.now(), step=number, worker=SELF, attempt=1, prompt=()))
    try:
        async for event in inner:
            run.emit(ev.Inner(at=run.now(), step=number, event=event))
    except asyncio.CancelledError:
        for event in inner.rest():
            run.emit(ev.Inner(at=run.now(), step=number, event=event))
        run.stopped(number, run.reason(number), inner.trace.usage)
        raise
    _close_nested(run, number, inner)


def _close_nested(run: Run, number: int, inner: Run) -> None:
    """Turn the end of a nested run into the end of its step."""
    trace = inner.trace
    if inner.limit is not None:
        run.reach_limit(inner.limit)
    if trace.state == "failed":
        failure = trace.error or Failure(kind="internal", message="the nested run ended without a reason")
        run.errors.setdefault(number, []).append(failure)
        _fail(run, number, 1, failure, trace.usage)
        return
    run.emit(ev.StepDelta(at=run.now(), step=number, attempt=1, text=trace.answer))
    run.emit(
        ev.StepFinished(at=run.now(), step=number, attempt=1, text=trace.answer, usage=trace.usage, finish="stop")
    )


def _nested_question(run: Run, step: Step) -> Question:
    seen = [item for item in _seen(run, step) if item.answer is not None]
    given = tuple(Given(worker=item.worker, subtask=item.subtask, answer=item.answer or "") for item in seen)
    text = f"{run.question.text}\n\nWithin this question, the subtask is: {step.subtask}"
    return replace(run.question, text=text, given=given, parent=run.id)

