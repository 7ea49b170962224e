"""`conductor ask`: one question, planned, run, shown and stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError

Continued = Annotated[
    str | None,
    typer.Option("--continue", "-c", metavar="[ID]", help="Continue the last run, or run ID, as a conversation."),
]
Resume = Annotated[
    str | None,
    typer.Option("--resume", metavar="ID", help="Finish a run that was stopped; only what is missing is called."),
]
Schema = Annotated[
    Path | None,
    typer.Option("--schema", metavar="FILE", help="JSON Schema for the answer; one that is no JSON exits 7."),
]


def ask(
    context: typer.Context,
    question: opt.Words = None,
    file: opt.Files = None,
    system: opt.System = None,
    continued: Continued = None,
    resume: Resume = None,
    mode: opt.ModeOption = None,
    workers: opt.WorkersOption = None,
    pool: opt.PoolOption = None,
    conductor: opt.ConductorOption = None,
    allow: opt.Allow = None,
    deny: opt.Deny = None,
    local_only: opt.LocalOnly = False,
    max_steps: opt.MaxSteps = None,
    recursion: opt.Recursion = None,
    max_cost: opt.MaxCost = None,
    max_tokens: opt.MaxTokens = None,
    max_calls: opt.MaxCalls = None,
    max_time: opt.MaxTime = None,
    schema: Schema = None,
    seed: opt.Seed = None,
    gpu_layers: opt.GpuLayers = None,
    adapter: opt.Adapter = None,
    approve: opt.Approve = None,
    format_: opt.FormatOption = opt.Format.answer,
    progress: opt.ProgressOption = None,
    brief: opt.Brief = False,
    rehearsal: opt.Rehearsal = False,
    no_trace: opt.NoTrace = False,
) -> None:
    """Ask a question: plan it, run the plan over the workers, print the answer."""
    from conductor_cli.cli.question_input import build_question
    from conductor_cli.cli.session import Session

    flags = opt.limit_settings(
        steps=max_steps, recursion=recursion, cost=max_cost, tokens=max_tokens, calls=max_calls, time=max_time
    )
    flags |= {"conductor.model": conductor, "conductor.gpu_layers": gpu_layers, "conductor.adapter": adapter}
    flags |= {"conductor.mode": mode.value if mode else None, "conductor.pool": pool}
    flags |= opt.approval_setting(approve)
    flags |= opt.policy_settings(allow, deny, local_only)
    flags |= {"output.progress": progress.value if progress else None, "output.brief": brief or None}
    if resume is not None and (question or file or system or schema or continued):
        raise UsageError("--resume takes no question: it finishes the stored one", hint="use --continue to ask on")
    only = opt.parse_names(workers)
    session = Session(
        context.obj, opt.check_settings(flags), output=format_.value, keep=not no_trace, rehearsal=rehearsal,
        approved=approve is False,
    )  # fmt: skip
    earlier = session.store.ended(resume) if resume is not None else None
    if earlier is not None:
        asked = earlier.question
    else:
        before = session.store.ended(continued) if continued is not None else None
        if before is not None:
            session.hold(before)
        asked = build_question(question or (), file or (), system, schema, before)
    raise typer.Exit(session.run(asked, only=only, resume=earlier, seed=seed))
