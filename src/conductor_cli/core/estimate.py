"""What a plan may use, before it runs: calls, tokens and money as a range; called an estimate wherever it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from conductor_cli.core.plan import SELF, Plan
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.prompts import CHARS_PER_TOKEN, question_text
from conductor_cli.core.question import Question
from conductor_cli.core.usage import MILLION, Price

SHORT_ANSWER: Final = 150
"""Tokens of an answer at the low end of the range."""
OVERHEAD: Final = 120
"""Tokens of a worker's prompt beside question, subtask and what it sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """From the least to the most: tokens over all steps, and dollars over those with a price."""

    calls: int
    tokens: tuple[int, int]
    cost: tuple[Decimal, Decimal]
    unpriced: int


def estimate(question: Question, plan: Plan, pool: Pool, profile: WorkerProfile) -> Estimate:
    """The range for a plan: every answer short, or every answer as long as its worker may make it."""
    asked = int(len(question_text(question)) / CHARS_PER_TOKEN)
    low_tokens = high_tokens = unpriced = 0
    low_cost = high_cost = Decimal(0)
    for step in plan.steps:
        worker = pool[step.worker] if step.worker in pool and step.worker != SELF else None
        longest = int(worker.options.get("max_tokens", profile.max_tokens)) if worker else profile.max_tokens
        price = worker.price if worker else None
        fixed = asked + int(len(step.subtask) / CHARS_PER_TOKEN) + OVERHEAD
        short = min(SHORT_ANSWER, longest)
        low_in, high_in = fixed + len(step.access) * short, fixed + len(step.access) * longest
        low_tokens += low_in + short
        high_tokens += high_in + longest
        low_cost += _cost(low_in, short, price)
        high_cost += _cost(high_in, longest, price)
        unpriced += price is None
    return Estimate(
        calls=len(plan.steps), tokens=(low_tokens, high_tokens), cost=(low_cost, high_cost), unpriced=unpriced
    )


def _cost(tokens_in: int, tokens_out: int, price: Price | None) -> Decimal:
    return Decimal(0) if price is None else (tokens_in * price.input + tokens_out * price.output) / MILLION
