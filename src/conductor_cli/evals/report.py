"""An evaluation's result as a verdict, a table, notes under it, and JSON. Pure.

Shares are percentages, differences percentage points; tokens, calls, cost and seconds are means a
question.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from conductor_cli.core.formatting import (
    UNKNOWN,
    format_cost_cell,
    format_count,
    format_duration,
    format_money,
)
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals.judge import INSTRUCTIONS
from conductor_cli.evals.outcomes import EvaluationSpec
from conductor_cli.evals.summary import (
    ENOUGH,
    SIGNIFICANT,
    Comparison,
    Interval,
    ShareEstimate,
    Summary,
    SystemResult,
    cases_needed,
    holm_corrected,
    round_up,
    wilson_interval,
)
from conductor_cli.evals.systems import ALONE, BEST_ROUTING, BEST_WORKER
from conductor_cli.system.terminal_tables import Column

SOURCES: Final[dict[str, dict[str, str]]] = {
    "reflect": {
        "paper": "five turns of self-reflection, arXiv 2512.04388, table 7",
        "simplified": (
            "own prompt; a look sees the last answer alone; the last one counts, none "
            "is "
            "picked as the best"
        ),
    },
    "vote": {
        "paper": "self-consistency, arXiv 2203.11171",
        "simplified": "5 samples instead of 40; no examples, no chain of thought",
    },
    "moa": {
        "paper": "Mixture-of-Agents, arXiv 2406.04692",
        "simplified": (
            "one layer of proposers instead of two; own prompt; the best worker by card combines"
        ),
    },
}
"""Where a system was published, and what is not as it is there; by its name, without the worker
that may follow it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationVerdict:
    """`finding` says which system did best.

    `warning`, empty if there is no doubt, why that may be chance.

    `cases_needed` is about how many cases would show a difference of this size; None if these are
    enough, or if there is no difference.
    """

    finding: str
    warning: str = ""
    cases_needed: int | None = None

    @property
    def text(self) -> str:
        return " ".join(filter(None, (self.finding, self.warning)))


def reach_verdict(summary: Summary) -> EvaluationVerdict:
    """The system that did best, against the best single worker.

    Or how far the next one is below that worker.

    `best-routing` takes no part, because it needs to know how each question is solved.
    """
    judged = [system for system in summary.systems if system.accuracy.n]
    if not judged:
        return EvaluationVerdict(finding="No case could be judged, so nothing can be said.")
    planless = [
        one_line(system.name)
        for system in judged
        if system.valid_plans and not system.valid_plans.right
    ]
    never = f"The planner never wrote a valid plan ({', '.join(planless)})." if planless else ""
    if not any(system.accuracy.right for system in judged):
        nobody = "No system got any case right: check the answers and the scorer of the cases."
        return EvaluationVerdict(finding=nobody, warning=never)
    verdict = _compare_systems(summary, judged)
    return replace(verdict, warning=" ".join(filter(None, (verdict.warning, never))))


def _compare_systems(summary: Summary, judged: Sequence[SystemResult]) -> EvaluationVerdict:
    best = next((system for system in judged if system.name == summary.best_worker), None)
    if best is None:
        first = max(judged, key=lambda system: system.accuracy.accuracy or 0.0)
        limits = first.accuracy.interval
        interval = (
            f" (95 % interval {100 * limits.low:.1f} to {100 * limits.high:.1f})"
            if limits is not None
            else ""
        )
        found = (
            f"{one_line(first.name)} did best: {_right(first.accuracy)}{interval}. No single "
            "worker was measured."
        )
        return EvaluationVerdict(finding=found)
    others = _compared(summary)
    if not others:
        return EvaluationVerdict(
            finding=f"Only {one_line(best.name)} was measured: {_right(best.accuracy)}."
        )
    comparison, system = max(others, key=lambda item: item[0].difference)
    p = corrected_p_values(summary)[system.name]
    finding = _finding(comparison, system, best, p, len(others))
    if p < SIGNIFICANT:
        return EvaluationVerdict(finding=finding)
    warning = f"{format_count(comparison.cases, 'case')} cannot tell these apart"
    needed = cases_needed(comparison.difference, comparison.unequal, comparisons=len(others))
    if needed is None or needed <= comparison.cases:
        return EvaluationVerdict(finding=finding, warning=f"{warning}.")
    needed = round_up(needed)
    return EvaluationVerdict(
        finding=finding,
        warning=f"{warning}; about {needed:,} would be needed for a difference of this size.",
        cases_needed=needed,
    )


