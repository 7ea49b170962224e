"""A summary as rows of a table, as lines under it, and as JSON. Pure: who draws decides on colours.

Shares are in per cent, differences in percentage points; tokens, calls, cost and seconds are means a question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

from conductor_cli.core.sanitize import one_line
from conductor_cli.evals.statistics import Interval
from conductor_cli.evals.summary import PairedComparison, Share, Summary, SystemSummary

GAP: Final = 2
"""Columns of space between two cells."""

NAME: Final = 28
"""The most columns of a system's name; it gives way first, down to `SHORT`."""

SHORT: Final = 14

STACKED: Final = 60
"""Columns below which each system is a block of lines."""

UNKNOWN: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What was evaluated. `cases` is how many there are; `source` names where they come from, `hash` which they are.

    `remarks` is what else a reader must know: which systems were left out, and how workers were ranked.
    """

    id: str = ""
    source: str
    hash: str = ""
    cases: int
    seed: int | None = None
    workers: tuple[str, ...] = ()
    conductor: str = ""
    time: str = ""
    remarks: tuple[str, ...] = ()


class Column(NamedTuple):
    """One figure of a row: what stands over it, how it is written, how soon it gives way (the higher, the sooner)."""

    head: str
    cell: Callable[[SystemSummary], str]
    level: int
    label: str


class Laid(NamedTuple):
    """A table: what stands over the columns and in them, the first to the left, the others to the right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def percent(share: float | None, places: int = 1) -> str:
    """`95.2`, without the sign."""
    return UNKNOWN if share is None else f"{100 * share:.{places}f}"


def limits(interval: Interval) -> str:
    """`93.0-96.8`."""
    return f"{percent(interval.low)}-{percent(interval.high)}"


def points(difference: float | None) -> str:
    """`+3.1`, in percentage points."""
    return UNKNOWN if difference is None else f"{100 * difference:+.1f}"


def spread(versus: PairedComparison | None) -> str:
    """`+3.1 (+0.2 to +6.0)`."""
    if versus is None:
        return UNKNOWN
    low, high = versus.interval
    return f"{points(versus.difference)} ({points(low)} to {points(high)})"


def dollars(cost: Decimal | None, unpriced: int = 0) -> str:
    """`$0.0123`; never 0 where the price is not known."""
    if cost is None:
        return "unknown" if unpriced else UNKNOWN
    shown = (
        "$0"
        if cost == 0
        else f"${cost:.2f}"
        if cost >= 1
        else f"${cost:.6f}"
        if cost < Decimal("0.001")
        else f"${cost:.4f}"
    )
    return f"{shown}+?" if unpriced else shown


