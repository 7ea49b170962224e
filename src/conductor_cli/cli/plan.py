"""`conductor plan`: print a plan and what it may cost, or write it as a file. Only the conductor model is called."""

from __future__ import annotations

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.plan_output import print_plan
from conductor_cli.cli.question_input import build_question
from conductor_cli.cli.session import Session
from conductor_cli.core.plan import Plan

NOT_WHILE_PLANNING = (
    "recursion", "max_cost", "max_tokens", "max_calls", "max_time", "approve", "format",
)  # fmt: skip
"""Options that say something about running a plan."""


@opt.with_run_options(omit=NOT_WHILE_PLANNING)
def plan(
    context: typer.Context,
    options: opt.RunOptions,
    question: opt.Words = None,
    file: opt.Files = None,
    fetch: opt.Fetch = None,
    system: opt.System = None,
    flow: opt.Flow = False,
) -> None:
    """Plan a question: print the plan and its estimated cost, or write the plan for conductor run to a file or pipe."""
    only = options.worker_names
    session = Session(context.obj, options)
    asked = build_question(question or (), file or (), system, None, None, session.attacher, fetch or ())
    result = session.plan(asked, only=only)
    if not isinstance(result.run.trace.plan, Plan) or result.exit_code != 0:
        raise typer.Exit(result.exit_code or 1)
    print_plan(result.run, session.settings.limits, session.output_context, flow=flow)
