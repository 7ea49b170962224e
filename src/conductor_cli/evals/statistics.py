"""How sure a share is, how sure a difference on the same cases is, and what the others reach at the same price. Pure.

Sources. The interval of a share: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209, which R. G. Newcombe, Stat. Med. 17
(1998) 857 found to be the best of seven. The interval of a difference of two shares on the same cases: R. G. Newcombe,
Stat. Med. 17 (1998) 2635, method 10. Whether such a difference may be chance: Q. McNemar, Psychometrika 12 (1947) 153,
by the exact binomial distribution. The frontier: whoever may draw at random, case by case, which of two systems answers
reaches every point on the line between them, so systems are compared with the upper hull of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

Z: Final = NormalDist().inv_cdf(0.975)
"""How many standard deviations 95 % lie within, 1.96."""


class Interval(NamedTuple):
    """The 95 % confidence limits."""

    low: float
    high: float


def wilson_interval(right: int, n: int) -> Interval:
    """The limits of a share of `right` in `n`. Of nothing, anything may be true: 0 to 1."""
    if n == 0:
        return Interval(0.0, 1.0)
    share, square = right / n, Z * Z
    centre = share + square / (2 * n)
    half = Z * sqrt(share * (1 - share) / n + square / (4 * n * n))
    low, high = (centre - half) / (1 + square / n), (centre + half) / (1 + square / n)
    # Rounding must not take the bounds from where they are exact.
    return Interval(0.0 if right == 0 else low, 1.0 if right == n else high)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCounts:
    """Two systems on the same cases: how many both got right, only the one, only the other, neither."""

    both: int
    only_one: int
    only_other: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.only_one + self.only_other + self.neither

    @property
    def difference(self) -> float:
        """The share of the one less that of the other; 0 without a case."""
        return (self.only_one - self.only_other) / self.n if self.n else 0.0


def pair(one: Sequence[bool], other: Sequence[bool]) -> PairedCounts:
    """Counts what was right, case by case; both in the order of the same cases."""
    pairs = list(zip(one, other, strict=True))
    return PairedCounts(
        both=pairs.count((True, True)), only_one=pairs.count((True, False)),
        only_other=pairs.count((False, True)), neither=pairs.count((False, False)),
    )  # fmt: skip


def newcombe_interval(paired: PairedCounts) -> Interval:
    """The limits of the difference. Without a case anything may be true: -1 to 1."""
    n = paired.n
    if n == 0:
        return Interval(-1.0, 1.0)
    one, other = paired.both + paired.only_one, paired.both + paired.only_other
    (low_one, high_one), (low_other, high_other) = wilson_interval(one, n), wilson_interval(other, n)
    correlation = _correlation(paired, one, other)
    below = _apart(one / n - low_one, high_other - other / n, correlation)
    above = _apart(high_one - one / n, other / n - low_other, correlation)
    return Interval(max(-1.0, paired.difference - below), min(1.0, paired.difference + above))


def _apart(one: float, other: float, correlation: float) -> float:
    return sqrt(max(0.0, one * one - 2 * correlation * one * other + other * other))


def _correlation(paired: PairedCounts, one: int, other: int) -> float:
    """The correlation of the two, a positive one made smaller by half a case, as the method has it."""
    n = paired.n
    margins = one * (n - one) * other * (n - other)
    if margins == 0:
        return 0.0
    product = paired.both * paired.neither - paired.only_one * paired.only_other
    return (max(0.0, product - n / 2) if product > 0 else product) / sqrt(margins)


def mcnemar_p(paired: PairedCounts) -> float:
    """The probability, two-sided and exact, of so uneven a split of the cases that only one got right, if by chance."""
    n, few = paired.only_one + paired.only_other, min(paired.only_one, paired.only_other)
    # As whole numbers: powers of two beyond 1024 are no floats.
    tail = sum(comb(n, count) for count in range(few + 1))
    return min(1.0, 2 * tail / (1 << n))


class Point(NamedTuple):
    """What a system costs a question, in dollars or in tokens, and the share that it gets right."""

    cost: float
    accuracy: float


def frontier(points: Iterable[Point]) -> tuple[Point, ...]:
    """The corners of what mixtures of the systems reach, from the cheapest to the best; each is better than the last.

    The upper hull by Andrew's monotone chain, Inf. Process. Lett. 9 (1979) 216.
    """
    corners: list[Point] = []
    for point in sorted(points, key=lambda point: (point.cost, -point.accuracy)):
        if corners and point.accuracy <= corners[-1].accuracy:
            continue
        while len(corners) > 1 and not _bends_down(corners[-2], corners[-1], point):
            corners.pop()
        corners.append(point)
    return tuple(corners)


def _bends_down(first: Point, middle: Point, last: Point) -> bool:
    """Whether `middle` lies above the line from `first` to `last`."""
    rise = (middle.accuracy - first.accuracy) * (last.cost - first.cost)
    return rise > (last.accuracy - first.accuracy) * (middle.cost - first.cost)


def at_cost(corners: Sequence[Point], cost: float) -> float | None:
    """The best accuracy of a mixture that costs at most `cost` on average; None where even the cheapest costs more."""
    reached = [corner for corner in corners if corner.cost <= cost]
    if not reached:
        return None
    before, rest = reached[-1], corners[len(reached) :]
    if not rest:
        return before.accuracy
    share = (cost - before.cost) / (rest[0].cost - before.cost)
    return before.accuracy + share * (rest[0].accuracy - before.accuracy)
