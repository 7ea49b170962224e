"""Printing a plan, and which model reads what."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from conductor_cli.app.data_flow import describe_offer, planned_flow, recipients_of, stored_flow
from conductor_cli.cli.output import print_json, print_line
from conductor_cli.core.plan import Plan
from conductor_cli.core.plan_file import format_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views import ColorName, OutputContext
from conductor_cli.views.base import Stderr, Stdout
from conductor_cli.views.console import Printer
from conductor_cli.views.data_flow_text import flow_json, flow_lines, stand_in_lines
from conductor_cli.views.plan_offer import plan_lines
from conductor_cli.views.text_layout import BLANK, Line, Screen

if TYPE_CHECKING:
    from conductor_cli.run import Run


def print_plan(run: Run, limits: Limits, context: OutputContext, *, flow: bool) -> None:
    """Print a plan: on a terminal for a person; else as a file on stdout, with its description on stderr."""
    assert isinstance(run.trace.plan, Plan)
    out = Stdout(context.stdout)
    if not out.terminal:
        print_line(format_plan_file(run.question, run.trace.plan, limits))
        if context.quiet and not flow:
            return
    printer = Printer(out if out.terminal else Stderr(context.stderr), context)
    screen = printer.screen
    printer.print(plan_lines(replace(describe_offer(run), limits=limits), screen))
    if flow:
        printer.print([BLANK, *planned_flow_lines(run, screen)])
    if out.terminal:
        hints = [f"run it: conductor ask --resume {run.id}"] if context.stored and run.trace.stored else []
        hints.append("to edit it as a file: conductor plan … > plan.json")
        printer.print([BLANK, *(((screen.line(hint), "quiet"),) for hint in hints)])


def planned_flow_lines(run: Run, screen: Screen) -> list[Line]:
    """Which model will read what when the run's plan is run, and which others may come to read it."""
    lines = flow_lines(planned_flow(run), screen)
    pool = run.config.pool
    return lines if len(pool) == 1 else [*lines, BLANK, *stand_in_lines(recipients_of(pool).values(), screen)]


def print_stored_flow(store: TraceStore, run: str, step: int | None, *, color: ColorName | None, json: bool) -> None:
    """Print which model read what in a stored run, or for one step of it. Raises `UsageError`."""
    sent = stored_flow(store, run, step)
    if json:
        print_json({"run": run, "recipients": flow_json(sent)})
        return
    context = OutputContext(stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=color or "auto")
    printer = Printer(Stdout(sys.stdout), context)
    printer.print(flow_lines(sent, printer.screen))
