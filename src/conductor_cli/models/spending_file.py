"""The file of what is spent: its table, what it says of past days, and how it stores money."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.system_errors import describe_system_error
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.disk import make_private_directory

FILE: Final = "spending.sqlite"

BUSY_SECONDS: Final = 10.0
"""How long a process waits for another one that is writing."""

SWITCH_POLL_SECONDS: Final = 0.002
"""Time between two tries to switch a new database to a write-ahead log."""

_CREATING: Final = threading.Lock()
"""Held by the thread that creates the file: another one opens it only when its descriptor is closed."""

_NANO: Final = 10**9
"""Money is stored in billionths of a dollar: SQLite adds up integers exactly."""

MOST: Final = 10**15
"""The most that one row counts, in tokens and in billionths of a dollar. A worker that states an absurd number of
tokens must use the limit up; it must not make the sum too large for SQLite."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    day TEXT NOT NULL,
    owner TEXT,  -- the process of a call that has not ended, NULL once it has. Such a row holds the most it may use
    worker TEXT NOT NULL DEFAULT '',
    client TEXT NOT NULL DEFAULT '',  -- the name of the key with which a client of the server asked
    provider TEXT NOT NULL DEFAULT '',  -- who read it: a kind, a host, or this machine
    model TEXT NOT NULL DEFAULT '',
    worker_call INTEGER NOT NULL,  -- 1 if limits.calls_day counts it: the conductor's own calls are not counted
    failed INTEGER NOT NULL DEFAULT 0,  -- 1 if nothing of the reply was used
    calls INTEGER NOT NULL DEFAULT 0,
    unpriced INTEGER NOT NULL DEFAULT 0,
    tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0,
    cost INTEGER
);
CREATE INDEX IF NOT EXISTS calls_by_day ON calls (day);
"""

_ADDED: Final = {"client": ("TEXT NOT NULL DEFAULT ''", "''"), "failed": ("INTEGER NOT NULL DEFAULT 0", "0")}
"""Columns that a file of an earlier version lacks: their definition, and the value that rows without them have."""

_GROUPS: Final = {"worker": "provider, worker, model, ''", "key": "'', '', '', client"}
"""Of whom a row is: four columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow:
    """What one worker, or the requests with one key, used on one day.

    `key` is the name of a client's key where rows are by key; empty is who asks without one. `provider`, `worker` and
    `model` are empty then. `calls` are those that limits count, `usage.calls` all.
    `failed` are the calls whose replies were not used, because the call broke off or the plan was not valid, and their
    cost; both are a part of `usage`. `open` are the calls that have no end: they are under way, or their process was
    killed. `usage` has the most that they may cost, with all of their tokens as `tokens_in`.
    """

    day: date
    provider: str
    worker: str
    model: str
    usage: Usage
    calls: int
    key: str = ""
    failed: Usage = NO_USAGE
    open: int = 0


def open_database(path: Path, *, checkpoints: bool = True) -> sqlite3.Connection:
    """The file, begun where it is not there. Raises `OSError` and `sqlite3.Error`.

    Without `checkpoints`, somebody has to call `checkpoint` now and then.
    """
    make_private_directory(path.parent)
    # SQLite would make it readable for everybody. A process that closes any descriptor of a file loses all the locks
    # that its connections hold on that file, so a file that is there is left to SQLite, also while it is being created.
    with _CREATING, suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    # A run and its clean-up may be in different threads, though never at the same time.
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        # In this mode a call costs no wait for the disk; what a power failure may lose is the last seconds.
        database.execute("PRAGMA page_size = 1024")  # of a new file: a call changes some hundred bytes
        _switch_to_wal(database)
        database.execute("PRAGMA synchronous = NORMAL")
        if not checkpoints:
            database.execute("PRAGMA wal_autocheckpoint = 0")
        database.executescript(_SCHEMA)
        _add_columns(database)
    except BaseException:
        database.close()
        raise
    return database


