"""What a list shows of a stored run, and which runs a list asks for.

These are named tuples, because importing dataclasses alone would double the time that a list takes,
and pathlib that of the names for a shell.
"""
# ruff: noqa: PTH112, PTH208

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

SUFFIX: Final = ".jsonl"  # The extension of trace files
SEPARATOR: Final = "\x1f"  # Separates texts that are stored in one column; no text contains it
MAX_TITLE: Final = 300  # Characters of a question that a list shows


class StoredRun(NamedTuple):
    """A stored run as a list shows it, and its texts, which can be searched.

    `time` is ISO 8601 in UTC; `size` (bytes) and `written` (nanoseconds) are those of the file.
    `cost` is US dollars as text, empty when nothing has a price; `unpriced` calls had none.
    `resumed` is the run whose finished steps were taken over. `conductor` is the model that
    planned. `state` is an `Outcome` of `core/trace.py` or unreadable; `problem` says why a file is
    unreadable or what is damaged in it. `recovered` are the texts about what the run recovered by
    itself. `origin` is who asked, as the trace says it. `waits` is what a person has to approve
    before the run goes on, empty where nobody is waited for; of its `seconds` it only waited for
    approval in `waited`. Each text is one line; several in one field are joined by `SEPARATOR`.
    """

    run: str
    written: int = 0
    size: int = 0
    state: str = "unreadable"
    time: str = ""
    workers: str = ""
    cost: str = ""
    unpriced: int = 0
    tokens: int = 0
    seconds: float = 0.0
    resumed: str = ""
    conductor: str = ""
    problem: str = ""
    recovered: str = ""
    question: str = ""
    subtasks: str = ""
    answers: str = ""
    origin: str = ""
    waits: str = ""
    waited: float = 0.0

    @property
    def title(self) -> str:
        """The beginning of the question."""
        return self.question[:MAX_TITLE]


class RunQuery(NamedTuple):
    """Which runs: in the state, with the worker, and with each term in one of their texts.

    `since` is the beginning of the earliest id. `before` is the id of a run: only older ones are
    asked for. `origins` are those who may have asked for it; where there are none, anybody may
    have.
    """

    state: str = ""
    worker: str = ""
    since: str = ""
    before: str = ""
    origins: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()


EVERY_RUN: Final = RunQuery()


class Conditions:
    """The conditions of an SQL query, and their values."""

    def __init__(self) -> None:
        self._clauses = list[str]()
        self.values = list[object]()

    def require(self, clause: str, *values: object) -> None:
        self._clauses.append(clause)
        self.values += values

    def require_one_of(self, column: str, values: Collection[object]) -> None:
        self.require(f"{column} IN ({', '.join('?' * len(values))})", *values)

    @property
    def text(self) -> str:
        return " AND ".join(self._clauses) or "true"


def stored_run_data(row: StoredRun, location: str) -> dict[str, Any]:
    """Return the run as a JSON object. Unknown values are null; money is text."""
    return {
        "run": row.run,
        "time": row.time,
        "state": row.state,
        "question": row.title,
        "planner": row.conductor or None,
        "conductor": row.conductor or None,  # The earlier name
        "workers": _parts(row.workers),
        "cost": row.cost or None,
        "unpriced": row.unpriced,
        "tokens": row.tokens,
        "seconds": row.seconds,
        "waits": row.waits or None,
        "waited": round(row.waited, 3),
        "resumed": row.resumed or None,
        "problem": row.problem or None,
        "recovered": _parts(row.recovered),
        "path": location,
        "bytes": max(row.size, 0),
    }


def _parts(text: str) -> list[str]:
    if not text:
        return []
    return text.split(SEPARATOR)


def normalize_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """Search terms with single spaces, as the indexed texts have them. Blank terms are left out."""
    normalized = (" ".join(term.split()) for term in terms)
    return tuple(filter(None, normalized))


# Of the end of the announcements, in which the last one is looked for
MAX_ANNOUNCEMENT_BYTES: Final = 4096
OFFERED_NAMES: Final = 200  # Ids that are offered to a shell for completion
_PUNCTUATION: Final = str.maketrans("", "", "-._")


def run_names(traces: str) -> list[str]:
    """Return what a shell offers as a run: `last`, then the newest ids. Raises `OSError`."""
    if not os.path.isdir(traces):
        return []
    ids = sorted(
        (name.removesuffix(SUFFIX) for name in os.listdir(traces) if name.endswith(SUFFIX)),
        reverse=True,
    )
    # bash expands what it is offered, so other names could run commands.
    plain = [name for name in ids[:OFFERED_NAMES] if name.translate(_PUNCTUATION).isalnum()]
    if plain:
        return ["last", *plain]
    return []


def announce_run(directory: str, run: str, origin: str) -> None:
    """Let the index of a directory know of a new file, and who asked for its run.

    So it need not list the directory, nor read the file for those who did not ask.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with suppress(OSError):  # then it is found when the directory is listed
        file = os.open(f"{directory}.new", flags, 0o600)
        try:
            os.write(file, f"{run}\t{origin}\n".encode("utf-8", "replace"))
        finally:
            os.close(file)


def last_announced_run(directory: str) -> str:
    """Return the run that was announced last; empty where that is not known."""
    try:
        with open(f"{directory}.new", "rb") as file:  # noqa: PTH123
            start = max(0, os.fstat(file.fileno()).st_size - MAX_ANNOUNCEMENT_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return ""
    if start > 0:
        del lines[0]  # it is cut
    if len(lines) < 2:
        return ""
    run = lines[-2].partition(b"\t")[0].decode("utf-8", "replace")
    is_name = run.isprintable() and "/" not in run
    return run if is_name else ""
