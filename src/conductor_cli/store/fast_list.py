"""`conductor trace list`, `search` and `names` in their most common forms, before Typer is loaded.

Importing Typer alone takes five times as long as `conductor --version` (0.15 s against 0.03 s), and a list may take
at most twice as long. Other options, and everything that goes wrong, are left to the command itself, which prints the
same.
"""
# pathlib, like dataclasses and typer, takes a large part of the time that a list may take.
# ruff: noqa: PTH111, PTH112, PTH208

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

COUNT: Final = 20
"""Runs that are listed by default."""

LEAST_WIDTH: Final = 20
"""Lines are not fitted to fewer columns than this."""

OFFERED_NAMES: Final = 200
"""Ids that are offered to a shell for completion."""

_PUNCTUATION: Final = str.maketrans("", "", "-._")


def print_fast_answer(arguments: Sequence[str]) -> bool:
    """Do what the command line asks for if it has one of the common forms. Returns whether it was done."""
    if sys.platform != "linux" or arguments[:1] != ["trace"] or sys.stdout is None:
        return False
    try:
        text = _fast_answer(arguments[1:], os.environ)
        if text is None:
            return False
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except Exception:  # noqa: BLE001 - the command itself reports what is wrong
        return False
    return True


def _fast_answer(words: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """What goes to stdout; None when the command itself has to do it."""
    traces = f"{state_directory(environ)}/traces"
    if list(words) == ["names"]:
        return "".join(f"{name}\n" for name in run_names(traces))
    if not words or words[0] not in {"list", "search"} or (words[0] == "search" and sys.stdout.isatty()):
        return None  # on a terminal matches are highlighted, which depends on the settings
    options = _parse_options(words[1:])
    if options is None or (words[0] == "search") != bool(options[0]):
        return None
    return _list_text(traces, *options)


def _parse_options(words: Sequence[str]) -> tuple[tuple[str, ...], int, bool] | None:
    """The search terms, `-n` and `--json` of a command line that has nothing else."""
    terms, count, json, rest = list[str](), COUNT, False, iter(words)
    for word in rest:
        if word == "-n":
            count = int(next(rest, ""))
        elif word == "--json":
            json = True
        elif word.startswith("-") or not word.strip() or not word.isprintable():
            return None
        else:
            terms.append(word)
    return (tuple(terms), count, json) if count > 0 else None


def _list_text(traces: str, terms: tuple[str, ...], count: int, json: bool) -> str | None:  # noqa: FBT001 - unpacked by its one caller
    from datetime import UTC, datetime

    from conductor_cli.store.run_index import RunIndex
    from conductor_cli.store.run_list import NO_MATCH, describe_older, found_data, run_lines
    from conductor_cli.store.stored_run import RunQuery, normalize_terms

    terms = normalize_terms(terms)
    found, more = RunIndex(traces, on_indexing=say_indexing).newest(RunQuery(terms=terms), count)
    if json:
        from json import dumps

        return dumps([found_data(each, traces, terms) for each in found], ensure_ascii=False, indent=2) + "\n"
    if not found and not terms:
        return None
    notice = (describe_older(more, count) if more else "") if found else NO_MATCH
    if notice:
        sys.stderr.write(f"{notice}\n")
    return "".join(f"{line}\n" for line in run_lines(found, _width(), datetime.now(UTC), terms)) if found else ""


def _width() -> int:
    """The columns of the terminal, or COLUMNS; 0 for a pipe."""
    if not sys.stdout.isatty():
        return 0
    chosen = os.environ.get("COLUMNS", "")
    columns = int(chosen) if chosen.isdecimal() else 0
    return max(columns or os.get_terminal_size(sys.stdout.fileno()).columns, LEAST_WIDTH)


def say_indexing(number: int) -> None:
    """Explain why the list takes a while this time."""
    sys.stderr.write(f"indexing {number} traces; the next list will be quick\n")


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
