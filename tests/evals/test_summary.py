"""Figures are computed from outcomes; failed and unknown values are kept apart."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.summary import summarize, wilson_interval
from tests.evals.sample_outcomes import outcomes, used

ONE, TWO, MOA, AUTO = "alone:one", "alone:two", "moa", "conductor"
ALL = (ONE, TWO, MOA, AUTO)


def test_failed_cases_are_in_no_share_and_no_mean() -> None:
    """What they used is counted separately."""
    summary = summarize(outcomes(ONE, "++-!", tokens=20, seconds=2.0), systems=[ONE])
    (row,) = summary.systems
    assert (row.accuracy.right, row.accuracy.n, row.failed) == (2, 3, 1)
    assert row.accuracy.interval == wilson_interval(2, 3)
    assert (row.tokens, row.calls, row.seconds, row.total.tokens) == (20, 1, 2, 80)


def test_a_system_without_a_judged_case_has_no_figures() -> None:
    """They are unknown, not 0."""
    (row, empty) = summarize(outcomes(ONE, "!!"), systems=[ONE, TWO]).systems
    for item in (row, empty):
        assert (item.accuracy.accuracy, item.cost, item.seconds, item.tokens) == (None, None, None, None)
    assert (row.failed, empty.failed) == (2, 0)
    assert summarize([], systems=[ONE]).best_worker == ""


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
    assert (auto.valid_plans.right, auto.valid_plans.n) == (3, 4)
    assert one.valid_plans is None


def test_an_unknown_cost_is_not_0() -> None:
    """None without any price, 0 for free models; calls without a price are counted."""
    half = [*outcomes(MOA, "+", cost="0.5"), *outcomes(MOA, "-")]
    free, unknown, mixed = summarize(
        [*outcomes(ONE, "++", cost="0"), *outcomes(TWO, "++"), *half], systems=[ONE, TWO, MOA]
    ).systems
    assert (free.cost, unknown.cost, mixed.cost) == (Decimal(0), None, Decimal("0.25"))
    assert (free.unpriced, unknown.unpriced, mixed.unpriced) == (0, 2, 1)


def test_systems_are_compared_with_the_best_single_worker() -> None:
    """The comparison is paired by case, and no system is compared with itself."""
    made = [*outcomes(ONE, "+---"), *outcomes(TWO, "++--"), *outcomes(AUTO, "+++-")]
    summary = summarize(made, systems=[ONE, TWO, AUTO])
    one, two, auto = summary.systems
    assert summary.best_worker == TWO
    assert auto.versus_best is not None
    assert (auto.versus_best.other, auto.versus_best.difference, auto.versus_best.p) == (TWO, 0.25, 1)
    assert one.versus_best is not None
    assert two.versus_best is None


def test_the_best_worker_by_card_stands_in_for_single_workers() -> None:
    """If no worker ran alone; without either there is no comparison."""
    made = [*outcomes("best-worker", "+-"), *outcomes(AUTO, "++")]
    assert summarize(made, systems=["best-worker", AUTO]).best_worker == "best-worker"
    alone = summarize(made, systems=[AUTO])
    assert (alone.best_worker, alone.systems[0].versus_best) == ("", None)


def test_a_worker_with_few_judged_cases_is_not_the_best() -> None:
    """One right answer in one judged case does not beat eight in ten."""
    made = [*outcomes(ONE, "+!!!!!!!!!"), *outcomes(TWO, "-++++++++-"), *outcomes(AUTO, "++++++++++")]
    summary = summarize(made, systems=[ONE, TWO, AUTO])
    auto = summary.systems[2]
    assert summary.best_worker == TWO
    assert auto.versus_best is not None
    assert auto.versus_best.cases == 10


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
    assert summarize(made, systems=[ONE, TWO]).best_worker == best


def test_a_comparison_uses_only_cases_judged_for_both() -> None:
    """A case that failed for one of them is left out."""
    made = [*outcomes(ONE, "+-!+"), *outcomes(AUTO, "!+++")]
    auto = summarize(made, systems=[ONE, AUTO]).systems[1]
    assert auto.versus_best is not None
    assert (auto.versus_best.cases, auto.versus_best.only_this, auto.versus_best.only_other) == (2, 1, 0)


def test_planning_tokens_and_times_are_means() -> None:
    """Over the judged cases."""
    made = [
        replace(item, seconds=float(number), planning=used(4))
        for number, item in enumerate(outcomes(AUTO, "+" * 100), start=1)
    ]
    (row,) = summarize(made, systems=[AUTO]).systems
    assert (row.tokens_conductor, row.tokens, row.seconds) == (4, 10, 50.5)


def test_systems_are_in_the_given_order_and_others_are_left_out() -> None:
    """The order of the outcomes does not matter."""
    made = [*outcomes(TWO, "+"), *outcomes(ONE, "+"), *outcomes(MOA, "+")]
    assert [row.name for row in summarize(made, systems=[ONE, TWO]).systems] == [ONE, TWO]


def drawn(system: str, *draws: str) -> list[Outcome]:
    """The outcomes of several draws, each with a sign for every case."""
    return [replace(item, draw=draw) for draw, signs in enumerate(draws) for item in outcomes(system, signs)]


def test_several_answers_to_a_case_are_one_case() -> None:
    """The share counts all answers; its interval does not take them for so many cases."""
    (row,) = summarize(drawn(ONE, "++--", "++--", "+++-"), systems=[ONE]).systems
    assert (row.accuracy.right, row.accuracy.n, row.accuracy.cases) == (7, 12, 4)
    assert row.accuracy.interval is not None
    assert row.accuracy.interval == pytest.approx(wilson_interval(7, 12, 4))
    assert row.between_draws == pytest.approx(0.25 / 3**0.5)  # 2/4, 2/4, 3/4


def test_one_answer_a_case_has_no_deviation_between_draws() -> None:
    """There is nothing to compare."""
    (row,) = summarize(outcomes(ONE, "++--"), systems=[ONE]).systems
    assert row.between_draws is None


def test_draws_are_compared_one_by_one() -> None:
    """Only runs that were judged for both count, and the p-value takes each case once."""
    made = [*drawn(ONE, "----", "--!-"), *drawn(AUTO, "++++", "+++-")]
    auto = summarize(made, systems=[ONE, AUTO]).systems[1]
    found = auto.versus_best
    assert found is not None
    assert (found.cases, found.n, found.only_this, found.only_other) == (4, 7, 6, 0)
    assert found.difference == pytest.approx(6 / 7)
    assert found.p == pytest.approx(2 / 2**4)  # all four signs alike
    assert found.unequal == pytest.approx((1 + 1 + 1 + 0.25) / 4)
