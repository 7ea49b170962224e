"""`conductor run`: run a plan from a file or a pipe, edited by hand or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.question_input import read_text, read_text_file
from conductor_cli.cli.session import Session
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan_file import parse_plan_file


@opt.with_run_options(omit=("mode", "max_steps", "adapter"))
def run(
    context: typer.Context,
    options: opt.RunOptions,
    file: Annotated[str, typer.Argument(metavar="PLAN.json|-", help="A plan file; - reads it from stdin.")] = "-",
) -> None:
    """Run a plan from a file or a pipe, as conductor plan wrote it or edited."""
    only = options.worker_names
    source = "stdin" if file == "-" else file
    planned = parse_plan_file(_read_plan_text(file), source)
    if not planned.question.text.strip():
        raise UsageError(f"{source} is not a plan: its question is empty", hint="conductor plan writes one")
    session = Session(context.obj, options, opt.check_settings(planned.limits, source) | options.settings())
    raise typer.Exit(session.run(planned.question, only=only, plan=planned.plan))


def _read_plan_text(file: str) -> str:
    if file != "-":
        return read_text_file(Path(file), hint="name a plan file, or - for stdin")
    if sys.stdin.isatty():
        raise UsageError("no plan was piped to stdin", hint='conductor plan "…" | conductor run -')
    return read_text(sys.stdin.buffer, "stdin")
