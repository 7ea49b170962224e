"""Questions to a person: yes or no, a line of text, and whether a long job may begin.

Questions go to standard error, so that standard output holds results only. The end of input
(Ctrl-D) always means no.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Final

from conductor_cli.cli.output import print_notice, stdout_problem
from conductor_cli.cli.signals import handle_signal
from conductor_cli.core.errors import UsageError, suggest
from conductor_cli.system.terminal_tables import terminal_width, wrap_lines
from conductor_cli.views.base import cannot_redraw

MAX_CHOICES: Final = 20  # Names that are shown at once, so that the question stays on the screen
YES_NO: Final = {"y": True, "yes": True, "n": False, "no": False}


def can_ask() -> bool:
    """Return whether a person can read a question and answer it.

    Standard input and error are both a terminal.
    """
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, default: bool) -> bool:
    """Ask for a yes or a no; a bare Enter is the `default`, the end of input a no.

    Any other word is asked about again.
    """
    choices = "Y/n" if default else "y/N"
    while True:
        answer = ask_line(f"{question} [{choices}]")
        if answer is None:
            return False
        if not answer or answer.lower() in YES_NO:
            return YES_NO.get(answer.lower(), default)
        print_notice("answer with yes or no")


def ask_line(question: str) -> str | None:
    """Ask for a line from the terminal, without the spaces around it; None at the end of input."""
    sys.stderr.write(f"{wrap_lines(question, terminal_width(sys.stderr))} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        print_notice("")
        return None
    return line.strip()


def choose_names(names: Sequence[str], command: str) -> list[str]:
    """Ask which of several names are meant; a bare Enter is the first, the end of input none.

    `command` is the one that lists all of them, where they are too many to be shown.
    """
    for number, name in enumerate(names[:MAX_CHOICES], 1):
        print_notice(f"  {number:>2}  {name}")
    if len(names) > MAX_CHOICES:
        print_notice(f"  and {len(names) - MAX_CHOICES} more: {command}")
    if len(names) == 1:
        question = f"Model (Enter for {names[0]}):"
    else:
        question = f"Models, as numbers or names with commas, or all (Enter for {names[0]}):"
    while True:
        answer = ask_line(question)
        if answer is None:
            return []
        try:
            return _read_names(answer or names[0], names)
        except UsageError as error:
            print_notice(f"{error.message}; {error.hint}")


def _read_names(answer: str, names: Sequence[str]) -> list[str]:
    """Return the names that an answer means, each once. Raises `UsageError`."""
    if answer.lower() == "all" and "all" not in names:
        return list(names)
    chosen = list[str]()
    for word in filter(None, re.split(r"[,\s]+", answer)):
        if word in names:
            chosen.append(word)
        elif word.isdecimal() and 1 <= int(word) <= len(names):
            chosen.append(names[int(word) - 1])
        else:
            hint = suggest(word, names, f"answer with numbers from 1 to {len(names)}, or names")
            raise UsageError(f"{word!r:.60} is none of them", hint=hint)
    return list(dict.fromkeys(chosen))


def hide_answer(question: str, answer: str) -> None:
    """Erase what was typed to `ask_line` from the screen, where the terminal can do so."""
    if not sys.stderr.isatty() or cannot_redraw(os.environ):
        return
    width = max(1, terminal_width(sys.stderr))
    last_line = wrap_lines(question, width).splitlines()[-1]
    rows = -(-len(f"{last_line} {answer}") // width)  # rounded up
    sys.stderr.write(f"\x1b[{rows}A\r\x1b[J{last_line}\n")
    sys.stderr.flush()


def confirm_cost(estimate: Sequence[str], work: str, *, yes: bool, quiet: bool) -> bool:
    """Print what a long job will probably cost; return whether the user agrees to it.

    They agree by `--yes` or at the prompt.

    Raises `UsageError` if there is no terminal to ask on, `ConductorError` if the result could not
    be printed.
    """
    if problem := stdout_problem():
        raise problem
    if not quiet:
        for line in estimate:
            print_notice(line)
    if yes:
        return True
    if not can_ask():
        hint = "read what stands above, then run it again with --yes"
        if quiet:
            hint = "--yes agrees to it; without --quiet it says what it may cost"
        raise UsageError(f"{work} may cost money and needs a confirmation", hint=hint)
    # Inside an event loop, Ctrl-C would otherwise wait for the line to be read.
    with handle_signal(signal.SIGINT, signal.default_int_handler):
        return confirm("Continue?", default=False)
