"""The first lines of a chat, printed before anything that takes time is loaded; and what terminal there is."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

BANNER = "Enter asks, Alt-Enter breaks the line, /help lists commands, Ctrl-D leaves.\n"
REHEARSAL = (
    "Demo models: they know letters, small sums and some facts, and read each\nquestion on its own.\n"
    "For example: Spell the capital of France backwards and count its letters.\n"
)


def print_banner_early(arguments: Sequence[str]) -> bool:
    """Print the banner and a prompt where the command line can only become a chat. Returns whether it did.

    The terminal keeps what is typed meanwhile, and the real prompt takes it over.
    """
    if [*arguments] not in ([], ["chat"], ["chat", "--rehearsal"]) or not is_interactive() or is_plain_terminal():
        return False
    # The prompt itself takes a fifth of a second to load; these lines are there before that.
    text = banner(rehearsal=len(arguments) > 1)
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
        if 0 < columns < max(map(len, text.splitlines())):
            from textwrap import fill  # only a narrow terminal needs it

            lines = (fill(line, columns, break_on_hyphens=False) for line in text.splitlines())
            text = "".join(f"{line}\n" for line in lines)
        sys.stderr.write(f"{text}{prompt_mark()}")
        sys.stderr.flush()
    except (OSError, ValueError):  # ValueError: the stream is closed
        return False
    return True


def banner(*, rehearsal: bool) -> str:
    """The first lines of a chat."""
    return f"{BANNER}{REHEARSAL if rehearsal else ''}"


def prompt_mark() -> str:
    """The mark before what a person types, in a character that the terminal has."""
    encoding = sys.stdout.encoding or "ascii"
    return "\u203a " if "\u203a".encode(encoding, "ignore") else "> "


def is_interactive() -> bool:
    """Whether a person sits at a terminal, types there and reads the output there."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def is_plain_terminal() -> bool:
    """Whether lines are written once and never redrawn."""
    return os.environ.get("TERM") == "dumb" or os.environ.get("ACCESSIBLE", "") not in {"", "0"}
