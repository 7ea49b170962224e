"""Writing to stdout and stderr from commands that are no run: text, tables, JSON, and errors in three lines.

On a terminal, lines that explain something are broken between words, and a table that is too wide is stacked; what a
program reads is never broken.
No key that this process has read goes out, in whatever spelling.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TextIO

from conductor_cli.core.errors import ConductorError, Failure
from conductor_cli.core.sanitize import escape_json, one_line, sanitize
from conductor_cli.core.table import Column, render_table
from conductor_cli.models.known_secrets import KNOWN_SECRETS

NARROWEST: Final = 20
"""The least columns that lines are broken for: in fewer, a terminal may do it."""

_BEGINNING: Final = re.compile(r" *(?:\d+\. |[a-z]{1,10} {2,})?")
"""What the rest of a broken line is aligned behind: its indent, with the number or the label that stands there."""


def print_line(text: str = "") -> None:
    """A line on stdout, safe for a terminal. When nobody reads it any more the command ends quietly."""
    _write(KNOWN_SECRETS.redact(sanitize(text)))


def print_styled(text: str) -> None:
    """A text on stdout that the caller has made safe, and then styled."""
    _write(KNOWN_SECRETS.redact(text))


def print_json(data: Any) -> None:  # noqa: ANN401 - any JSON value
    """One JSON value on stdout; what is unsafe on a terminal is an escape in it."""
    _write(escape_json(json.dumps(KNOWN_SECRETS.redact_data(data), ensure_ascii=False, indent=2)))


def _write(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()
        from typer import Exit  # a chat begins before it is loaded

        raise Exit from None


def print_text(text: str) -> None:
    """A sentence on stdout about what stands there, broken between words on a terminal."""
    _write(wrap_lines(KNOWN_SECRETS.redact(sanitize(text)), terminal_width(sys.stdout)))


def print_notice(text: str) -> None:
    """A line on stderr, broken between words on a terminal. A command must not fail because nobody listens there."""
    with suppress(OSError, ValueError):  # ValueError: the stream is closed
        sys.stderr.write(wrap_lines(KNOWN_SECRETS.redact(sanitize(text)), terminal_width(sys.stderr)) + "\n")
        sys.stderr.flush()


def terminal_width(stream: TextIO) -> int:
    """The columns of the terminal behind a stream, or COLUMNS, at least `NARROWEST`; 0 where no terminal is."""
    with suppress(OSError, ValueError):  # it has no file, or is closed
        if stream.isatty():
            told = os.environ.get("COLUMNS", "")
            columns = int(told) if told.isdecimal() else 0
            columns = columns or os.get_terminal_size(stream.fileno()).columns
            return max(columns, NARROWEST) if columns else 0
    return 0


def wrap_lines(text: str, width: int) -> str:
    """The text in lines of at most so many characters; a word, such as an option or a path, stays whole. Pure."""
    return "\n".join(_broken(line, width) if 0 < width < len(line) else line for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    found = _BEGINNING.match(line)
    begin = found[0] if found else ""
    return _filled(line[len(begin) :].strip(), width, begin, " " * len(begin))


def _filled(text: str, width: int, first: str, others: str) -> str:
    """The text broken between words, behind `first` in its first line and `others` in each that follows."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def print_table(columns: Sequence[str | Column], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns under their heads, as wide as the terminal; the last wraps if it is given as a plain head."""
    last = len(columns) - 1
    shown = [
        column if isinstance(column, Column) else Column(column, wrap=index == last)
        for index, column in enumerate(columns)
    ]
    for line in render_table(shown, rows, terminal_width(sys.stdout)):
        print_line(line)


def print_error(failure: Failure | ConductorError) -> None:
    """An error on stderr, in at most three lines: what happened, and what to do next."""
    print_notice(f"conductor: {one_line(failure.message)}")
    for line in failure.hint.splitlines()[:2]:
        print_notice(f"  {line}")


def leave_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
