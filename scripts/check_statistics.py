"""Check the statistics of `eval`, `try` and `tune` against scipy, and by trials of nothing.

    python -m venv check && check/bin/pip install -e . scipy
    check/bin/python scripts/check_statistics.py

scipy is no dependency of the development, because it takes 113 MB: docs/research/verdicts.md has
what this printed.
"""

from __future__ import annotations

from importlib import import_module
from random import Random
from statistics import fmean
from typing import Any, Final

from conductor_cli.cli.try_command import advise
from conductor_cli.evals.outcomes import CaseOutcome
from conductor_cli.evals.significance import mcnemar_p, paired_p, wilson_interval
from conductor_cli.evals.summary import summarize

TABLES: Final = 1_000
TRIALS: Final = 1_000
WAYS: Final = ("conductor-mini", "conductor")


def compare_with_scipy() -> None:
    """Print the largest differences to scipy on random tables."""
    stats: Any = import_module("scipy.stats")

    random = Random(1)
    differences: dict[str, list[float]] = {"wilson": [], "mcnemar": [], "paired": []}
    for _ in range(TABLES):
        n = random.randint(1, 400)
        right = random.randint(0, n)
        ours = wilson_interval(right, n)
        theirs = stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
        far = max(abs(ours.low - theirs.low), abs(ours.high - theirs.high))
        differences["wilson"].append(far)
        only_first = random.randint(0, 200)
        only_second = random.randint(0, 200)
        unequal = only_first + only_second
        p = stats.binomtest(only_first, unequal).pvalue if unequal else 1.0
        differences["mcnemar"].append(abs(mcnemar_p(only_first, only_second) - p))
        sizes = [random.randint(-3, 3) for _ in range(random.randint(2, 9))]
        exact = stats.permutation_test(
            (sizes,), sum, permutation_type="samples", n_resamples=1_000_000
        ).pvalue
        differences["paired"].append(abs(paired_p(sizes) - exact))
    for name, far_apart in differences.items():
        print(f"{name}: {len(far_apart):,} tables, at most {max(far_apart):.1e} apart")


def draw_trial(random: Random, cases: int, workers: int) -> list[CaseOutcome]:
    """Outcomes of ways that are all equally good, on cases of different difficulty."""
    names = [*(f"alone:w{number}" for number in range(workers)), *WAYS]
    made = []
    for number in range(cases):
        share = min(0.98, max(0.02, random.gauss(0.6, 0.2)))
        for name in names:
            verdict: Any = "right" if random.random() < share else "wrong"
            made.append(CaseOutcome(system=name, case=str(number), verdict=verdict))
    return made


def count_wrong_advice() -> None:
    """Print in how many trials without a difference `try` advises something."""
    for cases, workers in ((12, 2), (12, 5), (24, 3), (40, 5), (100, 5)):
        random = Random(cases + workers)
        wrong = 0
        differences = []
        for _ in range(TRIALS):
            made = draw_trial(random, cases, workers)
            summary = summarize(made, [*dict.fromkeys(outcome.system for outcome in made)])
            wrong += advise(summary).startswith(("Plan", "Route", "Ask one"))
            compared = summary.systems[-1].versus_best
            assert compared is not None
            differences.append(compared.difference)
        mean = 100 * fmean(differences)
        print(
            f"{cases} cases, {workers} workers: wrong advice in {wrong} of {TRIALS:,} trials; "
            f"VS BEST of the plan on average {mean:+.1f} points"
        )


if __name__ == "__main__":
    compare_with_scipy()
    count_wrong_advice()
