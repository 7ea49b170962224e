"""`conductor run`: run a plan from a file or a pipe, edited by hand or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError


def run(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="PLAN.json|-", help="A plan file; - reads it from stdin.")] = "-",
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    conductor: opt.ConductorOption = None,
    allow: opt.Allow = None,
    deny: opt.Deny = None,
    local_only: opt.LocalOnly = False,
    recursion: opt.Recursion = None,
    max_cost: opt.MaxCost = None,
    max_tokens: opt.MaxTokens = None,
    max_calls: opt.MaxCalls = None,
    max_time: opt.MaxTime = None,
    seed: opt.Seed = None,
    gpu_layers: opt.GpuLayers = None,
    approve: opt.Approve = None,
    format_: opt.FormatOption = opt.Format.answer,
    progress: opt.ProgressOption = None,
    brief: opt.Brief = False,
    rehearsal: opt.Rehearsal = False,
    no_trace: opt.NoTrace = False,
) -> None:
    """Run a plan from a file or a pipe, as conductor plan wrote it or edited."""
    from conductor_cli.cli.session import Session
    from conductor_cli.core.plan_file import parse_plan_file

    only = opt.parse_names(workers)
    source = "stdin" if file == "-" else file
    planned = parse_plan_file(_text(file), source)
    if not planned.question.text.strip():
        raise UsageError(f"{source} is no plan: its question is empty", hint="conductor plan writes one")
    flags = opt.limit_settings(
        steps=None, recursion=recursion, cost=max_cost, tokens=max_tokens, calls=max_calls, time=max_time
    )
    flags |= {"conductor.model": conductor, "conductor.gpu_layers": gpu_layers, "conductor.pool": pool}
    flags |= opt.approval_setting(approve)
    flags |= opt.policy_settings(allow, deny, local_only)
    flags |= {"output.progress": progress.value if progress else None, "output.brief": brief or None}
    flags = opt.check_settings(planned.limits, source) | opt.check_settings(flags)
    session = Session(
        context.obj, flags, output=format_.value, keep=not no_trace, rehearsal=rehearsal, approved=approve is False
    )
    raise typer.Exit(session.run(planned.question, only=only, plan=planned.plan, seed=seed))


def _text(file: str) -> str:
    from conductor_cli.cli.question_input import LARGEST, decode_text

    if file == "-":
        if sys.stdin.isatty():
            raise UsageError("no plan comes on stdin", hint='conductor plan "…" | conductor run -')
        return decode_text(sys.stdin.buffer.read(LARGEST + 1), "stdin")
    try:
        with Path(file).open("rb") as opened:
            return decode_text(opened.read(LARGEST + 1), file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint="name a plan file, or - for stdin") from None
