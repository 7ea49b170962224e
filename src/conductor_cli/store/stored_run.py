"""What a stored run is in a list, and which runs a list is to have.

Named tuples, as they come out of the index: dataclasses would double the time of a start, and a list is to be as quick.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

SUFFIX: Final = ".jsonl"
"""How the files of traces end."""

SEPARATOR: Final = "\x1f"
"""Stands between texts that are kept in one column, and in none of them."""

TRIGRAM: Final = 3
"""Characters of the shortest text that the index of words can look up."""


class StoredRun(NamedTuple):
    """A stored run as a list shows it.

    Times are ISO 8601 in UTC, `seconds` how long it took, `size` bytes and `written` nanoseconds of its file. `shape`
    counts the steps that need each other: `2 > 1` are two at once, then one. `cost` is US dollars as text, empty where
    nothing has a price; `unpriced` calls had none. `resumed` is the run whose finished steps it takes over. `state` is
    finished, partial, failed, running, interrupted or unreadable, then `problem` says why.
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
    """What can be searched in a run; several texts of one kind with `SEPARATOR` between them."""

    question: str = ""
    subtasks: str = ""
    answers: str = ""


class FoundRun(NamedTuple):
    """A run that is shown; its texts where they were searched."""

    row: StoredRun
    texts: RunTexts | None = None


class RunQuery(NamedTuple):
    """Which runs: in one of the states, with the worker, in the mode, with each of the terms in one of its texts.

    `since` is how the id of the earliest one begins.
    """

    states: tuple[str, ...] = ()
    worker: str = ""
    mode: str = ""
    since: str = ""
    terms: tuple[str, ...] = ()


EVERY_RUN: Final = RunQuery()


def run_data(row: StoredRun, directory: str) -> dict[str, Any]:
    """A row as a JSON object. What is not known is null; money is text."""
    return {
        "run": row.run, "time": row.time, "state": row.state, "question": row.title, "mode": row.mode or None,
        "conductor": row.conductor or None, "plan": row.shape or None,
        "workers": row.workers.split(SEPARATOR) if row.workers else [], "cost": row.cost or None,
        "unpriced": row.unpriced, "tokens": row.tokens, "seconds": row.seconds,
        "resumed": row.resumed or None, "problem": row.problem or None,
        "path": f"{directory}/{row.run}{SUFFIX}", "bytes": max(row.size, 0),
    }  # fmt: skip


def normalize_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """Terms as the texts are: with one space where there is white space. A term without anything else is left out."""
    found = (" ".join(term.split()) for term in terms)
    return tuple(term for term in found if term)


def sql_condition(wanted: RunQuery, *, words: bool = False) -> tuple[str, list[Any]]:
    """The WHERE of a query and its values. With `words` the index of words says where the terms may be."""
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
