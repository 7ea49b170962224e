"""`conductor try`.

A few questions, the best worker alone against a plan, and one sentence of advice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from conductor_cli.app.evaluation import EvaluationRequest, load_cases, sample_cases
from conductor_cli.app.rehearsal import NAME as REHEARSAL
from conductor_cli.app.worker_selection import discovered_workers, offered_workers
from conductor_cli.cli import options as opt
from conductor_cli.cli.eval import run_evaluation
from conductor_cli.cli.output import print_line, print_notice, print_table, print_text
from conductor_cli.core.errors import PolicyError
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.evals.cases import EVERYDAY
from conductor_cli.evals.report import system_table
from conductor_cli.evals.summary import Summary, SystemResult, cases_needed, round_up, summarize
from conductor_cli.evals.systems import ALONE, BEST_WORKER

PLAN: Final = "conductor"
ROUTE: Final = "conductor-mini"
MAX_ALONE: Final = 5  # Workers that are each asked alone; of more, only the best by its card is
MAX_COST: Final = "0.50"


def try_command(
    context: typer.Context,
    cases: Annotated[
        str | None, opt.argument("CASES.jsonl", "Your own cases; else questions that ship.")
    ] = None,
    count: Annotated[int, opt.option("--n", "Number of cases.", "N", min=2)] = 12,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    conductor: opt.ConductorOption = None,
    max_cost: Annotated[
        str | None,
        opt.option(
            "--max-cost",
            f"Maximum cost of all runs. Default: {MAX_COST}, if prices are known.",
            "USD",
        ),
    ] = None,
    rehearsal: Annotated[
        bool, opt.option("--rehearsal", "Simulate it with the demo models, on their own questions.")
    ] = False,
    yes: opt.YesToCost = False,
) -> None:
    """Find out on a few questions whether a plan pays.

    Your best worker alone, one chosen worker, and a plan.
    """
    settings = opt.stored_settings(context, {"conductor.model": conductor, "conductor.pool": pool})
    if rehearsal:
        source = REHEARSAL
        limit = None
    else:
        source = cases or EVERYDAY
        limit = opt.parse_cost(max_cost or MAX_COST)
    name, all_cases = load_cases(source, file=None, count=None, seed=0)
    names = opt.parse_names(workers)
    settings = replace(settings, rehearsal=rehearsal)
    offered = names or offered_workers(settings) or discovered_workers(settings)
    alone = ALONE
    if len(offered) > MAX_ALONE and not rehearsal:
        alone = BEST_WORKER
    request = EvaluationRequest(
        source=name,
        cases=sample_cases(all_cases, min(count, len(all_cases)), 0),
        workers=names,
        systems=f"{alone},{ROUTE},{PLAN}",
        max_cost=limit,
    )
    quiet = context.obj.quiet
    try:
        stored, code = run_evaluation(request, settings, yes=yes, quiet=quiet)
    except PolicyError as error:
        # A price is not known, or a policy forbids it, which is then said again
        if max_cost is not None:
            raise
        print_notice(error.message)
        stored, code = run_evaluation(
            replace(request, max_cost=None), settings, yes=yes, quiet=quiet
        )
    if stored is None:
        raise typer.Exit(code)
    if rehearsal:
        print_text(
            "A simulation: tiny demo models on made-up questions. It says nothing about your "
            "workers."
        )
    _print_summary(summarize(stored.outcomes(), stored.spec.systems), len(request.cases), name)
    raise typer.Exit(code)


def _print_summary(summary: Summary, cases: int, source: str) -> None:
    total = sum((system.total for system in summary.systems), NO_USAGE)
    print_text(f"{format_count(cases, 'question')} of {source}, {format_cost(total)} in all")
    print_line()
    names = (summary.best_worker, ROUTE, PLAN)
    shown = tuple(system for system in summary.systems if system.name in names)
    print_table(*system_table(summary._replace(systems=shown)))
    print_line()
    print_text(advise(summary))
    print_text(
        "conductor is a plan, conductor-mini one worker that it chose; all figures: conductor eval "
        "--show last"
    )


def advise(summary: Summary) -> str:
    """Return one sentence, or two: what to do, and what that rests on.

    Planning, or routing, is advised only where the whole 95 % interval of its difference to the
    best single worker is above zero. Where the interval includes zero, the cases cannot say.
    """
    systems = {system.name: system for system in summary.systems}
    best = systems.get(summary.best_worker)
    plan = systems[PLAN]
    route = systems[ROUTE]
    compared = plan.versus_best
    if best is None or compared is None:
        return (
            "Nothing can be said: too few questions were answered. conductor workers test says why."
        )
    name = one_line(best.name.removeprefix(f"{ALONE}:"))
    if name == BEST_WORKER:
        name = "the best worker by its card"

    def difference(way: SystemResult) -> str:
        assert way.versus_best is not None
        low, high = way.versus_best.interval
        points = f"{100 * way.versus_best.difference:+.0f} points against {name}"
        return f"{points} (95 % interval {100 * low:+.0f} to {100 * high:+.0f})"

    if plan.valid_plans is not None and not plan.valid_plans.right:
        return f"Ask one, {name}, or let another model plan: this planner never wrote a valid plan."
    better = [
        way
        for way in (plan, route)
        if way.versus_best is not None and way.versus_best.interval.low > 0
    ]
    if better:
        # Of two that are as good the cheaper one, which asks one worker.
        way = max(better, key=lambda system: (system.accuracy.accuracy or 0, system is route))
        advice = "Plan (the default mode)"
        if way is route:
            advice = "Route (--mode mini)"
        return f"{advice}: {difference(way)}."
    if compared.interval.high < 0:
        return f"Ask one, {name}: with a plan, {difference(plan)}."
    cases = format_count(compared.cases, "case")
    advice = (
        f"Cannot say from {cases} whether a plan pays: {difference(plan)}, which includes zero."
    )
    needed = cases_needed(compared.difference, compared.unequal)
    if needed:
        advice += f" About {round_up(needed):,} would show a difference of this size."
    return advice
