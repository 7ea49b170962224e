"""`conductor trace list`, `search` and `names` in the plain forms that are typed most, before anything else is loaded.

Whatever is not plain, or goes wrong, is left to the command itself, which says the same and explains more.
"""
# pathlib alone takes a tenth of the time that there is.
# ruff: noqa: PTH111, PTH112, PTH208

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

COUNT: Final = 20
"""Runs that are shown where no number is asked for."""

NARROWEST: Final = 20
"""The least columns that lines are cut for."""

NAMES: Final = 200
"""Ids that are offered to a shell."""

_MARKS: Final = str.maketrans("", "", "-._")

NONE: Final = "no stored run is like that"
"""What is said where nothing was found."""


def print_fast_answer(arguments: Sequence[str]) -> bool:
    """Do what the command line asks for, if it is one of these. Returns whether it is done."""
    if sys.platform != "linux" or arguments[:1] != ["trace"] or sys.stdout is None:
        return False
    try:
        text = _text(arguments[1:], os.environ)
        if text is None:
            return False
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()
    except Exception:  # noqa: BLE001 - the command itself says what is wrong
        return False
    return True


def _text(words: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """What goes to stdout; None where the command itself is to do it."""
    traces = f"{state_directory(environ)}/traces"
    if list(words) == ["names"]:
        return "".join(f"{name}\n" for name in run_names(traces))
    if not words or words[0] not in {"list", "search"} or (words[0] == "search" and sys.stdout.isatty()):
        return None  # what is found stands out on a terminal, unless the settings say otherwise
    plain = _plain(words[1:])
    if plain is None or (words[0] == "search") != bool(plain[0]):
        return None
    return _listed(traces, *plain)


def _plain(words: Sequence[str]) -> tuple[tuple[str, ...], int, bool] | None:
    """The texts, `-n` and `--json` of a command line that has nothing else."""
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


def _listed(traces: str, terms: tuple[str, ...], count: int, json: bool) -> str | None:  # noqa: FBT001 - as it was asked for
    from datetime import UTC, datetime

    from conductor_cli.store.run_index import RunIndex
    from conductor_cli.store.run_list import found_data, run_lines
    from conductor_cli.store.stored_run import RunQuery, normalize_terms

    terms = normalize_terms(terms)
    found, more = RunIndex(traces, reading=say_indexing).newest(RunQuery(terms=terms), count)
    if json:
        from json import dumps

        return dumps([found_data(each, traces, terms) for each in found], ensure_ascii=False, indent=2) + "\n"
    if not found and not terms:
        return None
    said = (describe_older(more) if more else "") if found else NONE
    if said:
        sys.stderr.write(f"{said}\n")
    return "".join(f"{line}\n" for line in run_lines(found, _width(), datetime.now(UTC), terms)) if found else ""


def _width() -> int:
    """The columns of a terminal, or COLUMNS, at least as many as anything else is broken for; 0 for a pipe."""
    if not sys.stdout.isatty():
        return 0
    told = os.environ.get("COLUMNS", "")
    columns = int(told) if told.isdecimal() else 0
    return max(columns or os.get_terminal_size(sys.stdout.fileno()).columns, NARROWEST)


def say_indexing(number: int) -> None:
    """Say why it takes a while: so many traces are read for the index."""
    sys.stderr.write(f"reading {number} traces, so that the next time is quick\n")


def describe_older(more: int) -> str:
    """What is said where not all is shown."""
    return f"{more} older; -n shows more" if more > 0 else "there are more; -n shows them"


def run_names(traces: str) -> list[str]:
    """What a shell offers where a run is asked for: `last`, then the newest ids. Raises `OSError`."""
    if not os.path.isdir(traces):
        return []
    found = sorted(
        (name.removesuffix(".jsonl") for name in os.listdir(traces) if name.endswith(".jsonl")), reverse=True
    )
    plain = [name for name in found[:NAMES] if name.translate(_MARKS).isalnum()]  # bash expands what it is offered
    return ["last", *plain] if plain else []


def state_directory(environ: Mapping[str, str]) -> str:
    """Where the state of this program is on Linux, as `config.places` finds by platformdirs."""
    chosen = environ.get("CONDUCTOR_LLM_STATE_DIR")
    if chosen:
        return chosen
    home = environ.get("XDG_STATE_HOME", "").strip() or os.path.expanduser("~/.local/state")
    return f"{home}/conductor-llm"
