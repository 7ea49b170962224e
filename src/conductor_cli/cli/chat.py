"""`conductor chat`: a conversation at the terminal. Also what `conductor` alone is, on one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import UsageError
from conductor_cli.greeting import hello, is_possible

if TYPE_CHECKING:
    from conductor_cli.cli.options import Globals
    from conductor_cli.cli.repl.desk import Desk

Continued = Annotated[
    str | None,
    typer.Option("--continue", "-c", metavar="[ID]", help="Go on with the conversation of the last run, or of run ID."),
]


def chat(
    context: typer.Context,
    file: opt.Files = None,
    system: opt.System = None,
    continued: Continued = None,
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
    seed: opt.Seed = None,
    gpu_layers: opt.GpuLayers = None,
    adapter: opt.Adapter = None,
    approve: opt.Approve = None,
    progress: opt.ProgressOption = None,
    brief: opt.Brief = False,
    rehearsal: opt.Rehearsal = False,
    no_trace: opt.NoTrace = False,
) -> None:
    """Talk: one question after the other, each knows the ones before. Slash commands change and show the rest."""
    if not is_possible():
        raise UsageError("a chat needs a terminal", hint='without one: conductor ask "…", then conductor ask -c "…"')
    flags = opt.limit_flags(
        steps=max_steps, recursion=recursion, cost=max_cost, tokens=max_tokens, calls=max_calls, time=max_time
    )
    flags |= {"conductor.model": conductor, "conductor.gpu_layers": gpu_layers, "conductor.adapter": adapter}
    flags |= {"conductor.mode": mode.value if mode else None, "conductor.pool": pool}
    flags |= opt.approval(approve)
    flags |= opt.policy_flags(allow, deny, local_only)
    flags |= {"output.progress": progress.value if progress else None, "output.brief": brief or None}
    only = opt.names_of(workers)

    def make() -> Desk:
        from conductor_cli.cli.asking import file_at
        from conductor_cli.cli.repl.desk import Desk

        desk = Desk(
            context.obj, opt.checked(flags), only=only, system=system or "", keep=not no_trace, rehearsal=rehearsal,
            approved=approve is False, seed=seed,
        )  # fmt: skip
        desk.files += [file_at(path) for path in file or ()]
        if continued is not None:
            desk.go_on(desk.session.store.trace(desk.session.store.find(continued)))
        return desk

    raise typer.Exit(_talk(make, context.obj, rehearsal=rehearsal, kept=not no_trace))


def begin(options: Globals) -> int:
    """A chat without any option of its own; returns the exit code."""

    def make() -> Desk:
        from conductor_cli.cli.repl.desk import Desk

        return Desk(options, {})

    return _talk(make, options)


def _talk(make: Callable[[], Desk], options: Globals, *, rehearsal: bool = False, kept: bool = True) -> int:
    from conductor_cli.cli.output import remark
    from conductor_cli.cli.repl.talk import talk

    if not (options.quiet or options.greeted):
        remark(hello(rehearsal=rehearsal).rstrip())
    return talk(make, _state() if kept else None, quiet=options.quiet)


def _state() -> Path:
    """Where the state of this program is; where that is known without it, the settings are not loaded for it."""
    if sys.platform == "linux":
        from conductor_cli.store.quick import state_directory

        return Path(state_directory(os.environ))
    from conductor_cli.config import places

    return places(os.environ).state
