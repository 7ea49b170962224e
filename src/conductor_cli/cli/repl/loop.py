"""The conversation itself: one message after the other, each a question or a command, until the person leaves.

The prompt comes first. What a run needs is loaded behind it, on a thread, and then the conductor's model.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.chat_banner import banner
from conductor_cli.cli.output import print_error, print_notice
from conductor_cli.cli.repl.history import home
from conductor_cli.cli.repl.prompt import Left, Prompt
from conductor_cli.cli.repl.typeahead import end_on_ctrl_d, keep_typed_text
from conductor_cli.cli.signals import default_signals, on_signal
from conductor_cli.core.errors import ConductorError

if TYPE_CHECKING:
    from conductor_cli.cli.options import GlobalOptions
    from conductor_cli.cli.repl.chat_session import ChatSession

PATIENCE: Final = 0.3
"""Seconds of waiting for the conductor before a line says so."""
LEAVING: Final = frozenset({"exit", "quit"})
"""Messages that mean the end, whatever a model could say to them."""


def start_chat(options: GlobalOptions | None = None, *, rehearsal: bool = False) -> int:
    """Talk without any option of a chat's own; returns the exit code. Without `options` its head is there already."""

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
    """Talk until the person leaves; returns the exit code. Raises what `make` does, a moment later.

    `kept`: whether what is typed is remembered; `greeted`: the head stands there already.
    """
    if not (quiet or greeted):
        print_notice(banner(rehearsal=rehearsal).rstrip())
    with default_signals(), keep_typed_text():
        return asyncio.run(_talk(make, home() if kept else None, quiet=quiet))


async def _talk(make: Callable[[], ChatSession], history: Path | None, *, quiet: bool) -> int:
    prompt = Prompt(history)
    making = asyncio.create_task(_set(prompt, make, quiet=quiet))
    text: str | None = None
    try:
        while True:
            if making.done():
                making.result()  # a fault that was there before the prompt was
            message = await prompt.read(text or "", editor=text is not None)
            text = await _heard(await making, prompt, message, quiet=quiet)
            if text is None:
                print_notice("")
    except Left as left:
        return left.code
    finally:
        await _put_away(making)


async def _set(prompt: Prompt, make: Callable[[], ChatSession], *, quiet: bool) -> ChatSession:
    """Make the desk and have its conductor loaded. A fault in what a command line or a file says ends the chat."""
    try:
        desk, nothing = await asyncio.to_thread(_made, prompt, make)
    except Exception as error:
        prompt.leave(error)
        raise
    desk.changed = prompt.refresh
    desk.failed = lambda error: prompt.above(lambda: print_error(error))
    prompt.desk = desk
    if not desk.session.keep:
        prompt.forget()
    if desk.turns and not quiet:
        from conductor_cli.cli.repl.display import standing

        prompt.above(lambda: print_notice(f"going on with run {desk.turns[-1].run}: {standing(desk.turns)}"))
    if not nothing:
        desk.begin()
    prompt.refresh()
    return desk


def _made(prompt: Prompt, make: Callable[[], ChatSession]) -> tuple[ChatSession, bool]:
    """The desk, and whether no model is there that could plan. What is slow to load is loaded here."""
    desk = make()
    from conductor_cli.app.planner_resolution import has_no_model
    from conductor_cli.cli.repl.completer import SlashCompleter

    prompt.completer = SlashCompleter(desk)
    return desk, not desk.rehearsal and has_no_model(desk.session.settings)


async def _put_away(making: asyncio.Task[ChatSession]) -> None:
    if making.done() and making.exception() is None:
        await making.result().close()
    else:
        making.cancel()


async def _heard(desk: ChatSession, prompt: Prompt, message: str, *, quiet: bool) -> str | None:
    """Do what a message asks for. Returns what the person wants to edit next, None for nothing."""
    from conductor_cli.cli.repl.commands import acted, command_in
    from conductor_cli.cli.repl.display import unfinished

    if message.strip() in LEAVING:
        raise Left
    echoed = message.startswith("/") or "\n" in message.strip() or not _is_drawn(desk)
    if echoed:
        prompt.echo(message.strip())
    text, before = None, len(desk.runs)
    try:
        found = command_in(message)
        if found is not None:
            with _unseen(desk):
                text = await acted(desk, *found)
        else:
            if desk.conductor is None and not desk.rehearsal and not _offered(desk, quiet=quiet):
                return None
            with _unseen(desk):
                if await _loaded(desk):
                    await desk.ask(message.strip())
    except ConductorError as error:
        if not echoed:  # no run has shown it
            prompt.echo(message.strip())
        print_error(error)
    if len(desk.runs) > before and not quiet:
        unfinished(desk.last)
    return text


def _offered(desk: ChatSession, *, quiet: bool) -> bool:
    """Ask where no model is there that plans, and get it; false where Ctrl-C went back to the prompt."""
    from conductor_cli.cli.model_download import offer_model

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with end_on_ctrl_d():
            offer_model(desk.session.settings, quiet=quiet)
    except KeyboardInterrupt:
        print_notice("")
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    return True


def _is_drawn(desk: ChatSession) -> bool:
    """Whether the run itself will show the question."""
    from conductor_cli.views import choose_progress

    return choose_progress("answer", desk.session.settings["output.progress"], desk.session.around) == "tree"


async def _loaded(desk: ChatSession) -> bool:
    """Wait for the conductor's model; false where the person would rather not. Raises `ConductorError`."""
    waiting = asyncio.ensure_future(desk.ready())
    with on_signal(signal.SIGINT, waiting.cancel):
        if not (await asyncio.wait([waiting], timeout=PATIENCE))[0]:
            print_notice("the conductor model is still loading; Ctrl-C goes back to the prompt")
        try:
            await waiting
        except asyncio.CancelledError:
            return False
    return True


def _unseen(desk: ChatSession) -> AbstractContextManager[None]:
    """What is typed while a run goes on does not stand in its picture, unless the run may ask for it."""
    return nullcontext() if desk.session.approves else keep_typed_text(echo=False)
