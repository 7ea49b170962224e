"""The traces of all replicas in PostgreSQL.

The lines that a file would have, and a row for lists of each run.

Lines are appended as they are made and read by the readers of files. A run that is being written
has a lease, which its process renews; where that process is gone, the lease runs out and the run
reads as interrupted. Runs and lines are in partitions by the day of the id (UTC), so that old days
are dropped whole.
"""

from __future__ import annotations

import asyncio
import io
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, date
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConductorError, StateUnavailable, TakenOver, UsageError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.state.interfaces import TraceCheck, Traces, find_run, runs_back
from conductor_cli.state.postgres.database import Database, storable
from conductor_cli.state.records import NAMED
from conductor_cli.state.run_summary import make_stored_run
from conductor_cli.state.stored_run import (
    EVERY_RUN,
    SEPARATOR,
    Conditions,
    RunQuery,
    StoredRun,
)
from conductor_cli.state.trace_check import check_trace
from conductor_cli.state.trace_file import START_SECONDS, events_in
from conductor_cli.state.trace_lines import DELTAS, START, LineReader, LineWriter, read_hash
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from psycopg import Connection

LEASE_SECONDS: Final = 15.0  # How long a run is known to be written after its process said so
BEAT_SECONDS: Final = 4.0  # Time between two renewals of the leases of a process
LOOK_SECONDS: Final = 0.25  # A reader looks for new lines no more often
# Blocks of lines that are read at once. A run writes blocks of a few thousand characters
MAX_BLOCKS: Final = 64
MAX_BEGINNINGS: Final = 100  # Runs of which `BEGINNING_BLOCKS` are read at once, for a list
BEGINNING_BLOCKS: Final = 16
FIRST_BLOCKS: Final = 4  # Those that are read at once of the beginning, which may be all of it
# Characters of a question, of the subtasks or of the answers that lists and searches have of a run
MAX_TEXT: Final = 200_000
MAX_TITLE: Final = 300  # Characters of a question in a list of all runs

PLACE: Final = "the database of the state"

_COLUMNS: Final = tuple(name for name in StoredRun._fields[3:] if name != "waits")
"""What a list shows, but for the id, the time and the size, and for what the run waits for.

A run that waits is being written, and of such a run the list reads the lines.
"""
_NO_WAIT: Final = "''"
_ORDER: Final = "r.day DESC, left(r.run, 15) DESC, r.written DESC"
_BEFORE: Final = (
    "r.day <= %s AND (r.day, left(r.run, 15), r.written) <"
    " (SELECT day, left(run, 15), written FROM conductor_runs WHERE day = %s AND run = %s)"
)
_STATE: Final = "CASE WHEN l.until > clock_timestamp() THEN 'running' ELSE r.state END"
_WORKER: Final = f"position(%s in '{SEPARATOR}' || r.workers || '{SEPARATOR}') > 0"


def day_of(run: str) -> date:
    """Return the day of a run by its id, in UTC; that of an id without one is the first of 1970."""
    with suppress(ValueError):
        if run[:8].isdigit():
            return date.fromisoformat(run[:8])
    return date(1970, 1, 1)


def row_values(row: StoredRun) -> list[Any]:
    """Return what is stored of a row of a list.

    The values of `_COLUMNS`, and the words by which it is found.
    """
    values = list[Any]()
    for value in row:
        if isinstance(value, str):
            values.append(storable(value, MAX_TEXT))
        else:
            values.append(value)
    row = StoredRun._make(values)
    stored = [getattr(row, name) for name in _COLUMNS]
    return [*stored, SEPARATOR.join((row.question, row.subtasks, row.answers)).lower()]


# What a list of all runs has in place of long texts
_BRIEF: Final = {
    "subtasks": "''",
    "answers": "''",
    "question": f"left(r.question, {MAX_TITLE})",
}


def _conditions(query: RunQuery) -> Conditions:
    """Return what the runs of a list have in common."""
    where = Conditions()
    if query.state:
        where.require(f"{_STATE} = %s", query.state)
    if query.worker:
        where.require(_WORKER, f"{SEPARATOR}{storable(query.worker)}{SEPARATOR}")
    if query.since:
        where.require("r.day >= %s AND r.run >= %s", day_of(query.since), storable(query.since))
    if query.before:
        day = day_of(query.before)
        where.require(_BEFORE, day, day, storable(query.before))
    if query.origins:
        where.require("r.origin = ANY(%s)", list(query.origins))
    for term in query.terms:  # an index of three letters helps
        escaped = re.sub(r"([%_\\])", r"\\\1", storable(term.lower()))
        where.require("r.words LIKE %s", f"%{escaped}%")
    return where


