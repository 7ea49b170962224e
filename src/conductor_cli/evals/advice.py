"""What a first evaluation of few cases says to do: plan, route, or ask one worker. Pure."""

from __future__ import annotations

from typing import Final

from conductor_cli.core.formatting import format_count
from conductor_cli.core.terminal_text import one_line
from conductor_cli.evals.summary import Summary, SystemResult, cases_needed, round_up
from conductor_cli.evals.systems import ALONE, BEST_WORKER

PLAN: Final = "conductor"
ROUTE: Final = "conductor-mini"


def advise(summary: Summary) -> str:
    """Return one sentence, or two: what to do, and what that rests on.

    Planning, or routing, is advised only where the whole 95 % interval of its difference to the best single worker is
    above zero. Where the interval includes zero, the cases cannot say.
    """
    found = {system.name: system for system in summary.systems}
    best, plan, route = found.get(summary.best_worker), found[PLAN], found[ROUTE]
    compared = plan.versus_best
    if best is None or compared is None:
        return "Nothing can be said: too few questions were answered. conductor workers test says why."
    if plan.valid_plans is not None and not plan.valid_plans.right:
        return f"Ask one, {_name(best)}, or let another model plan: this planner never wrote a valid plan."
    better = [way for way in (plan, route) if way.versus_best is not None and way.versus_best.interval.low > 0]
    if better:
        # Of two that are as good the cheaper one, which asks one worker.
        way = max(better, key=lambda each: (each.accuracy.accuracy or 0, each is route))
        advice = "Route (--mode mini)" if way is route else "Plan (the default mode)"
        return f"{advice}: {_difference(way, best)}."
    if compared.interval.high < 0:
        return f"Ask one, {_name(best)}: with a plan, {_difference(plan, best)}."
    cases = format_count(compared.cases, "case")
    needed = cases_needed(compared.difference, compared.unequal)
    more = f" About {round_up(needed):,} would show a difference of this size." if needed else ""
    return f"Cannot say from {cases} whether a plan pays: {_difference(plan, best)}, which includes zero.{more}"


def _difference(way: SystemResult, best: SystemResult) -> str:
    assert way.versus_best is not None
    low, high = way.versus_best.interval
    return (
        f"{100 * way.versus_best.difference:+.0f} points against {_name(best)} "
        f"(95 % interval {100 * low:+.0f} to {100 * high:+.0f})"
    )


def _name(system: SystemResult) -> str:
    name = system.name.removeprefix(f"{ALONE}:")
    return "the best worker by its card" if name == BEST_WORKER else one_line(name)


def shown_ways(summary: Summary) -> Summary:
    """Return the best worker alone, routing and planning, without the other workers."""
    names = (summary.best_worker, ROUTE, PLAN)
    return summary._replace(systems=tuple(system for system in summary.systems if system.name in names))