def chance(p: float) -> str:
    """`0.031`, `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def mean(row: SystemSummary, total: float) -> str:
    """A total as a mean a question: `1,234`, `3.5`."""
    value = row.each(total)
    return UNKNOWN if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def seconds(value: float | None) -> str:
    """`0.03`, `3.2`, `412`."""
    return (
        UNKNOWN if value is None else f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"
    )


def _plans(share: Share | None) -> str:
    return UNKNOWN if share is None else percent(share.value)


def columns(summary: Summary) -> tuple[Column, ...]:
    """All figures that this summary has, in the order in which they stand."""
    rows, card = summary.rows, bool(summary.by_card)
    failed, planned = any(row.failed for row in rows), any(row.plans for row in rows)
    single = bool(summary.in_hindsight)
    known = (
        (True, Column("RIGHT", lambda row: percent(row.score.value), 0, "right, %")),
        (True, Column("95 %", lambda row: limits(row.score.interval) if row.score.n else UNKNOWN, 1, "95 % interval")),
        (failed, Column("FAILED", lambda row: str(row.failed), 0, "failed cases")),
        (planned, Column("VALID", lambda row: _plans(row.plans), 5, "valid plans, %")),
        (planned, Column("IF VALID", lambda row: _plans(row.given_plan), 8, "right if the plan is valid, %")),
        (True, Column("TOKENS", lambda row: mean(row, row.usage.tokens), 1, "tokens")),
        (True, Column("IN", lambda row: mean(row, row.usage.tokens_in), 9, "tokens in")),
        (True, Column("OUT", lambda row: mean(row, row.usage.tokens_out), 9, "tokens out")),
        (planned, Column("OWN", lambda row: mean(row, row.planning.tokens), 7, "the conductor's own tokens")),
        (True, Column("CALLS", lambda row: mean(row, row.usage.calls), 2, "calls")),
        (True, Column("COST", lambda row: dollars(row.cost, row.usage.unpriced), 3, "cost, US dollars")),
        (True, Column("SECONDS", lambda row: seconds(row.mean), 3, "seconds")),
        (True, Column("P95", lambda row: seconds(row.p95), 10, "seconds, 95 % within")),
        (bool(summary.fixed), Column("GAIN", lambda row: points(row.gain), 4, "gain at equal cost, points")),
        (card, Column("VS CARD", lambda row: spread(row.card), 6, "against the worker named by card, points")),
        (
            single,
            Column("VS BEST", lambda row: spread(row.hindsight), 6 + card, "against the best worker in hindsight"),
        ),
    )
    return tuple(column for there, column in known if there)


def lay_out(summary: Summary, width: int | None = None) -> Laid:
    """As many columns as fit in `width`; all of them where there is no bound."""
    found = [(column, tuple(column.cell(row) for row in summary.rows)) for column in columns(summary)]
    names = [one_line(row.name) for row in summary.rows]
    longest = max((len(name) for name in ("SYSTEM", *names)), default=0)
    room = None if width is None else width - min(longest, NAME)
    kept = _fitting(found, room)
    if width is not None:
        used = sum(_wide(column.head, cells) for column, cells in kept)
        longest = max(SHORT, min(longest, width - used))
    lines = zip(*(cells for _, cells in kept), strict=True)
    rows = tuple((_cropped(name, longest), *line) for name, line in zip(names, lines, strict=True))
    return Laid(("SYSTEM", *(column.head for column, _ in kept)), rows)


def _fitting(found: Sequence[tuple[Column, tuple[str, ...]]], room: int | None) -> list[tuple[Column, tuple[str, ...]]]:
    """The columns that fit beside the names, the least important left out first."""
    if room is None:
        return list(found)
    kept: list[tuple[Column, tuple[str, ...]]] = []
    for column, cells in sorted(found, key=lambda item: item[0].level):
        if column.level > 0 and _wide(column.head, cells) > room:
            break  # not one further on: a wider screen must not lose a column that a narrower one has
        room -= _wide(column.head, cells)
        kept.append((column, cells))
    return [item for item in found if item in kept]


def _wide(head: str, cells: Sequence[str]) -> int:
    return GAP + max(len(text) for text in (head, *cells))


def _cropped(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 2]}.."


def stacked(summary: Summary) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """For narrow screens: each system's name, and all its figures with what they are."""
    kept = columns(summary)
    return tuple(
        (one_line(row.name), tuple((column.label, column.cell(row)) for column in kept)) for row in summary.rows
    )


def by_tag(summary: Summary, width: int | None = None) -> Laid | None:
    """Accuracy by tag, as many tags as fit; None where no case has a tag."""
    tags = sorted({tag for row in summary.rows for tag in row.tags})
    if not tags:
        return None
    longest = min(NAME, max(len(one_line(row.name)) for row in summary.rows))
    kept: list[str] = []
    used = max(longest, len("SYSTEM"))
    for tag in tags:
        used += GAP + max(len(one_line(tag)), len("100.0"))
        if width is None or used <= width:
            kept.append(tag)
    nothing = Share(right=0, n=0)
    rows = tuple(
        (_cropped(one_line(row.name), longest), *(percent(row.tags.get(tag, nothing).value) for tag in kept))
        for row in summary.rows
    )
    return Laid(("SYSTEM", *map(one_line, kept)), rows)