class SharedTraces(Traces):
    """The traces in one database."""

    place = PLACE

    def __init__(self, database: Database) -> None:
        self._database = database
        self._days = set[date]()
        self.writers = dict[str, SharedWriter]()  # Those of this process, by their runs
        self._beating = threading.Lock()
        self._beats = False

    def open(self, run: str) -> SharedWriter:
        """Return the writer of a run.

        A new one, or that of a run which was announced or taken over before.
        """
        with self._beating:
            writer = self.writers.setdefault(run, SharedWriter(self, self._database, run))
            if not self._beats:
                self._beats = True
                threading.Thread(target=self._renew_leases, name="leases", daemon=True).start()
        return writer

    def add_day(self, day: date) -> None:
        """Make room for the runs of a day."""
        if day not in self._days:
            self._database.call("SELECT conductor_add_day(%s)", day)
            self._days.add(day)

    def forget(self, writer: SharedWriter) -> None:
        """A writer has written all that it will."""
        with self._beating:
            if self.writers.get(writer.run) is writer:
                del self.writers[writer.run]

    def _renew_leases(self) -> None:
        """Renew the leases of this process while there are any.

        What could not be written is written then.
        """
        while True:
            time.sleep(BEAT_SECONDS)
            with self._beating:
                writers = list(self.writers.values())
                if not writers:
                    self._beats = False
                    return
            with suppress(ConductorError):
                self._database.call(
                    "UPDATE conductor_leases"
                    " SET until = clock_timestamp() + make_interval(secs => %s)"
                    " WHERE run = ANY(%s) AND owner = %s",
                    LEASE_SECONDS,
                    [writer.run for writer in writers],
                    self._database.owner,
                )
                for writer in writers:
                    writer.try_again()

    def runs(self) -> list[str]:
        rows = self._database.call(f"SELECT run FROM conductor_runs r ORDER BY {_ORDER}")  # noqa: S608
        return [run for (run,) in rows]

    def newest_ids(self, count: int = 1) -> list[str]:
        statement = f"SELECT run FROM conductor_runs r ORDER BY {_ORDER} LIMIT %s"  # noqa: S608
        return [run for (run,) in self._database.call(statement, count)]

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        """Return the newest matching runs, and whether there are more.

        For -1 all of them, without their texts.
        """
        self._summarize_interrupted()
        where = _conditions(query)
        columns = {name: f"r.{name}" for name in StoredRun._fields[4:]}  # behind the state
        columns["waits"] = _NO_WAIT
        most = None
        if count < 0:
            columns |= _BRIEF
        else:
            most = count + 1
        rows = self._database.call(
            f"SELECT r.run, COALESCE(l.written, r.written), COALESCE(l.size, r.size), {_STATE},"  # noqa: S608
            f" {', '.join(columns.values())}"
            " FROM conductor_runs r LEFT JOIN conductor_leases l ON l.run = r.run"
            f" WHERE {where.text} ORDER BY {_ORDER} LIMIT %s",
            *where.values,
            most,
        )
        has_more = 0 <= count < len(rows)
        if has_more:
            rows = rows[:count]
        return self._as_they_are_now([StoredRun(*row) for row in rows]), has_more

    def _summarize_interrupted(self) -> None:
        """Give runs their rows that were being written when their processes were killed."""
        interrupted = (
            "SELECT run, size FROM conductor_leases"
            " WHERE until < clock_timestamp() AND summed < size LIMIT 1000"
        )
        for run, size in self._database.call(interrupted):
            with suppress(UsageError):
                row = make_stored_run(self.trace(run, pieces=False), run, live=False, problem="")
                end = "UPDATE conductor_leases SET summed = %s WHERE run = %s RETURNING *"
                self.set_row(row, end=end, of=(size, run))

    def _as_they_are_now(self, rows: list[StoredRun]) -> list[StoredRun]:
        """Return the rows; those of runs that are being written, with what has happened by now."""
        running = [row.run for row in rows if row.state == "running"]
        beginnings = dict[str, _Lines]()
        for start in range(0, len(running), MAX_BEGINNINGS):
            beginnings |= _read_beginnings(self._database, running[start : start + MAX_BEGINNINGS])
        return [self._with_lines(row, beginnings.get(row.run)) for row in rows]

    def _with_lines(self, row: StoredRun, lines: _Lines | None) -> StoredRun:
        if lines is None:
            return row
        trace = Trace()
        with suppress(UsageError), io.BufferedReader(lines, 1 << 16) as file:
            for event in events_in(file, self.location(row.run), pieces=False):
                trace = apply_event(trace, event)
        if not trace.run:
            return row
        now = make_stored_run(trace, row.run, live=True, problem="")
        return now._replace(written=row.written, size=row.size)

    def set_row(self, row: StoredRun, *, end: str, of: Sequence[object]) -> None:
        """Store what lists show of a run.

        `end` is a statement about its lease, and nothing is stored without one.
        """
        changes = ", ".join(f"{name} = %s" for name in (*_COLUMNS, "words"))
        self._database.call(
            f"WITH lease AS ({end}) UPDATE conductor_runs r"  # noqa: S608
            f" SET size = lease.size, written = lease.written, {changes}"
            " FROM lease WHERE r.day = %s AND r.run = lease.run",
            *of,
            *row_values(row),
            day_of(row.run),
        )

    def find(self, name: str, among: Sequence[str] | None = None) -> str:
        if among is not None:
            return find_run(name, among)
        back = runs_back(name)
        if back is not None:
            newest = f"SELECT run FROM conductor_runs r ORDER BY {_ORDER} OFFSET %s LIMIT 1"  # noqa: S608
            among = [run for (run,) in self._database.call(newest, back)]
            if among:
                name = "last"
            return find_run(name, among)
        alike = (
            "SELECT run FROM conductor_runs r"
            " WHERE starts_with(r.run, %s) ORDER BY r.run <> %s LIMIT 100"
        )
        rows = self._database.call(alike, storable(name), storable(name))
        return find_run(name, [run for (run,) in rows])

    def location(self, run: str) -> str:
        """Return what people are told: no address, because clients of a server read it too."""
        return f"run {run} in {PLACE}"

    def _read(self, run: str, *, pieces: bool) -> Iterator[ev.Event]:
        # Which reads what is asked for
        with io.BufferedReader(_Lines(self._database, run), 1 << 16) as file:
            yield from events_in(file, self.location(run), pieces=pieces)

    def lines_of(self, run: str) -> bytes:
        """Return the trace of a run as a file has it. Raises `UsageError` where there is none."""
        with io.BufferedReader(_Lines(self._database, run)) as file:
            return file.read()

    def follow(self, run: str) -> SharedReader:
        return SharedReader(self._database, run)

    def is_running(self, run: str) -> bool:
        live = "SELECT 1 FROM conductor_leases WHERE run = %s AND until > clock_timestamp()"
        return bool(self._database.call(live, storable(run)))

    def check(self, run: str) -> TraceCheck:
        running = self.is_running(run)
        with io.BufferedReader(_Lines(self._database, run)) as file:
            return check_trace(file, run, running=running)

    # Lines are whole in a database, or not there
    def repair(self, run: str, check: TraceCheck) -> str:
        if {fault.fault for fault in check.faults} <= {"no_end"}:
            return ""
        hint = "export it, and repair the file: conductor state export DIR"
        raise UsageError(f"run {run} cannot be repaired in a database", hint=hint)

    def remove(self, run: str) -> None:
        for error in self.prune([run]):
            raise error

    def prune(self, runs: Collection[str]) -> list[UsageError]:
        """Delete stored runs; a day that has no others is dropped.

        Returns why some are still there.
        """
        by_day = dict[date, list[str]]()
        for run in runs:
            by_day.setdefault(day_of(run), []).append(run)
        kept = list[str]()
        for day, names in by_day.items():
            kept += self._prune_day(day, names)
        return [
            UsageError(f"run {run} is still being written", hint="stop it first") for run in kept
        ]

    def _prune_day(self, day: date, runs: Collection[str]) -> list[str]:
        """Delete runs of one day; return those that are being written, which stay."""
        with self._database.transaction() as connection:
            live = "SELECT run FROM conductor_leases WHERE until > clock_timestamp()"
            written = {run for (run,) in connection.execute(live)}
            kept = sorted(run for run in runs if run in written)
            gone = [run for run in runs if run not in written]
            # Joins that count, because a list of names would be looked through for each row.
            connection.execute(
                "DELETE FROM conductor_leases l USING unnest(%s::text[]) gone WHERE l.run = gone",
                [gone],
            )
            # New runs are those of today; some process may have made room for them already.
            is_over = day < self._database.now().astimezone(UTC).date()
            if is_over and not kept and not _has_others(connection, day, gone):
                connection.execute("SET LOCAL lock_timeout = '10s'")
                tables = f"conductor_runs_{day:%Y%m%d}, conductor_lines_{day:%Y%m%d}"
                connection.execute(f"DROP TABLE IF EXISTS {tables}".encode())
                self._days.discard(day)
            else:
                for table in ("conductor_lines", "conductor_runs"):
                    delete = (
                        f"DELETE FROM {table} t USING unnest(%s::text[]) gone"  # noqa: S608
                        " WHERE t.day = %s AND t.run = gone"
                    )
                    connection.execute(delete.encode(), [gone, day])
        return kept

    def refresh(self) -> None:
        """Nothing is derived from the runs."""


