"""An evaluation's result as the columns of a table, as notes under it, and as JSON. Pure.

Shares are percentages, differences percentage points; tokens, calls, cost and seconds are means a question.

Where each system is from, and in what it differs from its paper. Reports print this under their table. Pure.

What an evaluation shows, in one sentence, and whether its cases are enough to show it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_count, format_duration, format_money
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import Column, one_line
from conductor_cli.evals.outcomes import EvaluationSpec
from conductor_cli.evals.summary import (
    ENOUGH,
    SIGNIFICANT,
    Comparison,
    Interval,
    Share,
    Summary,
    SystemResult,
    cases_needed,
    holm_corrected,
    round_up,
)
from conductor_cli.evals.systems import ALONE, BEST_ROUTING, BEST_WORKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`paper` is where a system was published, `simplified` what is not as it is there."""

    paper: str
    simplified: str


_MIXTURE: Final = "Mixture-of-Agents, arXiv 2406.04692"
_ANSWERS: Final = "compares the answers that the scorer reads, not whole texts; vectors: see the note on embeddings"

SOURCES: Final[dict[str, Source]] = {
    "reflect": Source(
        paper="five turns of self-reflection, arXiv 2512.04388, table 7",
        simplified="own prompt; a look sees the last answer alone; the last answer counts, none is picked as the best",
    ),
    "vote": Source(
        paper="self-consistency, arXiv 2203.11171",
        simplified="5 samples instead of 40; no examples, no chain of thought",
    ),
    "moa": Source(
        paper=_MIXTURE,
        simplified="one layer of proposers instead of two; own prompt; the best worker by card combines",
    ),
    "moa-random": Source(
        paper=f"{_MIXTURE}, in the size of arXiv 2512.04388: one layer, a random aggregator, 8 calls with 7 workers",
        simplified="own prompt",
    ),
    "moa-deep": Source(
        paper=f"{_MIXTURE}: three layers, of which the last is the aggregator",
        simplified="own prompt; every worker of the pool in each layer instead of six; the best worker by card is the "
        "aggregator",
    ),
    "smoothie-global": Source(
        paper="Smoothie, arXiv 2412.04692, one estimate for all questions", simplified=_ANSWERS
    ),
    "smoothie-local": Source(
        paper="Smoothie, arXiv 2412.04692, an estimate from the 20 most similar questions", simplified=_ANSWERS
    ),
    "routerdc": Source(
        paper="RouterDC, arXiv 2409.19886",
        simplified="a linear layer behind fixed vectors instead of a trained language model of 86 million parameters; "
        "one answer of each worker to a training case; vectors: see the note on embeddings",
    ),
    "masrouter": Source(
        paper="MasRouter, arXiv 2502.11133",
        simplified="one log-linear policy instead of a cascade of networks; four forms, no roles, no tools; teams of "
        "one worker, two or all; trained on the outcomes of all teams instead of sampled ones; the likeliest team "
        "answers; vectors: see the note on embeddings",
    ),
}  # fmt: skip
"""By the name of a system, without the worker that may follow it."""


def source_of(system: str) -> Source | None:
    """Where a system is from; None if it is no system of others."""
    return SOURCES.get(system.partition(":")[0])


def source_notes(systems: Iterable[str]) -> list[str]:
    """A line for each of these systems that is from a paper, once where it runs with several workers."""
    names = dict.fromkeys(name.partition(":")[0] for name in systems)
    return [f"{name}: after {found.paper}. Simplified: {found.simplified}" for name in names
            if (found := SOURCES.get(name)) is not None]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationVerdict:
    """`finding` says which system did best; `warning`, empty if there is no doubt, why that may be chance.

    `cases_needed` is about how many cases would show a difference of this size; None if these are enough, or if there
    is no difference.
    """

    finding: str
    warning: str = ""
    cases_needed: int | None = None

    @property
    def text(self) -> str:
        """Both as one line."""
        return " ".join(filter(None, (self.finding, self.warning)))


NOTHING_JUDGED: Final = EvaluationVerdict(finding="No case could be judged, so nothing can be said.")


