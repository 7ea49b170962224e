"""What a chat does with each message, which is a question or a command, until the person leaves."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext
from typing import Final

from conductor_cli.app.planner_resolution import has_no_model
from conductor_cli.cli.chat_banner import is_plain_terminal
from conductor_cli.cli.keypress import end_on_ctrl_d, has_typed_text, keep_typed_text
from conductor_cli.cli.model_download import offer_model
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.cli.repl.chat_session import ChatSession
from conductor_cli.cli.repl.commands import SlashCompleter, find_command
from conductor_cli.cli.repl.display import describe_conversation, print_how_to_finish
from conductor_cli.cli.repl.prompt import ChatEnded, Prompt
from conductor_cli.cli.signals import handle_signal, on_signal
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


async def answer_messages(chat: ChatSession, prompt: Prompt, reading: asyncio.Task[str]) -> int:
    """Do what each message asks for; returns the exit code. `reading` is the prompt, which waits for the first one."""
    settings = chat.session.settings
    prompt.connect(chat.status, SlashCompleter(chat), settings.paths.state if chat.session.stores_traces else None)
    chat.changed = prompt.refresh
    if not chat.session.quiet and not is_plain_terminal():  # there the log of each run names the planner
        chat.named = prompt.tell
    chat.failed = lambda error: prompt.above(lambda: print_error(error))
    if chat.turns and not chat.session.quiet:
        prompt.tell(f"continuing run {chat.turns[-1].run}: {describe_conversation(chat.turns)}")
    try:
        if not chat.rehearsal and has_no_model(settings):
            reading = await _find_model(chat, prompt, reading)
        if chat.rehearsal or not has_no_model(settings):
            chat.begin()
        while True:
            await _handle(chat, prompt, await reading)
            print_notice("")
            reading, chat.draft = asyncio.create_task(prompt.read(chat.draft)), ""
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


async def _find_model(chat: ChatSession, prompt: Prompt, reading: asyncio.Task[str]) -> asyncio.Task[str]:
    """Say that no model plans and what to do, and offer to download one. Returns the prompt, which waits again."""
    if chat.session.quiet or reading.done():
        return reading
    typed = await prompt.stop(reading)
    print_notice(NO_MODEL)
    # What was typed already is a question, and must not become the answer to ours: it is offered again after that.
    if not typed and not has_typed_text():
        try:
            _offer_model(chat, explained=True)
        except ConductorError as error:
            print_error(error)
    return asyncio.create_task(prompt.read(typed))


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
