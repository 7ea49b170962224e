"""What an evaluation will probably cost: the usual amount is that of replies and plans as before."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest

from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.usage import Price
from conductor_cli.evals.cost import USUAL_STEPS, CostEstimate, estimate_cost
from conductor_cli.evals.systems import select_systems
from conductor_cli.run import Orchestra
from tests.evals.kit import cases, orchestra, pool

RUNS = 4


def priced(usual_steps: int | None = None, **fields: int) -> Orchestra:
    """Workers of which one costs ten times the other; `fields` are their usual replies."""
    ann, bob = pool("ann", "bob")
    cheap = replace(ann, price=Price(input=Decimal(1), output=Decimal(1)))
    dear = replace(bob, price=Price(input=Decimal(10), output=Decimal(10)))
    base = orchestra(pool=Pool(workers=(cheap, dear)), limits=Limits(attempts=1))
    team = replace(
        base.team,
        price=Price(input=Decimal(0), output=Decimal(0)),
        worker_profile=WorkerProfile(usual_replies=lambda: fields),
        usual_steps=lambda: usual_steps,
    )
    return replace(base, team=team)


def estimate(by: Orchestra, names: str) -> CostEstimate:
    case_set = cases(RUNS)
    return estimate_cost(select_systems(names, by.team, cases=case_set), case_set, by, ())


def test_one_worker_usually_writes_as_much_as_before() -> None:
    short = estimate(priced(ann=40), "alone:ann").usual
    long = estimate(priced(ann=440), "alone:ann").usual
    assert long.usual_tokens - short.usual_tokens == RUNS * 400
    assert long.usual_cost - short.usual_cost == RUNS * Decimal(400) / 10**6


@pytest.mark.parametrize("reply", [1, 10**6])
def test_what_is_usual_is_never_outside_of_what_is_shown(reply: int) -> None:
    tokens, cost = estimate(priced(ann=reply), "alone:ann").lines()
    usual, least, most = map(
        int, re.findall(r"\d+", tokens.partition("calls, ")[2].replace(",", ""))
    )
    assert least <= usual <= most
    amounts = [Decimal(text) for text in re.findall(r"\$(\d+\.\d+)", cost)]
    assert amounts[1] <= amounts[0] <= amounts[2]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_usual_plan_has_as_many_steps_as_those_of_the_user(steps: int) -> None:
    """Each step is the mean of the workers, and planning is a call of its own."""
    usual = estimate(priced(steps, ann=40, bob=40), "conductor").usual
    assert usual.calls == RUNS * (steps + 1)


def test_a_usual_plan_costs_the_mean_of_the_workers() -> None:
    one_step = estimate(priced(1, ann=100, bob=100), "conductor").usual.usual_cost
    alone = [estimate(priced(ann=100, bob=100), f"alone:{name}") for name in ("ann", "bob")]
    mean = float(sum(estimate.usual.usual_cost for estimate in alone)) / 2
    assert float(one_step) == pytest.approx(mean, rel=0.01)  # the subtask is a word or two shorter


def test_without_earlier_plans_a_usual_number_of_steps_is_assumed() -> None:
    assert estimate(priced(None), "conductor").usual.calls == RUNS * (USUAL_STEPS + 1)


def test_a_usual_plan_is_no_longer_than_the_limit_and_one_step_in_mini() -> None:
    by = priced(4)
    limited = replace(by, limits=replace(by.limits, steps=2))
    assert estimate(limited, "conductor").usual.calls == RUNS * 3
    assert estimate(by, "conductor-mini").usual.calls == RUNS * 2


def test_the_usual_amount_stands_before_the_range() -> None:
    by = priced(2, ann=40, bob=40)
    runs, cost = estimate(by, "conductor").lines()
    assert runs.startswith(f"{RUNS} runs: about {RUNS * 3} ({RUNS * 2} to {RUNS * 6}) calls, ")
    assert cost.startswith("estimated cost: usually about $")
    usual = estimate(by, "conductor").usual
    low = estimate(by, "conductor").low
    high = estimate(by, "conductor").high
    assert low.cost[0] <= usual.usual_cost <= high.cost[1]
