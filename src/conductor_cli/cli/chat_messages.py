"""Does what each message of a chat asks for, a question or a command, until the person leaves."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext
from typing import Final

from conductor_cli.cli import output as out
from conductor_cli.cli.chat_banner import is_plain_terminal
from conductor_cli.cli.chat_prompt import ChatEnded, ChatPrompt
from conductor_cli.cli.chat_session import ChatSession
from conductor_cli.cli.keypress import keep_typed_text
from conductor_cli.cli.signals import on_signal
from conductor_cli.cli.slash_commands import describe_conversation, find_command, tell_how_to_go_on
from conductor_cli.cli.slash_completer import SlashCompleter
from conductor_cli.core.errors import ConductorError
from conductor_cli.views.output_formats import choose_progress

NO_MODEL: Final = """\
There is no planner yet, the model that plans.
  conductor setup              proposes what is missing
  conductor model pull         downloads the default one
  conductor chat --demo        answers with tiny demo models"""


async def answer_messages(chat: ChatSession, prompt: ChatPrompt, reading: asyncio.Task[str]) -> int:
    """Do what each message asks for; returns the exit code.

    `reading` is the prompt, which waits for the first one.
    """
    settings = chat.session.settings
    prompt.connect(
        chat.status,
        SlashCompleter(chat),
        settings.paths.state if chat.session.stores_traces else None,
    )
    chat.changed = prompt.refresh
    # There the log of each run names the planner
    if not chat.session.quiet and not is_plain_terminal():
        chat.named = prompt.tell
    chat.failed = lambda error: prompt.above(lambda: out.print_error(error))
    if chat.turns and not chat.session.quiet:
        prompt.tell(f"continuing run {chat.turns[-1].run}: {describe_conversation(chat.turns)}")
    try:
        if not await chat.lacks_planner():
            chat.begin()
        elif not chat.session.quiet:
            prompt.tell(NO_MODEL)
        while True:
            await _handle(chat, prompt, await reading)
            out.print_notice("")
            reading = asyncio.create_task(prompt.read())
    except ChatEnded as ended:
        if not ended.code:
            tell_how_to_go_on(chat)
        return ended.code
    finally:
        await chat.close()


async def _handle(chat: ChatSession, prompt: ChatPrompt, message: str) -> None:
    text = message.strip()
    before = len(chat.runs)
    if text in ("exit", "quit", "/quit"):
        raise ChatEnded
    # The live tree shows the question itself.
    progress = choose_progress(
        "answer", chat.session.settings["output.progress"], chat.session.output_context
    )
    echoed = message.startswith("/") or progress != "tree"
    if echoed:
        prompt.echo(text)
    # What is typed during a run is hidden, so that it does not disturb the display, unless the run
    # asks for approval.
    typing = nullcontext() if chat.session.approves else keep_typed_text(echo=False)
    try:
        command_line = find_command(message)
        with typing:
            if command_line is not None:
                command, argument = command_line
                await command.act(chat, argument)
            elif await _wait_for_model(chat):
                await chat.ask(text)
    except ConductorError as error:
        if not echoed:  # no run has shown it
            prompt.echo(text)
        out.print_error(error)
    if len(chat.runs) > before:
        _tell_how_to_finish(chat)


def _tell_how_to_finish(chat: ChatSession) -> None:
    """Say how the newest run is finished, where an error left some of its steps undone."""
    run = chat.last
    if run.error is None or len(run.done()) == len(run.steps):
        return
    first = "/limits NAME VALUE, then " if run.error.kind == "limit" else ""
    chat.session.tell(f"  to finish it here: {first}/redo")


async def _wait_for_model(chat: ChatSession) -> bool:
    """Wait until the conductor's model is loaded; false if Ctrl-C went back to the prompt.

    Raises `ConductorError`.
    """
    waiting = asyncio.ensure_future(chat.ready())
    with on_signal(signal.SIGINT, waiting.cancel):
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        if not done:
            out.print_notice("the planner is still loading; Ctrl-C goes back to the prompt")
        try:
            await waiting
        except asyncio.CancelledError:
            return False
    return True
