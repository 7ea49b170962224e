"""The index of all stored runs: one SQLite file beside the directory of traces.

It is derived data that may be deleted at any time. A query first brings it up to date: it reads only files that are new
or were being written, and compares each row that it returns with the size and time of its file. Several processes may
do so at once, because every change is a transaction and repeating one does no harm. An index that is damaged, or of
another version, is rebuilt; if the disk takes no file, a temporary index in memory is used.

Nothing is imported that a list does not need. Dataclasses, for example, would double its time, and so does pathlib.
"""
# The statements are composed of column names only.
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
"""Raise it when rows are computed differently, so that existing indexes are rebuilt."""

STABLE_AFTER: Final = 3_000_000_000
"""Nanoseconds. A directory that changed more recently may change again without a new modification time."""

BATCH: Final = 200
"""Files that are read in one transaction, so that a process that is killed keeps most of its work."""

MANY: Final = 500
"""From this many new files on, the user is told why it takes a while."""

PATIENCE: Final = 10.0
"""Seconds to wait for another process that is writing."""

_COLUMNS: Final = ", ".join(StoredRun._fields)
_TEXTS: Final = ", ".join(RunTexts._fields)
_TABLES: Final = (
    f"CREATE TABLE runs (id INTEGER PRIMARY KEY, {_COLUMNS}, {_TEXTS}, UNIQUE (run))",
    "CREATE INDEX newest ON runs (substr(run, 1, 15) DESC, written DESC)",
    "CREATE INDEX running ON runs (state)",
    "CREATE TABLE seen (directory INTEGER)",
    f"PRAGMA user_version = {VERSION}",
)
_WORDS: Final = (
    f"""CREATE VIRTUAL TABLE words USING fts5(
        {_TEXTS}, content='runs', content_rowid='id', tokenize='trigram', detail='none'
    )""",
    f"""CREATE TRIGGER added AFTER INSERT ON runs BEGIN
        INSERT INTO words(rowid, {_TEXTS}) VALUES (new.id, new.question, new.subtasks, new.answers);
    END""",
    f"""CREATE TRIGGER gone AFTER DELETE ON runs BEGIN
        INSERT INTO words(words, rowid, {_TEXTS})
        VALUES ('delete', old.id, old.question, old.subtasks, old.answers);
    END""",
)
_PLACES: Final = ", ".join("?" * (len(StoredRun._fields) + len(RunTexts._fields)))
_INSERT: Final = f"INSERT INTO runs ({_COLUMNS}, {_TEXTS}) VALUES ({_PLACES})"
_ORDER: Final = "ORDER BY substr(run, 1, 15) DESC, written DESC"