def corrected_p_values(summary: Summary) -> dict[str, float]:
    """The corrected p-value of each system that the verdict compares with the best single worker.

    It is corrected for the number of these systems.
    """
    compared = _compared(summary)
    corrected = holm_corrected([comparison.p for comparison, _ in compared])
    return {system.name: p for (_, system), p in zip(compared, corrected, strict=True)}


def _compared(summary: Summary) -> list[tuple[Comparison, SystemResult]]:
    """The systems that are compared with the best single worker.

    None where there is no such worker.
    """
    best = next((system for system in summary.systems if system.name == summary.best_worker), None)
    if best is None or not best.accuracy.n:
        return []
    compared = [
        (found, system)
        for system in summary.systems
        if (found := system.versus_best) is not None
        and system.name != BEST_ROUTING
        and found.cases >= ENOUGH * best.accuracy.cases
    ]
    # Another single worker is of interest only if there is nothing else: the best of them has been
    # chosen already.
    others = [
        item
        for item in compared
        if item[1].name != BEST_WORKER and not item[1].name.startswith(f"{ALONE}:")
    ]
    return others or [item for item in compared if item[1].name != BEST_WORKER]


def _right(share: ShareEstimate) -> str:
    cases = format_count(share.cases, "case")
    return (
        f"{share.right} of "
        f"{cases if share.n == share.cases else f'{share.n:,} answers to {cases}'} right"
    )


def _finding(
    comparison: Comparison, system: SystemResult, best: SystemResult, p: float, comparisons: int
) -> str:
    """The sentence of the verdict.

    Who did best, by how much, how sure that is, and what a question costs.
    """
    low, high = comparison.interval
    # Whoever tries five ways finds a good one by chance more easily.
    corrected = f" corrected for {comparisons} comparisons" if comparisons > 1 else ""
    figures = [f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f}, p {format_p(p)}{corrected})"]
    known = (
        system.cost is not None and best.cost is not None and not (system.unpriced or best.unpriced)
    )
    ours, theirs = (format_money(each.cost or 0) for each in (system, best))
    if known and ours != theirs:
        figures.append(f"for {ours} a question instead of {theirs}")
    if system.seconds and best.seconds:
        # Small models take less than the tenth of a second that is shown elsewhere.
        ours, theirs = (
            f"{s:.2f} s" if s < 1 else format_duration(s) for s in (system.seconds, best.seconds)
        )
        figures += [f"in {ours} instead of {theirs}"] if ours != theirs else []
    which = "by its card" if best.name == BEST_WORKER else "on these cases"
    single = f"{one_line(best.name)}, the best single worker {which}"
    name = one_line(system.name)
    points = f"{abs(100 * comparison.difference):.1f} points"
    if comparison.difference > 0:
        return (
            f"{name} did best: {_right(system.accuracy)}, {points} above {single} "
            f"{', '.join(figures)}."
        )
    if not comparison.difference:
        return f"{name} is level with {single}: {_right(best.accuracy)} {', '.join(figures)}."
    return (
        f"{single}, did best: {_right(best.accuracy)}; {name} is {points} below "
        f"{', '.join(figures)}."
    )


