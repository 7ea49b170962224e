"""The budget of an evaluation: when a run may start, and what counts as spent."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.core.usage import Price
from conductor_cli.evals.cost import Budget
from conductor_cli.models.base import ScriptedModel
from tests.evals.kit import cases, conductor, make_evaluation, pool, run_all

PRICE = Price(input=Decimal(0), output=Decimal(1_000_000))
"""A dollar a token that is written."""


def test_without_a_limit_any_number_of_runs_may_start() -> None:
    """Such a budget is never exhausted."""
    budget = Budget()
    assert all(budget.start() for _ in range(100))
    assert not budget.exhausted


def test_no_run_starts_that_could_exceed_the_limit_with_those_in_progress() -> None:
    """Each run in progress is assumed to cost as much as the most expensive one so far."""
    budget = Budget(Decimal(10), expected=Decimal(2))
    assert [budget.start() for _ in range(6)] == [True] * 5 + [False]
    budget.finish(Decimal(5))
    assert not budget.start(), "four under way may cost 5 each"
    for _ in range(4):
        budget.finish(Decimal(1))
    assert (budget.spent, budget.exhausted) == (Decimal(9), False)
    assert [budget.start(), budget.start()] == [True, False]
    budget.finish(None)
    assert budget.spent == Decimal(9)


def test_a_single_run_may_start_until_the_limit_is_reached() -> None:
    """However expensive runs are expected to be: the cost is known only afterwards."""
    budget = Budget(Decimal(1), expected=Decimal(100))
    assert budget.start()
    budget.finish(Decimal(1))
    assert budget.exhausted
    assert not budget.start()


@pytest.mark.parametrize("parallel", [1, 8])
def test_the_limit_is_exceeded_by_one_run_at_most(tmp_path: Path, parallel: int) -> None:
    """Also with parallel runs; continuing with an exhausted budget makes no call."""
    worker = ScriptedModel(reply=lambda _: ["one ", "two ", "three"])
    by = conductor({"ann": worker}, model=None, pool=pool("ann", price=PRICE))
    stored, systems = make_evaluation(tmp_path / "e", by, cases(12), ["alone"])
    for limit, spent in (("8.5", 9), ("8.5", 9), ("15.5", 18)):
        budget = Budget(Decimal(limit), spent=stored.spent(), expected=Decimal(3))
        asyncio.run(run_all(stored, systems, by, parallel=parallel, budget=budget))
        assert stored.spent() == budget.spent == 3 * len(worker.requests) == spent
