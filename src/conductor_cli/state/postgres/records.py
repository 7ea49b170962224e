"""The state of several replicas in PostgreSQL, and its records.

Ratings, names, attachments, circuits, leases.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.learning import Rating
from conductor_cli.core.ledger import NO_DAY_LIMITS
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.serialization import dump
from conductor_cli.state.interfaces import (
    EDITOR_SESSION,
    NANO,
    USER,
    AttachmentStore,
    SharedCircuit,
    Spender,
    Spending,
    StoredRatings,
)
from conductor_cli.state.key_store import POSTGRESQL, KeyStore
from conductor_cli.state.postgres.database import Database, storable
from conductor_cli.state.postgres.served_files import SharedServedFiles
from conductor_cli.state.postgres.spending import SharedSpend, nano_limit, read_shared_spent
from conductor_cli.state.postgres.traces import LEASE_SECONDS, PLACE, SharedTraces
from conductor_cli.state.records import (
    MAX_NAMES,
    REQUEST_SECONDS,
    Names,
    key_reused,
    parse_rating,
)
from conductor_cli.state.spending_file import SpentRow, nano_dollars
from conductor_cli.state.trace_file import ENDS, events_in

# How long a request with an Idempotency-Key is answered by the same run
SHARD_SECONDS: Final = 60  # How long a process has questions of a batch without a sign of life
NEWEST_RATINGS: Final = 2000  # Ratings that are read. What is before them weighs nothing any more
NEWS_SECONDS: Final = 2.0  # How old the news of other replicas may be


class SharedRatings:
    """The ratings of all replicas; those of others are known two seconds later."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = StoredRatings()
        self._read_at = -NEWS_SECONDS

    def read(self) -> StoredRatings:
        """Return the newest ratings, in the order in which they were given.

        `problem` says why there are none.

        They are read before each question, so the database is not asked again at once.
        """
        if time.monotonic() - self._read_at > NEWS_SECONDS:
            try:
                rows = self._database.call(
                    "SELECT rating FROM conductor_ratings ORDER BY id DESC LIMIT %s", NEWEST_RATINGS
                )
                ratings = []
                for (text,) in reversed(rows):
                    rating = parse_rating(text.encode())
                    if rating is not None:
                        ratings.append(rating)
                self._known = StoredRatings(ratings=tuple(ratings))
            except ConductorError as error:
                self._known = StoredRatings(problem=error.message)
            self._read_at = time.monotonic()
        return self._known

    def add(self, rating: Rating) -> None:
        """Append a rating. Raises `StateUnavailable`."""
        self.add_lines([json.dumps(dump(rating), separators=(",", ":"))])

    def add_lines(self, lines: Collection[str]) -> int:
        """Append ratings as lines of their file, each once, and return how many were not there."""
        statement = (
            "INSERT INTO conductor_ratings (rating) SELECT line FROM unnest(%s::text[]) WITH "
            "ORDINALITY AS e(line, n)"
            " ORDER BY n ON CONFLICT DO NOTHING RETURNING 1"
        )
        added = len(self._database.call(statement, list(lines)))
        self._read_at = -NEWS_SECONDS
        return added