class RunIndex:
    """The index of one directory. `on_indexing` is called with the number of files if reading takes a while."""

    def __init__(self, directory: str, on_indexing: Callable[[int], None] = lambda _: None) -> None:
        self.directory = directory
        self.path = f"{directory}.index"
        self._on_indexing = on_indexing

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[FoundRun], int]:
        """The newest matching runs, and how many more there are: -1 for an unknown number.

        Raises `OSError` when the directory cannot be read.
        """
        if not os.path.isdir(self.directory):
            if os.path.lexists(self.directory):
                os.listdir(self.directory)  # raises an error that says what it is instead
            return [], 0
        # A damaged index is deleted and built again once; a locked one is left to the process that writes it.
        for _ in range(2):
            try:
                return self._query(self.path, query, count)
            except sqlite3.Error as error:
                if "locked" in str(error):
                    break
                self.delete()
        return self._query(":memory:", query, count)

    def _query(self, path: str, query: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        with _connect(path) as database:
            return _OpenIndex(self.directory, database, self._on_indexing).newest(query, count)

    def refresh(self) -> None:
        """Remove runs whose files are gone, and their texts. Call it after deleting traces."""
        if os.path.exists(self.path):
            self.newest(count=0)

    def delete(self) -> None:
        for name in (self.path, f"{self.path}-journal"):
            with suppress(OSError):
                os.unlink(name)


@contextmanager
def _connect(path: str) -> Iterator[sqlite3.Connection]:
    """A connection to an index with its tables, readable by the owner only. Raises `sqlite3.Error`."""
    if path != ":memory:" and not os.path.exists(path):
        with suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        if _version(database) != VERSION:
            _create_tables(database)
        yield database
    finally:
        database.close()


def _version(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


def _create_tables(database: sqlite3.Connection) -> None:
    with _transaction(database):
        version = _version(database)
        if version == VERSION:  # another process has just done it
            return
        if version:
            raise sqlite3.DatabaseError(f"version {version}")
        # One by one, because `executescript` would end the transaction.
        for statement in _TABLES:
            database.execute(statement)
        database.execute("SAVEPOINT words")
        try:
            for statement in _WORDS:
                database.execute(statement)
        except sqlite3.OperationalError:  # this SQLite has no FTS5 or no trigrams: searches look through every text
            database.execute("ROLLBACK TO words")


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


class _OpenIndex:
    """The index during one query."""

    def __init__(self, directory: str, database: sqlite3.Connection, on_indexing: Callable[[int], None]) -> None:
        self._directory = directory
        self._database = database
        self._on_indexing = on_indexing

    def newest(self, query: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        self._update()
        find = self._search if query.terms else self._list
        found, more = find(query, count)
        # Files that were edited by hand show up only here, by their size and time.
        if self._read_files([each.row.run for each in found if self._is_stale(each.row)]):
            found, more = find(query, count)
        return found, more

    def _update(self) -> None:
        """Read new files and those that were being written, and remove runs whose files are gone."""
        changed, now = os.stat(self._directory).st_mtime_ns, time.time_ns()
        seen = self._database.execute("SELECT directory FROM seen").fetchone()
        # The directory does not change while a run is being written, so those runs are read every time.
        self._read_files([run for (run,) in self._database.execute("SELECT run FROM runs WHERE state = 'running'")])
        if seen is not None and seen[0] == changed:
            return
        names = [name for name in os.listdir(self._directory) if name.endswith(SUFFIX) and name.isprintable()]
        stored = {name.removesuffix(SUFFIX) for name in names}
        indexed = {run for (run,) in self._database.execute("SELECT run FROM runs")}
        if indexed - stored:
            self._database.execute("PRAGMA secure_delete = ON")  # deleted texts must not stay in the file
            with _transaction(self._database):
                self._delete_rows(indexed - stored)
        self._read_files(sorted(stored - indexed, reverse=True))
        # A later change within the same tick of the clock would go unnoticed, so a recent time is not remembered.
        if changed < now - STABLE_AFTER:
            with _transaction(self._database):
                self._database.execute("DELETE FROM seen")
                self._database.execute("INSERT INTO seen VALUES (?)", (changed,))

    def _is_stale(self, row: StoredRun) -> bool:
        """Whether a file has changed since it was read. One that is being written was read just now."""
        if row.state == "running":
            return False
        try:
            now = os.stat(f"{self._directory}/{row.run}{SUFFIX}")
        except OSError:
            return row.size >= 0
        return (now.st_size, now.st_mtime_ns) != (row.size, row.written)

    def _read_files(self, runs: Sequence[str]) -> bool:
        """Read the files of these runs into the index. Returns whether there were any."""
        if not runs:
            return False
        from conductor_cli.store.run_summary import summarize_run  # loads the events, which most lists do not need

        if len(runs) > MANY:
            self._on_indexing(len(runs))
        for start in range(0, len(runs), BATCH):
            read = [summarize_run(self._directory, run) for run in runs[start : start + BATCH]]
            with _transaction(self._database):
                self._delete_rows(row.run for row, _ in read)
                self._database.executemany(_INSERT, [(*row, *texts) for row, texts in read])
        return True

    def _delete_rows(self, runs: Iterable[str]) -> None:
        self._database.executemany("DELETE FROM runs WHERE run = ?", [(run,) for run in runs])

    def _list(self, query: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        where, values = sql_condition(query)
        rows = self._database.execute(f"SELECT {_COLUMNS} FROM runs{where} {_ORDER} LIMIT ?", [*values, count])
        found = [FoundRun(StoredRun(*row)) for row in rows.fetchall()]
        if len(found) < count:
            return found, 0
        total = self._database.execute(f"SELECT count(*) FROM runs{where}", values).fetchone()[0]
        return found, total - len(found)

    def _search(self, query: RunQuery, count: int) -> tuple[list[FoundRun], int]:
        """Like `_list`. The full-text index only says which texts may contain a term, so each one is checked."""
        has_words = self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone()
        where, values = sql_condition(query, words=bool(has_words))
        terms = [term.lower() for term in query.terms]
        found: list[FoundRun] = []
        for (number,) in self._database.execute(f"SELECT id FROM runs{where} {_ORDER}", values):
            texts = self._database.execute(f"SELECT {_TEXTS} FROM runs WHERE id = ?", (number,)).fetchone()
            joined = SEPARATOR.join(texts).lower()
            if not all(term in joined for term in terms):
                continue
            if len(found) == count:
                return found, -1
            row = self._database.execute(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (number,)).fetchone()
            found.append(FoundRun(StoredRun(*row), RunTexts(*texts)))
        return found, 0
