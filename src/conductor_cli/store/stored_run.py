"""What a list shows of a stored run, and which runs a list asks for.

These are named tuples, because importing dataclasses alone would double the time that a list takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

SUFFIX: Final = ".jsonl"
"""The extension of trace files."""

SEPARATOR: Final = "\x1f"
"""Separates texts that are stored in one column; no text contains it."""

TRIGRAM: Final = 3
"""Characters of the shortest text that the full-text index can look up."""


class StoredRun(NamedTuple):
    """A stored run as a list shows it.

    `time` is ISO 8601 in UTC; `size` (bytes) and `written` (nanoseconds) are those of the file. `shape` counts steps
    per stage: `2 > 1` is two at once, then one that sees them. `cost` is US dollars as text, empty when nothing has a
    price; `unpriced` calls had none. `resumed` is the run whose finished steps were taken over. `state` is finished,
    partial, failed, running, interrupted or unreadable; `problem` says why a file is unreadable.
    """

    run: str
    written: int = 0
    size: int = 0
    state: str = "unreadable"
    time: str = ""
    mode: str = ""
    conductor: str = ""
    shape: str = ""
    workers: str = ""
    cost: str = ""
    unpriced: int = 0
    tokens: int = 0
    seconds: float = 0.0
    resumed: str = ""
    problem: str = ""
    title: str = ""


class RunTexts(NamedTuple):
    """What can be searched in a run; texts of one kind are joined by `SEPARATOR`."""

    question: str = ""
    subtasks: str = ""
    answers: str = ""


class FoundRun(NamedTuple):
    """A run that a list shows; with its texts if they were searched."""

    row: StoredRun
    texts: RunTexts | None = None


class RunQuery(NamedTuple):
    """Which runs: in one of the states, with the worker, in the mode, and with each term in one of their texts.

    `since` is the beginning of the earliest id.
    """

    states: tuple[str, ...] = ()
    worker: str = ""
    mode: str = ""
    since: str = ""
    terms: tuple[str, ...] = ()


EVERY_RUN: Final = RunQuery()


def stored_run_data(row: StoredRun, directory: str) -> dict[str, Any]:
    """The run as a JSON object. Unknown values are null; money is text."""
    return {
        "run": row.run, "time": row.time, "state": row.state, "question": row.title, "mode": row.mode or None,
        "conductor": row.conductor or None, "plan": row.shape or None,
        "workers": row.workers.split(SEPARATOR) if row.workers else [], "cost": row.cost or None,
        "unpriced": row.unpriced, "tokens": row.tokens, "seconds": row.seconds,
        "resumed": row.resumed or None, "problem": row.problem or None,
        "path": f"{directory}/{row.run}{SUFFIX}", "bytes": max(row.size, 0),
    }  # fmt: skip


def normalize_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """Search terms with single spaces, as the indexed texts have them. Blank terms are left out."""
    found = (" ".join(term.split()) for term in terms)
    return tuple(term for term in found if term)


def sql_condition(wanted: RunQuery, *, words: bool = False) -> tuple[str, list[Any]]:
    """The WHERE clause of a query and its values. With `words`, it uses the full-text index."""
    grams = [term[at : at + TRIGRAM] for term in wanted.terms for at in range(len(term) - TRIGRAM + 1)] if words else []
    match = " AND ".join(f'"{gram}"' for gram in dict.fromkeys(gram.replace('"', '""') for gram in grams))
    workers = [wanted.worker] if wanted.worker else []
    parts: list[tuple[str, list[Any]]] = [
        (f"state IN ({', '.join('?' * len(wanted.states))})", [*wanted.states]),
        (f"instr('{SEPARATOR}' || workers || '{SEPARATOR}', ?)", [f"{SEPARATOR}{name}{SEPARATOR}" for name in workers]),
        ("mode = ?", [wanted.mode] * bool(wanted.mode)),
        ("run >= ?", [wanted.since] * bool(wanted.since)),
        ("id IN (SELECT rowid FROM words WHERE words MATCH ?)", [match] * bool(match)),
    ]
    chosen = [part for part in parts if part[1]]
    where = " WHERE " + " AND ".join(text for text, _ in chosen) if chosen else ""
    return where, [value for _, values in chosen for value in values]
