"""Reading what the conductor writes: its text becomes steps while it comes, and each is announced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message, Request
from conductor_cli.core.errors import ConductorError, ModelError, PlanError
from conductor_cli.core.plan import SELF, KeepAnswer, Plan, Step
from conductor_cli.core.plan_formats import ParsedStep, PlanFormatContext
from conductor_cli.core.prompts import (
    CONDUCTOR_CHARS,
    conductor_notice,
    conductor_request,
    plan_format_for,
    question_text,
)
from conductor_cli.core.question import Question
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.run import guarding
from conductor_cli.run.calls import estimated_tokens, estimated_usage, with_timeouts

if TYPE_CHECKING:
    from conductor_cli.models.base import Model
    from conductor_cli.run.workflow import Workflow

REVIEW: Final = "Check the answer at hand against the question. Accept it if it stands; otherwise have it corrected."
LEAST_SHOWN: Final = 200
"""Characters of a question below which a conductor is not shown less: its context is too small for anything."""
CLOSING: Final = " \t\r\n`}])."
"""What may follow a whole plan without being worth a word: the end of a fence or of the JSON around it."""


class Reader:
    """Reads one reply of the conductor and announces its steps."""

    def __init__(self, run: Workflow, model: Model, context: PlanFormatContext) -> None:
        self.run = run
        self.model = model
        self.context = context
        self.parser = plan_format_for(run.setting.profile, context).parser(context)
        self.accepted: KeepAnswer | None = None
        self.whole = False
        self.cut = False
        self.text = ""
        self.odds: Mapping[str, float] = {}
        self.notice = ""
        self.said: Usage | None = None
        self.kept = False
        self.usage = NO_USAGE
        self.sent: tuple[Message, ...] = ()
        """What the conductor was sent."""

    async def read(self, standing: tuple[Step, ...], fault: str) -> None:
        """Ask and stream the reply. Raises `PlanError`, `ModelError`, `LimitReached`; what was announced stands.

        A conductor whose context is too small for the question is shown less of it.
        """
        run = self.run
        room, question = CONDUCTOR_CHARS, run.taint.seen_by_conductor()
        while True:
            request = conductor_request(
                question, run.setting.pool, run.setting.profile, self.context,
                room=room, standing=standing, fault=fault, refused=run.refused, rules=run.taint.told(self.context),
            )  # fmt: skip
            self.notice = conductor_notice(question, room)
            try:
                return await self._ask(request)
            except ModelError as error:
                room = min(room, _longest(question)) // 2
                if error.reason != "length" or self.text or room < LEAST_SHOWN:
                    raise

    async def _ask(self, request: Request) -> None:
        run = self.run
        wanted, price = request.max_tokens or 0, run.setting.price
        async with run.shared.turn(self.model):
            reservation = await run.shared.reserve(estimated_tokens(request.messages), wanted, price, call=False)
            request = replace(request, seed=run.setting.seed, max_tokens=reservation.answer)
            began, self.said, self.kept = run.now(), None, False
            self.sent = request.messages
            try:
                await self._stream(request)
            except ModelError as error:
                # As for workers: a call that failed before its first word is taken to have cost nothing. One whose
                # prompt is too long was not even read, and is made again with less.
                unread = Usage(calls=0 if error.reason == "length" else 1)
                self.said = error.usage or self.said or (None if self.text else unread)
                raise
            finally:
                used = with_cost(self.said or estimated_usage(request.messages, self.text), price)
                used = replace(used, seconds=used.seconds or round(run.now() - began, 4))
                self.usage += used
                run.shared.settle(reservation, used, None, kept=self.kept)

    async def _stream(self, request: Request) -> None:
        async with with_timeouts(self.model.stream(request), self.run.setting.timeouts) as chunks:
            async for chunk in chunks:
                self._tell()
                self.said = chunk.usage or self.said
                self.kept = self.kept or chunk.kept
                self.odds = chunk.odds or self.odds
                self.cut = chunk.finish == "length"
                if chunk.note:
                    self.run.notice(f"the conductor: {chunk.note}")
                if self.whole and chunk.text.strip(CLOSING):
                    return  # the plan stands; what it goes on to say about it is not worth waiting for
                self._take(chunk.text)
        if self.cut and not self.whole and not self.context.single:
            raise PlanError("the text was cut by its token limit", line=self.text[-200:].strip())
        if not self.whole:
            self._accept(self.parser.end())

    def _tell(self) -> None:
        """Say once that the conductor reads less than was asked, also where it is asked a second time."""
        if self.notice and all(said.text != self.notice for said in self.run.trace.notices):
            self.run.notice(self.notice)
        self.notice = ""

    def _take(self, text: str) -> None:
        if not text:
            return
        self.text += text
        self.run.emit(ev.PlanDelta(at=self.run.now(), text=text))
        if not self.whole:
            self._accept(self.parser.feed(text))

    def _accept(self, parsed: Iterable[ParsedStep | KeepAnswer]) -> None:
        for item in parsed:
            if isinstance(item, KeepAnswer):
                self.accepted, self.whole = item, True
                return
            forbidden = guarding.fault(self.run, item.step)
            if forbidden:
                raise PlanError(forbidden, line=item.step.subtask)
            self.whole = item.last
            announce_step(self.run, item)
            if item.last:
                return

    def ready(self) -> None:
        reasoning = self.parser.reasoning or _spelled(self.odds, self.context)
        plan_ready(self.run, self.accepted or plan_of(self.run, reasoning), self._told(), self.sent)

    def reject(self, attempt: int, text: str, error: ConductorError) -> None:
        rejected = ev.PlanRejected(
            at=self.run.now(), attempt=attempt, text=text, problem=error.message, hint=error.hint, usage=self._told(),
            prompt=self.sent, reason=error.reason,
        )  # fmt: skip
        self.run.emit(rejected)

    def _told(self) -> Usage:
        usage, self.usage = self.usage, NO_USAGE
        return usage

    def settle(self) -> None:
        """What no event has told of counts all the same."""
        self.run.untold += self._told()


def _longest(question: Question) -> int:
    """The length of what is shown to a conductor in part where it is long: the question, or the answer at hand."""
    return max([len(question_text(question)), *(len(given.answer) for given in question.given[-1:])])


def _spelled(odds: Mapping[str, float], context: PlanFormatContext) -> str:
    """The shares of a choice by the names of the workers, the likeliest first."""
    likeliest = sorted(odds.items(), key=lambda item: -item[1])
    return ", ".join(f"{context.labels.get(label, label)} {share:.2f}" for label, share in likeliest)


def announce_step(run: Workflow, item: ParsedStep) -> None:
    """A planned step; behind the last one, with `--recursion`, a review by the conductor itself."""
    review = _review(run, item) if item.last and run.appended > 0 else None
    run.planned(item.number, item.step, last=item.last and review is None)
    if review is not None:
        run.planned(item.number + 1, review, last=True)


def _review(run: Workflow, item: ParsedStep) -> Step | None:
    """The review behind the last step, unless the policy forbids it."""
    review = Step(worker=SELF, subtask=REVIEW, access=tuple(range(1, item.number + 1)))
    forbidden = guarding.fault(run, review, behind=[item.step])
    if not forbidden:
        return review
    run.notice(f"there is no review: {forbidden}")
    return None


def plan_of(run: Workflow, reasoning: str = "") -> Plan:
    """The plan that the announced steps make."""
    return Plan(steps=tuple(record.step for record in run.trace.steps), reasoning=reasoning.strip())


def plan_ready(
    run: Workflow, plan: Plan | KeepAnswer, usage: Usage = NO_USAGE, prompt: tuple[Message, ...] = ()
) -> None:
    """Say that the plan is whole, and start what can start."""
    run.emit(ev.PlanReady(at=run.now(), plan=plan, usage=usage, prompt=prompt))
    run.advance()
