"""`conductor chat`: a conversation at the terminal. Also what `conductor` alone is, on one."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.chat_banner import is_interactive
from conductor_cli.cli.chat_loop import run_chat
from conductor_cli.cli.chat_session import ChatSession
from conductor_cli.cli.memory import memory_context
from conductor_cli.core.errors import UsageError


@opt.with_options(omit=("format",))
def chat_command(
    context: typer.Context,
    options: opt.RunOptions,
    file: opt.Files = None,
    clipboard: opt.Clipboard = False,
    memory: opt.Memory = None,
    system: opt.System = None,
    model: opt.PlainModel = None,
    name: Annotated[
        str | None,
        opt.option("--name", "Go on with the conversation of this name, or begin it.", "NAME"),
    ] = None,
    continued: opt.Continue = False,
    continue_from: opt.ContinueFrom = None,
) -> None:
    """Hold a conversation: each question knows the ones before.

    Slash commands change and show the rest.
    """
    if not is_interactive():
        raise UsageError(
            "a chat needs a terminal",
            hint='without one: conductor ask "…", then conductor ask -c "…"',
        )
    opened = ChatSession(
        context.obj, options, only=options.worker_names, system=system or "", model=model
    )
    for path in opt.with_clipboard(file, clipboard):
        opened.files += opened.session.attacher.attach_all(path)
    opened.memory = memory_context(opened.session, memory)
    earlier_run = opt.run_to_continue(continued, continue_from)
    if earlier_run:
        opened.continue_run(opened.session.read_ended(earlier_run))
    if name is not None:
        opened.use_name(name)
    # No question could be answered, and no command of the chat would help, so it does not begin.
    if options.workers or options.allow or options.deny or model:
        # The prompt of other chats comes first
        from conductor_cli.app.worker_selection import check_choice

        check_choice(opened.session.settings, options.worker_names)
    raise typer.Exit(run_chat(lambda: opened, quiet=context.obj.quiet, rehearsal=options.rehearsal))
