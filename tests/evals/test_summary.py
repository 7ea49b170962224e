"""Figures are computed from outcomes; failed and unknown values are kept apart."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.evals.summary import (
    mcnemar_p,
    newcombe_interval,
    summarize,
    wilson_interval,
)
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


# The intervals and the p-value agree with published tables


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_the_published_one(right: int, n: int, low: float, high: float) -> None:
    """Newcombe, Stat. Med. 17 (1998) 857, table I, method 3."""
    assert wilson_interval(right, n) == pytest.approx((low, high), abs=5e-5)


def test_the_interval_of_0_and_100_percent_is_exact() -> None:
    """Rounding does not move the limits 0 and 1."""
    assert wilson_interval(0, 7).low == 0
    assert wilson_interval(7, 7).high == 1


PUBLISHED = [
    ((36, 12, 2, 0), (0.0569, 0.3404)), ((20, 12, 2, 16), (0.0562, 0.3292)), ((18, 12, 2, 18), (0.0562, 0.3290)),
    ((36, 14, 0, 0), (0.1528, 0.4167)), ((35, 14, 0, 1), (0.1461, 0.4175)), ((18, 14, 0, 18), (0.1441, 0.3963)),
    ((2, 97, 1, 0), (0.8721, 0.9854)), ((1, 97, 1, 1), (0.8736, 0.9850)), ((0, 29, 1, 0), (0.6666, 0.9882)),
    ((2, 98, 0, 0), (0.9178, 0.9945)), ((1, 98, 0, 1), (0.9171, 0.9916)), ((0, 30, 0, 0), (0.8395, 1.0)),
    ((54, 0, 0, 0), (-0.0664, 0.0664)), ((53, 0, 0, 1), (-0.0729, 0.0729)), ((30, 0, 0, 24), (-0.0358, 0.0358)),
    ((29, 0, 0, 25), (-0.0354, 0.0354)), ((28, 0, 0, 26), (-0.0352, 0.0352)), ((27, 0, 0, 27), (-0.0351, 0.0351)),
]  # fmt: skip


@pytest.mark.parametrize(("counts", "limits"), PUBLISHED)
def test_the_interval_of_a_difference_is_the_published_one(
    counts: tuple[int, int, int, int], limits: tuple[float, float]
) -> None:
    """Newcombe, Stat. Med. 17 (1998) 2635, table III, method 10, printed to four places."""
    assert newcombe_interval(*counts) == pytest.approx(limits, abs=1e-4)


def test_the_interval_agrees_with_a_second_publication() -> None:
    """Fagerland, Lydersen and Laake, Stat. Med. 33 (2014) 2850: airway reactivity before and after a transplant."""
    assert newcombe_interval(1, 1, 7, 12) == pytest.approx((-0.507, -0.026), abs=5e-4)
    assert mcnemar_p(1, 7) == pytest.approx(0.0703, abs=5e-5)


@given(st.tuples(*[st.integers(0, 300)] * 4).filter(any))
def test_the_interval_contains_the_difference_and_is_antisymmetric(counts: tuple[int, int, int, int]) -> None:
    """Swapping the systems changes the signs."""
    low, high = newcombe_interval(*counts)
    both, one, other, neither = counts
    difference = (one - other) / sum(counts)
    assert -1 <= low <= difference <= high <= 1
    assert newcombe_interval(both, other, one, neither) == pytest.approx((-high, -low))


@pytest.mark.parametrize(("one", "other", "p"), [(0, 0, 1.0), (5, 5, 1.0), (10, 0, 2 / 1024), (8, 2, 0.109375)])
def test_mcnemar_is_the_exact_binomial_tail(one: int, other: int, p: float) -> None:
    """Twice the tail of a fair coin, and never above 1."""
    assert mcnemar_p(one, other) == pytest.approx(p)


def test_mcnemar_handles_many_cases() -> None:
    """Powers of two that do not fit a float do not matter."""
    assert mcnemar_p(1100, 1100) == 1
    assert 0 < mcnemar_p(1030, 1170) < 0.02
