"""`conductor ask`: one question, planned, run, shown and stored."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError
from conductor_cli.core.trace import Trace


def ask(
    context: typer.Context,
    question: opt.Words = None,
    file: opt.Files = None,
    system: opt.System = None,
    continued: Annotated[str | None, typer.Option("--continue", "-c", metavar="[ID]", help="Continue the last run, or run ID, as a conversation.")] = None,
    resume: Annotated[str | None, typer.Option("--resume", metavar="ID", help="Finish a run that was stopped; only what is missing is called.")] = None,
    mode: opt.ModeOption = None,
    workers: opt.WorkersOption = None,
    conductor: opt.ConductorOption = None,
    max_steps: opt.MaxSteps = None,
    recursion: opt.Recursion = None,
    max_cost: opt.MaxCost = None,
    max_tokens: opt.MaxTokens = None,
    max_calls: opt.MaxCalls = None,
    max_time: opt.MaxTime = None,
    schema: Annotated[Path | None, typer.Option("--schema", metavar="FILE", help="JSON Schema that the answer should follow.")] = None,
    seed: opt.Seed = None,
    gpu_layers: opt.GpuLayers = None,
    format_: opt.FormatOption = opt.Format.answer,
    progress: opt.ProgressOption = None,
    no_trace: opt.NoTrace = False,
) -> None:
    """Ask a question: plan it, run the plan over the workers, print the answer."""
    from conductor_cli.cli.asking import question_from  # noqa: PLC0415
    from conductor_cli.cli.session import Session  # noqa: PLC0415

    flags = opt.limit_flags(
        steps=max_steps, recursion=recursion, cost=max_cost, tokens=max_tokens, calls=max_calls, time=max_time
    )
    flags |= {"conductor.model": conductor, "conductor.gpu_layers": gpu_layers}
    flags |= {"conductor.mode": mode.value if mode else None}
    flags |= {"limits.recursion": 1} if mode is opt.Mode.ultra and recursion is None else {}
    flags |= {"output.progress": progress.value if progress else None}
    session = Session(context.obj, flags, output=format_.value, keep=not no_trace)
    earlier = _earlier(session, resume)
    if earlier is not None and (question or file):
        raise UsageError("--resume takes no question: it finishes the stored one", hint="use --continue to ask on")
    if earlier is not None:
        asked = earlier.question
    else:
        asked = question_from(question or (), file or (), system, schema, _earlier(session, continued))
    only = tuple(name.strip() for name in workers.split(",") if name.strip()) if workers is not None else ()
    raise typer.Exit(session.run(asked, only=only, resume=earlier, seed=seed))


def _earlier(session: object, name: str | None) -> Trace | None:
    from conductor_cli.cli.session import Session  # noqa: PLC0415

    if name is None or not isinstance(session, Session):
        return None
    return session.store.trace(session.store.find(name))
