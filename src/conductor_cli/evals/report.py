"""An evaluation's result as the columns of a table, as notes under it, and as JSON. Pure.

Shares are percentages, differences percentage points; tokens, calls, cost and seconds are means a question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_count
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.table import Column
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.statistics import Interval
from conductor_cli.evals.storage import EvaluationSpec
from conductor_cli.evals.summary import PairedComparison, Share, Summary, SystemSummary, summarize

SYSTEM_COLUMN: Final = Column("SYSTEM", shrink=14)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was evaluated (`id` is empty for one that is not stored), and the result."""

    id: str = ""
    spec: EvaluationSpec
    summary: Summary


def make_report(id: str, spec: EvaluationSpec, outcomes: Sequence[Outcome]) -> Report:  # noqa: A002 - the field's name
    """The report of an evaluation with these outcomes."""
    return Report(
        id=id, spec=spec, summary=summarize(outcomes, systems=spec.systems, best_by_card=spec.best_by_card)
    )  # fmt: skip


class ReportTable(NamedTuple):
    """A table as `core.table` renders it."""

    columns: list[Column]
    rows: list[list[str]]


def format_percent(share: float | None, places: int = 1) -> str:
    """`95.2`, without the sign."""
    return UNKNOWN if share is None else f"{100 * share:.{places}f}"


def format_limits(interval: Interval) -> str:
    """`93.0-96.8`."""
    return f"{format_percent(interval.low)}-{format_percent(interval.high)}"


def format_points(difference: float) -> str:
    """`+3.1`, in percentage points."""
    return f"{100 * difference:+.1f}"


def format_comparison(comparison: PairedComparison | None) -> str:
    """`+3.1 (+0.2 to +6.0)`."""
    if comparison is None:
        return UNKNOWN
    low, high = map(format_points, comparison.interval)
    return f"{format_points(comparison.difference)} ({low} to {high})"


def format_p_value(p: float) -> str:
    """`0.031`, `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _format_mean(system: SystemSummary, total: float) -> str:
    """A total as a mean a question: `1,234`, `3.5`."""
    # Large numbers need no decimals, small ones would all look alike without.
    value = system.per_case(total)
    return UNKNOWN if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _format_seconds(value: float | None) -> str:
    """`0.03`, `3.2`, `412`: the column's head says the unit."""
    if value is None:
        return UNKNOWN
    return f"{value:.{2 if value < 1 else 1 if value < 100 else 0}f}"


def _format_share(share: Share | None) -> str:
    return format_percent(share.value if share else None)


def system_table(summary: Summary) -> ReportTable:
    """A row for each system. Columns that say nothing about any of them are left out."""
    systems = summary.systems
    failed = any(system.failed for system in systems)
    planned = any(system.valid_plans for system in systems)
    single, card = bool(summary.best_in_hindsight), bool(summary.best_by_card)
    # Whether the column is shown, its head, its label on a narrow screen, how early it is dropped, and its cells.
    known: list[tuple[bool, str, str, int, Callable[[SystemSummary], str]]] = [
        (True, "RIGHT", "right, %", 0, lambda s: _format_share(s.accuracy)),
        (True, "95 %", "95 % interval", 1, lambda s: format_limits(s.accuracy.interval) if s.accuracy.n else UNKNOWN),
        (failed, "FAILED", "failed cases", 0, lambda s: str(s.failed)),
        (planned, "VALID", "valid plans, %", 5, lambda s: _format_share(s.valid_plans)),
        (planned, "IF VALID", "right if the plan is valid, %", 8, lambda s: _format_share(s.right_if_valid)),
        (True, "TOKENS", "tokens", 1, lambda s: _format_mean(s, s.usage.tokens)),
        (True, "IN", "tokens in", 9, lambda s: _format_mean(s, s.usage.tokens_in)),
        (True, "OUT", "tokens out", 9, lambda s: _format_mean(s, s.usage.tokens_out)),
        (planned, "CONDUCTOR", "the conductor's own tokens", 7, lambda s: _format_mean(s, s.planning.tokens)),
        (True, "CALLS", "calls", 2, lambda s: _format_mean(s, s.usage.calls)),
        (True, "COST", "cost", 3, lambda s: format_cost_cell(s.cost, s.usage.unpriced)),
        (True, "SECONDS", "seconds", 3, lambda s: _format_seconds(s.mean_seconds)),
        (True, "P95", "seconds, 95 % within", 10, lambda s: _format_seconds(s.p95_seconds)),
        (card, "VS CARD", "points above the best worker by card", 6, lambda s: format_comparison(s.versus_card)),
        (single, "VS BEST", "points above the best worker", 6 + card, lambda s: format_comparison(s.versus_best)),
    ]
    shown = [item[1:] for item in known if item[0]]
    return ReportTable(
        [SYSTEM_COLUMN, *(Column(head, right=True, drop=drop, label=label) for head, label, drop, _ in shown)],
        [[system.name, *(cell(system) for *_, cell in shown)] for system in systems],
    )  # fmt: skip


