"""`conductor chat`: a conversation at the terminal. Also what `conductor` alone is, on one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.chat_banner import is_interactive
from conductor_cli.cli.repl.loop import run_chat
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.cli.repl.chat_session import ChatSession

Continued = Annotated[
    str | None,
    typer.Option("--continue", "-c", metavar="[ID]", help="Continue the conversation of the last run, or of run ID."),
]


@opt.with_run_options(omit=("format",))
def chat(
    context: typer.Context,
    options: opt.RunOptions,
    file: opt.Files = None,
    system: opt.System = None,
    continued: Continued = None,
) -> None:
    """Hold a conversation: each question knows the ones before. Slash commands change and show the rest."""
    if not is_interactive():
        raise UsageError("a chat needs a terminal", hint='without one: conductor ask "…", then conductor ask -c "…"')
    only = options.worker_names

    def make() -> ChatSession:
        # Loaded on a thread while the prompt is already there.
        from conductor_cli.cli.question_input import read_attachment
        from conductor_cli.cli.repl.chat_session import ChatSession

        session = ChatSession(context.obj, options, only=only, system=system or "")
        session.files += [read_attachment(path) for path in file or ()]
        if continued is not None:
            session.continue_run(session.session.store.ended(continued))
        return session

    quiet = context.obj.quiet
    raise typer.Exit(run_chat(make, rehearsal=options.rehearsal, kept=not options.no_trace, quiet=quiet))
