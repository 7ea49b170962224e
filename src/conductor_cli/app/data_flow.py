"""What a plan offers and who will read what by it; who read what in a stored run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from conductor_cli.core.data_flow import inputs_of_steps
from conductor_cli.core.data_policy import EVERYTHING
from conductor_cli.core.disclosures import Disclosure, disclosures_of, expected_disclosures, planning_disclosure
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import SELF, Plan
from conductor_cli.models.presets import recipient_of

if TYPE_CHECKING:
    from conductor_cli.core.pool import Limits, Pool
    from conductor_cli.run import Conductor, Run
    from conductor_cli.store.trace_store import TraceStore
    from conductor_cli.views import ColorName, OutputContext
    from conductor_cli.views.plan_offer import PlanOffer
    from conductor_cli.views.text_layout import Line, Screen


def describe_offer(run: Run) -> PlanOffer:
    """The plan of a run with all that a user decides by."""
    from conductor_cli.evals.cost import planner_estimate
    from conductor_cli.views.plan_offer import PlanOffer

    assert isinstance(run.trace.plan, Plan)
    setting = run.setting
    return PlanOffer(
        question=run.question, plan=run.trace.plan, pool=setting.pool, profile=setting.worker_profile,
        limits=setting.limits, recipients=_readers(setting.pool), spent=run.trace.planning,
        done=frozenset(run.trace.done()), planner=planner_estimate(cast("Conductor", setting), run.question),
    )  # fmt: skip


def planned_flow(run: Run) -> tuple[Disclosure, ...]:
    """Who will read what when the run's plan is run, its planning included."""
    assert isinstance(run.trace.plan, Plan)
    setting, steps = run.setting, run.trace.plan.steps
    recipients = _readers(setting.pool)
    sights = {
        name: replace(run.taint.sights.get(name, EVERYTHING), recipients=(who,)) for name, who in recipients.items()
    }
    # A step on the conductor itself may ask anybody.
    everybody = tuple(dict.fromkeys((setting.recipient, *recipients.values())))
    sights[SELF] = replace(run.taint.sights.get(SELF, EVERYTHING), recipients=everybody)
    first = [planning_disclosure(run.taint.seen_by_conductor(), setting.recipient)] if run.trace.planning.calls else []
    return (*first, *expected_disclosures(inputs_of_steps(steps, run.question, sights), run.question))


def flow_lines_of(run: Run, screen: Screen) -> list[Line]:
    """The same as lines, and who else may come to read it."""
    from conductor_cli.views.data_flow_text import flow_lines, stand_in_lines
    from conductor_cli.views.text_layout import BLANK

    recipients = [] if len(run.setting.pool) == 1 else _readers(run.setting.pool).values()
    return [
        *flow_lines(planned_flow(run), screen),
        *([BLANK, *stand_in_lines(recipients, screen)] if recipients else []),
    ]


def print_plan(run: Run, limits: Limits, around: OutputContext, *, flow: bool) -> None:
    """Print a plan: for a person on a terminal, else as a file on stdout, with what a person wants on stderr."""
    from conductor_cli.cli.output import print_line
    from conductor_cli.core.plan_file import format_plan_file
    from conductor_cli.views.base import Stderr, Stdout
    from conductor_cli.views.plan_offer import plan_lines
    from conductor_cli.views.printer import Printer
    from conductor_cli.views.text_layout import BLANK

    assert isinstance(run.trace.plan, Plan)
    out = Stdout(around.stdout)
    if not out.terminal:
        print_line(format_plan_file(run.question, run.trace.plan, limits))
        if around.quiet and not flow:
            return
    printer = Printer(out if out.terminal else Stderr(around.stderr), around)
    screen = printer.screen
    printer.print(plan_lines(replace(describe_offer(run), limits=limits), screen))
    if flow:
        printer.print([BLANK, *flow_lines_of(run, screen)])
    if out.terminal:
        again = [f"run it: conductor ask --resume {run.id}"] if around.kept else []
        words = [*again, "as a file, to edit: conductor plan … > plan.json"]
        printer.print([BLANK, *(((screen.line(line), "quiet"),) for line in words)])


def print_stored_flow(store: TraceStore, run: str, step: int | None, *, color: ColorName | None, json: bool) -> None:
    """Print who read what in a stored run, or for one step of it. Raises `UsageError` for one that was never begun."""
    from conductor_cli.cli.output import print_json
    from conductor_cli.views import OutputContext
    from conductor_cli.views.base import Stdout
    from conductor_cli.views.data_flow_text import flow_json, flow_lines
    from conductor_cli.views.printer import Printer

    sent = [call for call in disclosures_of(store.events(run), recipient_of) if step in (None, call.step[0])]
    if step is not None and not sent:
        raise UsageError(f"nobody was sent anything for a step {step} of run {run}", hint="leave --step out")
    if json:
        print_json({"run": run, "recipients": flow_json(sent)})
        return
    around = OutputContext(stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=color or "auto")
    printer = Printer(Stdout(sys.stdout), around)
    printer.print(flow_lines(sent, printer.screen))


def _readers(pool: Pool) -> Mapping[str, str]:
    return {worker.name: recipient_of(worker) for worker in pool}
