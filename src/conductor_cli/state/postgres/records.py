"""Small records of all replicas in PostgreSQL: ratings, attachments, circuits, repeated requests, shared secrets."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Collection, Iterable
from typing import Any, Final

from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import ConductorError, ModelError, UsageError
from conductor_cli.core.learning import Rating
from conductor_cli.core.serialization import dump
from conductor_cli.state.interfaces import OpenCircuit, StoredRatings
from conductor_cli.state.names import MAX_NAMES
from conductor_cli.state.postgres.database import Database, storable
from conductor_cli.state.ratings import parse_rating

NEWEST: Final = 2000
"""Ratings that are read. What is before them weighs nothing any more."""

NEWS_SECONDS: Final = 2.0
"""How old the news of other replicas about circuits may be."""

REQUEST_SECONDS: Final = 24 * 3600
"""How long a request with an Idempotency-Key is answered by the same run."""


class SharedRatings:
    """The ratings of all replicas; those of others are known two seconds later. See `Ratings`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = StoredRatings()
        self._read_at = -NEWS_SECONDS

    def read(self) -> StoredRatings:
        """Return the newest ratings, in the order in which they were given. `problem` says why there are none.

        They are read before each question, so the database is not asked again at once.
        """
        if time.monotonic() - self._read_at > NEWS_SECONDS:
            self._known = self._read()
            self._read_at = time.monotonic()
        return self._known

    def _read(self) -> StoredRatings:
        try:
            rows = self._database.call("SELECT rating FROM conductor_ratings ORDER BY id DESC LIMIT %s", NEWEST)
        except ConductorError as error:
            return StoredRatings(problem=error.message)
        found = (parse_rating(text.encode()) for (text,) in reversed(rows))
        return StoredRatings(ratings=tuple(rating for rating in found if rating is not None))

    def add(self, rating: Rating) -> None:
        """Append a rating. Raises `StateUnavailable`."""
        self.add_lines([json.dumps(dump(rating), separators=(",", ":"))])

    def add_lines(self, lines: Collection[str]) -> int:
        """Append ratings as lines of their file, each once, and return how many were not there."""
        statement = (
            "INSERT INTO conductor_ratings (rating) SELECT line FROM unnest(%s::text[]) WITH ORDINALITY AS e(line, n)"
            " ORDER BY n ON CONFLICT DO NOTHING RETURNING 1"
        )
        added = len(self._database.call(statement, list(lines)))
        self._read_at = -NEWS_SECONDS
        return added