def notes(heading: Heading, summary: Summary) -> tuple[str, ...]:
    """What a reader must know to read the table."""
    seed = f", seed {heading.seed}" if heading.seed is not None else ""
    lines = [f"{heading.cases} cases of {one_line(heading.source)}{seed}; shares in %, the rest means a question"]
    rows = {row.name: row for row in summary.rows}
    if summary.by_card:
        share = percent(rows[summary.by_card].score.value)
        lines.append(f"VS CARD: points above {one_line(summary.by_card)} ({share}), the best worker by its card")
    if summary.in_hindsight:
        share = percent(rows[summary.in_hindsight].score.value)
        best = f"{one_line(summary.in_hindsight)} ({share}), the worker that was best on these very cases"
        lines.append(f"VS BEST: points above {best}")
    if summary.fixed:
        money = "dollars" if summary.unit == "usd" else "tokens"
        lines.append(f"GAIN: points above any mixture of the other systems that do not plan, at as many {money}")
    failed = [f"{one_line(row.name)} {row.failed}" for row in summary.rows if row.failed]
    if failed:
        lines.append(f"failed, in no share: {', '.join(failed)}")
    return (*lines, *map(one_line, heading.remarks))


def figures(heading: Heading, summary: Summary) -> dict[str, Any]:
    """The summary as JSON; its form is in docs/eval.md. Money is text, what is not known is null."""
    return {
        "id": heading.id or None, "source": heading.source, "hash": heading.hash or None, "cases": heading.cases,
        "seed": heading.seed, "time": heading.time or None, "workers": list(heading.workers),
        "conductor": heading.conductor or None, "remarks": list(heading.remarks),
        "best_worker": {"by_card": summary.by_card or None, "in_hindsight": summary.in_hindsight or None},
        "equal_cost_in": summary.unit, "systems": [_figures(row) for row in summary.rows],
    }  # fmt: skip


def _figures(row: SystemSummary) -> dict[str, Any]:
    usage = row.usage
    return {
        "name": row.name, **_share(row.score), "failed": row.failed,
        "tags": {tag: _share(share) for tag, share in row.tags.items()},
        "plans": row.plans and row.given_plan and _plan_figures(row.plans, row.given_plan),
        "tokens": row.each(usage.tokens), "tokens_in": row.each(usage.tokens_in),
        "tokens_out": row.each(usage.tokens_out), "tokens_conductor": row.each(row.planning.tokens),
        "calls": row.each(usage.calls), "cost": _money(row.cost), "unpriced": usage.unpriced,
        "seconds": {"mean": row.mean, "median": row.median, "p95": row.p95},
        "at_equal_cost": row.rival, "gain": row.gain,
        "versus_card": _versus(row.card), "versus_hindsight": _versus(row.hindsight),
        "total": {**_total(row), "cost": _money((usage + row.lost).cost)},
    }  # fmt: skip


def _total(row: SystemSummary) -> dict[str, int]:
    """What the system used in all, failed cases too."""
    usage = row.usage + row.lost
    return {"tokens": usage.tokens, "calls": usage.calls, "unpriced": usage.unpriced}


def _share(share: Share) -> dict[str, Any]:
    return {
        "accuracy": share.value, "interval": list(share.interval) if share.n else None,
        "right": share.right, "n": share.n,
    }  # fmt: skip


def _plan_figures(valid: Share, given: Share) -> dict[str, Any]:
    return {
        "valid": valid.right, "n": valid.n, "rate": valid.value, "interval": list(valid.interval),
        "accuracy_if_valid": given.value, "interval_if_valid": list(given.interval) if given.n else None,
    }  # fmt: skip


def _versus(versus: PairedComparison | None) -> dict[str, Any] | None:
    if versus is None:
        return None
    paired = versus.paired
    return {
        "system": versus.other, "cases": paired.n, "difference": versus.difference,
        "interval": list(versus.interval), "p": versus.p, "only_this": paired.only_one, "only_other": paired.only_other,
    }  # fmt: skip


def _money(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost.normalize():f}" if cost else "0"
