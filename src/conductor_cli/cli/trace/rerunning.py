"""`conductor trace rerun`: a stored run again, from one of its steps on; what came before is taken from its trace."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.trace.sharing import Run


def rerun(
    context: typer.Context,
    run: Run = "last",
    from_: Annotated[int, typer.Option("--from", metavar="N", min=1, help="The first step that is done again.")] = 1,
    worker: Annotated[
        str | None, typer.Option("--worker", metavar="NAME", help="Who does that step now, instead of who did it.")
    ] = None,
    conductor: opt.ConductorOption = None,
    allow: opt.Allow = None,
    deny: opt.Deny = None,
    local_only: opt.LocalOnly = False,
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
    no_trace: opt.NoTrace = False,
) -> None:
    """Run a stored plan again from step N on, as a new run; earlier steps are taken from the trace and not called."""
    from conductor_cli.cli.session import Session
    from conductor_cli.core.errors import UsageError
    from conductor_cli.core.rerun import reset_from_step

    flags = opt.limit_settings(
        steps=None, recursion=0, cost=max_cost, tokens=max_tokens, calls=max_calls, time=max_time
    )
    flags |= {"conductor.model": conductor, "conductor.gpu_layers": gpu_layers}
    flags |= opt.approval_setting(approve) | opt.policy_settings(allow, deny, local_only)
    flags |= {"output.progress": progress.value if progress else None, "output.brief": brief or None}
    session = Session(
        context.obj, opt.check_settings(flags), output=format_.value, keep=not no_trace, approved=approve is False
    )
    trace = session.store.ended(run)
    if not trace.steps:
        hint = f"conductor trace show {trace.run} shows what it has"
        raise UsageError(f"run {trace.run} has no steps to run again", hint=hint)
    again = reset_from_step(trace, from_, worker)
    raise typer.Exit(session.run(again.question, resume=again, seed=seed, needs=(worker,) if worker else ()))