class SharedConversations:
    """The names of conversations of all replicas. See `Names`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[str, str]:
        newest = (
            "SELECT name, run FROM (SELECT name, run, used, row_number() OVER"
            " (PARTITION BY name ~ %s ORDER BY used DESC) AS place FROM conductor_names) n"
            " WHERE place <= %s ORDER BY used DESC"
        )
        rows = self._database.call(newest, f"^{EDITOR_SESSION.pattern}$", MAX_NAMES)
        return {str(name): str(run) for name, run in rows}

    def set(self, name: str, run: str) -> None:
        upsert = (
            "INSERT INTO conductor_names VALUES (%s, %s, clock_timestamp())"
            " ON CONFLICT (name) DO UPDATE SET run = excluded.run, used = excluded.used"
        )
        self._database.call(upsert, storable(name), run)

    def forget(self, name: str) -> None:
        self._database.call("DELETE FROM conductor_names WHERE name = %s", storable(name))


class SharedAttachments(AttachmentStore):
    """The bytes of images and documents of all replicas, and those of this process."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    # No address: clients of a server read it too
    def _place_of(self, digest: str) -> str:  # noqa: ARG002
        return PLACE

    def knows(self, digest: str) -> bool:
        """Return whether the bytes of a hash are in the database."""
        return self._is_stored(digest)

    def _is_stored(self, digest: str) -> bool:
        return bool(
            self._database.call("SELECT 1 FROM conductor_attachments WHERE sha256 = %s", digest)
        )

    def _load(self, digest: str) -> bytes:
        try:
            rows = self._database.call(
                "SELECT data FROM conductor_attachments WHERE sha256 = %s", digest
            )
        except ConductorError as error:
            raise OSError(error.message) from None
        if not rows:
            raise FileNotFoundError("it is gone")
        return bytes(rows[0][0])

    def keep(self, wanted: dict[str, bytes]) -> None:
        insert = "INSERT INTO conductor_attachments VALUES (%s, %s) ON CONFLICT DO NOTHING"
        for digest, content in wanted.items():
            try:
                self._database.call(insert, digest, content)
            except ConductorError as error:
                raise OSError(error.message) from None

    def prune(self) -> None:
        self._database.call(f"DELETE FROM conductor_attachments WHERE {_UNNEEDED}", [])  # noqa: S608

    def prunable(self, without: Collection[str]) -> int:
        size = (
            "SELECT COALESCE(SUM(length(data)), 0)::bigint"  # noqa: S608
            f" FROM conductor_attachments WHERE {_UNNEEDED}"
        )
        return int(self._database.call(size, list(without))[0][0])


_UNNEEDED: Final = (
    "sha256 NOT IN (SELECT unnest(r.attachments) FROM conductor_runs r"
    " LEFT JOIN unnest(%s::text[]) gone ON gone = r.run WHERE r.attachments <> '{}' AND gone IS "
    "NULL)"
)


