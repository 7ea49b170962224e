"""What is known of all stored runs, in one SQLite file beside the directory of traces.

It is derived data: it may be deleted at any time, and is made again. A look at it first brings it up to date, and reads
only the files that are new or were being written; each row that is handed out is compared with the size and time of its
file. Processes may do so at once: every change is a transaction, and doing the same twice does no harm. An index that
is damaged, or of another version, is made anew; where the disk takes none, one in memory is made for the moment.

Nothing is imported here that a list does not need, dataclasses among it: they would double the time of a start.
"""
# pathlib is another; the statements are put together from names of columns.
# ruff: noqa: PTH108, PTH110, PTH112, PTH116, PTH208, S608

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from conductor_cli.store.stored_run import (
    EVERY_RUN,
    SEPARATOR,
    SUFFIX,
    FoundRun,
    RunQuery,
    RunTexts,
    StoredRun,
    sql_condition,
)

VERSION: Final = 2
"""Raise it when rows are made differently: an index of another version is made anew."""

SETTLED: Final = 3_000_000_000
"""Nanoseconds. The time of a directory that changed more recently may stay the same when it changes again."""

BATCH: Final = 200
"""Files that are read in one transaction: what a process that is killed has read so far is kept."""

MANY: Final = 500
"""Files whose reading takes a while."""

PATIENCE: Final = 10.0
"""Seconds to wait for another process that writes."""

_COLUMNS: Final = ", ".join(StoredRun._fields)
_TEXTS: Final = ", ".join(RunTexts._fields)
_TABLES: Final = f"""
    CREATE TABLE runs (id INTEGER PRIMARY KEY, {_COLUMNS}, {_TEXTS}, UNIQUE (run));
    CREATE INDEX newest ON runs (substr(run, 1, 15) DESC, written DESC);
    CREATE INDEX running ON runs (state);
    CREATE TABLE seen (directory INTEGER);
    PRAGMA user_version = {VERSION};
"""
_WORDS: Final = f"""
    CREATE VIRTUAL TABLE words USING fts5(
        {_TEXTS}, content='runs', content_rowid='id', tokenize='trigram', detail='none'
    );
    CREATE TRIGGER added AFTER INSERT ON runs BEGIN
        INSERT INTO words(rowid, {_TEXTS}) VALUES (new.id, new.question, new.subtasks, new.answers);
    END;
    CREATE TRIGGER gone AFTER DELETE ON runs BEGIN
        INSERT INTO words(words, rowid, {_TEXTS})
        VALUES ('delete', old.id, old.question, old.subtasks, old.answers);
    END;
"""
_PLACES: Final = ", ".join("?" * (len(StoredRun._fields) + len(RunTexts._fields)))
_INSERT: Final = f"INSERT INTO runs ({_COLUMNS}, {_TEXTS}) VALUES ({_PLACES})"


