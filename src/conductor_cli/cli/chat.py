"""`conductor chat`: a conversation at the terminal. Also what `conductor` alone is, on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.chat_banner import is_interactive
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.cli.repl.chat_session import ChatSession

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
    if not is_interactive():
        raise UsageError("a chat needs a terminal", hint='without one: conductor ask "…", then conductor ask -c "…"')
    flags = opt.limit_settings(
        steps=max_steps, recursion=recursion, cost=max_cost, tokens=max_tokens, calls=max_calls, time=max_time
    )
    flags |= {"conductor.model": conductor, "conductor.gpu_layers": gpu_layers, "conductor.adapter": adapter}
    flags |= {"conductor.mode": mode.value if mode else None, "conductor.pool": pool}
    flags |= opt.approval_setting(approve)
    flags |= opt.policy_settings(allow, deny, local_only)
    flags |= {"output.progress": progress.value if progress else None, "output.brief": brief or None}
    only = opt.parse_names(workers)

    def make() -> ChatSession:
        from conductor_cli.cli.question_input import read_attachment
        from conductor_cli.cli.repl.chat_session import ChatSession

        desk = ChatSession(
            context.obj, opt.check_settings(flags), only=only, system=system or "", keep=not no_trace,
            rehearsal=rehearsal, approved=approve is False, seed=seed,
        )  # fmt: skip
        desk.files += [read_attachment(path) for path in file or ()]
        if continued is not None:
            desk.go_on(desk.session.store.ended(continued))
        return desk

    from conductor_cli.cli.repl.loop import run_chat

    raise typer.Exit(run_chat(make, rehearsal=rehearsal, kept=not no_trace, quiet=context.obj.quiet))