class SharedCircuits:
    """What replicas tell each other of open circuits. `key` is a hash of what one is of.

    Nobody waits for it: what others say is known two seconds later, and a database that is away
    costs only this news.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = dict[str, tuple[float, SharedCircuit]]()
        self._read_at = -NEWS_SECONDS

    def publish(self, key: str, circuit: SharedCircuit) -> None:
        statement = (
            "INSERT INTO conductor_circuits VALUES (%s, clock_timestamp() + make_interval(secs => "
            "%s), %s)"
            " ON CONFLICT (key) DO UPDATE SET until = excluded.until, circuit = excluded.circuit"
            " WHERE conductor_circuits.until < excluded.until"
        )
        self._database.soon(
            self._database.call, statement, key, circuit.seconds, json.dumps(circuit[1:])
        )

    def withdraw(self, key: str) -> None:
        self._database.soon(
            self._database.call, "DELETE FROM conductor_circuits WHERE key = %s", key
        )

    def find(self, key: str) -> SharedCircuit | None:
        now = time.monotonic()
        if now - self._read_at > NEWS_SECONDS:
            self._read_at = now
            self._database.soon(self._read)
        until, circuit = self._known.get(key, (now, None))
        if circuit is not None and until > now:
            return circuit._replace(seconds=until - now)
        return None

    def _read(self) -> None:
        rows = self._database.call(
            "SELECT key, extract(epoch FROM until - clock_timestamp())::float8, circuit FROM "
            "conductor_circuits"
            " WHERE until > clock_timestamp() LIMIT 10000"
        )
        now = time.monotonic()
        self._known = {
            key: (now + left, SharedCircuit(left, *json.loads(why))) for key, left, why in rows
        }


class LeftRun(NamedTuple):
    """A run whose process is gone, and which this process has now.

    `events` are what had happened.
    """

    run: str
    job: str
    events: Sequence[ev.Event]


class Leases:
    """Which process has a run, where another one goes on with it once that is gone.

    All raise `StateUnavailable`.

    A process that is late can neither write to the trace of such a run nor hold a call for it.
    """

    def __init__(self, database: Database, traces: SharedTraces) -> None:
        self._database = database
        self._traces = traces

    def announce(self, run: str, job: str) -> None:
        """Let this process have a run that is to begin.

        `job` has all that another one needs to do it.
        """
        insert = (
            "INSERT INTO conductor_leases (run, owner, until, size, written, job) VALUES (%s, %s, "
            "clock_timestamp()"
            " + make_interval(secs => %s), 0, conductor_nanoseconds(), %s) ON CONFLICT DO NOTHING"
        )
        self._database.call(insert, run, self._database.owner, LEASE_SECONDS, storable(job))
        self._traces.open(run).is_leased = True

    def withdraw(self, run: str) -> None:
        """Nothing more becomes of a run that was announced. One that has ended is left as it is."""
        if (writer := self._traces.writers.get(run)) is not None:
            writer.close()

    def hand_over(self, run: str) -> None:
        """Let another process have a run at once."""
        if (writer := self._traces.writers.get(run)) is not None:
            writer.is_lost = True
        # Without an owner: a thread of this process that renews its leases meanwhile renews no
        # other's
        over = (
            "UPDATE conductor_leases SET until = clock_timestamp(), taken = 0, owner = '' WHERE "
            "run = %s AND owner = %s"
        )
        self._database.call(over, run, self._database.owner)

    def take(self, most: int) -> list[LeftRun]:
        """Take over some of the runs whose processes are gone.

        Nobody else has them now, so their traces are read.
        """
        rows = self._database.call(
            "WITH gone AS MATERIALIZED (SELECT run FROM conductor_leases l WHERE job IS NOT NULL"
            " AND until < clock_timestamp() AND conductor_goes_on(l) AND NOT run = ANY(%s)"
            " ORDER BY until LIMIT %s FOR UPDATE SKIP LOCKED)"
            " UPDATE conductor_leases l SET owner = %s, taken = taken + 1,"
            " until = clock_timestamp() + make_interval(secs => %s) FROM gone WHERE l.run = "
            "gone.run"
            " RETURNING l.run, l.job, l.size",
            list(self._traces.writers),
            most,
            self._database.owner,
            LEASE_SECONDS,
        )
        left_runs = list[LeftRun]()
        for run, job, size in rows:
            lines = b""
            if size:
                lines = self._traces.lines_of(run)
            events = list[ev.Event]()
            if lines:
                events = list(events_in(BytesIO(lines), PLACE))
            writer = self._traces.open(run)  # from now on its lease is renewed
            writer.is_leased = True
            writer.go_on_behind(lines, events)
            if events and isinstance(events[-1], ENDS):
                writer.close()
            else:
                left_runs.append(LeftRun(run, job, events))
        return left_runs

    def look(self) -> tuple[list[str], list[str]]:
        """Return the runs of this process that others have, and those that are to be stopped."""
        writers = dict(self._traces.writers)
        if not writers:
            return [], []
        kept = "SELECT run, unwanted FROM conductor_leases WHERE run = ANY(%s) AND owner = %s"
        rows = dict(self._database.call(kept, list(writers), self._database.owner))
        lost = []
        for run, writer in writers.items():
            if writer.is_leased and run not in rows and not writer.is_closed:
                lost.append(run)
        return lost, [run for run, unwanted in rows.items() if unwanted]

    def stop(self, run: str) -> bool:
        """Have a run stopped, whoever has it. False where nobody goes on with it."""
        say = (
            "UPDATE conductor_leases l SET unwanted = true WHERE run = %s AND "
            "conductor_goes_on(l) RETURNING run"
        )
        return bool(self._database.call(say, storable(run)))

    def job(self, run: str) -> str:
        """Return what a run was announced with; empty where it was not, or has ended."""
        find = (
            "SELECT job FROM conductor_leases l WHERE run = %s AND job IS NOT NULL AND "
            "conductor_goes_on(l)"
        )
        return "".join(job for (job,) in self._database.call(find, storable(run)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCosts:
    """Whether a process may spend what it asked for on a batch, and what all others do.

    US dollars. `others_held` is what calls of machines that live may cost yet; what a machine that
    is gone held counts as spent.
    """

    is_granted: bool
    others_spent: Decimal
    others_held: Decimal


class SharedBatch:
    """The shards of a batch that several machines work on, and what they spend on it.

    A shard is a run of its questions, which one process has.

    What became of a shard is kept for a week after the last sign of life of its batch, so that
    every machine gets all of it. All raise `StateUnavailable`.
    """

    def __init__(self, database: Database, batch: str, shards: int) -> None:
        """`batch` is a hash of what is asked, and of whom.

        The rows are made where they are missing.
        """
        self._database = database
        self._batch = batch
        self._count = shards
        # Who spends: also where a process opens the batch once more
        self._payer = f"{database.owner}-{secrets.token_hex(4)}"
        self._known = set[int]()  # Shards of which this process has what became of them
        self._is_released = False
        # A claim or a renewal that a thread has begun must not come after the release
        self._ownership = threading.Lock()
        prune_batches(database)
        make = (
            "INSERT INTO conductor_shards (batch, shard) SELECT %s, generate_series(0, %s) ON "
            "CONFLICT DO NOTHING"
        )
        database.call(make, batch, shards - 1)

    def claim(self) -> int | None:
        """Return a shard that nobody has, for this process; None where there is none for now.

        After `release` there is none.
        """
        with self._ownership:
            if self._is_released:
                return None
            rows = self._claim_free()
        if not rows:
            return None
        return int(rows[0][0])

    def _claim_free(self) -> list[tuple[Any, ...]]:
        return self._database.call(
            "WITH free AS MATERIALIZED (SELECT shard FROM conductor_shards WHERE batch = %s AND "
            "answers IS NULL"
            " AND until < clock_timestamp() ORDER BY shard LIMIT 1 FOR UPDATE SKIP LOCKED)"
            " UPDATE conductor_shards s SET owner = %s, until = clock_timestamp() + "
            "make_interval(secs => %s)"
            " FROM free WHERE s.batch = %s AND s.shard = free.shard RETURNING s.shard",
            self._batch,
            self._database.owner,
            SHARD_SECONDS,
            self._batch,
        )

    def renew(self, shards: Collection[int]) -> list[int]:
        """Go on having these shards, and return those that this process still has.

        After `release` it has none.
        """
        statement = (
            "UPDATE conductor_shards SET until = clock_timestamp() + make_interval(secs => %s)"
            " WHERE batch = %s AND owner = %s AND shard = ANY(%s) AND answers IS NULL RETURNING "
            "shard"
        )
        owner = self._database.owner
        with self._ownership:
            if self._is_released:
                return []
            rows = self._database.call(statement, SHARD_SECONDS, self._batch, owner, list(shards))
        return [shard for (shard,) in rows]

    def release(self) -> None:
        """Let others have the shards of this process at once; it gets no more of them."""
        statement = (
            "UPDATE conductor_shards SET until = '-infinity' WHERE batch = %s AND owner = "
            "%s AND answers IS NULL"
        )
        with self._ownership:
            self._is_released = True
        self._database.call(statement, self._batch, self._database.owner)

    def finish(self, shard: int, answers: bytes, failures: bytes) -> Callable[[], object]:
        """Return what keeps what became of a shard, unless another process has it by now.

        From here on it is known.
        """
        statement = (
            "UPDATE conductor_shards SET answers = %s, failures = %s"
            " WHERE batch = %s AND shard = %s AND owner = %s AND answers IS NULL"
        )
        self._known.add(shard)  # before it is there, because another task may `claim` or `collect`
        return partial(
            self._database.call,
            statement,
            answers,
            failures,
            self._batch,
            shard,
            self._database.owner,
        )

    def knows(self, shard: int) -> bool:
        """Return whether this process has what became of a shard, or has begun to send it."""
        return shard in self._known

    def collect(self) -> tuple[list[tuple[int, bytes, bytes]], bool]:
        """Return some of the shards that others have sent since, with their answers and failures.

        And whether this process knows what became of every shard.
        """
        rows = self._database.call(
            "SELECT shard, answers, failures FROM conductor_shards WHERE batch = %s AND answers IS "
            "NOT NULL"
            " AND NOT shard = ANY(%s) LIMIT 100",
            self._batch,
            list(self._known),
        )
        # One may have been finished here meanwhile
        rows = [row for row in rows if row[0] not in self._known]
        self._known.update(shard for shard, _, _ in rows)
        shards = [
            (int(shard), bytes(answers), bytes(failures)) for shard, answers, failures in rows
        ]
        return shards, len(self._known) == self._count

    def begin_spending(self, least: Decimal) -> None:
        """Count at least so many US dollars as spent by now."""
        self._database.call(
            "SELECT conductor_begin_batch(%s, %s)", self._batch, nano_dollars(least)
        )

    def spend(
        self, turn: int, *, spent: Decimal, held: Decimal, limit: Decimal | None
    ) -> SharedCosts:
        """Record what this process has spent and holds in all, where that fits into the limit.

        US dollars; without a limit it is always recorded. Each statement has a higher `turn`: one
        that arrives late changes nothing.
        """
        ((is_granted, others_spent, others_held),) = self._database.call(
            "SELECT * FROM conductor_spend_on_batch(%s, %s, %s, %s, %s, %s, %s)",
            self._batch,
            self._payer,
            turn,
            nano_dollars(spent),
            nano_dollars(held),
            SHARD_SECONDS,
            nano_limit(limit),
        )
        return SharedCosts(
            is_granted=bool(is_granted),
            others_spent=Decimal(others_spent) / NANO,
            others_held=Decimal(others_held) / NANO,
        )


def prune_batches(database: Database) -> None:
    """Forget the batches of which nothing was heard for a week."""
    database.call(
        "DELETE FROM conductor_shards WHERE batch IN (SELECT batch FROM conductor_shards GROUP BY "
        "batch"
        " HAVING max(greatest(begun, until)) < clock_timestamp() - interval '7 days')"
    )
    database.call(
        "DELETE FROM conductor_batch_costs WHERE batch IN (SELECT batch FROM conductor_batch_costs "
        "GROUP BY batch HAVING max(until) < clock_timestamp() - interval '7 days')"
    )


class SharedState:
    """The state of several replicas; see `FileState`. Models, settings and caches stay in files."""

    def __init__(self, url: str, state: Path, data: Path) -> None:
        self.database = Database(url, lambda place: KeyStore(data, os.environ)(POSTGRESQL, place))
        self.place = self.database.place
        self.traces = SharedTraces(self.database)
        self.circuits = SharedCircuits(self.database)
        self.leases = Leases(self.database, self.traces)
        self.ratings = SharedRatings(self.database)
        self.conversations = SharedConversations(self.database)
        self.seen_templates = Names(state / "seen-templates.json")  # what was shown on this machine
        self.memory_consents = Names(state / "memory-consents.json")
        self.served_files = SharedServedFiles(state, self.database)

    def attachments(self) -> SharedAttachments:
        return SharedAttachments(self.database)

    def spending(
        self,
        limits: DayLimits = NO_DAY_LIMITS.limits,
        *,
        planner: Worker | None = None,
        client: Spender = USER,
        waits: bool = True,  # noqa: ARG002 - the database does that by itself
    ) -> Spending:
        return SharedSpend(self.database, limits, planner=planner, client=client)

    def read_spent(
        self, first: date, by: Literal["worker", "key"] = "worker"
    ) -> tuple[SpentRow, ...]:
        return read_shared_spent(self.database, first, by)

    def read_tokens(self, day: date) -> int:
        statement = "SELECT tokens FROM conductor_totals WHERE day = %s AND scope = ''"
        return sum(tokens for (tokens,) in self.database.call(statement, day))

    def tidy_spending(self) -> None:
        """Do nothing: the database tidies by itself."""

    def prune_attachments(self) -> None:
        self.attachments().prune()
        prune_batches(self.database)

    def batch(self, batch: str, shards: int) -> SharedBatch:
        return SharedBatch(self.database, batch, shards)

    def claim_request(
        self, key: str, request: str, run: str, instead_of: str = ""
    ) -> tuple[str, float]:
        ((first, answering_run, age),) = self.database.call(
            "SELECT * FROM conductor_claim(%s, %s, %s, %s, %s)",
            key,
            request,
            run,
            instead_of,
            REQUEST_SECONDS,
        )
        if first != request:
            raise key_reused()
        return str(answering_run), float(age)

    def offer_secret(self, secret: bytes) -> None:
        """Let the servers sign with this, unless they sign with another one already."""
        self.database.call(
            "INSERT INTO conductor_facts VALUES ('secret', %s) ON CONFLICT DO NOTHING", secret
        )

    def secret(self) -> bytes:
        self.offer_secret(secrets.token_bytes(32))
        return bytes(
            self.database.call("SELECT value FROM conductor_facts WHERE name = 'secret'")[0][0]
        )


@cache
def shared_state(url: str, state: Path, data: Path) -> SharedState:
    """Return the state in a database: one in a process, whose connections everybody shares."""
    return SharedState(url, state, data)