def reach_verdict(summary: Summary) -> EvaluationVerdict:
    """The system that did best, against the best single worker; or how far the next one is below that worker.

    `best-routing` takes no part, because it needs to know how each question is solved.
    """
    judged = _judged(summary)
    best = judged.get(summary.best_worker)
    if best is None:
        return _without_single_worker(list(judged.values()))
    others = _compared(summary)
    if not others:
        return EvaluationVerdict(finding=f"Only {one_line(best.name)} was measured: {_right(best.accuracy)}.")
    comparison, system = max(others, key=lambda item: item[0].difference)
    p = corrected_p_values(summary)[system.name]
    finding = _finding(comparison, system, best, _format_p(p, len(others)))
    return _with_warning(finding, comparison, p, len(others))


def corrected_p_values(summary: Summary) -> dict[str, float]:
    """For each system that the verdict compares with the best single worker, its p-value among all of these."""
    compared = _compared(summary)
    corrected = holm_corrected([comparison.p for comparison, _ in compared])
    return {system.name: p for (_, system), p in zip(compared, corrected, strict=True)}


def _judged(summary: Summary) -> dict[str, SystemResult]:
    return {system.name: system for system in summary.systems if system.accuracy.n}


def _compared(summary: Summary) -> list[tuple[Comparison, SystemResult]]:
    """The systems that are compared with the best single worker; none where there is no such worker."""
    judged = _judged(summary)
    best = judged.get(summary.best_worker)
    if best is None:
        return []
    compared = [(found, system) for system in judged.values() if (found := _counted(system, best)) is not None]
    # Another single worker is of interest only if there is nothing else: the best of them has been chosen already.
    others = [item for item in compared if not _is_single_worker(item[1].name)]
    return others or [item for item in compared if item[1].name != BEST_WORKER]


def _counted(system: SystemResult, best: SystemResult) -> Comparison | None:
    """The comparison of a system that takes part, None for another one."""
    found = system.versus_best
    if found is None or system.name == BEST_ROUTING or found.cases < ENOUGH * best.accuracy.cases:
        return None
    return found


def _is_single_worker(name: str) -> bool:
    return name == BEST_WORKER or name.startswith(f"{ALONE}:")


def _without_single_worker(systems: list[SystemResult]) -> EvaluationVerdict:
    if not systems:
        return NOTHING_JUDGED
    best = max(systems, key=lambda system: system.accuracy.accuracy or 0.0)
    limits = best.accuracy.interval
    interval = f" (95 % interval {100 * limits.low:.1f} to {100 * limits.high:.1f})" if limits is not None else ""
    return EvaluationVerdict(
        finding=f"{one_line(best.name)} did best: {_right(best.accuracy)}{interval}. No single worker was measured."
    )


def _right(share: Share) -> str:
    cases = format_count(share.cases, "case")
    return f"{share.right} of {cases if share.n == share.cases else f'{share.n:,} answers to {cases}'} right"


def _finding(comparison: Comparison, system: SystemResult, best: SystemResult, p: str) -> str:
    low, high = comparison.interval
    figures = f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f}, p {p}){_price(system, best)}"
    points = f"{abs(100 * comparison.difference):.1f} points"
    which = "by its card" if best.name == BEST_WORKER else "on these cases"
    single, name = f"{one_line(best.name)}, the best single worker {which}", one_line(system.name)
    if comparison.difference > 0:
        return f"{name} did best: {_right(system.accuracy)}, {points} above {single} {figures}."
    place = f"{name} is {points} below" if comparison.difference < 0 else f"{name} is level with it"
    return f"{single}, did best: {_right(best.accuracy)}; {place} {figures}."


