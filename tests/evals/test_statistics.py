"""Intervals and differences agree with the published tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.evals.statistics import (
    PairedCounts,
    count_pairs,
    mcnemar_p,
    newcombe_interval,
    wilson_interval,
)


def cells(both: int, only_first: int, only_second: int, neither: int) -> PairedCounts:
    return PairedCounts(both=both, only_first=only_first, only_second=only_second, neither=neither)


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_the_published_one(right: int, n: int, low: float, high: float) -> None:
    """Newcombe, Stat. Med. 17 (1998) 857, table I, method 3."""
    assert wilson_interval(right, n) == pytest.approx((low, high), abs=5e-5)


def test_the_interval_of_0_and_100_percent_is_exact() -> None:
    """Rounding does not move the limits 0 and 1; without a case the interval is 0 to 1."""
    assert wilson_interval(0, 7).low == 0
    assert wilson_interval(7, 7).high == 1
    assert wilson_interval(0, 0) == (0, 1)


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
    assert newcombe_interval(cells(*counts)) == pytest.approx(limits, abs=1e-4)


def test_the_interval_agrees_with_a_second_publication() -> None:
    """Fagerland, Lydersen and Laake, Stat. Med. 33 (2014) 2850: airway reactivity before and after a transplant."""
    assert newcombe_interval(cells(1, 1, 7, 12)) == pytest.approx((-0.507, -0.026), abs=5e-4)
    assert mcnemar_p(cells(1, 1, 7, 12)) == pytest.approx(0.0703, abs=5e-5)


@given(st.tuples(*[st.integers(0, 300)] * 4))
def test_the_interval_contains_the_difference_and_is_antisymmetric(counts: tuple[int, int, int, int]) -> None:
    """Swapping the systems changes the signs."""
    paired = cells(*counts)
    low, high = newcombe_interval(paired)
    both, one, other, neither = counts
    difference = (one - other) / (sum(counts) or 1)
    assert -1 <= low <= difference <= high <= 1
    assert newcombe_interval(cells(both, other, one, neither)) == pytest.approx((-high, -low))


def test_cases_are_paired_in_order() -> None:
    """Each case is counted once; lists of different lengths are an error."""
    assert count_pairs([True, True, False, False, True], [True, False, True, False, True]) == cells(2, 1, 1, 1)
    with pytest.raises(ValueError, match="shorter"):
        count_pairs([True, True], [True])


@pytest.mark.parametrize(("one", "other", "p"), [(0, 0, 1.0), (5, 5, 1.0), (10, 0, 2 / 1024), (8, 2, 0.109375)])
def test_mcnemar_is_the_exact_binomial_tail(one: int, other: int, p: float) -> None:
    """Twice the tail of a fair coin, and never above 1."""
    assert mcnemar_p(cells(3, one, other, 4)) == pytest.approx(p)


def test_mcnemar_handles_many_cases() -> None:
    """Powers of two that do not fit a float do not matter."""
    assert mcnemar_p(cells(0, 1100, 1100, 0)) == 1
    assert 0 < mcnemar_p(cells(0, 1030, 1170, 0)) < 0.02