def format_p(p: float) -> str:
    """`0.031`, `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


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


def format_share(share: ShareEstimate | None) -> str:
    """`95.2`, in percent."""
    return UNKNOWN if share is None or share.accuracy is None else f"{100 * share.accuracy:.1f}"


def _format_mean(value: float | None) -> str:
    """`1,234`, `3.5`, `0.03`.

    Large numbers need no decimals, small ones would all look alike without.
    """
    if value is None:
        return UNKNOWN
    return f"{value:,.{0 if value >= 100 else 1 if value >= 1 or value == 0 else 2}f}"


def system_table(summary: Summary) -> ReportTable:
    """A row for each system. Columns that say nothing about any of them are left out."""
    systems = summary.systems
    failed = any(system.failed for system in systems)
    planned = any(system.valid_plans for system in systems)
    repeated = any(system.between_draws is not None for system in systems)
    compared = bool(summary.best_worker)
    corrected = corrected_p_values(summary)

    def percent(share: float | None, form: str) -> str:
        return UNKNOWN if share is None else format(100 * share, form)

    def difference(result: SystemResult) -> str:
        versus = result.versus_best
        return UNKNOWN if versus is None else percent(versus.difference, "+.1f")

    def difference_limits(result: SystemResult) -> str:
        if result.versus_best is None:
            return UNKNOWN
        return " to ".join(f"{100 * limit:+.1f}" for limit in result.versus_best.interval)

    def p_value(result: SystemResult) -> str:
        return format_p(corrected[result.name]) if result.name in corrected else UNKNOWN

    # Whether the column is shown, its head, how early it is dropped, and its cells.
    columns: list[tuple[bool, str, int, Callable[[SystemResult], str]]] = [
        (True, "RIGHT", 0, lambda result: format_share(result.accuracy)),
        (True, "95 %", 1, lambda result: format_limits(result.accuracy.interval)),
        (repeated, BETWEEN_DRAWS, 4, lambda result: percent(result.between_draws, ".1f")),
        (failed, "FAILED", 0, lambda result: str(result.failed)),
        (compared, VS_BEST, 2, difference),
        (compared, VS_BEST_LIMITS, 6, difference_limits),
        (compared, P_VALUE, 3, p_value),
        (planned, "VALID", 5, lambda result: format_share(result.valid_plans)),
        (True, "TOKENS", 1, lambda result: _format_mean(result.tokens)),
        (planned, "PLANNER", 7, lambda result: _format_mean(result.tokens_conductor)),
        (True, "CALLS", 3, lambda result: _format_mean(result.calls)),
        (True, "COST", 2, lambda result: format_cost_cell(result.cost, result.unpriced)),
        (True, "SECONDS", 4, lambda result: _format_mean(result.seconds)),
    ]
    shown = [item[1:] for item in columns if item[0]]
    return ReportTable(
        [SYSTEM_COLUMN, *(Column(head, right=True, drop=drop) for head, drop, _ in shown)],
        [[system.name, *(cell(system) for *_, cell in shown)] for system in systems],
    )


def tag_table(summary: Summary) -> ReportTable | None:
    """The accuracy of each system by tag; None if no case has a tag."""
    tags = sorted({tag for system in summary.systems for tag in system.tags})
    if not tags:
        return None
    columns = [
        Column(one_line(tag), right=True, drop=number) for number, tag in enumerate(tags, start=1)
    ]
    rows = [
        [system.name, *(format_share(system.tags.get(tag)) for tag in tags)]
        for system in summary.systems
    ]
    return ReportTable([SYSTEM_COLUMN, *columns], rows)


def report_notes(spec: EvaluationSpec, summary: Summary, shown: Collection[str]) -> list[str]:
    """Return what a reader must know to understand the table.

    `shown` are the heads of the columns that can be seen.
    """
    cases = format_count(spec.cases, "case")
    times = f", each run {spec.repeat:,} times" if spec.repeat > 1 else ""
    lines = [
        (
            f"{cases} of {spec.source}{times}, seed {spec.seed}; shares in %, all other figures "
            "are "
            "means a question"
        )
    ]
    if BETWEEN_DRAWS in shown:
        lines.append(
            f"{BETWEEN_DRAWS}: standard deviation, in points, of the share from one run of all "
            "cases to another"
        )
    shares = {system.name: format_share(system.accuracy) for system in summary.systems}
    if (best := summary.best_worker) and VS_BEST in shown:
        limits = ", then the 95 % interval of the difference" if VS_BEST_LIMITS in shown else ""
        tests = len(corrected_p_values(summary))
        p_value = "; P: how likely chance alone makes such a difference" if P_VALUE in shown else ""
        p_value += f", corrected for {tests} comparisons" if p_value and tests > 1 else ""
        by_card = best == BEST_WORKER
        which = (
            "the best worker by its card"
            if by_card
            else "the single worker that did best on these cases"
        )
        lines.append(f"VS BEST: points above {best} ({shares[best]}), {which}{limits}{p_value}")
    if spec.judge:
        used = summary.judging
        agreed = summary.agreed
        compared = summary.compared
        limits = format_limits(wilson_interval(agreed, compared)) if compared else ""
        trust = (
            f"it agrees with the rules on {agreed} of {compared} answers (95 %: {limits})"
            if compared
            else (
                "how far it can be trusted is not known: no answer that it judged has a rule "
                "beside it"
            )
        )
        cost = (
            f"{format_count(used.calls, 'call')}, "
            f"{format_cost_cell(used.cost, used.unpriced)}, "
            "in no other figure"
        )
        lines.append(f"judge: {spec.judge}, {cost}; {trust}")
    failed = [f"{system.name} {system.failed}" for system in summary.systems if system.failed]
    if failed:
        lines.append(
            f"failed {'runs' if spec.repeat > 1 else 'cases'}, which are in no share: "
            f"{', '.join(failed)}"
        )
    lines += [f"{why}: {format_count(count, 'answer')}" for why, count in summary.unscored.items()]
    if summary.missing_modules:
        modules = ", ".join(f"{name} {count}" for name, count in summary.missing_modules.items())
        another = "another Python: conductor config set eval.python PATH"
        lines.append(
            f"wrong because the Python of the sandbox lacks a module: {modules}; {another}"
        )
    names = dict.fromkeys(name.partition(":")[0] for name in spec.systems)
    known = [(name, SOURCES[name]) for name in names if name in SOURCES]
    sources = [
        f"{name}: after {source['paper']}. Simplified: {source['simplified']}"
        for name, source in known
    ]
    return [one_line(line) for line in (*lines, *spec.notes, *sources)]


def report_json(evaluation: str, spec: EvaluationSpec, summary: Summary) -> dict[str, Any]:
    """The report as JSON; docs/eval.md describes it. Money is text, unknown values are null."""
    verdict = reach_verdict(summary)
    corrected = corrected_p_values(summary)
    systems = []
    for system in summary.systems:
        # The share of right answers is what most readers look for, so its fields come without a
        # name of their own.
        data = dump(system)
        if data["versus_best"] is not None:
            data["versus_best"]["p_corrected"] = corrected.get(system.name)
        source = SOURCES.get(system.name.partition(":")[0])
        systems.append({"name": data.pop("name"), **data.pop("accuracy"), **data, "source": source})
    return {
        "id": evaluation,
        "verdict": verdict.text,
        "cases_needed": verdict.cases_needed,
        **spec.json(),
        "best_worker": summary.best_worker or None,
        "systems": systems,
        "unscored": dict(summary.unscored),
        "missing_modules": dict(summary.missing_modules),
        "judging": {
            **dump(summary.judging),
            "agreed": summary.agreed,
            "compared": summary.compared,
            "instructions": INSTRUCTIONS,
        }
        if spec.judge
        else None,
    }
