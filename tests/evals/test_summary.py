"""Figures are computed from outcomes; failed and unknown values are kept apart."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from conductor_cli.evals.statistics import wilson_interval
from conductor_cli.evals.summary import summarize
from tests.evals.sample_outcomes import outcomes, used

ONE, TWO, MOA, AUTO = "alone:one", "alone:two", "moa", "conductor"
ALL = (ONE, TWO, MOA, AUTO)


def test_failed_cases_are_in_no_share_and_no_mean() -> None:
    """What they used is counted separately."""
    summary = summarize(outcomes(ONE, "++-!", tokens=20, seconds=2.0), systems=[ONE])
    (row,) = summary.systems
    assert (row.accuracy.right, row.accuracy.n, row.failed) == (2, 3, 1)
    assert row.accuracy.interval == wilson_interval(2, 3)
    assert (row.per_case(row.usage.tokens), row.per_case(row.usage.calls), row.mean_seconds, row.p95_seconds) == (
        20,
        1,
        2,
        2,
    )
    assert row.failed_usage.tokens == 20


def test_a_system_without_a_judged_case_has_no_figures() -> None:
    """They are unknown, not 0."""
    (row, empty) = summarize(outcomes(ONE, "!!"), systems=[ONE, TWO]).systems
    for item in (row, empty):
        assert (item.accuracy.value, item.cost, item.mean_seconds) == (None, None, None)
        assert item.per_case(item.usage.tokens) is None
    assert (row.failed, empty.failed) == (2, 0)
    assert summarize([], systems=[ONE]).best_in_hindsight == ""


def test_a_case_counts_under_each_of_its_tags() -> None:
    """Tags are in the order of their first occurrence."""
    made = [replace(item, tags=tags) for item, tags in zip(
        outcomes(ONE, "+-+"), (("letters", "2 hops"), ("letters",), ("facts",)), strict=True,
    )]  # fmt: skip
    (row,) = summarize(made, systems=[ONE]).systems
    assert [(tag, share.right, share.n) for tag, share in row.tags.items()] == [
        ("letters", 1, 2), ("2 hops", 1, 1), ("facts", 1, 1),
    ]  # fmt: skip


def test_valid_plans_are_counted_if_a_model_plans() -> None:
    """A system with a fixed plan has no such figures."""
    made = [replace(item, planned=True, valid=valid) for item, valid in zip(
        outcomes(AUTO, "++-+"), (True, True, True, False), strict=True,
    )]  # fmt: skip
    auto, one = summarize([*made, *outcomes(ONE, "++")], systems=[AUTO, ONE]).systems
    assert auto.valid_plans is not None
    assert auto.right_if_valid is not None
    assert (auto.valid_plans.right, auto.valid_plans.n, auto.right_if_valid.right, auto.right_if_valid.n) == (
        3,
        4,
        2,
        3,
    )
    assert one.valid_plans is one.right_if_valid is None


def test_an_unknown_cost_is_not_0() -> None:
    """None without any price, 0 for free models; calls without a price are counted."""
    half = [*outcomes(MOA, "+", cost="0.5"), *outcomes(MOA, "-")]
    free, unknown, mixed = summarize(
        [*outcomes(ONE, "++", cost="0"), *outcomes(TWO, "++"), *half], systems=[ONE, TWO, MOA]
    ).systems
    assert (free.cost, unknown.cost, mixed.cost) == (Decimal(0), None, Decimal("0.25"))
    assert (free.usage.unpriced, unknown.usage.unpriced, mixed.usage.unpriced) == (0, 2, 1)


@pytest.mark.parametrize(("costs", "unit"), [(("0.1", "0"), "usd"), (("0", "0"), "tokens"), (("0.1", None), "tokens")])
def test_cost_is_compared_in_dollars_only_if_every_price_is_known(
    costs: tuple[str | None, str | None], unit: str
) -> None:
    """Tokens are used if a price is unknown, or if everything is free."""
    made = [*outcomes(ONE, "+", cost=costs[0]), *outcomes(TWO, "+", cost=costs[1])]
    assert summarize(made, systems=[ONE, TWO]).cost_unit == unit


def test_systems_are_compared_with_the_best_worker_by_card_and_in_hindsight() -> None:
    """Both comparisons are paired by case, and no system is compared with itself."""
    made = [*outcomes(ONE, "+---"), *outcomes(TWO, "++--"), *outcomes(AUTO, "+++-")]
    summary = summarize(made, systems=[ONE, TWO, AUTO], best_by_card=ONE)
    one, two, auto = summary.systems
    assert (summary.best_by_card, summary.best_in_hindsight) == (ONE, TWO)
    assert auto.versus_card is not None
    assert auto.versus_best is not None
    assert (auto.versus_card.other, auto.versus_card.difference, auto.versus_card.counts.n) == (ONE, 0.5, 4)
    assert (auto.versus_best.other, auto.versus_best.difference, auto.versus_best.p) == (TWO, 0.25, 1)
    assert one.versus_card is None
    assert two.versus_best is None


def test_a_worker_with_few_judged_cases_is_not_the_best() -> None:
    """One right answer in one judged case does not beat eight in ten."""
    made = [*outcomes(ONE, "+!!!!!!!!!"), *outcomes(TWO, "-++++++++-"), *outcomes(AUTO, "++++++++++")]
    summary = summarize(made, systems=[ONE, TWO, AUTO])
    auto = summary.systems[2]
    assert summary.best_in_hindsight == TWO
    assert auto.versus_best is not None
    assert auto.versus_best.counts.n == 10


@pytest.mark.parametrize(
    ("one", "two", "best"),
    [("++-!", "++++", TWO), ("!!++-+", "--++++", TWO), ("--++++", "!!+++-", ONE), ("+!", "!+", ONE), ("!+", "++", TWO)],
    ids=[
        "a case more",
        "failed where it is hard",
        "the other one did",
        "nothing in common",
        "equal where both answered",
    ],
)
def test_the_best_worker_in_hindsight_is_chosen_on_common_cases(one: str, two: str, best: str) -> None:
    """Ties go to the worker with more right answers on all its cases."""
    made = [*outcomes(ONE, one), *outcomes(TWO, two)]
    assert summarize(made, systems=[ONE, TWO]).best_in_hindsight == best


def test_a_comparison_uses_only_cases_judged_for_both() -> None:
    """A case that failed for one of them is left out."""
    made = [*outcomes(ONE, "+-!+"), *outcomes(AUTO, "!+++")]
    auto = summarize(made, systems=[ONE, AUTO]).systems[1]
    assert auto.versus_best is not None
    assert (auto.versus_best.counts.n, auto.versus_best.counts.only_first, auto.versus_best.counts.both) == (2, 1, 1)


def test_the_best_worker_by_card_must_be_among_the_systems() -> None:
    """Otherwise there is no comparison."""
    summary = summarize(outcomes(AUTO, "+"), systems=[AUTO], best_by_card=ONE)
    assert (summary.best_by_card, summary.best_in_hindsight, summary.systems[0].versus_card) == ("", "", None)


def test_planning_usage_and_percentiles_of_the_times() -> None:
    """The 95th of a hundred times is the p95; the 50th and 51st give the median."""
    made = [
        replace(item, seconds=float(number), planning=used(4))
        for number, item in enumerate(outcomes(AUTO, "+" * 100), start=1)
    ]
    (row,) = summarize(made, systems=[AUTO]).systems
    assert (row.per_case(row.planning.tokens), row.per_case(row.usage.tokens)) == (4, 10)
    assert (row.mean_seconds, row.median_seconds, row.p95_seconds) == (50.5, 50.5, 95)


def test_systems_are_in_the_given_order_and_others_are_left_out() -> None:
    """The order of the outcomes does not matter."""
    made = [*outcomes(TWO, "+"), *outcomes(ONE, "+"), *outcomes(MOA, "+")]
    assert [row.name for row in summarize(made, systems=[ONE, TWO]).systems] == [ONE, TWO]