class RunIndex:
    """The rows of a directory of traces. `reading` is called where it takes a while, with how many files are read."""

    def __init__(self, directory: str, reading: Callable[[int], None] = lambda _: None) -> None:
        self.directory = directory
        self.path = f"{directory}.index"
        self._reading = reading

    def newest(self, wanted: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[FoundRun], int]:
        """The newest runs that are wanted, and how many more there are: -1 for some.

        Raises `OSError` when the directory cannot be read.
        """
        if not os.path.isdir(self.directory):
            if os.path.lexists(self.directory):
                os.listdir(self.directory)  # says what it is instead
            return [], 0
        for path in (self.path, self.path):
            try:
                return self._look(path, wanted, count)
            except sqlite3.Error as error:
                if "locked" in str(error):
                    break
                self.forget()
        return self._look(":memory:", wanted, count)

    def _look(self, path: str, wanted: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        with _opened(path) as known:
            return _Known(self.directory, known, self._reading).newest(wanted, count)

    def refresh(self) -> None:
        """Take out what is gone from the disk. For whoever has just deleted traces: their words go, too."""
        if os.path.exists(self.path):
            self.newest(count=0)

    def forget(self) -> None:
        """Delete the index."""
        for name in (self.path, f"{self.path}-journal"):
            with suppress(OSError):
                os.unlink(name)


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    """A connection to an index that has its tables, readable by the owner only. Raises `sqlite3.Error`."""
    if path != ":memory:" and not os.path.exists(path):
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    known = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        if _version(known) != VERSION:
            _make(known)
        yield known
    finally:
        known.close()


def _version(known: sqlite3.Connection) -> int:
    version: int = known.execute("PRAGMA user_version").fetchone()[0]
    return version


def _make(known: sqlite3.Connection) -> None:
    """Make the tables, unless another process has just done so."""
    with _changing(known):
        version = _version(known)
        if version == VERSION:
            return
        if version:
            raise sqlite3.DatabaseError(f"version {version}")
        _run(known, _TABLES)
        known.execute("SAVEPOINT words")
        try:
            _run(known, _WORDS)
        except sqlite3.OperationalError:  # an SQLite without them: every text is looked through instead
            known.execute("ROLLBACK TO words")


def _run(known: sqlite3.Connection, script: str) -> None:
    """Several statements within the transaction; `executescript` would end it."""
    statement = ""
    for line in script.splitlines():
        statement += line
        if sqlite3.complete_statement(statement):
            known.execute(statement)
            statement = ""


@contextmanager
def _changing(known: sqlite3.Connection) -> Iterator[None]:
    """A transaction that nobody else's stands beside."""
    known.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        known.execute("ROLLBACK")
        raise
    known.execute("COMMIT")


class _Known:
    """The index while it is open."""

    def __init__(self, directory: str, known: sqlite3.Connection, reading: Callable[[int], None]) -> None:
        self._directory = directory
        self._known = known
        self._reading = reading

    def newest(self, wanted: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        self._catch_up()
        for _ in range(2):
            found, more = self._found(wanted, count) if wanted.terms else self._listed(wanted, count)
            if not self._read([each.row.run for each in found if self._is_stale(each.row)]):
                break
        return found, more

    # Keeping up with the directory

    def _catch_up(self) -> None:
        changed = os.stat(self._directory).st_mtime_ns
        now = time.time_ns()
        seen = self._known.execute("SELECT directory FROM seen").fetchone()
        self._read([run for (run,) in self._known.execute("SELECT run FROM runs WHERE state = 'running'")])
        if seen is not None and seen[0] == changed:
            return
        names = [name for name in os.listdir(self._directory) if name.endswith(SUFFIX) and name.isprintable()]
        there = {name.removesuffix(SUFFIX) for name in names}
        known = {run for (run,) in self._known.execute("SELECT run FROM runs")}
        self._take_out(known - there)
        self._read(sorted(there - known, reverse=True))
        if changed < now - SETTLED:
            with _changing(self._known):
                self._known.execute("DELETE FROM seen")
                self._known.execute("INSERT INTO seen VALUES (?)", (changed,))

    def _is_stale(self, row: StoredRun) -> bool:
        """Whether the file of a row has changed since it was read. One that is being written was read just now."""
        if row.state == "running":
            return False
        try:
            now = os.stat(f"{self._directory}/{row.run}{SUFFIX}")
        except OSError:
            return row.size >= 0
        return (now.st_size, now.st_mtime_ns) != (row.size, row.written)

    def _read(self, runs: Sequence[str]) -> bool:
        """Read these runs' files and keep what they say. Returns whether there was any."""
        if not runs:
            return False
        from conductor_cli.store.run_summary import summarize_run  # it loads the events

        if len(runs) > MANY:
            self._reading(len(runs))
        for start in range(0, len(runs), BATCH):
            made = [summarize_run(self._directory, run) for run in runs[start : start + BATCH]]
            with _changing(self._known):
                self._delete(row.run for row, _ in made)
                self._known.executemany(_INSERT, [(*row, *texts) for row, texts in made])
        return True

    def _take_out(self, runs: Iterable[str]) -> None:
        gone = list(runs)
        if gone:
            self._known.execute("PRAGMA secure_delete = ON")
            with _changing(self._known):
                self._delete(gone)

    def _delete(self, runs: Iterable[str]) -> None:
        self._known.executemany("DELETE FROM runs WHERE run = ?", [(run,) for run in runs])

    # Looking

    def _listed(self, wanted: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        where, values = sql_condition(wanted)
        order = "ORDER BY substr(run, 1, 15) DESC, written DESC LIMIT ?"
        rows = self._known.execute(f"SELECT {_COLUMNS} FROM runs{where} {order}", [*values, count]).fetchall()
        found = [FoundRun(StoredRun(*row)) for row in rows]
        if len(found) < count:
            return found, 0
        every = self._known.execute(f"SELECT count(*) FROM runs{where}", values).fetchone()[0]
        return found, every - len(found)

    def _found(self, wanted: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        """As `_listed`; each text is looked at again, as the index of words only says which ones may hold a term."""
        has_words = self._known.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone()
        where, values = sql_condition(wanted, words=bool(has_words))
        order = "ORDER BY substr(run, 1, 15) DESC, written DESC"
        terms = [term.lower() for term in wanted.terms]
        found: list[FoundRun] = []
        for (number,) in self._known.execute(f"SELECT id FROM runs{where} {order}", values):
            texts = self._known.execute(f"SELECT {_TEXTS} FROM runs WHERE id = ?", (number,)).fetchone()
            whole = SEPARATOR.join(texts).lower()
            if not all(term in whole for term in terms):
                continue
            if len(found) == count:
                return found, -1
            row = self._known.execute(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (number,)).fetchone()
            found.append(FoundRun(StoredRun(*row), RunTexts(*texts)))
        return found, 0
