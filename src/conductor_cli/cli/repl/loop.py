"""The chat itself: one message after the other, each a question or a command, until the person leaves.

The prompt comes first. What a run needs is loaded meanwhile on a thread, and then the conductor's model.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.chat_banner import banner
from conductor_cli.cli.keypress import end_on_ctrl_d, keep_typed_text
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.cli.repl.history import history_directory
from conductor_cli.cli.repl.prompt import ChatEnded, Prompt
from conductor_cli.cli.signals import default_signals, handle_signal, on_signal
from conductor_cli.core.errors import ConductorError

if TYPE_CHECKING:
    from conductor_cli.cli.options import GlobalOptions
    from conductor_cli.cli.repl.chat_session import ChatSession

# The modules that are imported inside functions here take a fifth of a second together. The prompt is there before
# they are, and they are loaded while the first message is typed.

PATIENCE: Final = 0.3
"""Seconds of waiting for the conductor before a notice says so."""

LEAVING: Final = frozenset({"exit", "quit"})
"""Messages that end the chat, like Ctrl-D."""


def start_chat(options: GlobalOptions | None = None, *, rehearsal: bool = False) -> int:
    """Run a chat without options of its own; returns the exit code. None: its banner is printed already."""

    def make() -> ChatSession:
        from conductor_cli.cli.options import GlobalOptions, RunOptions
        from conductor_cli.cli.repl.chat_session import ChatSession

        return ChatSession(options or GlobalOptions(), RunOptions(rehearsal=rehearsal))

    return run_chat(make, rehearsal=rehearsal, quiet=options is not None and options.quiet, greeted=options is None)


def run_chat(
    make: Callable[[], ChatSession],
    *,
    rehearsal: bool = False,
    kept: bool = True,
    quiet: bool = False,
    greeted: bool = False,
) -> int:
    """Run a chat until the person leaves; returns the exit code. Raises what `make` raises, after the prompt is there.

    `kept`: what is typed goes into the history file. `greeted`: the banner is printed already.
    """
    if not (quiet or greeted):
        print_notice(banner(rehearsal=rehearsal).rstrip())
    with default_signals(), keep_typed_text():
        return asyncio.run(_read_messages(make, history_directory() if kept else None, quiet=quiet))


async def _read_messages(make: Callable[[], ChatSession], history: Path | None, *, quiet: bool) -> int:
    prompt = Prompt(history)
    opening = asyncio.create_task(_open_chat(prompt, make, quiet=quiet))
    text: str | None = None
    try:
        while True:
            if opening.done():
                opening.result()  # raises what was wrong before the prompt was shown
            message = await prompt.read(text or "", editor=text is not None)
            text = await _handle(await opening, prompt, message, quiet=quiet)
            if text is None:
                print_notice("")
    except ChatEnded as ended:
        return ended.code
    finally:
        if opening.done() and opening.exception() is None:
            await opening.result().close()
        else:
            opening.cancel()


async def _open_chat(prompt: Prompt, make: Callable[[], ChatSession], *, quiet: bool) -> ChatSession:
    """Make the chat and start loading its model. What is wrong with a command line or a file ends the chat."""

    def load() -> tuple[ChatSession, bool]:
        from conductor_cli.app.planner_resolution import has_no_model
        from conductor_cli.cli.repl.completer import SlashCompleter

        chat = make()
        prompt.completer = SlashCompleter(chat)
        return chat, chat.rehearsal or not has_no_model(chat.session.settings)

    try:
        chat, has_model = await asyncio.to_thread(load)
    except Exception as error:
        prompt.leave(error)
        raise
    chat.changed = prompt.refresh
    chat.failed = lambda error: prompt.above(lambda: print_error(error))
    prompt.chat = chat
    if not chat.session.stores_traces:
        prompt.forget()
    if chat.turns and not quiet:
        from conductor_cli.cli.repl.display import describe_conversation

        notice = f"continuing run {chat.turns[-1].run}: {describe_conversation(chat.turns)}"
        prompt.above(lambda: print_notice(notice))
    if has_model:
        chat.begin()
    prompt.refresh()
    return chat


async def _handle(chat: ChatSession, prompt: Prompt, message: str, *, quiet: bool) -> str | None:
    """Do what a message asks for. Returns a text for the person to edit next, None for none."""
    from conductor_cli.cli.repl.commands import find_command, run_command
    from conductor_cli.cli.repl.display import print_how_to_finish
    from conductor_cli.views import choose_progress

    if message.strip() in LEAVING:
        raise ChatEnded
    # The live tree shows a question of one line itself.
    progress = choose_progress("answer", chat.session.settings["output.progress"], chat.session.output_context)
    echoed = message.startswith("/") or "\n" in message.strip() or progress != "tree"
    if echoed:
        prompt.echo(message.strip())
    text, before = None, len(chat.runs)
    # What is typed during a run is hidden, so that it does not disturb the display, unless the run asks for approval.
    typing = nullcontext() if chat.session.approves else keep_typed_text(echo=False)
    try:
        found = find_command(message)
        if found is not None:
            with typing:
                text = await run_command(chat, *found)
        else:
            if chat.conductor is None and not chat.rehearsal and not _offer_model(chat, quiet=quiet):
                return None
            with typing:
                if await _wait_for_model(chat):
                    await chat.ask(message.strip())
    except ConductorError as error:
        if not echoed:  # no run has shown it
            prompt.echo(message.strip())
        print_error(error)
    if len(chat.runs) > before and not quiet:
        print_how_to_finish(chat.last)
    return text


def _offer_model(chat: ChatSession, *, quiet: bool) -> bool:
    """Offer to download a model where there is none; false where Ctrl-C went back to the prompt."""
    from conductor_cli.cli.model_download import offer_model

    try:
        with handle_signal(signal.SIGINT, signal.default_int_handler), end_on_ctrl_d():
            offer_model(chat.session.settings, quiet=quiet)
    except KeyboardInterrupt:
        print_notice("")
        return False
    return True


async def _wait_for_model(chat: ChatSession) -> bool:
    """Wait until the conductor's model is loaded; false if Ctrl-C went back to the prompt. Raises `ConductorError`."""
    waiting = asyncio.ensure_future(chat.ready())
    with on_signal(signal.SIGINT, waiting.cancel):
        if not (await asyncio.wait([waiting], timeout=PATIENCE))[0]:
            print_notice("the conductor model is still loading; Ctrl-C goes back to the prompt")
        try:
            await waiting
        except asyncio.CancelledError:
            return False
    return True
