"""The first lines of a chat, which are there before anything that takes time is loaded.

And what terminal there is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

BANNER = "Enter asks, Alt-Enter breaks the line, /help lists commands, Ctrl-D leaves.\n"
REHEARSAL = (
    "Demo models: they know eleven small skills, and read each question on its own.\n"
    "For example: Find the capital of France, then spell it backwards.\n"
)


@contextmanager
def greet_early(arguments: Sequence[str]) -> Iterator[bool]:
    """Print the banner and a prompt where the command line can only become a chat.

    The block is told whether it does.

    The terminal keeps what is typed while the block runs, and the real prompt takes it over.
    SIGTERM and a hang-up raise `SystemExit`, so that the terminal is as it was when the process
    ends.
    """
    if (
        [*arguments] not in ([], ["chat"], ["chat", "--demo"])
        or not is_interactive()
        or is_plain_terminal()
    ):
        yield False
        return
    import signal

    from conductor_cli.cli.keypress import keep_typed_text

    # The prompt itself takes most of a second to load; these lines are there before that.
    try:
        print_banner(rehearsal=len(arguments) > 1)
        sys.stderr.write(prompt_mark())
        sys.stderr.flush()
    except OSError:  # a terminal that cannot be written: the command itself says so
        yield False
        return
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    with keep_typed_text():
        yield True


@cache  # once in a process: at its start, or where the chat begins
def print_banner(*, rehearsal: bool) -> None:
    """Print the first lines of a chat."""
    text = f"{BANNER}{REHEARSAL if rehearsal else ''}"
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    if 0 < columns < max(map(len, text.splitlines())):
        from textwrap import fill  # only a narrow terminal needs it

        text = "".join(
            f"{fill(line, columns, break_on_hyphens=False)}\n" for line in text.splitlines()
        )
    sys.stderr.write(text)
    sys.stderr.flush()


def prompt_mark() -> str:
    """Return the mark before what a person types, in a character that the terminal has."""
    encoding = sys.stdout.encoding or "ascii"
    return "\u203a " if "\u203a".encode(encoding, "ignore") else "> "


def is_interactive() -> bool:
    """Return whether a person sits at a terminal, types there and reads the output there."""
    return all(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)
    )


def is_plain_terminal() -> bool:
    """Return whether lines are written once and never redrawn."""
    return os.environ.get("TERM") == "dumb" or os.environ.get("ACCESSIBLE", "") not in {"", "0"}
