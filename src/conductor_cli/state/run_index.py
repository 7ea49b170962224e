"""The index of all stored runs: one SQLite file beside the directory of traces.

It is derived data that may be deleted at any time. A query first brings it up to date: it reads
only files that are new or were not finished. Several processes may do so at once, because every
change is a transaction and repeating one does no harm. An index that is damaged, or of another
version, is rebuilt; if the disk takes no file, a temporary index in memory is used.

Nothing is imported that a list does not need. Dataclasses, for example, would double its time, and
so does pathlib.
"""

# ruff: noqa: PTH108, PTH110, PTH112, PTH116, PTH208, S608

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from conductor_cli.state.stored_run import (
    EVERY_RUN,
    SEPARATOR,
    SUFFIX,
    Conditions,
    RunQuery,
    StoredRun,
)

# Raise it when rows are computed differently, so that existing indexes are rebuilt
VERSION: Final = 12
MANY_FILES: Final = 500  # From this many new files on, the user is told why it takes a while
PATIENCE_SECONDS: Final = 10.0  # Seconds to wait for another process that is writing
_CREATING: Final = threading.Lock()
"""Held by the thread that creates the file: another one opens it only when its descriptor is
closed.
"""

_COLUMNS: Final = ", ".join(StoredRun._fields)
_PLACES: Final = ", ".join("?" * len(StoredRun._fields))
_TEXTS: Final = "question, subtasks, answers"
_BEFORE: Final = (
    "(substr(run, 1, 15), written) < (SELECT substr(run, 1, 15), written FROM runs WHERE run = ?)"
)
_TABLES: Final = (
    f"CREATE TABLE runs (id INTEGER PRIMARY KEY, {_COLUMNS}, UNIQUE (run))",
    "CREATE INDEX newest ON runs (substr(run, 1, 15) DESC, written DESC)",
    "CREATE INDEX states ON runs (state)",
    # Else the texts of all others would be read to find the runs of one client
    "CREATE INDEX origins ON runs (origin, substr(run, 1, 15) DESC, written DESC)",
    "CREATE TABLE seen (directory INTEGER, listed INTEGER, took INTEGER, announced INTEGER)",
    f"PRAGMA user_version = {VERSION}",
)
MAX_LISTING_SHARE: Final = 20
"""A directory is listed again only after so many times as long as that took.

So its size costs at most a twentieth of the time. New runs of conductor are announced, and need no
list; what others put into the directory or take out of it is found with the next one.
"""
MAX_ANNOUNCED_BYTES: Final = 1 << 20  # Of the file of announcements; a list makes them needless
_UNFINISHED: Final = "state IN ('running', 'interrupted', 'unreadable')"


class _LastListing(NamedTuple):
    """When a directory was listed last, in nanoseconds.

    `directory` is its time of change then, 0 where it may have changed again within one tick of the
    clock. `announced` is how much of the announcements was read.
    """

    directory: int = 0
    listed: int = 0
    took: int = 0
    announced: int = 0

    def is_recent(self, now: int) -> bool:
        return self.listed <= now < self.listed + MAX_LISTING_SHARE * self.took


