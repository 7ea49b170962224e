"""The estimate of a plan."""

from __future__ import annotations

from decimal import Decimal

from conductor_cli.core.estimate import OVERHEAD, SHORT_ANSWER, estimate
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Price

PRICE = Price(input=Decimal(1), output=Decimal(10))
POOL = Pool(
    workers=(
        Worker(name="ann", kind="openai", price=PRICE, options={"max_tokens": 1000}),
        Worker(name="bob", kind="openai"),
    )
)


def test_the_range_spans_short_and_longest_answers() -> None:
    """Tokens and dollars at both ends, counted by hand for one step."""
    found = estimate(Question(text=""), Plan(steps=(Step(worker="ann", subtask=""),)), POOL, WorkerProfile())
    assert found.tokens == (OVERHEAD + SHORT_ANSWER, OVERHEAD + 1000)
    low, high = Decimal(OVERHEAD + 10 * SHORT_ANSWER) / 1_000_000, Decimal(OVERHEAD + 10_000) / 1_000_000
    assert (found.calls, found.cost, found.unpriced) == (1, (low, high), 0)


def test_a_worker_without_a_price_is_counted_not_guessed() -> None:
    """Unpriced steps add tokens but no dollars."""
    plan = Plan(steps=(Step(worker="bob", subtask="x" * 70), Step(worker="self", subtask="y", access=(1,))))
    found = estimate(Question(text="q"), plan, POOL, WorkerProfile())
    assert (found.cost, found.unpriced) == ((Decimal(0), Decimal(0)), 2)
    assert found.tokens[1] > found.tokens[0] > 2 * (OVERHEAD + SHORT_ANSWER)
