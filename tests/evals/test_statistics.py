"""The intervals, the p-value and the number of cases agree with published tables and with what they promise."""

from __future__ import annotations

from itertools import product
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.evals.summary import (
    SIGNIFICANT,
    cases_needed,
    effective_size,
    holm_corrected,
    mcnemar_p,
    newcombe_interval,
    paired_p,
    round_up,
    wilson_interval,
)


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


def binomial(n: int, count: int, share: float) -> float:
    return comb(n, count) * share**count * (1 - share) ** (n - count)


def power(n: int, first: float, second: float, limit: float) -> float:
    """How likely the exact test finds the difference of two systems, counted over every possible result."""
    unequal = first + second
    return sum(
        binomial(n, found, unequal) * binomial(found, one, first / unequal)
        for found in range(n + 1)
        for one in range(found + 1)
        if mcnemar_p(one, found - one) < limit
    )


@pytest.mark.parametrize(("one", "other", "comparisons"), [(20, 5, 1), (30, 15, 1), (20, 5, 4), (12, 1, 4)])
def test_so_many_cases_find_the_difference_with_80_percent(one: int, other: int, comparisons: int) -> None:
    """The exact test needs a few more than the formula says; half as many would miss it more often than not."""
    n = cases_needed((one - other) / 100, (one + other) / 100, comparisons=comparisons)
    limit = SIGNIFICANT / comparisons
    assert n is not None
    assert 0.7 < power(n, one / 100, other / 100, limit) < 0.85
    assert power(n // 2, one / 100, other / 100, limit) < 0.55


def test_the_number_of_cases_is_that_of_the_formula() -> None:
    """(1.960 * sqrt(0.3) + 0.8416 * sqrt(0.3 - 0.01))^2 / 0.01 = 233.06."""
    assert cases_needed(0.1, 0.3) == cases_needed(-0.1, 0.3) == 234


def test_no_number_of_cases_finds_what_is_not_there() -> None:
    """Equal systems, whether they agree on every case or not."""
    assert cases_needed(0, 0) is None
    assert cases_needed(0, 0.6) is None


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 100), st.integers(1, 12))
def test_more_cases_are_needed_if_these_do_not_show_it(one: int, other: int, same: int, comparisons: int) -> None:
    """A result that is not significant never leads to the advice to use as many cases or fewer."""
    n = one + other + same
    if n == 0 or mcnemar_p(one, other) < SIGNIFICANT / comparisons:
        return
    needed = cases_needed((one - other) / n, (one + other) / n, comparisons=comparisons)
    assert needed is None or needed > n


def test_numbers_are_rounded_up_to_two_digits() -> None:
    """A reader needs no more of them."""
    assert [round_up(number) for number in (7, 42, 147, 150, 2_301)] == [7, 42, 150, 150, 2_400]


def test_holms_correction_of_a_published_example() -> None:
    """Holm's steps by hand: 0.01, 0.04, 0.03 and 0.005, in this order, as R's `p.adjust` gives them."""
    assert holm_corrected([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_corrected([0.6, 0.7]) == [1.0, 1.0]
    assert holm_corrected([]) == []


clusters = st.lists(st.lists(st.integers(-1, 1), min_size=1, max_size=4), min_size=1, max_size=12)


@given(clusters)
def test_answers_to_one_case_count_for_less_than_other_cases(cases: list[list[int]]) -> None:
    """Their effective number lies between the cases and the answers."""
    assert len(cases) <= effective_size(cases) <= sum(map(len, cases))


def test_the_effective_number_at_its_ends() -> None:
    """Equal answers to each case say no more than one of them; answers that vary within the cases only say most."""
    assert effective_size([[1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0]]) == 4
    assert effective_size([[1, 0], [0, 1], [1, 0]]) == 6
    assert effective_size([[1], [0], [1]]) == 3
    assert effective_size([[1, 1], [1, 1]]) == 2


def test_the_effective_number_by_hand() -> None:
    """Four cases, two answers each: squares of 2 for single answers and of 2 by case, so 8 * 2 / 2 * 3 / 4 answers."""
    assert effective_size([[1, 1], [1, 0], [0, 1], [0, 0]]) == pytest.approx(6.0)


def simulated(seed: int, *, naive: bool) -> bool:
    """Whether the interval of 40 cases with five answers each holds the true mean, where cases differ by difficulty."""
    random = Random(seed)
    cases = [[int(random.random() < easy) for _ in range(5)] for easy in (random.betavariate(1, 1) for _ in range(40))]
    right = sum(map(sum, cases))
    low, high = wilson_interval(right, 200, None if naive else effective_size(cases))
    return low <= 0.5 <= high


def test_intervals_of_repeated_cases_hold_what_they_promise() -> None:
    """95 % of them hold the mean; the interval that takes every answer for a case holds it much less often."""
    assert sum(simulated(seed, naive=False) for seed in range(400)) >= 0.92 * 400
    assert sum(simulated(seed, naive=True) for seed in range(400)) < 0.85 * 400


def brute_force(differences: list[int]) -> float:
    """The share of all signs whose sum is as far from 0."""
    sums = [sum(sign * each for sign, each in zip(signs, differences, strict=True))
            for signs in product((-1, 1), repeat=len(differences))]  # fmt: skip
    return sum(abs(found) >= abs(sum(differences)) for found in sums) / len(sums)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9))
def test_the_p_value_of_repeated_cases_is_exact(differences: list[int]) -> None:
    """It is that of all possible signs, counted one by one."""
    assert paired_p(differences) == pytest.approx(brute_force(differences))


def test_one_answer_a_case_gives_mcnemars_p_value() -> None:
    """The two tests are one there."""
    assert paired_p([1] * 7 + [-1] + [0] * 12) == mcnemar_p(7, 1)
