"""What outcomes say about systems, and the statistics behind it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.significance import (
    SIGNIFICANT,
    cases_needed,
    effective_size,
    holm_corrected,
    mcnemar_p,
    newcombe_interval,
    paired_p,
    wilson_interval,
)
from conductor_cli.evals.summary import round_up, summarize
from tests.evals.sample_outcomes import outcomes, used

ONE = "alone:one"
TWO = "alone:two"
MOA = "moa"
AUTO = "conductor"
ALL = (ONE, TWO, MOA, AUTO)


def test_failed_cases_are_in_no_share_and_no_mean() -> None:
    summary = summarize(
        outcomes(ONE, "++-!", tokens=20, seconds=2.0, planning=used(4)), systems=[ONE]
    )
    (row,) = summary.systems
    assert (row.accuracy.right, row.accuracy.n, row.failed) == (2, 3, 1)
    assert (row.accuracy.interval, row.between_draws) == (wilson_interval(2, 3), None)
    assert (row.tokens, row.tokens_conductor, row.calls, row.seconds, row.total.tokens) == (
        20,
        4,
        1,
        2,
        80,
    )


def test_a_system_without_a_judged_case_has_no_figures() -> None:
    (row, empty) = summarize(outcomes(ONE, "!!"), systems=[ONE, TWO]).systems
    for item in (row, empty):
        assert (item.accuracy.accuracy, item.cost, item.seconds, item.tokens) == (
            None,
            None,
            None,
            None,
        )
    assert (row.failed, empty.failed) == (2, 0)
    assert summarize([], systems=[ONE]).best_worker == ""


def test_an_unknown_cost_is_not_0() -> None:
    half = [*outcomes(MOA, "+", cost="0.5"), *outcomes(MOA, "-")]
    free, unknown, mixed = summarize(
        [*outcomes(ONE, "++", cost="0"), *outcomes(TWO, "++"), *half], systems=[ONE, TWO, MOA]
    ).systems
    assert (free.cost, unknown.cost, mixed.cost) == (Decimal(0), None, Decimal("0.25"))
    assert (free.unpriced, unknown.unpriced, mixed.unpriced) == (0, 2, 1)


def test_a_worker_with_few_judged_cases_is_not_the_best() -> None:
    made = [
        *outcomes(ONE, "+!!!!!!!!!"),
        *outcomes(TWO, "-++++++++-"),
        *outcomes(AUTO, "++++++++++"),
    ]
    summary = summarize(made, systems=[ONE, TWO, AUTO])
    auto = summary.systems[2]
    assert summary.best_worker == TWO
    assert auto.versus_best is not None
    assert auto.versus_best.cases == 10


@pytest.mark.parametrize(
    ("first", "second", "best"),
    [
        ("++-!", "++++", TWO),
        ("!!++-+", "--++++", TWO),
        ("--++++", "!!+++-", ONE),
        ("+!", "!+", ONE),
        ("!+", "++", TWO),
    ],
    ids=[
        "a case more",
        "failed where it is hard",
        "the other one did",
        "nothing in common",
        "equal where both answered",
    ],
)
def test_the_best_worker_in_hindsight_is_chosen_on_common_cases(
    first: str, second: str, best: str
) -> None:
    made = [*outcomes(ONE, first), *outcomes(TWO, second)]
    assert summarize(made, systems=[ONE, TWO]).best_worker == best


def test_a_comparison_uses_only_cases_judged_for_both() -> None:
    made = [*outcomes(ONE, "+-!+"), *outcomes(AUTO, "!+++")]
    auto = summarize(made, systems=[ONE, AUTO]).systems[1]
    assert auto.versus_best is not None
    assert (auto.versus_best.cases, auto.versus_best.only_this, auto.versus_best.only_other) == (
        2,
        1,
        0,
    )


def drawn(system: str, *draws: str) -> list[CaseOutcome]:
    """The outcomes of several draws, each with a sign for every case."""
    drawn = []
    for draw, signs in enumerate(draws):
        drawn += [replace(outcome, draw=draw) for outcome in outcomes(system, signs)]
    return drawn


def test_several_answers_to_a_case_are_one_case() -> None:
    """The share counts all answers; its interval does not take them for so many cases."""
    (row,) = summarize(drawn(ONE, "++--", "++--", "+++-"), systems=[ONE]).systems
    assert (row.accuracy.right, row.accuracy.n, row.accuracy.cases) == (7, 12, 4)
    assert row.accuracy.interval is not None
    assert row.accuracy.interval == pytest.approx(wilson_interval(7, 12, 4))
    assert row.between_draws == pytest.approx(0.25 / 3**0.5)  # 2/4, 2/4, 3/4


def test_a_judge_is_no_surer_for_many_answers_to_the_same_cases() -> None:
    """Answers of three systems to ten cases say as much about it as those of one."""
    names = ("a", "b", "c")
    runs = []
    for name in names:
        for number, outcome in enumerate(outcomes(name, "++++++++++")):
            runs.append(replace(outcome, confirmed=number < 5))
    summary = summarize(runs, names)
    assert summary.agreement is not None
    assert (summary.agreed, summary.compared, summary.agreement.cases) == (15, 30, 10)
    assert summary.agreement.interval == pytest.approx(wilson_interval(5, 10))
    assert summarize(outcomes("a", "+-"), names).agreement is None


def test_draws_are_compared_one_by_one() -> None:
    made = [*drawn(ONE, "----", "--!-"), *drawn(AUTO, "++++", "+++-")]
    auto = summarize(made, systems=[ONE, AUTO]).systems[1]
    comparison = auto.versus_best
    assert comparison is not None
    assert (comparison.cases, comparison.n, comparison.only_this, comparison.only_other) == (
        4,
        7,
        6,
        0,
    )
    assert comparison.difference == pytest.approx(6 / 7)
    assert comparison.p == pytest.approx(2 / 2**4)  # all four signs alike
    assert comparison.unequal == pytest.approx((1 + 1 + 1 + 0.25) / 4)


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_of_a_share_is_the_published_one(
    right: int, n: int, low: float, high: float
) -> None:
    """Newcombe, Stat. Med. 17 (1998) 857, table I, method 3."""
    assert wilson_interval(right, n) == pytest.approx((low, high), abs=5e-5)
    assert (wilson_interval(0, n).low, wilson_interval(n, n).high) == (0, 1), "exactly"


@pytest.mark.parametrize(
    ("counts", "limits"),
    [
        ((36, 12, 2, 0), (0.0569, 0.3404)),
        ((18, 12, 2, 18), (0.0562, 0.3290)),
        ((18, 14, 0, 18), (0.1441, 0.3963)),
        ((2, 97, 1, 0), (0.8721, 0.9854)),
        ((0, 29, 1, 0), (0.6666, 0.9882)),
        ((0, 30, 0, 0), (0.8395, 1.0)),
        ((54, 0, 0, 0), (-0.0664, 0.0664)),
        ((53, 0, 0, 1), (-0.0729, 0.0729)),
        ((27, 0, 0, 27), (-0.0351, 0.0351)),
    ],
)
def test_the_interval_of_a_difference_is_the_published_one(
    counts: tuple[int, int, int, int], limits: tuple[float, float]
) -> None:
    """Newcombe, Stat. Med. 17 (1998) 2635, table III, method 10, printed to four places."""
    assert newcombe_interval(*counts) == pytest.approx(limits, abs=1e-4)


@given(st.tuples(*[st.integers(0, 300)] * 4).filter(any))
def test_the_interval_contains_the_difference_and_is_antisymmetric(
    counts: tuple[int, int, int, int],
) -> None:
    low, high = newcombe_interval(*counts)
    both, only_first, only_second, neither = counts
    difference = (only_first - only_second) / sum(counts)
    assert -1 <= low <= difference <= high <= 1
    assert newcombe_interval(both, only_second, only_first, neither) == pytest.approx((-high, -low))


@pytest.mark.parametrize(
    ("only_first", "only_second", "p"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (10, 0, 2 / 1024),
        (8, 2, 0.109375),
        (1, 7, 0.0703),
        (1100, 1100, 1.0),
        (1030, 1170, 0.0030),
    ],
)
def test_mcnemar_is_the_exact_binomial_tail(only_first: int, only_second: int, p: float) -> None:
    """Powers of two that do not fit a float do not matter.

    One answer to each case gives the same p-value.
    """
    assert mcnemar_p(only_first, only_second) == pytest.approx(p, abs=5e-5)
    assert paired_p([1] * only_first + [-1] * only_second + [0] * 3) == mcnemar_p(
        only_first, only_second
    )


def test_the_number_of_cases_is_that_of_the_formula() -> None:
    """(1.960 * sqrt(0.3) + 0.8416 * sqrt(0.3 - 0.01))^2 / 0.01 = 233.06.

    No number finds what is not there.
    """
    assert [round_up(number) for number in (7, 42, 147, 150, 2_301)] == [7, 42, 150, 150, 2_400]
    assert cases_needed(0.1, 0.3) == cases_needed(-0.1, 0.3) == 234
    assert cases_needed(0.11, 0.13, comparisons=4) == 117, "a lower limit needs more"
    assert cases_needed(0, 0) is cases_needed(0, 0.6) is None


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 100), st.integers(1, 12))
def test_more_cases_are_needed_if_these_do_not_show_it(
    only_first: int, only_second: int, same: int, comparisons: int
) -> None:
    n = only_first + only_second + same
    if n == 0 or mcnemar_p(only_first, only_second) < SIGNIFICANT / comparisons:
        return
    needed = cases_needed(
        (only_first - only_second) / n, (only_first + only_second) / n, comparisons=comparisons
    )
    assert needed is None or needed > n


def test_p_values_are_corrected_as_in_a_published_example() -> None:
    """Holm's steps by hand.

    0.01, 0.04, 0.03 and 0.005, in this order, as R's `p.adjust` gives them.
    """
    assert holm_corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_corrected([0.6, 0.7]) == [1.0, 1.0]
    assert holm_corrected([]) == []


@given(st.lists(st.lists(st.integers(-1, 1), min_size=1, max_size=4), min_size=1, max_size=12))
def test_answers_to_one_case_count_for_less_than_other_cases(cases: list[list[int]]) -> None:
    assert len(cases) <= effective_size(cases) <= sum(map(len, cases))


def test_the_effective_number_at_its_ends() -> None:
    assert effective_size([[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]) == 4
    assert effective_size([[1, 0], [0, 1], [1, 0]]) == 6
    assert effective_size([[1], [0], [1]]) == 3
    assert effective_size([[1, 1], [1, 1]]) == 2
    # By hand: squares of 2 for single answers and of 2 by case, so 8 * 2 / 2 * 3 / 4 answers.
    assert effective_size([[1, 1], [1, 0], [0, 1], [0, 0]]) == pytest.approx(6.0)


def brute_force(differences: list[int]) -> float:
    """The share of all signs whose sum is as far from 0."""
    sums = [
        sum(sign * difference for sign, difference in zip(signs, differences, strict=True))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(abs(total) >= abs(sum(differences)) for total in sums) / len(sums)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9))
def test_the_p_value_of_repeated_cases_is_exact(differences: list[int]) -> None:
    assert paired_p(differences) == pytest.approx(brute_force(differences))