def _has_others(connection: Connection[Any], day: date, runs: Sequence[str]) -> bool:
    """Return whether a day has other runs than these."""
    others = (
        "SELECT (SELECT count(*) FROM conductor_runs WHERE day = %s) - count(*)"
        " FROM conductor_runs r JOIN unnest(%s::text[]) gone ON gone = r.run WHERE r.day = %s"
    )
    return connection.execute(others, [day, runs, day]).fetchone() != (0,)


class SharedWriter:
    """Writes the events of one run, on a thread where there is an event loop. See `EventWriter`."""

    place = PLACE
    is_closed_quickly = False  # The database is asked

    def __init__(self, store: SharedTraces, database: Database, run: str) -> None:
        self.run = run
        self.problem = ""
        self._store = store
        self._database = database
        self._lines = LineWriter(KNOWN_SECRETS)
        self._pending = b""
        self._written = 0  # Bytes that the database has
        self._events = list[ev.Event]()
        self.is_closed = False
        self.is_lost = False  # Somebody else has the run
        self.is_leased = False  # Somebody else goes on with the run where this process is gone
        self._adding = threading.Lock()
        self._writing = threading.RLock()

    @property
    def waiting(self) -> int:
        return self._lines.waiting

    def go_on_behind(self, lines: bytes, events: Sequence[ev.Event]) -> None:
        """Write behind the lines of another process, which have these events."""
        link = START
        last = read_hash(lines.rstrip(b"\n").rpartition(b"\n")[2])
        if last is not None:
            link = last.link
        self._lines = LineWriter(KNOWN_SECRETS, link)
        self._written = len(lines)
        self._events = [
            event for event in events if not isinstance(ev.innermost_event(event), DELTAS)
        ]

    def write(self, event: ev.Event) -> asyncio.Future[None] | None:
        if not isinstance(ev.innermost_event(event), DELTAS):
            self._events.append(event)  # for the row of lists, which has no pieces
        return self._append(self._lines.add(event), self._write_own)

    def flush(self) -> asyncio.Future[None] | None:
        return self._append(self._lines.flush(), self._write_own, waits=bool(self._pending))

    def close(self) -> None:
        """Write what waits, and end the lease.

        Where the database is away, that is tried again for a while.
        """
        with self._adding:
            self._pending += self._lines.flush()
        self.is_closed = True
        self.try_again()

    def discard(self) -> None:
        self._store.forget(self)
        with suppress(ConductorError), self._writing:
            lease = "DELETE FROM conductor_leases WHERE run = %s AND owner = %s RETURNING run"
            if self._database.call(lease, self.run, self._database.owner):
                self._store.remove(self.run)

    def try_again(self) -> None:
        """Write what could not be written, and of a run that is over its row."""
        with self._writing:
            self._write_pending()
            if not self.is_closed or (self._pending and not self.is_lost):
                return
            with suppress(StateUnavailable):
                if self._written and not self.is_lost:
                    row = make_stored_run(
                        reduce(apply_event, self._events, Trace()), self.run, live=False, problem=""
                    )
                    lease = "DELETE FROM conductor_leases WHERE run = %s AND owner = %s RETURNING *"
                    self._store.set_row(row, end=lease, of=(self.run, self._database.owner))
                elif self.is_leased and not self.is_lost:  # nothing has become of it
                    lease = "DELETE FROM conductor_leases WHERE run = %s AND owner = %s"
                    self._database.call(lease, self.run, self._database.owner)
                self._store.forget(self)

    def _append(
        self, lines: bytes, write: Callable[[], None], *, waits: bool = False
    ) -> asyncio.Future[None] | None:
        """Have lines written.

        `waits` for those that another thread is writing, also where there are no new ones.
        """
        if not lines and not self.problem and not waits:
            return None
        with self._adding:
            self._pending += lines
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            write()
            return None
        return asyncio.wrap_future(self._database.soon(write))

    def _write_own(self) -> None:
        """Write all that is pending.

        Raises `TakenOver` where another process goes on with the run.
        """
        self._write_pending()
        if self.is_lost and self.is_leased:
            raise TakenOver

    def _write_pending(self) -> None:
        """Write all that is pending, the first lines with their run."""
        with self._writing:
            with self._adding:
                lines = self._pending
            if not lines or self.is_lost:
                return
            try:
                is_ours = self._write_lines(lines)
            except ConductorError as error:
                self.problem = error.message
                return
            if not is_ours:
                self.is_lost = True
                self.problem = "another process has this run"
                return
            self.problem = ""
            self._written += len(lines)
            with self._adding:
                self._pending = self._pending[len(lines) :]

    def _write_lines(self, lines: bytes) -> bool:
        """Write lines; false where another process has the run. Raises `ConductorError`."""
        day = day_of(self.run)
        attachments = [digest.decode() for digest in NAMED.findall(lines)]
        if not self._written:
            self._store.add_day(day)
            trace = reduce(apply_event, self._events[:1], Trace())
            row = make_stored_run(trace, self.run, live=False, problem="")
            row = row._replace(size=len(lines), written=time.time_ns())
            return add_run(self._database, row, [lines], attachments, lease=LEASE_SECONDS)
        rows = self._database.call(
            "SELECT conductor_append(%s, %s, %s, %s, %s, %s, %s)",
            day,
            self.run,
            self._database.owner,
            self._written,
            lines,
            LEASE_SECONDS,
            attachments,
        )
        return bool(rows[0][0])


