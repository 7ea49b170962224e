"""Confidence intervals of an accuracy and of a difference between two systems on the same cases. Pure.

Sources. The interval of a share: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209; R. G. Newcombe, Stat. Med. 17 (1998)
857 found it the best of seven. The interval of a paired difference: R. G. Newcombe, Stat. Med. 17 (1998) 2635, method
10. The p-value of a paired difference: Q. McNemar, Psychometrika 12 (1947) 153, with the exact binomial distribution.
statsmodels has all three, but it brings scipy and pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

Z: Final = NormalDist().inv_cdf(0.975)
"""How many standard deviations around the mean hold 95 %: 1.96."""


class Interval(NamedTuple):
    """95 % confidence limits."""

    low: float
    high: float


def wilson_interval(right: int, n: int) -> Interval:
    """The limits of a share of `right` in `n`; 0 to 1 without a case."""
    if n == 0:
        return Interval(0.0, 1.0)
    share, square = right / n, Z * Z
    centre = share + square / (2 * n)
    half = Z * sqrt(share * (1 - share) / n + square / (4 * n * n))
    low, high = (centre - half) / (1 + square / n), (centre + half) / (1 + square / n)
    # These two limits are exact; rounding must not move them.
    return Interval(0.0 if right == 0 else low, 1.0 if right == n else high)


class PairedCounts(NamedTuple):
    """Two systems on the same cases: how many both got right, only the first, only the second, neither."""

    both: int
    only_first: int
    only_second: int
    neither: int


def count_pairs(first: Sequence[bool], second: Sequence[bool]) -> PairedCounts:
    """Count which system got which case right; both lists are in the order of the same cases."""
    pairs = list(zip(first, second, strict=True))
    return PairedCounts(*(pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))))


def newcombe_interval(counts: PairedCounts) -> Interval:
    """The limits of the difference of two paired shares; -1 to 1 without a case."""
    n = sum(counts)
    if n == 0:
        return Interval(-1.0, 1.0)
    difference = (counts.only_first - counts.only_second) / n
    first, second = counts.both + counts.only_first, counts.both + counts.only_second
    low_first, high_first = wilson_interval(first, n)
    low_second, high_second = wilson_interval(second, n)

    # The correlation of the two; method 10 reduces a positive one by half a case.
    margins = first * (n - first) * second * (n - second)
    shared: float = counts.both * counts.neither - counts.only_first * counts.only_second
    if shared > 0:
        shared = max(0.0, shared - n / 2)
    correlation = shared / sqrt(margins) if margins else 0.0

    def combine(one: float, other: float) -> float:
        return sqrt(max(0.0, one * one - 2 * correlation * one * other + other * other))

    below = combine(first / n - low_first, high_second - second / n)
    above = combine(high_first - first / n, second / n - low_second)
    return Interval(max(-1.0, difference - below), min(1.0, difference + above))


def mcnemar_p(counts: PairedCounts) -> float:
    """The two-sided exact p-value: how likely chance splits the cases that only one got right as unevenly."""
    n, fewer = counts.only_first + counts.only_second, min(counts.only_first, counts.only_second)
    # Whole numbers, because powers of two beyond 1024 do not fit a float.
    tail = sum(comb(n, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << n))
