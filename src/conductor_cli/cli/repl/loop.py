"""The chat itself: one message after the other, each a question or a command, until the person leaves."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext
from typing import Final

from conductor_cli.app.planner_resolution import has_no_model
from conductor_cli.cli.chat_banner import is_plain_terminal, print_banner
from conductor_cli.cli.keypress import end_on_ctrl_d, has_typed_text, keep_typed_text
from conductor_cli.cli.model_download import offer_model
from conductor_cli.cli.options import GlobalOptions, RunOptions
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.cli.repl.chat_session import ChatEnded, ChatSession
from conductor_cli.cli.repl.commands import SlashCompleter, find_command
from conductor_cli.cli.repl.display import describe_conversation, print_how_to_finish
from conductor_cli.cli.repl.prompt import Prompt
from conductor_cli.cli.signals import default_signals, handle_signal, on_signal
from conductor_cli.core.errors import ConductorError
from conductor_cli.views import choose_progress

PATIENCE: Final = 0.3
"""Seconds of waiting for the conductor before a notice says so."""

NO_MODEL: Final = """\
There is no conductor model yet, the one that plans.
  conductor setup              proposes what is missing
  conductor model pull         downloads the default one
  conductor chat --rehearsal   answers with tiny demo models"""

LEAVING: Final = frozenset({"exit", "quit", "/quit"})
"""Messages that end the chat, like Ctrl-D and `/exit`."""


def start_chat(options: GlobalOptions, *, rehearsal: bool = False) -> int:
    """Run a chat with the settings as they are; returns the exit code."""
    return run_chat(ChatSession(options, RunOptions(rehearsal=rehearsal)))


def run_chat(chat: ChatSession) -> int:
    """Run a chat until the person leaves; returns the exit code."""
    if not chat.session.quiet:
        print_banner(rehearsal=chat.rehearsal)
    # A terminal that cannot redraw keeps what is typed before the prompt, which then shows it too.
    with default_signals(), keep_typed_text(echo=not is_plain_terminal()):
        return asyncio.run(_read_messages(chat))


async def _read_messages(chat: ChatSession) -> int:
    settings = chat.session.settings
    prompt = Prompt(chat, SlashCompleter(chat), settings.paths.state if chat.session.stores_traces else None)
    chat.changed = prompt.refresh
    if not chat.session.quiet and not is_plain_terminal():  # there the log of each run names the planner
        chat.named = lambda text: prompt.above(lambda: print_notice(text))
    chat.failed = lambda error: prompt.above(lambda: print_error(error))
    if chat.turns and not chat.session.quiet:
        print_notice(f"continuing run {chat.turns[-1].run}: {describe_conversation(chat.turns)}")
    if chat.rehearsal or not has_no_model(settings) or _find_model(chat):
        chat.begin()
    try:
        while True:
            message = await prompt.read(chat.draft)
            chat.draft = ""
            await _handle(chat, prompt, message)
            print_notice("")
    except ChatEnded as ended:
        if not ended.code and not chat.session.quiet:
            print_how_to_go_on(chat)
        return ended.code
    finally:
        await chat.close()


def print_how_to_go_on(chat: ChatSession) -> None:
    """Print the command that goes on with this conversation, where it is stored. The demo has no conversations."""
    if chat.turns and chat.turns[-1].stored and chat.session.stores_traces and not chat.rehearsal:
        print_notice(f"to go on with this chat: conductor chat --continue-from {chat.turns[-1].run}")


async def _handle(chat: ChatSession, prompt: Prompt, message: str) -> None:
    """Do what a message asks for: a command, or a question."""
    text, before = message.strip(), len(chat.runs)
    if text in LEAVING:
        raise ChatEnded
    # The live tree shows the question itself.
    progress = choose_progress("answer", chat.session.settings["output.progress"], chat.session.output_context)
    echoed = message.startswith("/") or progress != "tree"
    if echoed:
        prompt.echo(text)
    # What is typed during a run is hidden, so that it does not disturb the display, unless the run asks for approval.
    typing = nullcontext() if chat.session.approves else keep_typed_text(echo=False)
    try:
        found = find_command(message)
        if found is None and chat.conductor is None and not chat.rehearsal and not _offer_model(chat):
            return
        with typing:
            if found is not None:
                command, rest = found
                await command.act(chat, rest)
            elif await _wait_for_model(chat):
                await chat.ask(text)
    except ConductorError as error:
        if not echoed:  # no run has shown it
            prompt.echo(text)
        print_error(error)
    if len(chat.runs) > before and not chat.session.quiet:
        print_how_to_finish(chat.last)


def _find_model(chat: ChatSession) -> bool:
    """Say that no model plans and what to do, and offer to download one. Whether there is one then."""
    if chat.session.quiet:
        return False
    print_notice(NO_MODEL)
    # What was typed already is a question, and must not become the answer to ours: it is offered again after that.
    if not has_typed_text():
        try:
            _offer_model(chat, explained=True)
        except ConductorError as error:
            print_error(error)
    return not has_no_model(chat.session.settings)


def _offer_model(chat: ChatSession, *, explained: bool = False) -> bool:
    """Offer to download a model where there is none; false where Ctrl-C went back to the prompt."""
    try:
        with handle_signal(signal.SIGINT, signal.default_int_handler), end_on_ctrl_d():
            offer_model(chat.session.settings, quiet=chat.session.quiet, explained=explained)
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