class SharedConversations:
    """The names of conversations of all replicas. See `Conversations`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> dict[str, str]:
        """Return the last run of each conversation by its name, the newest conversation first."""
        newest = "SELECT name, run FROM conductor_names ORDER BY used DESC LIMIT %s"
        return {str(name): str(run) for name, run in self._database.call(newest, MAX_NAMES)}

    def set(self, name: str, run: str) -> None:
        """Let a name stand for the conversation that ends with this run. Raises `StateUnavailable`."""
        upsert = (
            "INSERT INTO conductor_names VALUES (%s, %s, clock_timestamp())"
            " ON CONFLICT (name) DO UPDATE SET run = excluded.run, used = excluded.used"
        )
        self._database.call(upsert, storable(name), run)


class SharedAttachments:
    """The bytes of images and documents of all replicas, and those of this process. See `AttachmentStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._in_memory = dict[str, bytes]()

    def add(self, data: bytes) -> str:
        """Keep these bytes in memory and return their hash."""
        digest = hashlib.sha256(data).hexdigest()
        self._in_memory[digest] = data
        return digest

    def holds(self, attachment: Attachment) -> bool:
        """Whether the bytes of an attachment are there."""
        digest = attachment.sha256
        there = "SELECT 1 FROM conductor_attachments WHERE sha256 = %s"
        return digest in self._in_memory or (_is_hash(digest) and bool(self._database.call(there, digest)))

    def read(self, attachment: Attachment) -> bytes:
        """The bytes of an attachment. Raises `ModelError` of reason `file` if they are gone or were changed."""
        digest = attachment.sha256
        if (data := self._in_memory.get(digest)) is not None:
            return data
        found = "SELECT data FROM conductor_attachments WHERE sha256 = %s"
        try:
            rows = self._database.call(found, digest) if _is_hash(digest) else []
        except ConductorError as error:
            raise ModelError("file", f"{attachment.name} cannot be read: {error.message}") from None
        if not rows:
            raise ModelError("file", f"{attachment.name} cannot be read: it is not in the database of the state")
        if hashlib.sha256(rows[0][0]).hexdigest() != digest:
            raise ModelError("file", f"{attachment.name} was changed after it was attached")
        return bytes(rows[0][0])

    def store(self, attachments: Iterable[Attachment]) -> None:
        """Store what these runs need, and keep it in memory no longer. Raises `OSError`."""
        for each in attachments:
            if each.sha256 not in self._in_memory:
                continue
            try:
                self.put(self._in_memory[each.sha256])
            except ConductorError as error:
                raise OSError(error.message) from None
            del self._in_memory[each.sha256]

    def put(self, data: bytes) -> None:
        """Store some bytes, once."""
        insert = "INSERT INTO conductor_attachments VALUES (%s, %s) ON CONFLICT DO NOTHING"
        self._database.call(insert, hashlib.sha256(data).hexdigest(), data)

    def prune(self) -> None:
        """Delete what no run names any more."""
        self._database.call(f"DELETE FROM conductor_attachments WHERE {_UNNEEDED}", [])  # noqa: S608

    def prunable(self, without: Collection[str]) -> int:
        """How many bytes `prune` would free if these runs were deleted."""
        size = f"SELECT COALESCE(SUM(length(data)), 0)::bigint FROM conductor_attachments WHERE {_UNNEEDED}"  # noqa: S608
        return int(self._database.call(size, list(without))[0][0])


_UNNEEDED: Final = (
    "sha256 NOT IN (SELECT unnest(r.attachments) FROM conductor_runs r"
    " LEFT JOIN unnest(%s::text[]) gone ON gone = r.run WHERE r.attachments <> '{}' AND gone IS NULL)"
)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def shared_secret(database: Database) -> bytes:
    """Return the secret that all servers over this database sign with; made on first use. Raises `StateUnavailable`."""
    database.call("INSERT INTO conductor_facts VALUES ('secret', %s) ON CONFLICT DO NOTHING", secrets.token_bytes(32))
    return bytes(database.call("SELECT value FROM conductor_facts WHERE name = 'secret'")[0][0])


class SharedCircuits:
    """Which circuits other replicas have opened. See `CircuitBoard`. A database that is away costs only this news."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known = dict[str, OpenCircuit]()
        self._read_at = -NEWS_SECONDS

    def publish(self, key: str, circuit: OpenCircuit) -> None:
        """Tell others that a circuit is open, until then by the clock `time.monotonic`. Nobody waits for it."""
        statement = (
            "INSERT INTO conductor_circuits VALUES (%s, clock_timestamp() + make_interval(secs => %s), %s)"
            " ON CONFLICT (key) DO UPDATE SET until = excluded.until, circuit = excluded.circuit"
            " WHERE conductor_circuits.until < excluded.until"
        )
        seconds = circuit.until - time.monotonic()
        said = [circuit.failures, circuit.reason, circuit.kind]
        self._database.soon(self._try, statement, key, seconds, json.dumps(said))

    def withdraw(self, key: str) -> None:
        """Tell others that a call was answered."""
        self._database.soon(self._try, "DELETE FROM conductor_circuits WHERE key = %s", key)

    def find(self, key: str) -> OpenCircuit | None:
        """Return what is known of the circuit of this key. Nobody waits: what others say is known two seconds later."""
        now = time.monotonic()
        if now - self._read_at > NEWS_SECONDS:
            self._read_at = now
            self._database.soon(self._read)
        found = self._known.get(key)
        return found if found is not None and found.until > now else None

    def _read(self) -> None:
        rows = self._try(
            "SELECT key, extract(epoch FROM until - clock_timestamp())::float8, circuit FROM conductor_circuits"
            " WHERE until > clock_timestamp() LIMIT 10000"
        )
        now, known = time.monotonic(), dict[str, OpenCircuit]()
        for key, left, circuit in rows:
            failures, reason, kind = json.loads(circuit)
            known[key] = OpenCircuit(until=now + left, failures=failures, reason=reason, kind=kind)
        self._known = known

    def _try(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._database.call(statement, *values)
        except ConductorError:
            return []


def claim_request(database: Database, key: str, request: str, run: str, instead_of: str) -> tuple[str, float]:
    """Return the run that answers the request of a key, and for how long. See `State.claim_request`."""
    ((first, found, age),) = database.call(
        "SELECT * FROM conductor_claim(%s, %s, %s, %s, %s)", key, request, run, instead_of, REQUEST_SECONDS
    )
    if first != request:
        raise UsageError("this Idempotency-Key was used for another request", hint="use a new one for each request")
    return str(found), float(age)