def add_run(
    database: Database,
    row: StoredRun,
    blocks: Sequence[bytes],
    named: Sequence[str],
    *,
    lease: float = 0.0,
) -> bool:
    """Add a run with its lines, and with a `lease` one of this process for so many seconds.

    False where there is a run of this id that this process has not added, or another process has
    been given it.
    """
    columns = ["day", "run", "written", "size", *_COLUMNS, "words", "attachments"]
    day = day_of(row.run)
    starts = list[int]()
    size = 0
    for block in blocks:
        starts.append(size)
        size += len(block)
    rows = database.call(
        # Names of columns
        f"WITH begun AS (INSERT INTO conductor_runs ({', '.join(columns)})"  # noqa: S608
        f" SELECT {', '.join(['%s'] * len(columns))}::text[] WHERE NOT EXISTS ("
        " SELECT FROM (SELECT owner FROM conductor_leases WHERE run = %s FOR UPDATE) l"
        " WHERE l.owner <> %s)"
        " ON CONFLICT DO NOTHING RETURNING *),"
        " lines AS (INSERT INTO conductor_lines SELECT day, run, block.start, block.lines"
        " FROM begun, unnest(%s::bigint[], %s::bytea[]) AS block(start, lines)),"
        " lease AS (INSERT INTO conductor_leases"
        " SELECT run, %s, clock_timestamp() + make_interval(secs => %s), size, written"
        " FROM begun WHERE %s > 0"
        " ON CONFLICT (run) DO UPDATE"
        " SET until = excluded.until, size = excluded.size, written = excluded.written)"
        " SELECT EXISTS (SELECT FROM begun)"
        " OR EXISTS (SELECT FROM conductor_leases WHERE run = %s AND owner = %s AND size = %s)",
        day,
        row.run,
        row.written,
        row.size,
        *row_values(row),
        list(named),
        row.run,
        database.owner,
        starts,
        list(blocks),
        database.owner,
        lease,
        lease,
        row.run,
        database.owner,
        row.size,
    )
    return bool(rows[0][0])


