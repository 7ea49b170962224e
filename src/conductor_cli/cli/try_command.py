"""`conductor try`.

A few questions, the best worker alone against a plan, and one sentence of advice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

import typer

from conductor_cli.app.case_sets import load_cases, sample_cases
from conductor_cli.app.evaluation import EvaluationRequest
from conductor_cli.app.rehearsal import NAME as REHEARSAL
from conductor_cli.app.worker_selection import discovered_workers, offered_workers
from conductor_cli.cli import options as opt
from conductor_cli.cli.eval import run_evaluation
from conductor_cli.cli.output import print_line, print_notice, print_table, print_text
from conductor_cli.config.settings import Settings
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.mappings import by_name
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.evals.cases import EVERYDAY
from conductor_cli.evals.report import (
    CHOSEN_BY_HALVES,
    NEAR_BEST_REASON,
    describe_cut_off,
    describe_faults,
    format_p,
    is_compared_by_halves,
    system_table,
)
from conductor_cli.evals.significance import cases_needed
from conductor_cli.evals.summary import (
    Comparison,
    ProvedDifference,
    Summary,
    SystemResult,
    prove_differences,
    round_up,
    summarize,
)
from conductor_cli.evals.systems import ALONE, BEST_WORKER, PLANNED

ROUTE: Final = "conductor-mini"
MAX_ALONE: Final = 5  # Workers that are each asked alone; of more, only the best by its card is
MAX_COST: Final = "0.50"
TOO_FEW_ANSWERS: Final = (
    "Nothing can be said: too few questions were answered. conductor workers test says why."
)
STOPPED_EARLY: Final = (
    "Nothing can be said yet: it was stopped before enough questions were answered. The same "
    "command continues, with a higher --max-cost where that stopped it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """The options of `conductor try`."""

    cases: Annotated[
        str | None, opt.argument("CASES.jsonl", "Your own cases; else questions that ship.")
    ] = None
    count: Annotated[int, opt.option("--n", "Number of cases.", "N", min=2)] = 12
    workers: opt.WorkersOption = None
    pool: opt.PoolOption = None
    conductor: opt.ConductorOption = None
    max_cost: Annotated[
        str | None,
        opt.option(
            "--max-cost",
            f"Maximum cost of all runs. Default: {MAX_COST}, if prices are known.",
            "USD",
        ),
    ] = None
    rehearsal: Annotated[
        bool, opt.option("--demo", "Simulate it with the demo models, on their own questions.")
    ] = False
    yes: opt.YesToCost = False
    progress: opt.ProgressOption = None


@opt.with_options()
def try_command(context: typer.Context, options: TryOptions) -> None:
    """Find out on a few questions whether a plan pays.

    Your best worker alone, one chosen worker, and a plan.
    """
    flags = {
        "planner.model": options.conductor,
        "conductor.pool": options.pool,
        "output.progress": options.progress,
    }
    settings = opt.stored_settings(context, flags)
    settings = replace(settings, rehearsal=options.rehearsal)
    request = _evaluation_request(options, settings)
    run = partial(run_evaluation, settings=settings, yes=options.yes, quiet=context.obj.quiet)
    try:
        stored, code = run(request)
    except PolicyError as error:
        # A price is not known, or a policy forbids it, which is then said again
        if options.max_cost is not None:
            raise
        print_notice(error.message)
        stored, code = run(replace(request, max_cost=None))
    if stored is None:
        raise typer.Exit(code)
    if options.rehearsal:
        print_text(
            "A simulation: tiny demo models on made-up questions. It says nothing about your "
            "workers."
        )
    summary = summarize(stored.outcomes(), stored.spec.systems)
    _print_summary(summary, len(request.cases), request.source, is_stopped=code != 0)
    raise typer.Exit(code)


def _evaluation_request(options: TryOptions, settings: Settings) -> EvaluationRequest:
    """Return what is tried, on a few of the cases. Raises `UsageError`."""
    if options.rehearsal:
        source = REHEARSAL
        limit = None
    else:
        source = options.cases or EVERYDAY
        limit = opt.parse_cost(options.max_cost or MAX_COST)
    name, cases = load_cases(source, file=None, count=None, seed=0)
    workers = opt.parse_names(options.workers)
    return EvaluationRequest(
        source=name,
        cases=sample_cases(cases, min(options.count, len(cases)), 0),
        workers=workers,
        systems=f"{_asked_alone(workers, settings)},{ROUTE},{PLANNED}",
        max_cost=limit,
    )


def _asked_alone(names: Sequence[str], settings: Settings) -> str:
    """Return the system of the workers that are asked alone: each one, or of many the best."""
    offered = names or offered_workers(settings) or discovered_workers(settings)
    if len(offered) > MAX_ALONE and not settings.rehearsal:
        return BEST_WORKER
    return ALONE


def _print_summary(summary: Summary, cases: int, source: str, *, is_stopped: bool) -> None:
    total = sum((system.total for system in summary.systems), NO_USAGE)
    print_text(f"{format_count(cases, 'question')} of {source}, {format_cost(total)} in all")
    print_line()
    names = (summary.best_worker, ROUTE, PLANNED)
    shown = tuple(system for system in summary.systems if system.name in names)
    print_table(*system_table(summary._replace(systems=shown)))
    print_line()
    advice = advise(summary)
    if is_stopped and advice == TOO_FEW_ANSWERS:
        advice = STOPPED_EARLY
    print_text(advice)
    if cut_off := describe_cut_off(shown):
        print_text(cut_off)
    print_text(
        "conductor is a plan, conductor-mini one worker that it chose; all figures: conductor eval "
        "--show last"
    )


def advise(summary: Summary) -> str:
    """Return one sentence, or two: what to do, and what that rests on.

    Planning, or routing, is advised only where its difference to the best single worker is proved,
    by the rule that `eval` and `tune` have, too: the exact p-value, corrected for the two ways.
    """
    systems = by_name(summary.systems)
    best = systems.get(summary.best_worker)
    plan = systems[PLANNED]
    route = systems[ROUTE]
    ways = [way for way in (plan, route) if way.versus_best is not None]
    if best is None or plan.versus_best is None:
        return TOO_FEW_ANSWERS
    name = best.name.removeprefix(f"{ALONE}:")
    name = "the best worker by its card" if name == BEST_WORKER else one_line(name)
    if plan.valid_plans is not None and not plan.valid_plans.right:
        return f"Ask one, {name}, or let another model plan: this planner never wrote a valid plan."
    if _is_mostly_wrong([best, *ways]):
        most = max(way.accuracy.right for way in (best, *ways))
        return (
            f"No way is worth using for such questions: at most {most} of {best.accuracy.n} "
            "answers are right. Try another worker: conductor workers add"
        )
    # The plan and the choice of one worker are compared with the same answers
    rival = CHOSEN_BY_HALVES if is_compared_by_halves(plan, best, summary) else name
    proved = prove_differences(_comparisons(ways))
    turned = [way for way in ways if proved[way.name].turns]
    if turned:
        return _say_refusal(turned[0], best)
    better = [way for way in ways if proved[way.name].is_better]
    if better:
        # Of two that are as good the cheaper one, which asks one worker.
        way = max(better, key=lambda way: (way.accuracy.accuracy or 0, way is route))
        advice = "Route (--mode mini)" if way is route else "Plan (the default mode)"
        return f"{advice}: {_difference(way, rival, proved[way.name])}.{_failures(ways)}"
    if proved[PLANNED].is_worse:
        figures = _difference(plan, rival, proved[PLANNED])
        return f"Ask one, {name}: with a plan, {figures}.{_failures(ways)}"
    cases = format_count(plan.versus_best.cases, "case")
    outlook = _outlook(plan.versus_best, proved[PLANNED], len(ways))
    return (
        f"Cannot say from {cases} whether a plan pays: {_difference(plan, rival, proved[PLANNED])}."
        f"{outlook}{_failures(ways)}"
    )


def _outlook(compared: Comparison, proved: ProvedDifference, comparisons: int) -> str:
    """Return a sentence about what would prove a difference; empty where nothing is known of it."""
    if proved.is_near_best:
        return f" But {NEAR_BEST_REASON}."
    needed = cases_needed(compared.difference, compared.unequal, comparisons=comparisons)
    if not needed or needed <= compared.cases:
        return ""
    return f" About {round_up(needed):,} would show it if it is as large as it looks here."


def _comparisons(ways: Sequence[SystemResult]) -> dict[str, Comparison]:
    return {way.name: way.versus_best for way in ways if way.versus_best is not None}


def _is_mostly_wrong(systems: Sequence[SystemResult]) -> bool:
    """Return whether each of them is right in less than half of such questions, surely."""
    intervals = [system.accuracy.interval for system in systems]
    return all(interval is not None and interval.high < 0.5 for interval in intervals)


def _difference(way: SystemResult, rival: str, proved: ProvedDifference) -> str:
    assert way.versus_best is not None
    low, high = way.versus_best.interval
    points = f"{100 * proved.difference:+.0f} points against {rival}"
    limits = f"95 % interval {100 * low:+.0f} to {100 * high:+.0f}"
    corrected = ""
    if proved.comparisons > 1:
        corrected = f" corrected for {proved.comparisons} comparisons"
    return f"{points} ({limits}, p {format_p(proved.p)}{corrected})"


def _say_refusal(way: SystemResult, best: SystemResult) -> str:
    """Say that what failed would turn the advice."""
    failed = f"{way.failed} of {one_line(way.name)}, {best.failed} of {one_line(best.name)}"
    return (
        f"Nothing can be said yet: runs failed ({failed}), and counted as wrong they would turn "
        "the advice. The same command runs them again."
    )


def _failures(ways: Sequence[SystemResult]) -> str:
    """Return a sentence about steps that failed by the ways' own doing; empty without any."""
    faults = describe_faults(ways)
    return f" {faults}" if faults else ""
