"""What a chat shows first, before anything that takes time is loaded."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

HELLO = "Enter asks, Alt-Enter breaks the line, /help shows the rest, Ctrl-D leaves.\n"
REHEARSAL = (
    "Rehearsal: tiny models that know letters, numbers and some facts, and read\neach question on its own.\n"
    "For example: Spell the capital of France backwards and count its letters.\n"
)


def print_banner_early(arguments: Sequence[str]) -> bool:
    """Show the head of a chat and its prompt, if that is what will come; whether it was shown.

    The terminal keeps what is typed meanwhile, and the real prompt takes it over. Only where nothing but a chat can
    come of the command line, on a terminal that can redraw the line.
    """
    if [*arguments] not in ([], ["chat"], ["chat", "--rehearsal"]) or not is_interactive() or is_plain_terminal():
        return False
    try:
        sys.stderr.write(f"{_fitting(banner(rehearsal=len(arguments) > 1))}{prompt_mark()}")
        sys.stderr.flush()
    except (OSError, ValueError):  # ValueError: the stream is closed
        return False
    return True


def banner(*, rehearsal: bool) -> str:
    """The head of a chat."""
    return f"{HELLO}{REHEARSAL if rehearsal else ''}"


def _fitting(text: str) -> str:
    """The text broken between words, where the terminal is too narrow for it."""
    columns, lines = os.get_terminal_size(sys.stderr.fileno()).columns, text.splitlines()
    if not 0 < columns < max(map(len, lines)):
        return text
    from textwrap import fill

    return "".join(f"{fill(line, columns, break_on_hyphens=False)}\n" for line in lines)


def prompt_mark() -> str:
    """What stands before what a person types, in a letter that the terminal has."""
    encoding = sys.stdout.encoding or "ascii"
    return "\u203a " if "\u203a".encode(encoding, "ignore") else "> "


def is_interactive() -> bool:
    """Whether a person sits at a terminal: types into it and reads what comes."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def is_plain_terminal() -> bool:
    """Whether lines are to be written once and left alone."""
    return os.environ.get("TERM") == "dumb" or os.environ.get("ACCESSIBLE", "") not in {"", "0"}
