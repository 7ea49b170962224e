"""What the outcomes say of each system: shares with their limits, what a question takes, and who is better. Pure.

Failed outcomes are counted apart and stand in no share and no mean: nothing is known of the system. Every figure "a
question" is a mean over the cases that were judged. Systems are compared on the cases that were judged for all of
those concerned.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import fmean, median
from typing import Final, Literal

from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.statistics import (
    Interval,
    PairedCounts,
    Point,
    at_cost,
    frontier,
    mcnemar_p,
    newcombe_interval,
    pair,
    wilson_interval,
)

Unit = Literal["usd", "tokens"]

ENOUGH: Final = 0.5
"""The share of all cases that must have been judged for whom others are compared with: one that hardly answered would
leave next to no case for the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """`right` in `n`."""

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
    """A system against another on the cases that were judged for both."""

    other: str
    paired: PairedCounts

    @property
    def difference(self) -> float:
        return self.paired.difference

    @property
    def interval(self) -> Interval:
        return newcombe_interval(self.paired)

    @property
    def p(self) -> float:
        """McNemar's, exact and two-sided."""
        return mcnemar_p(self.paired)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemSummary:
    """What is known of one system.

    `usage` and `planning` are the sums over all judged cases, of all models and of the conductor alone. `lost` is what
    the failed cases used. `plans` and `given_plan` (valid plans; right answers among the valid ones) are None where no
    model plans. `rival` is the accuracy that the other systems without a plan reach at this one's cost, and `gain` how
    far this one lies above it, both on the cases that were judged for all of them; None where none of them is as cheap,
    or there is no such case. `card` and `hindsight` compare with the best single worker: the one that its card named
    before, and the one that turned out to be best on these very cases.
    """

    name: str
    score: Share
    failed: int = 0
    tags: Mapping[str, Share]
    usage: Usage = NO_USAGE
    planning: Usage = NO_USAGE
    lost: Usage = NO_USAGE
    seconds: tuple[float, ...] = ()
    plans: Share | None = None
    given_plan: Share | None = None
    rival: float | None = None
    gain: float | None = None
    card: PairedComparison | None = None
    hindsight: PairedComparison | None = None

    def each(self, total: float) -> float | None:
        """A total as a mean over the judged cases."""
        return total / self.score.n if self.score.n else None

    @property
    def cost(self) -> Decimal | None:
        """US dollars a question, of the calls with a price; None where none has one."""
        return self.usage.cost / self.score.n if self.usage.cost is not None and self.score.n else None

    @property
    def mean(self) -> float | None:
        return fmean(self.seconds) if self.seconds else None

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None

    @property
    def p95(self) -> float | None:
        """The seconds within which 95 % of the questions were answered, by nearest rank."""
        return sorted(self.seconds)[math.ceil(0.95 * len(self.seconds)) - 1] if self.seconds else None

    def point(self, unit: Unit) -> Point | None:
        """Where it stands in a plot of accuracy against cost."""
        cost = self.each(float(self.usage.cost or 0) if unit == "usd" else self.usage.tokens)
        return None if cost is None or self.score.value is None else Point(cost, self.score.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All systems on the same cases.

    `unit` is what "equal cost" is counted in: dollars where every call has a price and some cost anything, else tokens.
    `fixed` are the systems that do not plan, `rivals` those of them that make up the frontier: for which enough cases
    were judged. `by_card` and `in_hindsight` name the systems of the best single worker, empty where there is none.
    """

    rows: tuple[SystemSummary, ...]
    unit: Unit
    fixed: tuple[str, ...] = ()
    rivals: tuple[str, ...] = ()
    by_card: str = ""
    in_hindsight: str = ""

    def corners(self) -> tuple[Point, ...]:
        """The frontier of the rivals, each on all cases that were judged for it."""
        rows = (row for row in self.rows if row.name in self.rivals)
        return frontier(point for row in rows if (point := row.point(self.unit)) is not None)


def summarize(
    outcomes: Iterable[Outcome],
    *,
    systems: Sequence[str],
    fixed: Collection[str] = (),
    singles: Collection[str] = (),
    by_card: str = "",
) -> Summary:
    """Count the outcomes of each of `systems`, in their order.

    `fixed` are those that use the workers without planning; `singles` those of one worker alone, of which `by_card` is
    the one that the capability cards call best.
    """
    found: dict[str, list[Outcome]] = {name: [] for name in systems}
    for outcome in outcomes:
        if outcome.system in found:
            found[outcome.system].append(outcome)
    rows = {name: row(name, those) for name, those in found.items()}
    enough = [name for name, item in rows.items() if item.score.n >= max(ENOUGH * _count(found.values()), 1)]
    best = _best({name: found[name] for name in enough if name in singles})
    card = by_card if by_card in rows else ""
    summary = Summary(
        rows=tuple(rows.values()), unit=_unit(rows.values()), by_card=card, in_hindsight=best,
        fixed=tuple(name for name in rows if name in fixed), rivals=tuple(name for name in enough if name in fixed),
    )  # fmt: skip
    return replace(summary, rows=tuple(_compared(item, summary, found) for item in summary.rows))


def row(name: str, outcomes: Sequence[Outcome]) -> SystemSummary:
    """What one system's outcomes say by themselves."""
    judged = [outcome for outcome in outcomes if outcome.verdict != "failed"]
    planned = [outcome for outcome in judged if outcome.planned]
    tags = dict.fromkeys(tag for outcome in judged for tag in outcome.tags)
    return SystemSummary(
        name=name, score=_share(judged), failed=len(outcomes) - len(judged),
        tags={tag: _share([outcome for outcome in judged if tag in outcome.tags]) for tag in tags},
        usage=sum((outcome.usage for outcome in judged), NO_USAGE),
        planning=sum((outcome.planning for outcome in judged), NO_USAGE),
        lost=sum((outcome.usage for outcome in outcomes if outcome.verdict == "failed"), NO_USAGE),
        seconds=tuple(outcome.seconds for outcome in judged),
        plans=Share(right=sum(outcome.valid for outcome in planned), n=len(planned)) if planned else None,
        given_plan=_share([outcome for outcome in planned if outcome.valid]) if planned else None,
    )  # fmt: skip


def _share(outcomes: Sequence[Outcome]) -> Share:
    return Share(right=sum(outcome.verdict == "right" for outcome in outcomes), n=len(outcomes))


def _unit(rows: Collection[SystemSummary]) -> Unit:
    """Dollars, where they are known of every call and anything costs any."""
    known = all(row.usage.unpriced == 0 and (row.usage.cost is not None or not row.usage.calls) for row in rows)
    return "usd" if known and any(row.usage.cost for row in rows) else "tokens"


def _count(outcomes: Iterable[Sequence[Outcome]]) -> int:
    """How many cases there are, over all systems."""
    return len({outcome.case for those in outcomes for outcome in those})


def _best(singles: Mapping[str, Sequence[Outcome]]) -> str:
    """The one that got most right of the cases judged for all; of equals the one with most right at all, the first."""
    common = _common(singles.values())

    def right(name: str) -> tuple[int, int]:
        return _share(_on(common, singles[name])).right, _share(singles[name]).right

    return max(singles, key=right, default="")


def _common(outcomes: Iterable[Sequence[Outcome]]) -> set[str]:
    """The cases that were judged for all."""
    judged = [set(_right(those)) for those in outcomes]
    return set.intersection(*judged) if judged else set()


def _on(cases: Collection[str], outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.case in cases]


def _compared(row: SystemSummary, summary: Summary, outcomes: Mapping[str, Sequence[Outcome]]) -> SystemSummary:
    rival, gain = _at_equal_cost(row.name, summary, outcomes)
    return replace(
        row,
        rival=rival,
        gain=gain,
        card=_versus(row.name, summary.by_card, outcomes),
        hindsight=_versus(row.name, summary.in_hindsight, outcomes),
    )


def _at_equal_cost(
    name: str, summary: Summary, outcomes: Mapping[str, Sequence[Outcome]]
) -> tuple[float | None, float | None]:
    """What the rivals reach at this system's cost, and how far it lies above: all on the same cases."""
    rivals = [other for other in summary.rivals if other != name]
    common = _common(outcomes[other] for other in (name, *rivals))
    own, *others = (row(other, _on(common, outcomes[other])).point(summary.unit) for other in (name, *rivals))
    if own is None:
        return None, None
    rival = at_cost(frontier(point for point in others if point is not None), own.cost)
    return rival, None if rival is None else own.accuracy - rival


def _versus(name: str, other: str, outcomes: Mapping[str, Sequence[Outcome]]) -> PairedComparison | None:
    if not other or other == name:
        return None
    one, two = _right(outcomes[name]), _right(outcomes[other])
    shared = [case for case in one if case in two]
    if not shared:
        return None
    return PairedComparison(other=other, paired=pair([one[case] for case in shared], [two[case] for case in shared]))


def _right(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Whether each judged case was right, by its id."""
    return {outcome.case: outcome.verdict == "right" for outcome in outcomes if outcome.verdict != "failed"}
