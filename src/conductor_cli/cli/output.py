"""Writing to stdout and stderr from commands that are no run: text for people, JSON for programs, errors in three lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from conductor_cli.core.clean import clean
from conductor_cli.core.errors import ConductorError, Failure


def say(text: str = "") -> None:
    """A line on stdout, safe for a terminal. When nobody reads it any more the command ends quietly."""
    try:
        sys.stdout.write(clean(text) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        leave_stdout()
        raise typer.Exit from None


def say_json(data: Any) -> None:  # noqa: ANN401 - any JSON value
    """One JSON value on stdout."""
    say(json.dumps(data, ensure_ascii=False, indent=2))


def remark(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(clean(text) + "\n")
    sys.stderr.flush()


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns under their heads; the last column is not padded."""
    lines = [list(heads), *[[cell.replace("\n", " ") for cell in row] for row in rows]]
    widths = [max(len(line[index]) for line in lines) for index in range(len(heads))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def tell(failure: Failure | ConductorError) -> None:
    """An error on stderr, in at most three lines: what happened, and what to do next."""
    remark(f"conductor: {' '.join(failure.message.split())}")
    for line in failure.hint.splitlines()[:2]:
        remark(f"  {line}")


def leave_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
