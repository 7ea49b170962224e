"""`conductor trace list`, `search` and `names` without options, before Typer is loaded.

Importing Typer alone takes five times as long as `conductor --version` (0.15 s against 0.03 s), and a list may take
at most twice as long. Options, and everything that goes wrong, are left to the command itself, which prints the same.
"""
# pathlib, like dataclasses and typer, takes a large part of the time that a list may take.
# ruff: noqa: PTH111, PTH112, PTH208

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, TextIO

COUNT: Final = 20
"""Runs that are listed by default."""

NARROWEST: Final = 20
"""Lines are wrapped for at least so many columns; a narrower terminal breaks them itself."""

OFFERED_NAMES: Final = 200
"""Ids that are offered to a shell for completion."""

_PUNCTUATION: Final = str.maketrans("", "", "-._")


def print_fast_answer(arguments: Sequence[str]) -> bool:
    """Do what the command line asks for if it has one of the common forms. Returns whether it was done."""
    if sys.platform != "linux" or arguments[:1] != ["trace"] or sys.stdout is None:
        return False
    try:
        lines = _fast_answer(arguments[1:], f"{state_directory(os.environ)}/traces")
        if lines is None:
            return False
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
        sys.stdout.buffer.flush()
    except Exception:  # noqa: BLE001 - the command itself reports what is wrong
        return False
    return True


def _fast_answer(words: Sequence[str], traces: str) -> list[str] | None:
    """The lines for stdout; None when the command itself has to do it."""
    if list(words) == ["names"]:
        return run_names(traces)
    listed = list(words) == ["list"]
    terms = words[1:] if words[:1] == ["search"] else ()
    if not (listed or terms) or any(word.startswith("-") or not word.isprintable() for word in terms):
        return None
    from conductor_cli.store.run_list import list_text
    from conductor_cli.store.stored_run import RunQuery, normalize_terms

    query = RunQuery(terms=normalize_terms(terms))
    if terms and not query.terms:
        return None
    lines, remark = list_text(traces, query, COUNT, terminal_width(sys.stdout))
    if remark:
        sys.stderr.write(f"{remark}\n")
    return lines


def terminal_width(stream: TextIO) -> int:
    """The columns of a stream's terminal, or COLUMNS, at least `NARROWEST`; 0 where it is no terminal."""
    with suppress(OSError, ValueError):  # it has no file, or is closed
        if stream.isatty():
            given = os.environ.get("COLUMNS", "")
            columns = int(given) if given.isdecimal() else 0
            columns = columns or os.get_terminal_size(stream.fileno()).columns
            return max(columns, NARROWEST) if columns else 0
    return 0


def run_names(traces: str) -> list[str]:
    """What a shell offers as a run: `last`, then the newest ids. Raises `OSError`."""
    if not os.path.isdir(traces):
        return []
    found = sorted(
        (name.removesuffix(".jsonl") for name in os.listdir(traces) if name.endswith(".jsonl")), reverse=True
    )
    # bash expands what it is offered, so other names could run commands.
    plain = [name for name in found[:OFFERED_NAMES] if name.translate(_PUNCTUATION).isalnum()]
    return ["last", *plain] if plain else []


def state_directory(environ: Mapping[str, str]) -> str:
    """The state directory on Linux, where `config.app_paths` finds it by platformdirs."""
    chosen = environ.get("CONDUCTOR_LLM_STATE_DIR")
    if chosen:
        return chosen
    home = environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return f"{home}/conductor-llm"
