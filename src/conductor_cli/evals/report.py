"""An evaluation's result as a verdict, a table, notes under it, and JSON. Pure.

Shares are percentages, differences percentage points; tokens, calls, cost and seconds are means a
question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
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
from conductor_cli.evals.outcomes import OF_THE_SYSTEM, EvaluationSpec
from conductor_cli.evals.significance import Interval, cases_needed
from conductor_cli.evals.summary import (
    MIN_JUDGED_SHARE,
    Comparison,
    ProvedDifference,
    ShareEstimate,
    Summary,
    SystemResult,
    prove_differences,
    round_up,
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


NEAR_BEST_REASON: Final = "the single worker that did best on all of them is nearly as good"


def reach_verdict(
    summary: Summary, *, runs: int = 0, spent: Decimal | None = None
) -> EvaluationVerdict:
    """Return the system that did best, against the best single worker.

    Or how far the next one is below that worker.

    `best-routing` takes no part, because it needs to know how each question is solved. `runs` is
    how many the whole evaluation has, 0 where they are all done; `spent` what all of it has cost.
    """
    judged = [system for system in summary.systems if system.accuracy.n]
    if not judged:
        return EvaluationVerdict(finding="No case could be judged, so nothing can be said.")
    planless = []
    for system in judged:
        if system.valid_plans and not system.valid_plans.right:
            planless.append(one_line(system.name))
    never = ""
    if planless:
        never = f"The planner never wrote a valid plan ({', '.join(planless)})."
    if not any(system.accuracy.right for system in judged):
        return EvaluationVerdict(finding=_nobody_was_right(summary, runs), warning=never)
    verdict = _compare_systems(summary, judged)
    cost = ""
    if spent:
        cost = f"All of it cost {format_money(spent)}."
    finding = " ".join(filter(None, (verdict.finding, describe_faults(judged), cost)))
    warning = " ".join(filter(None, (verdict.warning, never)))
    return replace(verdict, finding=finding, warning=warning)


def _nobody_was_right(summary: Summary, runs: int) -> str:
    done = sum(system.accuracy.n + system.failed for system in summary.systems)
    if done < runs:
        return f"No system got a case right in the {done:,} of {runs:,} runs that are done."
    return "No system got any case right: check the answers and the scorer of the cases."


def describe_faults(systems: Sequence[SystemResult]) -> str:
    """Return a sentence about the runs in which a system itself made a step fail; empty if none."""
    lines = []
    for system in systems:
        if system.faults:
            words = Counter[str]()
            for reason, count in system.faults.items():
                words[OF_THE_SYSTEM.get(reason, reason)] += count
            kinds = _list_counts(words.most_common())
            total = sum(system.faults.values())
            lines.append(f"of {one_line(system.name)} in {total} of {system.accuracy.n} ({kinds})")
    if lines:
        return f"Steps failed {'; '.join(lines)}: such runs count as they ended."
    return ""


def _list_counts(counts: Iterable[tuple[str, int]]) -> str:
    """Return names with their counts, such as `a 2, b 1`."""
    return ", ".join(f"{name} {count}" for name, count in counts)


def _compare_systems(summary: Summary, judged: Sequence[SystemResult]) -> EvaluationVerdict:
    best = summary.result(summary.best_worker)
    if best is None or not best.accuracy.n:
        return EvaluationVerdict(finding=_without_single_worker(judged))
    others = _compared(summary)
    if not others:
        return EvaluationVerdict(
            finding=f"Only {one_line(best.name)} was measured: {_right(best.accuracy)}."
        )
    comparison, system = max(others, key=lambda item: item[0].difference)
    proved = _proved(summary)[system.name]
    if proved.turns:
        return EvaluationVerdict(finding=_refused(comparison, system, best))
    finding = _finding(comparison, system, best, proved, summary)
    if proved.is_real:
        return EvaluationVerdict(finding=finding)
    warning = f"{format_count(comparison.cases, 'case')} cannot tell these apart"
    if proved.is_near_best:
        return EvaluationVerdict(finding=finding, warning=f"{warning}: {NEAR_BEST_REASON}.")
    needed = cases_needed(comparison.difference, comparison.unequal, comparisons=len(others))
    if needed is None or needed <= comparison.cases:
        return EvaluationVerdict(finding=finding, warning=f"{warning}.")
    needed = round_up(needed)
    return EvaluationVerdict(
        finding=finding,
        warning=(
            f"{warning}; about {needed:,} would be needed if the difference is as large as it "
            "looks here."
        ),
        cases_needed=needed,
    )


def _without_single_worker(judged: Sequence[SystemResult]) -> str:
    first = max(judged, key=lambda system: system.accuracy.accuracy or 0.0)
    limits = first.accuracy.interval
    interval = ""
    if limits is not None:
        interval = f" (95 % interval {100 * limits.low:.1f} to {100 * limits.high:.1f})"
    return (
        f"{one_line(first.name)} did best: {_right(first.accuracy)}{interval}. No single "
        "worker was measured."
    )


def _refused(comparison: Comparison, system: SystemResult, best: SystemResult) -> str:
    """Return the sentence where what failed decides the verdict."""
    failures = []
    for result in (system, best):
        if result.failed:
            failures.append((one_line(result.name), result.failed))
    failed = _list_counts(failures)
    return (
        f"Nothing can be said yet: runs failed ({failed or 'of other workers'}), and counted as "
        f"wrong they would turn the difference of {100 * comparison.difference:+.1f} points "
        f"between {one_line(system.name)} and {one_line(best.name)} into "
        f"{100 * comparison.difference_counted:+.1f}. The same command runs them again."
    )


def corrected_p_values(summary: Summary) -> dict[str, float]:
    """Return the corrected p-value of each system that is compared with the best single worker.

    It is corrected for the number of these systems.
    """
    return {name: proved.p for name, proved in _proved(summary).items()}


def _proved(summary: Summary) -> dict[str, ProvedDifference]:
    compared = {system.name: comparison for comparison, system in _compared(summary)}
    singles = _count_single_workers(summary)
    is_among_singles = all(map(_is_single_worker, compared))
    # The best of several workers was picked out of all pairs of them.
    pairs = 0
    if compared and is_among_singles:
        pairs = singles * (singles - 1) // 2
    return prove_differences(compared, pairs=pairs)


def _is_single_worker(system: str) -> bool:
    return system.startswith(f"{ALONE}:")


def _count_single_workers(summary: Summary) -> int:
    return sum(_is_single_worker(system.name) for system in summary.systems)


def _compared(summary: Summary) -> list[tuple[Comparison, SystemResult]]:
    """Return the systems that are compared with the best single worker.

    None where there is no such worker.
    """
    best = summary.result(summary.best_worker)
    if best is None or not best.accuracy.n:
        return []
    # Another single worker is of interest only if there is nothing else: the best of them has been
    # chosen already.
    others = []
    single_workers = []
    for system in summary.systems:
        comparison = system.versus_best
        if comparison is None or system.name in (BEST_ROUTING, BEST_WORKER):
            continue
        if comparison.cases < MIN_JUDGED_SHARE * best.accuracy.cases:
            continue
        if _is_single_worker(system.name):
            single_workers.append((comparison, system))
        else:
            others.append((comparison, system))
    return others or single_workers


def _right(share: ShareEstimate) -> str:
    cases = format_count(share.cases, "case")
    answers = cases
    if share.n != share.cases:
        answers = f"{share.n:,} answers to {cases}"
    return f"{share.right} of {answers} right"


def _finding(
    comparison: Comparison,
    system: SystemResult,
    best: SystemResult,
    proved: ProvedDifference,
    summary: Summary,
) -> str:
    """Return the sentence of the verdict.

    Who did best, by how much, how sure that is, who is tied with it, and what a question costs.
    """
    figures = ", ".join(_figures(comparison, system, best, proved))
    tied = []
    for versus, other in _compared(summary):
        if other is not system and versus.difference == comparison.difference:
            tied.append(one_line(other.name))
    also = f" (tied with {', '.join(tied)})" if tied else ""
    name = f"{one_line(system.name)}{also}"
    rival, share = _rival(system, best, summary)
    points = f"{abs(100 * comparison.difference):.1f} points"
    if comparison.difference > 0:
        return f"{name} did best: {_right(system.accuracy)}, {points} above {rival} {figures}."
    if not comparison.difference:
        return f"{name} is level with {rival}: {_right(share)} {figures}."
    return f"{rival}, did best: {_right(share)}; {name} is {points} below {figures}."


def _rival(system: SystemResult, best: SystemResult, summary: Summary) -> tuple[str, ShareEstimate]:
    """Return what the system is compared with, in words, and its share of right answers."""
    chosen = summary.baseline
    if chosen is None or not is_compared_by_halves(system, best, summary):
        which = "by its card" if best.name == BEST_WORKER else "on these cases"
        return f"{one_line(best.name)}, the best single worker {which}", best.accuracy
    return CHOSEN_BY_HALVES, chosen


CHOSEN_BY_HALVES: Final = "the single worker that did best on the other half of the cases"


def is_compared_by_halves(system: SystemResult, best: SystemResult, summary: Summary) -> bool:
    """Return whether a system is compared with answers of more workers than the best one.

    For some cases the other half of them chose another worker.
    """
    is_single = system.name.startswith(f"{ALONE}:")
    chosen = summary.baseline
    return chosen is not None and not is_single and chosen.right != best.accuracy.right


def _figures(
    comparison: Comparison, system: SystemResult, best: SystemResult, proved: ProvedDifference
) -> list[str]:
    """Return how sure the difference is, and what a question costs and how long it takes."""
    low, high = comparison.interval
    # Whoever tries five ways finds a good one by chance more easily.
    several = proved.comparisons > 1
    corrected = ""
    if several:
        corrected = f" corrected for {proved.comparisons} comparisons"
    p_value = f"p {format_p(proved.p)}{corrected}"
    figures = [f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f}, {p_value})"]
    is_priced = system.cost is not None and best.cost is not None
    if is_priced and not system.unpriced and not best.unpriced:
        ours = format_money(system.cost or 0)
        theirs = format_money(best.cost or 0)
        if ours != theirs:
            figures.append(f"for {ours} a question instead of {theirs}")
    if system.seconds and best.seconds:
        ours = _format_seconds(system.seconds)
        theirs = _format_seconds(best.seconds)
        if ours != theirs:
            figures.append(f"in {ours} instead of {theirs}")
    return figures


def _format_seconds(seconds: float) -> str:
    # Small models take less than the tenth of a second that is shown elsewhere.
    if seconds < 1:
        return f"{seconds:.2f} s"
    return format_duration(seconds)


def format_p(p: float) -> str:
    """Return `0.031`, `<0.001`."""
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
    """Return `93.0-96.8`, in percent."""
    return UNKNOWN if interval is None else f"{100 * interval.low:.1f}-{100 * interval.high:.1f}"


def format_share(share: ShareEstimate | None) -> str:
    """Return `95.2`, in percent."""
    if share is None or share.accuracy is None:
        return UNKNOWN
    return f"{100 * share.accuracy:.1f}"


def _format_mean(value: float | None) -> str:
    """Return `1,234`, `3.5`, `0.03`.

    Large numbers need no decimals, small ones would all look alike without.
    """
    if value is None:
        return UNKNOWN
    if value >= 100:
        return f"{value:,.0f}"
    if value >= 1 or value == 0:
        return f"{value:,.1f}"
    return f"{value:,.2f}"


def system_table(summary: Summary) -> ReportTable:
    """Return a row for each system. Columns that say nothing about any of them are left out."""
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
        if result.name in corrected:
            return format_p(corrected[result.name])
        return UNKNOWN

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
    heads = [SYSTEM_COLUMN]
    cells = []
    for is_shown, head, drop, cell in columns:
        if is_shown:
            heads.append(Column(head, right=True, drop=drop))
            cells.append(cell)
    rows = []
    for system in systems:
        rows.append([system.name, *(cell(system) for cell in cells)])
    return ReportTable(heads, rows)


def tag_table(summary: Summary) -> ReportTable | None:
    """Return the accuracy of each system by tag; None if no case has a tag."""
    tags = sorted(set().union(*(system.tags for system in summary.systems)))
    if not tags:
        return None
    columns = [SYSTEM_COLUMN]
    for number, tag in enumerate(tags, start=1):
        columns.append(Column(one_line(tag), right=True, drop=number))
    rows = []
    for system in summary.systems:
        rows.append([system.name, *(format_share(system.tags.get(tag)) for tag in tags)])
    return ReportTable(columns, rows)


def report_notes(spec: EvaluationSpec, summary: Summary, shown: Collection[str]) -> list[str]:
    """Return what a reader must know to understand the table.

    `shown` are the heads of the columns that can be seen.
    """
    cases = format_count(spec.cases, "case")
    if spec.repeat > 1:
        cases += f" of {spec.source}, each run {spec.repeat:,} times"
    else:
        cases += f" of {spec.source}"
    figures = "shares in %, all other figures are means a question"
    lines = [f"{cases}, seed {spec.seed}; {figures}"]
    if BETWEEN_DRAWS in shown:
        lines.append(
            f"{BETWEEN_DRAWS}: standard deviation, in points, of the share from one run of all "
            "cases to another"
        )
    if summary.best_worker and VS_BEST in shown:
        lines.append(_note_on_comparison(summary, shown))
    if spec.judge:
        lines.append(_note_on_judge(spec.judge, summary))
    lines += _notes_on_missing_answers(spec, summary)
    lines += spec.notes
    lines += _notes_on_sources(spec)
    return [one_line(line) for line in lines]


def _note_on_comparison(summary: Summary, shown: Collection[str]) -> str:
    shares = {system.name: format_share(system.accuracy) for system in summary.systems}
    note = f"VS BEST: {_baseline_in_words(summary, shares[summary.best_worker])}"
    if VS_BEST_LIMITS in shown:
        note += ", then the 95 % interval of the difference"
    if P_VALUE in shown:
        note += "; P: how likely chance alone makes such a difference"
        tests = len(corrected_p_values(summary))
        if tests > 1:
            note += f", corrected for {tests} comparisons"
    return note


def _note_on_judge(judge: str, summary: Summary) -> str:
    """Return what the judge has cost, and how far it can be trusted."""
    calls = format_count(summary.judging.calls, "call")
    cost = format_cost_cell(summary.judging.cost, summary.judging.unpriced)
    agreement = summary.agreement
    if agreement is not None:
        limits = format_limits(agreement.interval)
        answers = f"{agreement.n} answers"
        if agreement.n != agreement.cases:
            answers += f" to {format_count(agreement.cases, 'case')}"
        trust = f"it agrees with the rules on {agreement.right} of {answers} (95 %: {limits})"
    else:
        trust = (
            "how far it can be trusted is not known: no answer that it judged has a rule beside it"
        )
    return f"judge: {judge}, {calls}, {cost}, in no other figure; {trust}"


def describe_cut_off(systems: Sequence[SystemResult]) -> str:
    """Return how many answers were cut off, and how to have them whole; empty where none was."""
    cut_off = []
    for system in systems:
        if system.cut_off:
            name = one_line(system.name)
            cut_off.append(f"{system.cut_off} of {system.accuracy.n} of {name}")
    if not cut_off:
        return ""
    return (
        f"answers that were cut off at a worker's max_tokens: {', '.join(cut_off)}; a larger "
        "limit: conductor workers add NAME --set max_tokens=N"
    )


def _notes_on_missing_answers(spec: EvaluationSpec, summary: Summary) -> list[str]:
    """Return what has no answer, or none that could be scored as the case wants it."""
    notes = []
    failed = [(system.name, system.failed) for system in summary.systems if system.failed]
    if failed:
        runs = "runs" if spec.repeat > 1 else "cases"
        notes.append(f"failed {runs}, which are in no share: {_list_counts(failed)}")
    cut_off = describe_cut_off(summary.systems)
    if cut_off:
        notes.append(cut_off)
    for reason, count in summary.unscored.items():
        notes.append(f"{reason}: {format_count(count, 'answer')}")
    if summary.missing_modules:
        modules = _list_counts(summary.missing_modules.items())
        another = "another Python: conductor config set eval.python PATH"
        notes.append(
            f"wrong because the Python of the sandbox lacks a module: {modules}; {another}"
        )
    return notes


def _notes_on_sources(spec: EvaluationSpec) -> list[str]:
    """Return the paper that each system is taken from, once for all that are of one kind."""
    notes = []
    for kind in dict.fromkeys(name.partition(":")[0] for name in spec.systems):
        source = SOURCES.get(kind)
        if source is not None:
            notes.append(f"{kind}: after {source['paper']}. Simplified: {source['simplified']}")
    return notes


def _baseline_in_words(summary: Summary, share: str) -> str:
    """Return what systems are compared with: the best worker by card, or by the other cases."""
    best = summary.best_worker
    if best == BEST_WORKER:
        return f"points above {best} ({share}), the best worker by its card"
    singles = _count_single_workers(summary)
    if singles < 2:
        return f"points above {best} ({share}), the only single worker"
    return (
        f"points above {CHOSEN_BY_HALVES} ({format_share(summary.baseline)}); on all of them "
        f"{best} did best ({share}), with which other single workers are compared"
    )


def report_json(
    evaluation: str, spec: EvaluationSpec, summary: Summary, spent: Decimal | None = None
) -> dict[str, Any]:
    """Return the report as JSON; docs/eval.md describes it.

    Money is text, unknown values are null.
    """
    verdict = reach_verdict(summary, runs=spec.runs, spent=spent)
    corrected = corrected_p_values(summary)
    systems = []
    for system in summary.systems:
        # The share of right answers is what most readers look for, so its fields come without a
        # name of their own.
        fields = dump(system)
        if fields["versus_best"] is not None:
            fields["versus_best"]["p_corrected"] = corrected.get(system.name)
        source = SOURCES.get(system.name.partition(":")[0])
        systems.append(
            {"name": fields.pop("name"), **fields.pop("accuracy"), **fields, "source": source}
        )
    return {
        "id": evaluation,
        "verdict": verdict.text,
        "cases_needed": verdict.cases_needed,
        **spec.json(),
        "best_worker": summary.best_worker or None,
        "baseline": None if summary.baseline is None else dump(summary.baseline),
        "spent": None if spent is None else str(spent),
        "systems": systems,
        "unscored": dict(summary.unscored),
        "missing_modules": dict(summary.missing_modules),
        "judging": _judging_json(summary) if spec.judge else None,
    }


def _judging_json(summary: Summary) -> dict[str, Any]:
    agreement = None if summary.agreement is None else dump(summary.agreement)
    return {
        **dump(summary.judging),
        "agreed": summary.agreed,
        "compared": summary.compared,
        "agreement": agreement,
        "instructions": INSTRUCTIONS,
    }