def checkpoint(directory: Path) -> None:
    """Move what the write-ahead log holds into the file. Nobody who reads or writes has to wait; raises nothing."""
    uri = f"{(directory / FILE).absolute().as_uri()}?mode=rw"  # a file that was removed is not created here
    with suppress(OSError, sqlite3.Error), closing(sqlite3.connect(uri, uri=True, timeout=0)) as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _switch_to_wal(database: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, which only the first of several processes that open a new file at once really does.

    SQLite does not apply its timeout to the switch: it fails at once while another process makes it.
    """
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        else:
            return
        time.sleep(SWITCH_POLL_SECONDS)


def _absent(database: sqlite3.Connection) -> Mapping[str, tuple[str, str]]:
    """The columns that the table lacks."""
    there = {row[1] for row in database.execute("PRAGMA table_info(calls)")}
    return {name: column for name, column in _ADDED.items() if name not in there}


def _add_columns(database: sqlite3.Connection) -> None:
    """Give a file of an earlier version the columns that it lacks."""
    if not _absent(database):
        return
    with database:
        database.execute("BEGIN IMMEDIATE")  # another process may do the same
        for name, (kind, _) in _absent(database).items():
            database.execute(f"ALTER TABLE calls ADD COLUMN {name} {kind}")


def read_spent(directory: Path, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
    """What was used from day `first` on: by day, provider and worker, or by day and key. Raises `ConfigError`."""
    path = directory / FILE
    try:
        path.stat()
        # A reader writes too: beside a write-ahead log, and to undo what a killed process left half done.
        writable = os.access(directory, os.W_OK) and os.access(path, os.W_OK)
        immutable = not os.access(directory, os.W_OK) and not path.with_name(f"{FILE}-wal").exists()
        uri = f"{path.absolute().as_uri()}?mode={'rw' if writable else 'ro'}{'&immutable=1' if immutable else ''}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as database:
            if not database.execute("PRAGMA table_info(calls)").fetchall():
                return ()  # a process was killed when it had just created the file
            defaults = [f", {default} AS {name}" for name, (_, default) in _absent(database).items()]
            rows = database.execute(
                f"SELECT day, {_GROUPS[by]}, SUM(worker_call), SUM(calls), SUM(unpriced), SUM(tokens_in),"  # noqa: S608 - constants
                " SUM(tokens_out), SUM(cost), SUM(calls * failed), SUM(CASE WHEN failed THEN cost END),"
                " COUNT(owner)"
                f" FROM (SELECT *{''.join(defaults)} FROM calls) WHERE day >= ?"
                " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
                (str(first),),
            ).fetchall()
        return tuple(map(_spent_row, rows))
    except FileNotFoundError:
        return ()
    except (OSError, sqlite3.Error, ValueError) as error:
        message = f"{path} cannot be read: {describe_system_error(error)}"
        raise ConfigError(message, hint="fix its permissions, or move it away") from None


def _spent_row(row: tuple[Any, ...]) -> SpentRow:
    (
        day,
        provider,
        worker,
        model,
        key,
        worker_calls,
        calls,
        unpriced,
        tokens_in,
        tokens_out,
        cost,
        failed,
        lost,
        unended,
    ) = row
    usage = Usage(tokens_in=tokens_in, tokens_out=tokens_out, calls=calls, unpriced=unpriced, cost=_dollars(cost))
    return SpentRow(
        day=date.fromisoformat(day), provider=provider, worker=worker, model=model, key=key, usage=usage,
        calls=worker_calls, failed=Usage(calls=failed, cost=_dollars(lost)),
        open=unended,
    )  # fmt: skip


def _dollars(nano: int | None) -> Decimal | None:
    return None if nano is None else exact_dollars(nano)


def exact_dollars(nano: int) -> Decimal:
    """Dollars of billionths of them."""
    return Decimal(nano) / _NANO


def nano_dollars(amount: Decimal) -> int:
    """Billionths of dollars, rounded up, so that many small calls are never counted as less than they cost."""
    if not amount.is_finite():
        return MOST
    # Bounded before it is multiplied: the product of a number with many digits is an error.
    bounded = min(max(amount, Decimal(0)), exact_dollars(MOST))
    return int((bounded * _NANO).to_integral_value(ROUND_CEILING))
