"""The messages of a request as the one text that a program reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import ModelError
from conductor_cli.models.command.programs import PROMPT

LONGEST_ARGUMENT: Final = 128 * 1024 - 1
"""Bytes of one argument on Linux (MAX_ARG_STRLEN, with its final zero byte)."""

_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


def prompt_text(messages: Sequence[Message]) -> str:
    """System texts, a blank line, and the user's text; a longer conversation has a line with the speaker before each.

    A single message, which is what a step's worker is sent, is the text as it is.
    """
    system = [message.content for message in messages if message.role == "system"]
    turns = [message for message in messages if message.role != "system"]
    if len(turns) == 1:
        return "\n\n".join([*system, turns[0].content])
    said = [f"{_SPEAKERS[turn.role]}:\n{turn.content}" for turn in turns]
    return "\n\n".join([*system, *said])


def fill_in(words: Sequence[str], prompt: str) -> tuple[list[str], bytes]:
    """The words of a command with the prompt in place, and what goes to standard input. Raises `ModelError`."""
    data = prompt.encode("utf-8", "replace")
    if not any(PROMPT in word for word in words):
        return list(words), data
    # An argument ends at a zero byte.
    filled = [word.replace(PROMPT, prompt.replace("\0", "\N{REPLACEMENT CHARACTER}")) for word in words]
    if any(len(word.encode("utf-8", "replace")) > LONGEST_ARGUMENT for word in filled):
        message = f"the prompt has {len(data):,} bytes, and an argument of a program holds {LONGEST_ARGUMENT:,}"
        raise ModelError("length", message, hint=f"leave {PROMPT} out, so that it reads standard input")
    return filled, b""
