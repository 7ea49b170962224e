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
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConductorError, StateUnavailable, TakenOver, UsageError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.state.interfaces import TraceCheck, Traces, find_run, runs_back
from conductor_cli.state.postgres.database import Database, storable
from conductor_cli.state.records import NAMED
from conductor_cli.state.run_summary import make_stored_run
from conductor_cli.state.stored_run import EVERY_RUN, SEPARATOR, RunQuery, StoredRun
from conductor_cli.state.trace_check import check_trace
from conductor_cli.state.trace_file import STARTING, events_in
from conductor_cli.state.trace_lines import DELTAS, START, LineReader, LineWriter, read_hash
from conductor_cli.system.known_secrets import KNOWN_SECRETS

LEASE_SECONDS: Final = 15.0  # How long a run is known to be written after its process said so
BEAT_SECONDS: Final = 4.0  # Time between two renewals of the leases of a process
LOOK_SECONDS: Final = 0.25  # A reader looks for new lines no more often
# Blocks of lines that are read at once. A run writes blocks of a few thousand characters
MAX_BLOCKS: Final = 64
MAX_TEXT: Final = 200_000
"""Characters of a question, of the subtasks or of the answers that lists and searches have of a
run.
"""

PLACE: Final = "the database of the state"

_COLUMNS: Final = StoredRun._fields[3:]  # What a list shows, but for the id, the time and the size
_ORDER: Final = "r.day DESC, left(r.run, 15) DESC, r.written DESC"
_BEFORE: Final = (
    "r.day <= %s AND (r.day, left(r.run, 15), r.written) <"
    " (SELECT day, left(run, 15), written FROM conductor_runs WHERE day = %s AND run = %s)"
)
_STATE: Final = "CASE WHEN l.until > clock_timestamp() THEN 'running' ELSE r.state END"


def day_of(run: str) -> date:
    """The day of a run by its id, in UTC; that of an id without one is the first of 1970."""
    with suppress(ValueError):
        if run[:8].isdigit():
            return date.fromisoformat(run[:8])
    return date(1970, 1, 1)


