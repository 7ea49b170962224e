"""What the outcomes say about each system: accuracy with its interval, what a question costs, and who is better. Pure.

Failed outcomes are counted apart and are in no share and no mean, because they say nothing about the system. Two
systems are compared only on the cases that were judged for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import fmean, median
from typing import Final, Literal

from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.statistics import (
    Interval,
    PairedCounts,
    count_pairs,
    mcnemar_p,
    newcombe_interval,
    wilson_interval,
)
from conductor_cli.evals.systems import ALONE, BEST_WORKER

ENOUGH: Final = 0.5
"""The share of all cases that must be judged for a worker before others are compared with it. A worker that hardly ever
answered would leave almost no case for the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`right` of `n` cases."""

    right: int
    n: int

    @property
    def value(self) -> float | None:
        return self.right / self.n if self.n else None

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.right, self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """A system compared with another on the cases that were judged for both."""

    other: str
    counts: PairedCounts

    @property
    def difference(self) -> float:
        return self.counts.difference

    @property
    def interval(self) -> Interval:
        return newcombe_interval(self.counts)

    @property
    def p(self) -> float:
        return mcnemar_p(self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSummary:
    """One system's figures.

    `usage` and `planning` are sums over the judged cases, of all models and of the conductor alone; `failed_usage` is
    what the failed cases used. `valid_plans` and `right_if_valid` are None unless a model plans. `versus_card` and
    `versus_best` compare with the best single worker: the one that the cards named before, and the one that got most
    of these cases right.
    """

    name: str
    accuracy: Share
    failed: int = 0
    tags: Mapping[str, Share]
    usage: Usage = NO_USAGE
    planning: Usage = NO_USAGE
    failed_usage: Usage = NO_USAGE
    seconds: tuple[float, ...] = ()
    valid_plans: Share | None = None
    right_if_valid: Share | None = None
    versus_card: PairedComparison | None = None
    versus_best: PairedComparison | None = None

    def per_case(self, total: float) -> float | None:
        """A total as a mean over the judged cases."""
        return total / self.accuracy.n if self.accuracy.n else None

    @property
    def cost(self) -> Decimal | None:
        """US dollars a question, of the calls that have a price; None if none has one."""
        return self.usage.cost / self.accuracy.n if self.usage.cost is not None and self.accuracy.n else None

    @property
    def mean_seconds(self) -> float | None:
        return fmean(self.seconds) if self.seconds else None

    @property
    def median_seconds(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    @property
    def p95_seconds(self) -> float | None:
        """95 % of the questions were answered within this time (nearest rank)."""
        return sorted(self.seconds)[math.ceil(0.95 * len(self.seconds)) - 1] if self.seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All systems on the same cases. `best_by_card` and `best_in_hindsight` name a system, empty if there is none."""

    systems: tuple[SystemSummary, ...]
    best_by_card: str = ""
    best_in_hindsight: str = ""

    @property
    def cost_unit(self) -> Literal["usd", "tokens"]:
        """What a plot of the costs counts: dollars if every call has a price and any call costs something."""
        usages = [system.usage for system in self.systems]
        priced = all(usage.unpriced == 0 and (usage.cost is not None or not usage.calls) for usage in usages)
        return "usd" if priced and any(usage.cost for usage in usages) else "tokens"


def summarize(outcomes: Iterable[Outcome], *, systems: Sequence[str], best_by_card: str = "") -> Summary:
    """Count the outcomes of each of `systems`, in their order.

    `best_by_card` names the system of the worker that the capability cards call best.
    """
    found: dict[str, list[Outcome]] = {name: [] for name in systems}
    for outcome in outcomes:
        if outcome.system in found:
            found[outcome.system].append(outcome)
    results = {name: _right_by_case(those) for name, those in found.items()}
    best_by_card = best_by_card if best_by_card in found else ""
    best = _best_single_worker(found, results)

    def compare(name: str, other: str) -> PairedComparison | None:
        common = [case for case in results[name] if case in results.get(other, {})]
        if name == other or not common:
            return None
        first, second = ([results[system][case] for case in common] for system in (name, other))
        return PairedComparison(other=other, counts=count_pairs(first, second))

    return Summary(
        systems=tuple(
            replace(
                _summarize_system(name, those), versus_card=compare(name, best_by_card), versus_best=compare(name, best)
            )
            for name, those in found.items()
        ),
        best_by_card=best_by_card, best_in_hindsight=best,
    )  # fmt: skip


def _summarize_system(name: str, outcomes: Sequence[Outcome]) -> SystemSummary:
    judged = [outcome for outcome in outcomes if outcome.verdict != "failed"]
    planned = [outcome for outcome in judged if outcome.planned]
    tags = dict.fromkeys(tag for outcome in judged for tag in outcome.tags)
    return SystemSummary(
        name=name, accuracy=_share_right(judged), failed=len(outcomes) - len(judged),
        tags={tag: _share_right([outcome for outcome in judged if tag in outcome.tags]) for tag in tags},
        usage=sum((outcome.usage for outcome in judged), NO_USAGE),
        planning=sum((outcome.planning for outcome in judged), NO_USAGE),
        failed_usage=sum((outcome.usage for outcome in outcomes if outcome.verdict == "failed"), NO_USAGE),
        seconds=tuple(outcome.seconds for outcome in judged),
        valid_plans=Share(right=sum(outcome.valid for outcome in planned), n=len(planned)) if planned else None,
        right_if_valid=_share_right([outcome for outcome in planned if outcome.valid]) if planned else None,
    )  # fmt: skip


def _share_right(outcomes: Sequence[Outcome]) -> Share:
    return Share(right=sum(outcome.verdict == "right" for outcome in outcomes), n=len(outcomes))


def _right_by_case(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Whether each judged case was right, by its id."""
    return {outcome.case: outcome.verdict == "right" for outcome in outcomes if outcome.verdict != "failed"}


def _best_single_worker(found: Mapping[str, Sequence[Outcome]], results: Mapping[str, Mapping[str, bool]]) -> str:
    """The single worker with the most right answers on the cases judged for all of them; empty if there is none.

    Ties go to the worker with the most right answers on all its cases, then to the first.
    """
    # If no worker ran alone, the best worker by card stands in for them.
    singles = [name for name in found if name.startswith(f"{ALONE}:")] or [
        name for name in found if name == BEST_WORKER
    ]
    cases = {outcome.case for outcomes in found.values() for outcome in outcomes}
    singles = [name for name in singles if len(results[name]) >= max(ENOUGH * len(cases), 1)]
    # A case that failed for one of them would favour the others.
    common = set(cases).intersection(*(results[name] for name in singles))

    def count_right(name: str) -> tuple[int, int]:
        right = results[name]
        return sum(right[case] for case in common), sum(right.values())

    return max(singles, key=count_right, default="")
