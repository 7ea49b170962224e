"""The SQLite file of spending: its tables and their upgrades, and what was used on each day.

Each call is a row, and triggers keep the totals of the days. A file of an earlier version gets what
it lacks when it is opened to be written, and is read as it is.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core.errors import ConfigError, describe_system_error
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.mappings import without_keys
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.recipients import recipient_of
from conductor_cli.state.interfaces import NANO
from conductor_cli.system.disk import make_private_directory

FILE: Final = "spending.sqlite"

BUSY_SECONDS: Final = 10.0  # How long a process waits for another one that is writing
# Time between two tries to switch a new database to a write-ahead log
SWITCH_POLL_SECONDS: Final = 0.002
_CREATING: Final = threading.Lock()
"""Held by the thread that creates the file: another one opens it only when its descriptor is
closed.
"""

MAX_AMOUNT: Final = 10**15
"""The most that one row counts, in tokens and in billionths of a dollar. A worker that states an
absurd number of tokens must use the limit up; it must not make the sum too large for SQLite.
"""

MAX_SMALL_ID: Final = 1 << 40
"""Numbers of calls below this are those of one file; a database has larger ones, which are nobody
else's.
"""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    day TEXT NOT NULL,
    owner TEXT,  -- the process of a call that has not ended, NULL once it has. Such a row holds \
the most it may use
    worker TEXT NOT NULL DEFAULT '',
    client TEXT NOT NULL DEFAULT '',  -- the name of the key with which a client of the server asked
    provider TEXT NOT NULL DEFAULT '',  -- who read it: a kind, a host, or this machine
    model TEXT NOT NULL DEFAULT '',
    worker_call INTEGER NOT NULL,  -- 1 if limits.calls_day counts it: the conductor's own calls \
are not counted
    failed INTEGER NOT NULL DEFAULT 0,  -- 1 if nothing of the reply was used
    calls INTEGER NOT NULL DEFAULT 0,
    unpriced INTEGER NOT NULL DEFAULT 0,
    tokens_in INTEGER NOT NULL DEFAULT 0,
    tokens_out INTEGER NOT NULL DEFAULT 0,
    cost INTEGER
);
CREATE INDEX IF NOT EXISTS calls_by_day ON calls (day);
"""

_TOTALS: Final = (
    """
    CREATE TABLE totals (
        day TEXT NOT NULL,
        scope TEXT NOT NULL,  -- empty for everybody, else a slash and the name of a client
        cost INTEGER NOT NULL DEFAULT 0,
        tokens INTEGER NOT NULL DEFAULT 0,
        calls INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (day, scope)
    ) WITHOUT ROWID
    """,
    """
    INSERT INTO totals
    SELECT day, '', COALESCE(SUM(cost), 0), SUM(tokens_in + tokens_out), SUM(worker_call)
    FROM calls GROUP BY day
    UNION ALL
    SELECT day, '/' || client, COALESCE(SUM(cost), 0), SUM(tokens_in + tokens_out), SUM(worker_call)
    FROM calls GROUP BY day, client
    """,
    """
    CREATE TRIGGER calls_added AFTER INSERT ON calls BEGIN
        INSERT INTO totals (day, scope, cost, tokens, calls)
        SELECT
            NEW.day,
            column1,
            COALESCE(NEW.cost, 0),
            NEW.tokens_in + NEW.tokens_out,
            NEW.worker_call
        FROM (VALUES (''), ('/' || NEW.client))
        WHERE true  -- so that SQLite does not take ON for a part of a join
        ON CONFLICT (day, scope) DO UPDATE SET
            cost = cost + excluded.cost,
            tokens = tokens + excluded.tokens,
            calls = calls + excluded.calls;
    END
    """,
    # `INSERT OR REPLACE` deletes the row that was there without a trigger.
    """
    CREATE TRIGGER calls_replaced BEFORE INSERT ON calls
    WHEN EXISTS (SELECT 1 FROM calls WHERE id = NEW.id) BEGIN
        DELETE FROM calls WHERE id = NEW.id;
    END
    """,
    """
    CREATE TRIGGER calls_changed AFTER UPDATE ON calls BEGIN
        UPDATE totals SET
            cost = cost + COALESCE(NEW.cost, 0) - COALESCE(OLD.cost, 0),
            tokens = tokens + NEW.tokens_in + NEW.tokens_out - OLD.tokens_in - OLD.tokens_out,
            calls = calls + NEW.worker_call - OLD.worker_call
        WHERE day = NEW.day AND scope IN ('', '/' || NEW.client);
    END
    """,
    """
    CREATE TRIGGER calls_removed AFTER DELETE ON calls BEGIN
        UPDATE totals SET
            cost = cost - COALESCE(OLD.cost, 0),
            tokens = tokens - OLD.tokens_in - OLD.tokens_out,
            calls = calls - OLD.worker_call
        WHERE day = OLD.day AND scope IN ('', '/' || OLD.client);
    END
    """,
)
"""What limits count on each day, so that a reservation adds up neither all calls nor all clients.

There is a row for everybody, and one for each client. Triggers keep them, in the transaction of
each change: also where an earlier version writes the file.
"""