def row_values(row: StoredRun) -> list[Any]:
    """Return what is stored of a row of a list.

    The values of `_COLUMNS`, and the words by which it is found.
    """
    row = StoredRun._make(
        storable(value, MAX_TEXT) if isinstance(value, str) else value for value in row
    )
    return [*row[3:], SEPARATOR.join((row.question, row.subtasks, row.answers)).lower()]


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
        """The writer of a run.

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
        """Renew the leases of this process, and write what could not be written, as long as there
        are any.
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
                    "UPDATE conductor_leases SET until = clock_timestamp() + make_interval(secs => "
                    "%s)"
                    " WHERE run = ANY(%s) AND owner = %s",
                    LEASE_SECONDS,
                    [writer.run for writer in writers],
                    self._database.owner,
                )
                for writer in writers:
                    writer.try_again()

    def runs(self) -> list[str]:
        return [
            run
            for (run,) in self._database.call(f"SELECT run FROM conductor_runs r ORDER BY {_ORDER}")  # noqa: S608
        ]

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        """The newest matching runs, all for -1 and then without their texts, and whether there are
        more.
        """
        # Runs that were being written when their processes were killed get their rows now.
        for run, size in self._database.call(
            "SELECT run, size FROM conductor_leases WHERE until < clock_timestamp() AND "
            "summed < "
            "size LIMIT 1000"
        ):
            with suppress(UsageError):
                row = make_stored_run(self.trace(run, pieces=False), run, live=False, problem="")
                end = "UPDATE conductor_leases SET summed = %s WHERE run = %s RETURNING *"
                self.set_row(row, end=end, of=(size, run))
        conditions: list[tuple[str, Sequence[object]]] = [
            (f"{_STATE} = %s", [query.state] * bool(query.state)),
            (
                f"position(%s in '{SEPARATOR}' || r.workers || '{SEPARATOR}') > 0",
                [f"{SEPARATOR}{query.worker}{SEPARATOR}"] * bool(query.worker),
            ),
            (
                "r.day >= %s AND r.run >= %s",
                [day_of(query.since), query.since] if query.since else [],
            ),
            (_BEFORE, [*[day_of(query.before)] * 2, query.before] if query.before else []),
            ("r.origin = ANY(%s)", [list(query.origins)] * bool(query.origins)),
        ]
        escaped = (re.sub(r"([%_\\])", r"\\\1", storable(term.lower())) for term in query.terms)
        # An index of three letters helps
        conditions += [("r.words LIKE %s", [f"%{each}%"]) for each in escaped]
        parts = [condition for condition in conditions if condition[1]]
        where = " AND ".join(text for text, _ in parts) or "true"
        brief = (
            {"subtasks": "''", "answers": "''", "question": "left(r.question, 300)"}
            if count < 0
            else {}
        )
        columns = ", ".join(brief.get(name, f"r.{name}") for name in _COLUMNS[1:])
        rows = self._database.call(
            f"SELECT r.run, COALESCE(l.written, r.written), COALESCE(l.size, r.size), {_STATE}, {columns}"  # noqa: S608
            f" FROM conductor_runs r LEFT JOIN conductor_leases l ON l.run = r.run WHERE {where}"
            f" ORDER BY {_ORDER} LIMIT %s",
            *(value for _, values in parts for value in values),
            None if count < 0 else count + 1,
        )
        found = [StoredRun(*row) for row in (rows if count < 0 else rows[:count])]
        for number, row in enumerate(found):
            if row.state == "running":  # with what has happened by now
                with suppress(UsageError):
                    now = make_stored_run(
                        self.trace(row.run, pieces=False), row.run, live=True, problem=""
                    )
                    found[number] = now._replace(written=row.written, size=row.size)
        return found, 0 <= count < len(rows)

    def set_row(self, row: StoredRun, *, end: str, of: Sequence[object]) -> None:
        """Store what lists show of a run.

        `end` is a statement about its lease, and nothing is stored without one.
        """
        changes = ", ".join(f"{name} = %s" for name in (*_COLUMNS, "words"))
        self._database.call(
            f"WITH lease AS ({end}) UPDATE conductor_runs r SET size = lease.size, written = lease.written, {changes}"  # noqa: S608
            " FROM lease WHERE r.day = %s AND r.run = lease.run",
            *of,
            *row_values(row),
            day_of(row.run),
        )

    def find(self, name: str, among: Sequence[str] | None = None) -> str:
        if among is not None:
            return find_run(name, among)
        if (back := runs_back(name)) is not None:
            newest = f"SELECT run FROM conductor_runs r ORDER BY {_ORDER} OFFSET %s LIMIT 1"  # noqa: S608
            among = [run for (run,) in self._database.call(newest, back)]
            return find_run("last" if among else name, among)
        like = (
            "SELECT run FROM conductor_runs r WHERE starts_with(r.run, %s) ORDER BY r.run <> "
            "%s "
            "LIMIT 100"
        )
        return find_run(
            name, [run for (run,) in self._database.call(like, storable(name), storable(name))]
        )

    def location(self, run: str) -> str:
        """Return what people are told: no address, because clients of a server read it too."""
        return f"run {run} in {PLACE}"

    def _read(self, run: str, *, pieces: bool) -> Iterator[ev.Event]:
        # Which reads what is asked for
        with io.BufferedReader(_Lines(self._database, run), 1 << 16) as file:
            yield from events_in(file, self.location(run), pieces=pieces)

    def lines_of(self, run: str) -> bytes:
        """The trace of a run as a file has it. Raises `UsageError` where there is none."""
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
            with self._database.transaction() as connection:
                live = "SELECT run FROM conductor_leases WHERE until > clock_timestamp()"
                going_on = {run for (run,) in connection.execute(live)} & set(names)
                gone = [run for run in names if run not in going_on]
                # Joins that count, because a list of names would be looked through for each row.
                delete = (
                    "DELETE FROM conductor_leases l USING unnest(%s::text[]) gone WHERE "
                    "l.run "
                    "= gone"
                )
                connection.execute(delete, [gone])
                others = (
                    "SELECT (SELECT count(*) FROM conductor_runs WHERE day = %s) - count(*)"
                    " FROM conductor_runs r JOIN unnest(%s::text[]) gone ON gone = r.run WHERE "
                    "r.day = %s"
                )
                # New runs are those of today; some process may have made room for them already.
                is_over = day < self._database.now().astimezone(UTC).date()
                if (
                    is_over
                    and not going_on
                    and connection.execute(others, [day, gone, day]).fetchone() == (0,)
                ):
                    connection.execute("SET LOCAL lock_timeout = '10s'")
                    tables = ", ".join(
                        f"{table}_{day:%Y%m%d}" for table in ("conductor_runs", "conductor_lines")
                    )
                    connection.execute(f"DROP TABLE IF EXISTS {tables}".encode())
                    self._days.discard(day)
                else:
                    for table in ("conductor_lines", "conductor_runs"):
                        delete = f"DELETE FROM {table} t USING unnest(%s::text[]) gone"  # noqa: S608
                        connection.execute(
                            f"{delete} WHERE t.day = %s AND t.run = gone".encode(), [gone, day]
                        )
            kept += sorted(going_on)
        return [
            UsageError(f"run {run} is still being written", hint="stop it first") for run in kept
        ]

    def refresh(self) -> None:
        """Nothing is derived from the runs."""