def format_p(p: float) -> str:
    """`0.031`, `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _format_p(p: float, comparisons: int) -> str:
    """The corrected p-value: whoever tries five ways finds a good one by chance more easily."""
    return format_p(p) if comparisons == 1 else f"{format_p(p)} corrected for {comparisons} comparisons"


def _price(system: SystemResult, best: SystemResult) -> str:
    """What a question costs and takes with a system, instead of with the single worker; empty if nothing is known."""
    found = []
    known = system.cost is not None and best.cost is not None and not (system.unpriced or best.unpriced)
    if known and (system.cost or best.cost):
        found.append(f"for {format_money(system.cost or 0)} a question instead of {format_money(best.cost or 0)}")
    if system.seconds and best.seconds:
        found.append(f"in {_short_time(system.seconds)} instead of {_short_time(best.seconds)}")
    return "".join(f", {text}" for text in found)


def _short_time(seconds: float) -> str:
    """`0.04 s`, `3.2 s`: small models take less than the tenth of a second that is shown elsewhere."""
    return f"{seconds:.2f} s" if seconds < 1 else format_duration(seconds)


def _with_warning(finding: str, comparison: Comparison, p: float, comparisons: int) -> EvaluationVerdict:
    if p < SIGNIFICANT:
        return EvaluationVerdict(finding=finding)
    cases = format_count(comparison.cases, "case")
    warning = f"{cases} cannot tell these apart"
    needed = cases_needed(comparison.difference, comparison.unequal, comparisons=comparisons)
    if needed is None or needed <= comparison.cases:
        return EvaluationVerdict(finding=finding, warning=f"{warning}.")
    needed = round_up(needed)
    return EvaluationVerdict(
        finding=finding, warning=f"{warning}; about {needed:,} would be needed for a difference of this size.",
        cases_needed=needed,
    )  # fmt: skip


SYSTEM_COLUMN: Final = Column("SYSTEM", shrink=14)
VS_BEST: Final = "VS BEST"
VS_BEST_LIMITS: Final = "95 % OF IT"
P_VALUE: Final = "P"
BETWEEN_DRAWS: Final = "± DRAW"


class ReportTable(NamedTuple):
    """A table as `core.table` renders it."""

    columns: list[Column]
    rows: list[list[str]]


def format_limits(interval: Interval | None) -> str:
    """`93.0-96.8`, in percent."""
    return UNKNOWN if interval is None else f"{100 * interval.low:.1f}-{100 * interval.high:.1f}"


def format_share(share: Share | None) -> str:
    """`95.2`, in percent."""
    return UNKNOWN if share is None or share.accuracy is None else f"{100 * share.accuracy:.1f}"


def _format_difference(comparison: Comparison | None) -> str:
    """`+3.1`, in percentage points."""
    return UNKNOWN if comparison is None else f"{100 * comparison.difference:+.1f}"


def _format_difference_limits(comparison: Comparison | None) -> str:
    """`+0.2 to +6.0`, in percentage points."""
    if comparison is None:
        return UNKNOWN
    low, high = comparison.interval
    return f"{100 * low:+.1f} to {100 * high:+.1f}"


def _format_p_cell(p: float | None) -> str:
    return UNKNOWN if p is None else format_p(p)


def _format_deviation(value: float | None) -> str:
    """`1.2`, in percentage points."""
    return UNKNOWN if value is None else f"{100 * value:.1f}"


def _format_mean(value: float | None) -> str:
    """`1,234`, `3.5`, `0.03`: large numbers need no decimals, small ones would all look alike without."""
    if value is None:
        return UNKNOWN
    return f"{value:,.{0 if value >= 100 else 1 if value >= 1 or value == 0 else 2}f}"


def system_table(summary: Summary) -> ReportTable:
    """A row for each system. Columns that say nothing about any of them are left out."""
    systems = summary.systems
    failed = any(system.failed for system in systems)
    planned = any(system.valid_plans for system in systems)
    repeated = any(system.between_draws is not None for system in systems)
    compared, corrected = bool(summary.best_worker), corrected_p_values(summary)
    # Whether the column is shown, its head, how early it is dropped, and its cells.
    known: list[tuple[bool, str, int, Callable[[SystemResult], str]]] = [
        (True, "RIGHT", 0, lambda s: format_share(s.accuracy)),
        (True, "95 %", 1, lambda s: format_limits(s.accuracy.interval)),
        (repeated, BETWEEN_DRAWS, 4, lambda s: _format_deviation(s.between_draws)),
        (failed, "FAILED", 0, lambda s: str(s.failed)),
        (compared, VS_BEST, 2, lambda s: _format_difference(s.versus_best)),
        (compared, VS_BEST_LIMITS, 6, lambda s: _format_difference_limits(s.versus_best)),
        (compared, P_VALUE, 3, lambda s: _format_p_cell(corrected.get(s.name))),
        (planned, "VALID", 5, lambda s: format_share(s.valid_plans)),
        (True, "TOKENS", 1, lambda s: _format_mean(s.tokens)),
        (planned, "CONDUCTOR", 7, lambda s: _format_mean(s.tokens_conductor)),
        (True, "CALLS", 3, lambda s: _format_mean(s.calls)),
        (True, "COST", 2, lambda s: format_cost_cell(s.cost, s.unpriced)),
        (True, "SECONDS", 4, lambda s: _format_mean(s.seconds)),
    ]
    shown = [item[1:] for item in known if item[0]]
    return ReportTable(
        [SYSTEM_COLUMN, *(Column(head, right=True, drop=drop) for head, drop, _ in shown)],
        [[system.name, *(cell(system) for *_, cell in shown)] for system in systems],
    )  # fmt: skip


def tag_table(summary: Summary) -> ReportTable | None:
    """The accuracy of each system by tag; None if no case has a tag."""
    tags = sorted({tag for system in summary.systems for tag in system.tags})
    if not tags:
        return None
    columns = [Column(one_line(tag), right=True, drop=number) for number, tag in enumerate(tags, start=1)]
    rows = [[system.name, *(format_share(system.tags.get(tag)) for tag in tags)] for system in summary.systems]
    return ReportTable([SYSTEM_COLUMN, *columns], rows)


def report_notes(spec: EvaluationSpec, summary: Summary, shown: Collection[str]) -> list[str]:
    """What a reader must know to understand the table, of which the columns `shown` can be seen."""
    cases = format_count(spec.cases, "case")
    times = f", each run {spec.repeat:,} times" if spec.repeat > 1 else ""
    lines = [f"{cases} of {spec.source}{times}, seed {spec.seed}; shares in %, all other figures are means a question"]
    if BETWEEN_DRAWS in shown:
        lines.append(
            f"{BETWEEN_DRAWS}: standard deviation, in points, of the share from one run of all cases to another"
        )
    shares = {system.name: format_share(system.accuracy) for system in summary.systems}
    if (best := summary.best_worker) and VS_BEST in shown:
        limits = ", then the 95 % interval of the difference" if VS_BEST_LIMITS in shown else ""
        tests = len(corrected_p_values(summary))
        p_value = "; P: how likely chance alone makes such a difference" if P_VALUE in shown else ""
        p_value += f", corrected for {tests} comparisons" if p_value and tests > 1 else ""
        which = (
            "the best worker by its card" if best == BEST_WORKER else "the single worker that did best on these cases"
        )
        lines.append(f"VS BEST: points above {best} ({shares[best]}), {which}{limits}{p_value}")
    failed = [f"{system.name} {system.failed}" for system in summary.systems if system.failed]
    if failed:
        lines.append(f"failed {'runs' if spec.repeat > 1 else 'cases'}, which are in no share: {', '.join(failed)}")
    return [one_line(line) for line in (*lines, *spec.notes, *source_notes(spec.systems))]


def report_json(evaluation: str, spec: EvaluationSpec, summary: Summary) -> dict[str, Any]:
    """The report as JSON; docs/eval.md describes it. Money is text, unknown values are null."""
    found, corrected = reach_verdict(summary), corrected_p_values(summary)
    return {
        "id": evaluation, "verdict": found.text, "cases_needed": found.cases_needed, **spec.json(),
        "best_worker": summary.best_worker or None,
        "systems": [_system_json(system, corrected.get(system.name)) for system in summary.systems],
    }  # fmt: skip


def _system_json(system: SystemResult, p_corrected: float | None) -> dict[str, Any]:
    # The share of right answers is what most readers look for, so its fields come without a name of their own.
    data = dump(system)
    if data["versus_best"] is not None:
        data["versus_best"]["p_corrected"] = p_corrected
    source = source_of(system.name)
    return {"name": data.pop("name"), **data.pop("accuracy"), **data, "source": dump(source) if source else None}