def read_blocks(
    database: Database, run: str, position: int, count: int
) -> list[tuple[bool, float, bytes | None]]:
    """Return blocks of lines of a run from a byte on.

    A block says whether the run is being written, for how many seconds it was not, and has the
    lines. There is one without lines where there is nothing more, and none where there is no such
    run.
    """
    return database.call(
        "SELECT COALESCE(conductor_goes_on(l), false),"
        " greatest(0.0, (conductor_nanoseconds() - COALESCE(l.written, r.written)) / 1e9::float8),"
        " block.lines"
        " FROM conductor_runs r LEFT JOIN conductor_leases l ON l.run = r.run"
        " LEFT JOIN LATERAL (SELECT start, lines FROM conductor_lines c"
        " WHERE c.day = r.day AND c.run = r.run AND c.start >= %s"
        " ORDER BY c.start LIMIT %s) block ON true"
        " WHERE r.day = %s AND r.run = %s ORDER BY block.start",
        position,
        count,
        day_of(run),
        storable(run),
    )


class _Lines(io.RawIOBase):
    """The trace of a run as a file that is read from its beginning.

    Reading raises `UsageError` where there is none.
    """

    def __init__(
        self, database: Database, run: str, beginning: bytes = b"", *, is_whole: bool = False
    ) -> None:
        """`beginning` was read before; it `is_whole` where it had nothing behind it."""
        self._database = database
        self._run = run
        self._position = len(beginning)
        self._unread = beginning
        self._is_whole = is_whole

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a buffer has no type
        if not self._unread and not self._is_whole:
            count = FIRST_BLOCKS
            if self._position:
                count = MAX_BLOCKS
            rows = read_blocks(self._database, self._run, self._position, count)
            if not rows:
                hint = "conductor trace list shows the stored runs"
                raise UsageError(f"there is no run {self._run!r}", hint=hint)
            self._unread = b"".join(lines or b"" for _, _, lines in rows)
            self._position += len(self._unread)
        size = min(len(self._unread), len(buffer))
        buffer[:size] = self._unread[:size]
        self._unread = self._unread[size:]
        return size


