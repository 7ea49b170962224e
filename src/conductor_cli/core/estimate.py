"""Estimates of calls, tokens and money for a plan before it runs.

An estimate is a range. Its upper end is what reservations hold the calls to: the longest answer,
every token at its highest price. Failed attempts and repaired plans come on top. Local workers are
free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from math import ceil
from typing import Final

from conductor_cli.core.chat import MediaKind, Message, Tool
from conductor_cli.core.media import attachment_tokens
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import USUAL_REPLY_TOKENS, WorkerProfile
from conductor_cli.core.question import Question, question_text
from conductor_cli.core.reading import outline_for, passage_room, reading_of, room_for_text
from conductor_cli.core.usage import CHARS_PER_TOKEN, MILLION, Price, Usage, with_cost

SHORT_ANSWER: Final = 150  # Tokens of an answer at the low end of the range
# Tokens of a worker's prompt in addition to the question, the subtask and the answers it sees
OVERHEAD_TOKENS: Final = 120
# Tokens that a planner writes for a plan, from a short one to a long one
PLAN_TOKENS: Final = (60, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEstimate:
    """From the least to the most: tokens over all calls, and dollars over those with a price.

    The usual amounts are those of replies that are as long as usual.
    """

    calls: int = 0
    tokens: tuple[int, int] = (0, 0)
    cost: tuple[Decimal, Decimal] = (Decimal(0), Decimal(0))
    usual_tokens: int = 0
    usual_cost: Decimal = Decimal(0)
    unpriced: int = 0

    def __add__(self, other: PlanEstimate) -> PlanEstimate:
        return PlanEstimate(
            calls=self.calls + other.calls,
            tokens=(self.tokens[0] + other.tokens[0], self.tokens[1] + other.tokens[1]),
            cost=(self.cost[0] + other.cost[0], self.cost[1] + other.cost[1]),
            usual_tokens=self.usual_tokens + other.usual_tokens,
            usual_cost=self.usual_cost + other.usual_cost,
            unpriced=self.unpriced + other.unpriced,
        )


ZERO: Final = PlanEstimate()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerCost:
    """What counts of a planner: the tokens in its prompt, and its price."""

    read: int
    price: Price | None


def estimate_plan(
    question: Question, plan: Plan, pool: Pool, profile: WorkerProfile
) -> PlanEstimate:
    """Return the range for a plan.

    Every answer short, or every answer as long as its worker may make it.
    """
    return sum(estimate_steps(lambda _: question, plan, pool, profile), ZERO)


def estimate_steps(
    question_for: Callable[[str], Question], plan: Plan, pool: Pool, profile: WorkerProfile
) -> tuple[PlanEstimate, ...]:
    """Return the range for each step of a plan.

    `question_for` is the question as the policy lets a worker see it.

    A step on the planner itself is a call with an unknown price: nobody knows yet what it will
    plan.
    """
    # Without the workers' tokenizers, lengths are all there is to go by.
    workers = [_planned_worker(step, pool) for step in plan.steps]
    answers = [_longest_answer(worker, profile) for worker in workers]
    usual_answers = [_usual_answer(worker, profile) for worker in workers]
    estimates = []
    for step, worker, longest, usual in zip(
        plan.steps, workers, answers, usual_answers, strict=True
    ):
        fixed = _tokens_around(question_for(step.worker), step, worker, profile)
        read_answers = [answers[number - 1] for number in step.access]
        low_in = fixed + sum(min(SHORT_ANSWER, most) for most in read_answers)
        usual_in = fixed + sum(usual_answers[number - 1] for number in step.access)
        high_in = fixed + sum(read_answers)
        short = min(SHORT_ANSWER, longest)
        low_cost = Decimal(0)
        usual_cost = Decimal(0)
        high_cost = Decimal(0)
        price = worker.price if worker else None
        if price is not None:
            low_cost = _cost(low_in, short, price)
            usual_cost = _cost(usual_in, usual, price)
            high_cost = price.most(high_in, longest)
        estimate = PlanEstimate(
            calls=1,
            tokens=(low_in + short, high_in + longest),
            cost=(low_cost, high_cost),
            usual_tokens=usual_in + usual,
            usual_cost=usual_cost,
            unpriced=int(price is None),
        )
        estimates.append(estimate)
    return tuple(estimates)


def _planned_worker(step: Step, pool: Pool) -> Worker | None:
    """Return the worker of a step; None for the planner, and for one that is not in the pool."""
    if step.worker == SELF or step.worker not in pool:
        return None
    return pool[step.worker]


def _longest_answer(worker: Worker | None, profile: WorkerProfile) -> int:
    """Return the tokens of the longest answer that a worker may give."""
    if worker is None:
        return profile.max_tokens
    return profile.reply_tokens(worker)


def _usual_answer(worker: Worker | None, profile: WorkerProfile) -> int:
    """Return the tokens of a usual answer of a worker; of the planner, those of a page."""
    if worker is None:
        return min(USUAL_REPLY_TOKENS, profile.max_tokens)
    return profile.usual_tokens(worker)


def _tokens_around(
    question: Question, step: Step, worker: Worker | None, profile: WorkerProfile
) -> int:
    """Return the tokens of a worker's prompt without the answers that it reads.

    What a worker looks up in a directory comes on top.
    """
    accepts: tuple[MediaKind, ...] = ()
    room = None
    passages = 0
    if worker is not None:
        accepts = worker.accepts or ()
        reading = reading_of(question, worker, profile, has_tools=profile.reads_directories)
        if reading == "outline":
            question = outline_for(question, worker, profile)
            passages = int(passage_room(worker, profile) / CHARS_PER_TOKEN)
        if reading == "shortened":
            room = room_for_text(worker, profile, question.attachments_for(accepts))
    text = question_text(question, room, accepts)
    text_tokens = int(len(text) / CHARS_PER_TOKEN)
    subtask_tokens = int(len(step.subtask) / CHARS_PER_TOKEN)
    attached_tokens = sum(map(attachment_tokens, question.attachments_for(accepts)))
    return text_tokens + subtask_tokens + OVERHEAD_TOKENS + passages + attached_tokens


def estimate_planning(planner: PlannerCost, times: int = 1) -> PlanEstimate:
    """Return the range for what the planner itself uses: one short plan, or `times` long ones."""
    (short, long) = PLAN_TOKENS
    usual = (short + long) // 2
    low_cost = Decimal(0)
    usual_cost = Decimal(0)
    high_cost = Decimal(0)
    unpriced = times
    if planner.price is not None:
        low_cost = _cost(planner.read, short, planner.price)
        usual_cost = _cost(planner.read, usual, planner.price)
        high_cost = times * planner.price.most(planner.read, long)
        unpriced = 0
    return PlanEstimate(
        calls=times,
        tokens=(planner.read + short, times * (planner.read + long)),
        cost=(low_cost, high_cost),
        usual_tokens=planner.read + usual,
        usual_cost=usual_cost,
        unpriced=unpriced,
    )


def _cost(tokens_in: int, tokens_out: int, price: Price) -> Decimal:
    rate = price.at(tokens_in)
    return (tokens_in * rate.input + tokens_out * rate.output) / MILLION


def estimated_usage(messages: Sequence[Message], written: str, tools: Sequence[Tool] = ()) -> Usage:
    """Return tokens by length, for a call that ended before its model reported any."""
    read = conversation_tokens(messages, tools)
    return Usage(tokens_in=read, tokens_out=tokens_in_bytes(byte_length(written)), calls=1)


def billed_usage(
    reported: Usage | None,
    messages: Sequence[Message],
    written: str,
    price: Price | None,
    tools: Sequence[Tool] = (),
) -> Usage:
    """Return what a call has used, with its cost by `price`.

    Where it costs something, tokens that its server leaves out of what it reports are estimated.
    """
    usage = reported or estimated_usage(messages, written, tools)
    has_used = bool(written or usage.tokens)
    if has_used and usage.cost is None and price is not None and not price.is_free:
        estimated = estimated_usage(messages, written, tools)
        usage = replace(
            usage,
            tokens_in=usage.tokens_in or estimated.tokens_in,
            tokens_out=usage.tokens_out or estimated.tokens_out,
        )
    return with_cost(usage, price)


def prompt_tokens(messages: Iterable[Message]) -> int:
    """Return tokens of a prompt by its length.

    The tokenizer of a worker's model is not available.
    """
    messages = tuple(messages)
    attachments = chain.from_iterable(message.attachments for message in messages)
    text = "".join(message.content for message in messages)
    return tokens_in_bytes(byte_length(text)) + sum(map(attachment_tokens, attachments))


def conversation_tokens(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """Return about how many tokens a request has.

    Its texts, its calls, and the descriptions of its tools.
    """
    calls = 0
    for message in messages:
        calls += sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    described = 0
    for tool in tools:
        schema = json.dumps(tool.parameters, default=str)
        described += len(f"{tool.name} {tool.description} {schema}")
    return prompt_tokens(messages) + int((calls + described) / CHARS_PER_TOKEN)


def byte_length(text: str) -> int:
    """Return the bytes of a text, by which its tokens are estimated.

    Scripts other than Latin take more tokens for a character, and more bytes.
    """
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "replace"))


def tokens_in_bytes(count: int) -> int:
    """Return about how many tokens a text of so many bytes has.

    Rounded up: one word of a reply that broke off is a token, too.
    """
    return ceil(count / CHARS_PER_TOKEN)
