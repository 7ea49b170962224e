"""How sure shares and differences are: intervals, p-values, and how many cases it takes. Pure.

Sources. The interval of a share: E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209; R. G. Newcombe,
Stat. Med. 17 (1998) 857 found it the best of seven. The interval of a paired difference: R. G.
Newcombe, Stat. Med. 17 (1998) 2635, method 10. The p-value of a paired difference: Q. McNemar,
Psychometrika 12 (1947) 153, with the exact binomial distribution; of several answers a case, E. J.
G. Pitman, Suppl. J. R. Stat. Soc. 4 (1937) 119, also exact. Several answers to a case are a
cluster: the intervals are those of the effective number of answers, as C. Franco et al., J. Surv.
Stat. Methodol. 7 (2019) 334 recommend for Wilson's, with the design effect of L. Kish, Survey
Sampling (1965). Several p-values together: S. Holm, Scand. J. Stat. 6 (1979) 65. The number of
cases: R. J. Connor, Biometrics 43 (1987) 207. statsmodels has all but the last, but it brings scipy
and pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import ceil, comb, log2, sqrt
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

SIGNIFICANT: Final = 0.05  # A p-value below this is taken as a real difference
# How many standard deviations around the mean hold 95 %: 1.96
Z: Final = NormalDist().inv_cdf(0.975)


class Interval(NamedTuple):
    """95 % confidence limits."""

    low: float
    high: float


def effective_size(cases: Sequence[Sequence[float]]) -> float:
    """Return how many answers to different cases say as much about the mean as these numbers.

    The numbers are listed by case. Several answers to one case are alike, so that a second one says
    less than a further case. The result lies between the number of cases and that of the answers.
    """
    answers = [*chain.from_iterable(cases)]
    n = len(cases)
    mean = fmean(answers)
    alone = sum((answer - mean) ** 2 for answer in answers)
    together = sum(sum(answer - mean for answer in case) ** 2 for case in cases)
    if not alone:  # all are the same, which says nothing about how much they vary
        return n
    effective = len(answers) * alone * (n - 1) / (together * n) if together else len(answers)
    return min(len(answers), max(n, effective))


def wilson_interval(right: int, n: int, size: float | None = None) -> Interval:
    """Return the limits of a share of `right` in `n` answers, effectively `size` of them.

    There is at least one answer.
    """
    share = right / n
    square = Z * Z
    size = size or n
    centre = share + square / (2 * size)
    half = Z * sqrt(share * (1 - share) / size + square / (4 * size * size))
    low = (centre - half) / (1 + square / size)
    high = (centre + half) / (1 + square / size)
    # These two limits are exact; rounding must not move them.
    return Interval(0.0 if right == 0 else low, 1.0 if right == n else high)


def newcombe_interval(
    both: int, only_first: int, only_second: int, neither: int, size: float | None = None
) -> Interval:
    """Return the limits of the difference of two shares on the same answers.

    There is at least one answer; effectively, there are `size` of them.
    """
    n = both + only_first + only_second + neither
    difference = (only_first - only_second) / n
    first = both + only_first
    second = both + only_second
    low_first, high_first = wilson_interval(first, n, size)
    low_second, high_second = wilson_interval(second, n, size)

    # The correlation of the two; method 10 reduces a positive one by half an answer.
    margins = first * (n - first) * second * (n - second)
    shared: float = both * neither - only_first * only_second
    if shared > 0:
        shared = max(0.0, shared - n * n / (2 * (size or n)))
    correlation = 0.0
    if margins:
        correlation = shared / sqrt(margins)

    def combine(ours: float, theirs: float) -> float:
        return sqrt(max(0.0, ours * ours - 2 * correlation * ours * theirs + theirs * theirs))

    below = combine(first / n - low_first, high_second - second / n)
    above = combine(high_first - first / n, second / n - low_second)
    return Interval(max(-1.0, difference - below), min(1.0, difference + above))


def mcnemar_p(only_first: int, only_second: int) -> float:
    """Return the two-sided exact p-value.

    How likely chance splits the cases that only one got right as unevenly.
    """
    n = only_first + only_second
    fewer = min(only_first, only_second)
    # Whole numbers, because powers of two beyond 1024 do not fit a float.
    tail = sum(comb(n, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << n))


def paired_p(differences: Sequence[int]) -> float:
    """Return the two-sided exact p-value of paired differences, one for each case.

    How likely random signs give as far a sum.

    A difference is how many more answers to the case the first of two systems got right. With one
    answer to each case this is `mcnemar_p`.
    """
    sizes = [abs(difference) for difference in differences if difference]
    if set(sizes) <= {1}:
        return mcnemar_p(differences.count(1), differences.count(-1))
    import numpy as np  # slow to import

    most = sum(sizes)
    chances = np.zeros(2 * most + 1)  # of each sum, from -most to most
    chances[most] = 1.0
    for size in sizes:
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    far = np.abs(np.arange(-most, most + 1)) >= abs(sum(differences))
    return min(1.0, float(chances[far].sum()))


def holm_corrected(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, corrected by the method of Holm.

    One of them is then falsely below a limit no more often than the limit says. The lowest is
    multiplied by the number of tests, the next by one less, and so on; none gets lower than one
    before.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, p_values[index] * (len(p_values) - rank))
        corrected[index] = min(1.0, highest)
    return corrected


def cases_needed(difference: float, unequal: float, *, comparisons: int = 1) -> int | None:
    """Return how many cases would tell two systems apart whose shares differ by `difference`.

    None if they are equal.

    `unequal` is the share of the cases that only one of them gets right; with several answers to a
    case, the mean of the squared differences of the shares in each case. With so many cases,
    McNemar's test finds the difference with a probability of 80 %. `comparisons` is the number of
    systems that are compared with the same one: each of them must meet a p-value that is as many
    times lower.
    """
    if not difference:
        return None
    limit = SIGNIFICANT / comparisons
    z_limit = NormalDist().inv_cdf(1 - limit / 2)
    z_power = NormalDist().inv_cdf(0.8)
    wanted = z_limit * sqrt(unequal) + z_power * sqrt(max(0.0, unequal - difference * difference))
    # The exact test cannot go below the limit with fewer unequal cases than this, even if all
    # favour the same system.
    fewest = ceil(1 - log2(limit))
    return ceil(max((wanted / difference) ** 2, fewest / unequal))