def _read_beginnings(database: Database, runs: Sequence[str]) -> dict[str, _Lines]:
    """Return the traces of runs, whose first blocks are read at once. Most are not longer."""
    rows = database.call(
        "SELECT r.run, block.lines FROM unnest(%s::date[], %s::text[]) AS r(day, run),"
        " LATERAL (SELECT start, lines FROM conductor_lines c"
        " WHERE c.day = r.day AND c.run = r.run ORDER BY c.start LIMIT %s) block"
        " ORDER BY r.run, block.start",
        [day_of(run) for run in runs],
        list(runs),
        BEGINNING_BLOCKS,
    )
    blocks = dict[str, list[bytes]]()
    for run, lines in rows:
        blocks.setdefault(run, []).append(lines)
    traces = dict[str, _Lines]()
    for run, beginning in blocks.items():
        is_whole = len(beginning) < BEGINNING_BLOCKS
        traces[run] = _Lines(database, run, b"".join(beginning), is_whole=is_whole)
    return traces


class SharedReader:
    """The events of one trace, also while it is written, each once. See `TraceReader`.

    Where the database is away there is nothing new, and the run goes on as far as anybody knows.
    """

    def __init__(self, database: Database, run: str) -> None:
        self._database = database
        self._run = run
        self._reader = LineReader()
        self._position = 0
        self._unread = b""
        self._live = True
        self._looked = -LOOK_SECONDS
        self.idle = 0.0  # Seconds since the trace was written, when it was last looked at

    def read(self) -> list[ev.Event]:
        """Return the events of the next lines. Damaged lines are left out. Raises `OSError`."""
        self._look()
        lines = self._unread
        self._unread = b""
        self._position += len(lines)
        return self._reader.read_lines(lines)

    def is_behind(self) -> bool:
        self._look()
        return bool(self._unread)

    def is_written(self) -> bool:
        with suppress(OSError):
            self._look()
        return self._live or self.idle < START_SECONDS

    def _look(self) -> None:
        """Read what is new, unless somebody has just looked.

        Raises `OSError` where the run was deleted.
        """
        now = time.monotonic()
        if self._unread or now - self._looked < LOOK_SECONDS:
            return
        with suppress(StateUnavailable):
            rows = read_blocks(self._database, self._run, self._position, MAX_BLOCKS)
            if not rows:
                raise FileNotFoundError(f"there is no run {self._run}")
            self._live, self.idle, _ = rows[0]
            self._unread = b"".join(lines or b"" for _, _, lines in rows)
        # A full answer has more behind it, so nobody has to wait.
        self._looked = now if not self._unread else -LOOK_SECONDS