class SharedWriter:
    """Writes the events of one run, on a thread where there is an event loop. See `EventWriter`."""

    place = PLACE

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
        last = read_hash(lines.rstrip(b"\n").rpartition(b"\n")[2])
        self._lines = LineWriter(KNOWN_SECRETS, last.link if last is not None else START)
        self._written = len(lines)
        self._events = [each for each in events if not isinstance(ev.innermost_event(each), DELTAS)]

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
            day = day_of(self.run)
            named = [each.decode() for each in NAMED.findall(lines)]
            try:
                if self._written:
                    values = (
                        day,
                        self.run,
                        self._database.owner,
                        self._written,
                        lines,
                        LEASE_SECONDS,
                        named,
                    )
                    append = "SELECT conductor_append(%s, %s, %s, %s, %s, %s, %s)"
                    taken = bool(self._database.call(append, *values)[0][0])
                else:
                    self._store.add_day(day)
                    trace = reduce(apply_event, self._events[:1], Trace())
                    row = make_stored_run(trace, self.run, live=False, problem="")
                    row = row._replace(size=len(lines), written=time.time_ns())
                    taken = add_run(self._database, row, [lines], named, lease=LEASE_SECONDS)
            except ConductorError as error:
                self.problem = error.message
                return
            self.is_lost = not taken
            self.problem = "" if taken else "another process has this run"
            if taken:
                self._written += len(lines)
                with self._adding:
                    self._pending = self._pending[len(lines) :]


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
    starts = [sum(map(len, blocks[:number])) for number in range(len(blocks))]
    rows = database.call(
        # Names of columns
        f"WITH begun AS (INSERT INTO conductor_runs ({', '.join(columns)})"  # noqa: S608
        f" SELECT {', '.join(['%s'] * len(columns))}::text[] WHERE NOT EXISTS ("
        " SELECT FROM (SELECT owner FROM conductor_leases WHERE run = %s FOR UPDATE) l WHERE "
        "l.owner <> %s)"
        " ON CONFLICT DO NOTHING RETURNING *),"
        " lines AS (INSERT INTO conductor_lines SELECT day, run, block.start, block.lines"
        " FROM begun, unnest(%s::bigint[], %s::bytea[]) AS block(start, lines)),"
        " lease AS (INSERT INTO conductor_leases"
        " SELECT run, %s, clock_timestamp() + make_interval(secs => %s), size, written FROM begun "
        "WHERE %s > 0"
        " ON CONFLICT (run) DO UPDATE SET until = excluded.until, size = excluded.size, written = "
        "excluded.written)"
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

    Whether it is being written, for how long not, and the lines.

    One without lines where there is nothing more, and none where there is no such run.
    """
    return database.call(
        "SELECT COALESCE(conductor_goes_on(l), false),"
        " greatest(0.0, (conductor_nanoseconds() - COALESCE(l.written, r.written)) / 1e9::float8), "
        "block.lines"
        " FROM conductor_runs r LEFT JOIN conductor_leases l ON l.run = r.run"
        " LEFT JOIN LATERAL (SELECT start, lines FROM conductor_lines c WHERE c.day = r.day AND "
        "c.run = r.run"
        " AND c.start >= %s ORDER BY c.start LIMIT %s) block ON true"
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

    def __init__(self, database: Database, run: str) -> None:
        self._database = database
        self._run = run
        self._position = 0
        self._unread = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a buffer has no type
        if not self._unread:
            rows = read_blocks(
                self._database, self._run, self._position, MAX_BLOCKS if self._position else 4
            )
            if not rows:
                raise UsageError(
                    f"there is no run {self._run!r}",
                    hint="conductor trace list shows the stored runs",
                )
            self._unread = b"".join(lines or b"" for _, _, lines in rows)
            self._position += len(self._unread)
        taken = self._unread[: len(buffer)]
        self._unread = self._unread[len(buffer) :]
        buffer[: len(taken)] = taken
        return len(taken)


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
        return self._live or self.idle < STARTING

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
