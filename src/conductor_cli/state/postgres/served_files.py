"""The files and batches of the clients of several servers. A batch is worked on by one of them, until that is gone."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import StateUnavailable, TakenOver
from conductor_cli.models.disk import make_private_directory
from conductor_cli.state.postgres.database import Database, storable
from conductor_cli.state.served_files import PRIVATE, HeldBatch, Record, ServedFiles

HELD_SECONDS: Final = 20  # How long a process has a batch without a sign of life
PIECE: Final = 1 << 20  # Bytes of a row


class SharedHeldBatch(HeldBatch):
    """A batch that this process has. What it writes goes to this disk at once and to the database right behind."""

    def __init__(self, files: SharedServedFiles, database: Database, name: str) -> None:
        super().__init__(files)
        self._database, self._name = database, name
        self._unsent = defaultdict[str, bytearray](bytearray)
        self._numbers = dict[str, int]()
        self._lock, self._sending = threading.Lock(), threading.Lock()

    def load(self, names: Iterable[str]) -> None:
        """Write what the files have so far to this disk."""
        for name in names:
            path, self._numbers[name] = self.path(name), 0
            make_private_directory(path.parent)
            with path.open("wb") as file:
                path.chmod(PRIVATE)
                for piece in read_pieces(self._database, name):
                    file.write(piece)
                    self._numbers[name] += 1

    def write(self, record: Record) -> None:
        kept = self._database.call(
            "UPDATE conductor_served SET record = %s, until = clock_timestamp() + make_interval(secs => %s)"
            " WHERE id = %s AND owner = %s RETURNING id",
            json.dumps(record), HELD_SECONDS, self._name, self._database.owner,
        )  # fmt: skip
        if not kept:
            raise TakenOver("another server goes on with the batch")

    def append(self, name: str, line: bytes) -> None:
        with self._lock:
            self._unsent[name] += line
        self._database.soon(self._send)

    def _send(self) -> None:
        """Store what was appended by now. A database that is away is asked again by the next line, or by `flush`."""
        with self._sending, suppress(StateUnavailable):
            self._send_all()

    def flush(self) -> None:
        with self._sending:
            self._send_all()

    def _send_all(self) -> None:
        for name in list(self._unsent):
            with self._lock:
                data = bytes(self._unsent[name])
            if data:
                # The row of the batch is locked, so nobody takes it over before this row is there.
                self._database.call(
                    "INSERT INTO conductor_pieces SELECT %s, %s, %s FROM conductor_served"
                    " WHERE id = %s AND owner = %s FOR SHARE ON CONFLICT DO NOTHING",
                    name, self._numbers[name], data, self._name, self._database.owner,
                )  # fmt: skip
                self._numbers[name] += 1
                with self._lock:
                    del self._unsent[name][: len(data)]


class SharedServedFiles(ServedFiles):
    """All files and batches of a state in PostgreSQL. All raise `StateUnavailable`.

    While a server works on a batch, its files are on the disk of that server, too.
    """

    def __init__(self, state: Path, database: Database) -> None:
        super().__init__(state / "working")
        self._database = database

    def write(self, record: Record) -> None:
        insert = (
            "INSERT INTO conductor_served (id, record) VALUES (%s, %s)"
            " ON CONFLICT (id) DO UPDATE SET record = excluded.record"
        )
        self._database.call(insert, record["id"], json.dumps(record))

    def find(self, name: str) -> Record | None:
        rows = self._database.call("SELECT record FROM conductor_served WHERE id = %s", storable(name))
        return json.loads(rows[0][0]) if rows else None

    def all(self, kind: str) -> list[Record]:
        rows = self._database.call("SELECT record FROM conductor_served WHERE id LIKE %s", f"{kind}%")
        return [json.loads(record) for (record,) in rows]

    def store(self, name: str, pieces: Iterable[bytes]) -> int:
        size = 0
        try:
            for number, piece in enumerate(pieces):
                statement = "INSERT INTO conductor_pieces VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
                self._database.call(statement, name, number, piece)
                size += len(piece)
        except BaseException:
            self.remove(name)
            raise
        return size

    def content(self, name: str) -> Path | Iterator[bytes]:
        return read_pieces(self._database, name)

    def remove(self, name: str) -> None:
        # The record goes last: what was stopped in between is still there to be removed.
        self._database.call("DELETE FROM conductor_pieces WHERE id = %s", name)
        self._database.call("DELETE FROM conductor_served WHERE id = %s", name)

    def cancel(self, name: str) -> None:
        self._database.call("UPDATE conductor_served SET cancelled = true WHERE id = %s", name)

    def is_cancelled(self, name: str) -> bool:
        return bool(self._database.call("SELECT 1 FROM conductor_served WHERE id = %s AND cancelled", name))

    @contextmanager
    def held(self, name: str, files: Iterable[str]) -> Iterator[HeldBatch]:
        database, names = self._database, list(files)
        claimed = database.call(
            "UPDATE conductor_served SET owner = %s, until = clock_timestamp() + make_interval(secs => %s)"
            " WHERE id = %s AND (until < clock_timestamp() OR owner = %s) RETURNING id",
            database.owner, HELD_SECONDS, name, database.owner,
        )  # fmt: skip
        if not claimed:
            raise BlockingIOError
        held = SharedHeldBatch(self, database, name)
        try:
            held.load(names)
            yield held
        finally:
            with suppress(StateUnavailable):  # else it is free when its time is over
                held.flush()
                free = "UPDATE conductor_served SET until = '-infinity' WHERE id = %s AND owner = %s"
                database.call(free, name, database.owner)
            for each in names:
                self.path(each).unlink(missing_ok=True)


def read_pieces(database: Database, name: str) -> Iterator[bytes]:
    """Yield the bytes of a file. Raises `StateUnavailable`."""
    number = 0
    while rows := database.call("SELECT data FROM conductor_pieces WHERE id = %s AND number = %s", name, number):
        yield bytes(rows[0][0])
        number += 1