def tag_table(summary: Summary) -> ReportTable | None:
    """The accuracy of each system by tag; None if no case has a tag."""
    tags = sorted({tag for system in summary.systems for tag in system.tags})
    if not tags:
        return None
    columns = [Column(one_line(tag), right=True, drop=number) for number, tag in enumerate(tags, start=1)]
    rows = [[system.name, *(_format_share(system.tags.get(tag)) for tag in tags)] for system in summary.systems]
    return ReportTable([SYSTEM_COLUMN, *columns], rows)


def report_notes(report: Report) -> list[str]:
    """What a reader must know to understand the table."""
    spec, summary = report.spec, report.summary
    shares = {system.name: format_percent(system.accuracy.value) for system in summary.systems}
    cases = format_count(spec.case_count, "case")
    lines = [f"{cases} of {spec.source}, seed {spec.seed}; shares in %, all other figures are means a question"]
    if name := summary.best_by_card:
        lines.append(f"VS CARD: points above {name} ({shares[name]}), the best worker by its card")
    if name := summary.best_in_hindsight:
        lines.append(f"VS BEST: points above {name} ({shares[name]}), the worker that did best on these cases")
    failed = [f"{system.name} {system.failed}" for system in summary.systems if system.failed]
    if failed:
        lines.append(f"failed cases, which are in no share: {', '.join(failed)}")
    return [one_line(line) for line in (*lines, *spec.notes)]


def report_json(report: Report) -> dict[str, Any]:
    """The report as JSON; docs/eval.md describes it. Money is text, unknown values are null."""
    spec, summary = report.spec, report.summary
    return {
        "id": report.id or None, "source": spec.source, "hash": spec.hash, "cases": spec.case_count,
        "seed": spec.seed, "time": spec.time or None, "workers": list(spec.pool.names),
        "conductor": spec.conductor or None, "notes": list(spec.notes),
        "best_worker": {
            "by_card": summary.best_by_card or None, "in_hindsight": summary.best_in_hindsight or None,
        },
        "systems": [_system_json(system) for system in summary.systems],
    }  # fmt: skip


def _system_json(system: SystemSummary) -> dict[str, Any]:
    usage, total = system.usage, system.usage + system.failed_usage
    valid, given = system.valid_plans, system.right_if_valid
    plans = None
    if valid is not None and given is not None:
        plans = {
            "valid": valid.right, "n": valid.n, "rate": valid.value, "interval": list(valid.interval),
            "accuracy_if_valid": given.value, "interval_if_valid": list(given.interval) if given.n else None,
        }  # fmt: skip
    return {
        "name": system.name, **_share_json(system.accuracy), "failed": system.failed,
        "tags": {tag: _share_json(share) for tag, share in system.tags.items()}, "plans": plans,
        "tokens": system.per_case(usage.tokens), "tokens_in": system.per_case(usage.tokens_in),
        "tokens_out": system.per_case(usage.tokens_out), "tokens_conductor": system.per_case(system.planning.tokens),
        "calls": system.per_case(usage.calls), "cost": _money_json(system.cost), "unpriced": usage.unpriced,
        "seconds": {"mean": system.mean_seconds, "median": system.median_seconds, "p95": system.p95_seconds},
        "versus_card": _comparison_json(system.versus_card),
        "versus_best": _comparison_json(system.versus_best),
        "total": {
            "tokens": total.tokens, "calls": total.calls, "cost": _money_json(total.cost), "unpriced": total.unpriced,
        },
    }  # fmt: skip


def _share_json(share: Share) -> dict[str, Any]:
    interval = list(share.interval) if share.n else None
    return {"accuracy": share.value, "interval": interval, "right": share.right, "n": share.n}


def _comparison_json(comparison: PairedComparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    counts = comparison.counts
    return {
        "system": comparison.other, "cases": counts.n, "difference": comparison.difference,
        "interval": list(comparison.interval), "p": comparison.p,
        "only_this": counts.only_first, "only_other": counts.only_second,
    }  # fmt: skip


def _money_json(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost.normalize():f}" if cost else "0"
