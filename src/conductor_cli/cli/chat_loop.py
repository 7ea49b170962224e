"""Starts a chat: its prompt is there first, and the rest is loaded while a person types.

A chat without options does not load Typer, and settings and models load while one types. The prompt
came in 121 ms then, in 453 before.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from conductor_cli.cli.chat_banner import is_plain_terminal, print_banner
from conductor_cli.cli.chat_prompt import ChatEnded, ChatPrompt
from conductor_cli.cli.keypress import keep_typed_text
from conductor_cli.cli.signals import default_signals
from conductor_cli.core.errors import ConductorError
from conductor_cli.system.event_loop import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from conductor_cli.cli.chat_session import ChatSession
    from conductor_cli.cli.options import GlobalOptions


def start_chat(
    options: GlobalOptions | None = None, *, quiet: bool = False, rehearsal: bool = False
) -> int:
    """Run a chat with the settings as they are; returns the exit code."""

    def load() -> ChatSession:
        from conductor_cli.cli import chat_messages
        from conductor_cli.cli.chat_session import ChatSession
        from conductor_cli.cli.options import GlobalOptions, RunOptions

        del chat_messages  # loaded here, on a thread, and needed with the first message
        return ChatSession(options or GlobalOptions(), RunOptions(rehearsal=rehearsal))

    return run_chat(load, quiet=quiet, rehearsal=rehearsal)


def run_chat(load: Callable[[], ChatSession], *, quiet: bool, rehearsal: bool) -> int:
    """Run a chat until the person leaves; returns the exit code. `load` is called on a thread."""
    if not quiet:
        print_banner(rehearsal=rehearsal)
    # A terminal that cannot redraw keeps what is typed before the prompt, which then shows it too.
    with default_signals(), keep_typed_text(echo=not is_plain_terminal()):
        return run_async(_run_chat(load))


async def _run_chat(load: Callable[[], ChatSession]) -> int:
    prompt = ChatPrompt()
    reading = asyncio.create_task(prompt.read())
    await asyncio.sleep(0)  # the prompt is drawn before the loading slows it down
    loading = asyncio.create_task(asyncio.to_thread(load))
    try:
        await asyncio.wait([reading, loading], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()  # it raises where the person has left already
        chat = await loading
    except ChatEnded as ended:
        return ended.code
    except ConductorError:
        reading.cancel()
        await asyncio.wait([reading])
        raise
    from conductor_cli.cli.chat_messages import answer_messages  # it was loaded with the chat

    return await answer_messages(chat, prompt, reading)