_ADDED: Final = {
    "client": ("TEXT NOT NULL DEFAULT ''", "''"),
    "failed": ("INTEGER NOT NULL DEFAULT 0", "0"),
}
"""Columns that a file of an earlier version lacks: their definition, and the value that rows
without them have.
"""

_BOOKED: Final = (
    "day, owner, worker, provider, model, worker_call, calls, unpriced, tokens_in, tokens_out, cost"
)

# Of whom a row is: four columns
GROUPS: Final = {"worker": "provider, worker, model, ''", "key": "'', '', '', client"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentRow:
    """What one worker, or the requests with one key, used on one day.

    `key` is the name of a client's key where rows are by key; empty is who asks without one.
    `provider`, `worker` and `model` are empty then. `calls` are those that limits count,
    `usage.calls` all. `failed` are the calls whose replies were not used, because the call broke
    off or the plan was not valid, and their cost; both are a part of `usage`. `open` are the calls
    that have no end: they are under way, or their process was killed. `usage` has the most that
    they may cost, with all of their tokens as `tokens_in`.
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
    """Return the file, begun where it is not there. Raises `OSError` and `sqlite3.Error`.

    Without `checkpoints`, somebody has to call `checkpoint` now and then.
    """
    make_private_directory(path.parent)
    # A process that closes any descriptor of a file loses all the locks that its connections hold
    # on that file, so a file that is there is left to SQLite, also while it is being created.
    with _CREATING:
        _create_file(os.path.realpath(path))
    # A run and its clean-up may be in different threads, though never at the same time.
    database = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # In this mode a call costs no wait for the disk; what a power failure may lose is the last
        # seconds. Of a new file: a call changes some hundred bytes
        database.execute("PRAGMA page_size = 1024")
        _use_write_ahead_log(database)
        database.execute("PRAGMA synchronous = NORMAL")
        if not checkpoints:
            database.execute("PRAGMA wal_autocheckpoint = 0")
        _check_version(database)
        database.executescript(_SCHEMA)
        _add_columns(database, path)
        _add_totals(database)
        _take_over_books(database, path.parent)
    except BaseException:
        database.close()
        raise
    return database


def _create_file(path: str) -> bool:
    """Create an empty file, and return whether it was not there.

    SQLite would make it readable for everybody.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def _use_write_ahead_log(database: sqlite3.Connection) -> None:
    """Switch a database to a write-ahead log.

    Only the first of several processes that open a new file at once really does. SQLite does not
    apply its timeout to the switch: it fails at once while another process makes it.
    """
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > end:
                raise
        else:
            return
        time.sleep(SWITCH_POLL_SECONDS)


def _add_columns(database: sqlite3.Connection, path: Path) -> None:
    """Add the columns that a file of an earlier version lacks, beside a copy of it as it was.

    Whoever creates the copy fills it; what a kill leaves of it is no harm, since columns are only
    added.
    """
    if not _absent(database):
        return
    if _create_file(f"{path}.old"):
        database.execute("VACUUM INTO ?", (f"{path}.old",))
    with database:
        database.execute("BEGIN IMMEDIATE")  # another process may do the same
        for name, (kind, _) in _absent(database).items():
            database.execute(f"ALTER TABLE calls ADD COLUMN {name} {kind}")


def has_exported(database: sqlite3.Connection) -> bool:
    """Return whether a database was written into this file, with the numbers of its own calls."""
    largest = database.execute("SELECT MAX(id) FROM calls").fetchone()[0]
    return largest is not None and largest >= MAX_SMALL_ID


def _add_totals(database: sqlite3.Connection) -> None:
    """Add the totals of the calls that are there, to a file that has none."""
    if _has_totals(database):
        return
    with database:
        database.execute("BEGIN IMMEDIATE")
        if not _has_totals(database):  # another process may have added them meanwhile
            for statement in _TOTALS:
                database.execute(statement)


def _has_totals(database: sqlite3.Connection) -> bool:
    table = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'totals'"
    return database.execute(table).fetchone() is not None


def _check_version(database: sqlite3.Connection) -> None:
    """Raise `sqlite3.DatabaseError` for a file of a later version, which this one would misread."""
    if database.execute("PRAGMA user_version").fetchone()[0]:
        raise sqlite3.DatabaseError(
            "a newer conductor wrote it: pip install --upgrade conductor-llm"
        )


def _old_books(directory: Path) -> list[Path]:
    """Return the files of the first versions, with a line for each call of a day."""
    return sorted(directory.glob("????-??-??.jsonl"))


def _take_over_books(database: sqlite3.Connection, directory: Path) -> None:
    """Record the calls of the first versions' files, and rename these."""
    if not _old_books(directory):
        return
    insert = f"INSERT INTO calls ({_BOOKED}) VALUES (?{', ?' * 10})"  # noqa: S608 - constants
    with database:
        database.execute("BEGIN IMMEDIATE")
        books = _old_books(directory)  # those that no other process has taken meanwhile
        for book in books:
            database.executemany(insert, _read_book(book))
        _rename_all(books)


def _rename_all(books: Sequence[Path]) -> None:
    """Rename files, or none of them where one cannot be: their calls are not recorded then."""
    renamed = list[Path]()
    try:
        for book in books:
            book.rename(f"{book}.old")
            renamed.append(book)
    except OSError:
        for book in renamed:
            Path(f"{book}.old").rename(book)
        raise


def _read_book(book: Path) -> list[tuple[Any, ...]]:
    """Return the rows of such a file: calls that have ended, and what those that never did held.

    Raises `OSError`.
    """
    rows = list[tuple[Any, ...]]()
    held = dict[str, tuple[Any, ...]]()
    for line in book.read_bytes().splitlines():
        with suppress(ValueError, LookupError, TypeError, ArithmeticError):
            fields = json.loads(line)
            if "holds" in fields:
                held[fields["holds"]] = _row_of_held_call(book.stem, fields)
                continue
            rows.append(_row_of_ended_call(book.stem, fields))
            held.pop(fields.get("ends", ""), None)
    return [*rows, *held.values()]


def _row_of_held_call(day: str, fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the columns `_BOOKED` of a call without an end, whose worker is not known."""
    tokens = clamped(fields["tokens"])
    return (day, "", "", "", "", fields["call"], 1, 0, tokens, 0, _booked_cost(fields))


def _row_of_ended_call(day: str, fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the columns `_BOOKED` of a call that has ended, which nobody owns any more."""
    return (
        day,
        None,
        fields["worker"],
        fields["provider"],
        fields["model"],
        fields["call"],
        fields["calls"],
        fields["unpriced"],
        clamped(fields["tokens_in"]),
        clamped(fields["tokens_out"]),
        _booked_cost(fields),
    )


def _booked_cost(fields: Mapping[str, Any]) -> int | None:
    """Return the cost of a line in billionths of a dollar; None where it is unknown."""
    if fields["cost"] is None:
        return None
    return nano_dollars(Decimal(fields["cost"]))


def checkpoint(directory: Path) -> None:
    """Move what the write-ahead log holds into the file.

    Nobody who reads or writes has to wait; raises nothing.
    """
    # A file that was removed is not created here
    uri = f"{(directory / FILE).absolute().as_uri()}?mode=rw"
    with (
        suppress(OSError, sqlite3.Error),
        closing(sqlite3.connect(uri, uri=True, timeout=0)) as database,
    ):
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _absent(database: sqlite3.Connection) -> Mapping[str, tuple[str, str]]:
    """Return the columns that the table lacks."""
    there = {row[1] for row in database.execute("PRAGMA table_info(calls)")}
    return without_keys(_ADDED, there)


def read_spent(
    directory: Path, first: date, by: Literal["worker", "key"] = "worker"
) -> tuple[SpentRow, ...]:
    """Return what was used from day `first` on: by day, provider and worker, or day and key.

    Raises `ConfigError`.
    """
    with _reading(directory) as database:
        if database is None:
            return ()
        return tuple(map(spent_row, _sum_calls(database, first, GROUPS[by])))


def read_tokens(directory: Path, day: date) -> int:
    """Return the tokens that limits count on a day. Raises `ConfigError`."""
    with _reading(directory) as database:
        if database is None:
            return 0
        total = "SELECT tokens FROM totals WHERE day = ? AND scope = ''"
        if not _has_totals(database):  # a file of an earlier version that nobody may write
            total = "SELECT SUM(tokens_in + tokens_out) FROM calls WHERE day = ?"
        (tokens,) = database.execute(total, (str(day),)).fetchone() or (0,)
    return int(tokens or 0)


@contextmanager
def _reading(directory: Path) -> Iterator[sqlite3.Connection | None]:
    """Open the database to be read; it is None where no call was ever recorded.

    Raises `ConfigError`.
    """
    path = directory / FILE
    try:
        if _old_books(directory) and os.access(directory, os.W_OK):
            open_database(path).close()
        try:
            path.stat()
        except FileNotFoundError:
            yield None
            return
        # A reader writes too: beside a write-ahead log, and to undo what a killed process left half
        # done.
        writable = os.access(directory, os.W_OK) and os.access(path, os.W_OK)
        immutable = not os.access(directory, os.W_OK) and not path.with_name(f"{FILE}-wal").exists()
        mode = "ro"
        if writable:
            mode = "rw"
        if immutable:
            mode += "&immutable=1"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as database:
            _check_version(database)
            has_table = bool(database.execute("PRAGMA table_info(calls)").fetchall())
            # Without the table, a process was killed when it had just created the file.
            yield database if has_table else None
    except (OSError, sqlite3.Error, ValueError) as error:
        message = f"{path} cannot be read: {describe_system_error(error)}"
        hint = "free some disk space or fix its permissions; move it away only if it is damaged"
        raise ConfigError(message, hint=hint) from None


def _sum_calls(database: sqlite3.Connection, first: date, group: str) -> list[tuple[Any, ...]]:
    """Return the rows of `spent_row` from day `first` on, by one of `GROUPS`."""
    defaults = [f", {default} AS {name}" for name, (_, default) in _absent(database).items()]
    return database.execute(
        # constants
        f"SELECT day, {group}, SUM(worker_call), SUM(calls), SUM(unpriced),"  # noqa: S608
        " SUM(tokens_in), SUM(tokens_out), SUM(cost), SUM(calls * failed),"
        " SUM(CASE WHEN failed THEN cost END), COUNT(owner)"
        f" FROM (SELECT *{''.join(defaults)} FROM calls) WHERE day >= ?"
        " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
        (str(first),),
    ).fetchall()


def exact_dollars(nano: int | None) -> Decimal | None:
    """Convert billionths of a dollar to dollars; an unknown amount stays None."""
    if nano is None:
        return None
    return Decimal(nano) / NANO


def spent_row(row: tuple[Any, ...]) -> SpentRow:
    """Return the row of a query by `GROUPS`. Its day is text."""
    (
        day,
        provider,
        worker,
        model,
        key,
        calls,
        every,
        unpriced,
        tokens_in,
        tokens_out,
        cost,
        failed,
        lost,
        held,
    ) = row
    usage = Usage(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        calls=every,
        unpriced=unpriced,
        cost=exact_dollars(cost),
    )
    return SpentRow(
        day=date.fromisoformat(day),
        provider=provider,
        worker=worker,
        model=model,
        key=key,
        usage=usage,
        calls=calls,
        failed=Usage(calls=failed, cost=exact_dollars(lost)),
        open=held,
    )


def nano_dollars(amount: Decimal) -> int:
    """Return billionths of dollars, rounded up: small calls never count as less than they cost."""
    if not amount.is_finite():
        return MAX_AMOUNT
    # Bounded before it is multiplied: the product of a number with many digits is an error.
    bounded = min(max(amount, Decimal(0)), Decimal(MAX_AMOUNT) / NANO)
    return int((bounded * NANO).to_integral_value(ROUND_CEILING))


def reserved_row(worker: Worker, room: Reservation) -> tuple[str, str, str, int | None]:
    """Return whom a call asks, and the billionths of a dollar that are reserved for it.

    Whom it asks are the worker, who reads it, and the model.
    """
    # Without a price the reserved cost is 0, and what the call costs is unknown.
    cost = None
    if worker.price is not None or room.cost:
        cost = nano_dollars(room.cost)
    return worker.copy_of or worker.name, recipient_of(worker), worker.model, cost


def clamped(amount: int) -> int:
    """Return tokens as they are counted: see `MAX_AMOUNT`."""
    return min(max(amount, 0), MAX_AMOUNT)
