"""What single workers would have cost for the question of a run."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from conductor_cli.core.estimate import OVERHEAD, WorkerCost, compare_with_single_worker
from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import FREE, Price, Usage

CHEAP = Worker(name="cheap", kind="x", price=Price(input=Decimal(1), output=Decimal(2)))
DEAR = Worker(name="dear", kind="x", price=Price(input=Decimal(10), output=Decimal(20)))
LOCAL = Worker(name="local", kind="llama", price=FREE)
UNPRICED = Worker(name="unpriced", kind="x")
ITSELF = Worker(name="self", kind="self")


def run(*workers: Worker, written: int = 100) -> Trace:
    """A finished run of one step that wrote so many tokens; question and answer are 35 characters each."""
    step = Step(worker="cheap", subtask="Do it.")
    record = StepRecord(
        number=1, step=step, last=True, planned=0.0, state="done", text="a" * 35, usage=Usage(tokens_out=written)
    )
    question = Question(text="q" * 35)
    return Trace(state="finished", answer="a" * 35, question=question, pool=Pool(workers=workers), steps=(record,))


def cost(price_in: int, price_out: int, written: int = 100) -> Decimal:
    return Decimal((10 + OVERHEAD) * price_in + written * price_out) / 1_000_000


def test_the_most_expensive_worker_is_named() -> None:
    """One call: the question read, as many tokens written as the answering call wrote. It calls itself an estimate."""
    found = compare_with_single_worker(run(CHEAP, DEAR, LOCAL, UNPRICED, ITSELF))
    assert found is not None
    assert (found.most_expensive, found.best, found.estimate) == (
        WorkerCost(worker="dear", cost=cost(10, 20)),
        None,
        True,
    )


def test_the_best_worker_is_named_if_cards_have_strengths() -> None:
    """One without a price has no cost, and is not taken to be free."""
    best = replace(UNPRICED, card=Card(strengths={"maths": 0.9}))
    found = compare_with_single_worker(run(CHEAP, best))
    assert found is not None
    assert (found.most_expensive.worker, found.best) == ("cheap", WorkerCost(worker="unpriced", cost=None))


def test_without_counted_tokens_the_answer_is_measured_by_its_length() -> None:
    """Such as a step that was reused from an earlier run."""
    found = compare_with_single_worker(run(CHEAP, written=0))
    assert found is not None
    assert found.most_expensive.cost == cost(1, 2, written=10)


def test_there_is_nothing_to_compare_with_what_is_free_or_unknown() -> None:
    """No line that says $0.00 or nothing."""
    assert compare_with_single_worker(run(LOCAL)) is None
    assert compare_with_single_worker(run(UNPRICED)) is None
    assert compare_with_single_worker(run(ITSELF)) is None
    assert compare_with_single_worker(replace(run(DEAR), answer="")) is None
    assert compare_with_single_worker(replace(run(DEAR), partial=True)) is None
    assert compare_with_single_worker(replace(run(DEAR), state="failed")) is None
