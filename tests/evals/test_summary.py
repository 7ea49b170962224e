"""Outcomes become figures; what failed and what is not known stays apart."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from conductor_cli.evals.statistics import wilson_interval
from conductor_cli.evals.summary import summarize
from tests.evals.made import outcomes, used

ONE, TWO, MOA, AUTO = "alone:one", "alone:two", "moa", "conductor"
ALL = (ONE, TWO, MOA, AUTO)


def test_a_system_is_counted_over_the_cases_that_were_judged() -> None:
    """A failed case is in no share and no mean; what it used is kept apart."""
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
    """Nothing was found out: unknown, not 0."""
    (row, empty) = summarize(outcomes(ONE, "!!"), systems=[ONE, TWO]).systems
    for item in (row, empty):
        assert (item.accuracy.value, item.cost, item.mean_seconds) == (None, None, None)
        assert item.per_case(item.usage.tokens) is None
    assert (row.failed, empty.failed) == (2, 0)
    assert summarize([], systems=[ONE]).best_in_hindsight == ""


def test_shares_by_tag_count_each_tag_of_a_case() -> None:
    """A case with two tags counts under both, in the order of their first mention."""
    made = [replace(item, tags=tags) for item, tags in zip(
        outcomes(ONE, "+-+"), (("letters", "2 hops"), ("letters",), ("facts",)), strict=True,
    )]  # fmt: skip
    (row,) = summarize(made, systems=[ONE]).systems
    assert [(tag, share.right, share.n) for tag, share in row.tags.items()] == [
        ("letters", 1, 2), ("2 hops", 1, 1), ("facts", 1, 1),
    ]  # fmt: skip


def test_plans_are_counted_where_a_model_planned() -> None:
    """The valid-plan rate, and what is right among the valid; a fixed system has neither."""
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


def test_an_unknown_cost_is_never_0() -> None:
    """No price: None. A price of nothing: 0. Some with and some without: what is known, and how many are missing."""
    half = [*outcomes(MOA, "+", cost="0.5"), *outcomes(MOA, "-")]
    free, unknown, mixed = summarize(
        [*outcomes(ONE, "++", cost="0"), *outcomes(TWO, "++"), *half], systems=[ONE, TWO, MOA]
    ).systems
    assert (free.cost, unknown.cost, mixed.cost) == (Decimal(0), None, Decimal("0.25"))
    assert (free.usage.unpriced, unknown.usage.unpriced, mixed.usage.unpriced) == (0, 2, 1)


@pytest.mark.parametrize(("costs", "unit"), [(("0.1", "0"), "usd"), (("0", "0"), "tokens"), (("0.1", None), "tokens")])
def test_equal_cost_is_in_dollars_only_where_all_have_a_price(costs: tuple[str | None, str | None], unit: str) -> None:
    """Tokens are counted where any price is unknown, or where nothing costs anything."""
    made = [*outcomes(ONE, "+", cost=costs[0]), *outcomes(TWO, "+", cost=costs[1])]
    assert summarize(made, systems=[ONE, TWO]).cost_unit == unit


def test_the_best_worker_is_told_by_card_and_best_in_hindsight() -> None:
    """Both comparisons are paired by case, each says with whom, and nobody is compared with itself."""
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


def test_whoever_hardly_answered_is_not_the_best() -> None:
    """One right answer in one judged case, beside nine failures, is no better than eight in ten."""
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
def test_the_best_in_hindsight_is_chosen_on_common_cases(one: str, two: str, best: str) -> None:
    """What only one was judged by tells nothing of who is better, but for who got more right among equals."""
    made = [*outcomes(ONE, one), *outcomes(TWO, two)]
    assert summarize(made, systems=[ONE, TWO]).best_in_hindsight == best


def test_a_comparison_leaves_out_what_failed_for_either() -> None:
    """Only cases that were judged for both are paired."""
    made = [*outcomes(ONE, "+-!+"), *outcomes(AUTO, "!+++")]
    auto = summarize(made, systems=[ONE, AUTO]).systems[1]
    assert auto.versus_best is not None
    assert (auto.versus_best.counts.n, auto.versus_best.counts.only_first, auto.versus_best.counts.both) == (2, 1, 1)


def test_the_best_worker_by_card_must_have_run() -> None:
    """A card's choice that is none of the systems is no comparison."""
    summary = summarize(outcomes(AUTO, "+"), systems=[AUTO], best_by_card=ONE)
    assert (summary.best_by_card, summary.best_in_hindsight, summary.systems[0].versus_card) == ("", "", None)


def test_the_conductors_share_and_the_times_are_told_apart() -> None:
    """Planning is part of the usage; the 95th of a hundred times is the p95, the 50th and 51st make the median."""
    made = [
        replace(item, seconds=float(number), planning=used(4))
        for number, item in enumerate(outcomes(AUTO, "+" * 100), start=1)
    ]
    (row,) = summarize(made, systems=[AUTO]).systems
    assert (row.per_case(row.planning.tokens), row.per_case(row.usage.tokens)) == (4, 10)
    assert (row.mean_seconds, row.median_seconds, row.p95_seconds) == (50.5, 50.5, 95)


def test_systems_stand_in_the_order_given_and_others_are_left_out() -> None:
    """The order of the outcomes does not matter."""
    made = [*outcomes(TWO, "+"), *outcomes(ONE, "+"), *outcomes(MOA, "+")]
    assert [row.name for row in summarize(made, systems=[ONE, TWO]).systems] == [ONE, TWO]