class RunIndex:
    """The index of one directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = f"{directory}.index"

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        """Return the newest matching runs, all for -1, and whether there are more.

        Raises `OSError`.
        """
        if not os.path.isdir(self.directory):
            if os.path.lexists(self.directory):
                os.listdir(self.directory)  # raises an error that says what it is instead
            return [], False
        # A damaged index is deleted and built again once; a locked one is left to the process that
        # writes it.
        for _ in range(2):
            try:
                return self._query(self.path, query, count)
            except sqlite3.Error as error:
                if "locked" in str(error):
                    break
                self.delete()
        return self._query(":memory:", query, count)

    def refresh(self) -> None:
        """Remove runs whose files are gone, and their texts. Call it after deleting traces."""
        if not os.path.exists(self.path):
            return
        with suppress(sqlite3.Error), _connect(self.path) as database, _transaction(database):
            database.execute("DELETE FROM seen")
        self.newest(count=0)

    def forget(self, run: str) -> None:
        """Read the file of a run again at the next query: it was changed after its end."""
        if not os.path.exists(self.path):
            return
        with suppress(sqlite3.Error), _connect(self.path) as database, _transaction(database):
            _delete_rows(database, [run])
            database.execute("DELETE FROM seen")

    def delete(self) -> None:
        for name in (self.path, f"{self.path}-journal"):
            with suppress(OSError):
                os.unlink(name)

    def _query(self, path: str, query: RunQuery, count: int) -> tuple[list[StoredRun], bool]:
        with _connect(path) as database:
            self._update(database, query.origins)
            return _find_runs(database, query, count)

    def _update(self, database: sqlite3.Connection, origins: Collection[str]) -> None:
        """Read new files and those that were not finished, and remove runs whose files are gone.

        With `origins`, those are read whose runs they have asked for, as far as that is known: one
        client does not wait until what others have sent is read.
        """
        changed = os.stat(self.directory).st_mtime_ns
        row = database.execute("SELECT directory, listed, took, announced FROM seen").fetchone()
        last = _LastListing(*row or ())
        # The directory does not change while a run is being written, so these files are looked at
        # every time.
        where = Conditions()
        where.require(_UNFINISHED)
        if origins:
            where.require_one_of("origin", origins)
        unfinished = database.execute(
            f"SELECT run, state, size, written FROM runs WHERE {where.text}", where.values
        ).fetchall()
        changed_runs = []
        for run, state, size, written in unfinished:
            try:
                file = os.stat(f"{self.directory}/{run}{SUFFIX}")
            except OSError:
                differs = size >= 0
            else:
                is_same = (file.st_size, file.st_mtime_ns) == (size, written)
                differs = state == "running" or not is_same
            if differs:
                changed_runs.append(run)
        self._read_files(database, changed_runs)
        if last.directory == changed:
            return
        announced, end = self._read_announcements(last.announced)
        if last.is_recent(time.time_ns()):
            runs = _not_indexed(database, list(announced))
            self._read_new_files(database, runs, announced, origins)
            _keep_listing(database, last._replace(announced=end))
        else:
            self._list_directory(database, changed, announced, end, origins)

    def _read_announcements(self, start: int) -> tuple[dict[str, str | None], int]:
        """Return the runs that were announced after so many bytes, and how many these are then.

        With each run is who asked for it; None where that is not known.
        """
        try:
            with open(f"{self.directory}.new", "rb") as file:  # noqa: PTH123
                if os.fstat(file.fileno()).st_size < start:
                    start = 0  # it was begun anew
                file.seek(start)
                lines, end, _ = file.read().rpartition(b"\n")
        except OSError:
            return {}, 0
        announced: dict[str, str | None] = {}
        for line in lines.split(b"\n"):
            run, tab, origin = line.decode("utf-8", "replace").partition("\t")
            is_name = run.isprintable() and "/" not in run
            if is_name and os.path.exists(f"{self.directory}/{run}{SUFFIX}"):
                announced[run] = None
                if tab:
                    announced[run] = origin
        return announced, start + len(lines) + len(end)

    def _list_directory(
        self,
        database: sqlite3.Connection,
        changed: int,
        announced: Mapping[str, str | None],
        end: int,
        origins: Collection[str],
    ) -> None:
        """Read what is new in the directory, and drop the runs whose files are gone."""
        began = time.monotonic_ns()
        now = time.time_ns()
        names = []
        for name in os.listdir(self.directory):
            if name.endswith(SUFFIX) and name.isprintable():
                names.append(name)
        stored = {name.removesuffix(SUFFIX) for name in names}
        indexed = {run for (run,) in database.execute("SELECT run FROM runs")}
        if indexed - stored:
            database.execute("PRAGMA secure_delete = ON")  # deleted texts must not stay in the file
            with _transaction(database):
                _delete_rows(database, indexed - stored)
        took = time.monotonic_ns() - began
        new_runs = sorted(stored - indexed, reverse=True)
        self._read_new_files(database, new_runs, announced, origins)
        # A later change within the same tick of the clock would go unnoticed, so a time of the last
        # 3 s is not kept.
        if changed >= now - 3_000_000_000:
            changed = 0
        if end > MAX_ANNOUNCED_BYTES:
            with suppress(OSError):
                os.unlink(f"{self.directory}.new")
            end = 0
        _keep_listing(database, _LastListing(changed, now, took, end))

    def _read_new_files(
        self,
        database: sqlite3.Connection,
        runs: Sequence[str],
        announced: Mapping[str, str | None],
        origins: Collection[str],
    ) -> None:
        """Read new files, but for those that none of `origins` has asked for.

        They are read at the first query that they may belong to, as those that are being written.
        """
        files = []
        unread = []
        for run in runs:
            origin = announced.get(run)
            if origins and origin is not None and origin not in origins:
                unread.append(StoredRun(run=run, state="running", origin=origin))
            else:
                files.append(run)
        if unread:
            _insert_rows(database, unread)
        self._read_files(database, files)

    def _read_files(self, database: sqlite3.Connection, runs: Sequence[str]) -> None:
        if not runs:
            return
        # Loads the events, which most lists do not need
        from conductor_cli.state.run_summary import summarize_runs

        if len(runs) > MANY_FILES:
            sys.stderr.write(f"indexing {len(runs)} traces; the next list will be quick\n")
        for rows in summarize_runs(self.directory, runs):
            _insert_rows(database, rows)


def _not_indexed(database: sqlite3.Connection, runs: Sequence[str]) -> list[str]:
    missing = []
    for run in dict.fromkeys(runs):
        if not database.execute("SELECT 1 FROM runs WHERE run = ?", (run,)).fetchone():
            missing.append(run)
    return missing


def _keep_listing(database: sqlite3.Connection, listing: _LastListing) -> None:
    with _transaction(database):
        database.execute("DELETE FROM seen")
        database.execute("INSERT INTO seen VALUES (?, ?, ?, ?)", listing)


@contextmanager
def _connect(path: str) -> Iterator[sqlite3.Connection]:
    """A connection to an index with its tables, readable by the owner only.

    Raises `sqlite3.Error`.
    """
    if path != ":memory:":
        # A process that closes any descriptor of a file loses all the locks that its connections
        # hold on that file, so a file that is there is left to SQLite, also while another thread
        # creates it.
        with _CREATING, suppress(OSError):
            os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    database = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)
    try:
        if _version(database) != VERSION:
            with _transaction(database):
                # Another process may have just made the tables. One by one: `executescript` ends
                # the transaction.
                version = _version(database)
                if version not in (0, VERSION):
                    raise sqlite3.DatabaseError(f"version {version}")
                if version == 0:
                    for statement in _TABLES:
                        database.execute(statement)
        yield database
    finally:
        database.close()


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    with database:  # commits at the end, or rolls back
        database.execute("BEGIN IMMEDIATE")
        yield


def _insert_rows(database: sqlite3.Connection, rows: Sequence[StoredRun]) -> None:
    with _transaction(database):
        _delete_rows(database, [row.run for row in rows])
        database.executemany(f"INSERT INTO runs ({_COLUMNS}) VALUES ({_PLACES})", rows)


def _delete_rows(database: sqlite3.Connection, runs: Iterable[str]) -> None:
    database.executemany("DELETE FROM runs WHERE run = ?", [(run,) for run in runs])


def _find_runs(
    database: sqlite3.Connection, query: RunQuery, count: int
) -> tuple[list[StoredRun], bool]:
    terms = [term.lower() for term in query.terms]

    def has_terms(*texts: str) -> bool:
        joined = SEPARATOR.join(texts).lower()
        return all(term in joined for term in terms)

    database.create_function("has_terms", 3, has_terms)
    where = Conditions()
    if query.state:
        where.require("state = ?", query.state)
    if query.worker:
        has_worker = f"instr('{SEPARATOR}' || workers || '{SEPARATOR}', ?)"
        where.require(has_worker, f"{SEPARATOR}{query.worker}{SEPARATOR}")
    if query.since:
        where.require("run >= ?", query.since)
    if query.before:
        where.require(_BEFORE, query.before)
    if query.origins:
        where.require_one_of("origin", query.origins)
    if terms:
        # Looking at every text takes 4 µs a run. A full-text index takes 1 ms a run to make, and
        # saves a search 40 ms.
        where.require(f"has_terms({_TEXTS})")
    most = count
    if count >= 0:
        most = count + 1
    cursor = database.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE {where.text}"
        " ORDER BY substr(run, 1, 15) DESC, written DESC LIMIT ?",
        [*where.values, most],
    )
    rows = [StoredRun(*row) for row in cursor]
    if count < 0:
        return rows, False
    return rows[:count], len(rows) > count
