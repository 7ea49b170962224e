"""Questions to a person at the terminal: yes or no, one of several words, or a line of text.

Questions go to standard error, so that standard output holds results only. The end of input (Ctrl-D) always means no.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from conductor_cli.cli.output import print_notice, terminal_width, wrap_lines

YES_NO: Final = {"y": "y", "yes": "y", "n": "n", "no": "n"}


def can_ask() -> bool:
    """Whether a person can read a question and answer it: both standard input and standard error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, default: bool) -> bool:
    """A yes or a no; a bare Enter is the `default`."""
    return choose(question, YES_NO, "Y/n" if default else "y/N", default="y" if default else "n") == "y"


def choose(question: str, answers: Mapping[str, str], shown: str, *, default: str = "y") -> str:
    """What the answer means, by `answers`; a bare Enter is the `default`, the end of input is `n`.

    Any other word is asked about again.
    """
    while True:
        answer = read_line(f"{question} [{shown}]")
        if answer is None:
            return "n"
        if not answer or answer.lower() in answers:
            return answers.get(answer.lower(), default)
        print_notice(f"answer with one of: {', '.join(word for word in answers if len(word) > 1)}")


def read_line(question: str) -> str | None:
    """A line from the terminal without the spaces around it; None at the end of input."""
    sys.stderr.write(f"{wrap_lines(question, terminal_width(sys.stderr))} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        print_notice("")
        return None
    return line.strip()
