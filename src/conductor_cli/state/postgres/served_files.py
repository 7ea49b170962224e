"""The files and batches of the clients of several servers.

A batch is worked on by one of them, until that is gone.

That one has its files in a directory of its own, and sends what it appends to the database right
behind. The row of the batch names it, and is locked wherever it writes, so a server that is late
adds nothing.
"""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ConductorError, StateUnavailable, TakenOver
from conductor_cli.state.postgres.database import Database, storable
from conductor_cli.state.served_files import END_STATES, HeldBatch, Record, ServedFiles
from conductor_cli.system.disk import exclusive_lock, make_private_directory

HELD_SECONDS: Final = 20  # How long a process has a batch without a sign of life
SEND_SECONDS: Final = 0.5  # How long an answer may wait for others before it is stored
ROWS_AT_ONCE: Final = 8  # Of at most a megabyte each, that are read at once
PIECE_BYTES: Final = 1 << 20
NEW_SECONDS: Final = 60  # For so long a directory may have no lock yet

_UPSERT: Final = (
    "INSERT INTO conductor_served (id, client, record, is_open) VALUES (%s, %s, %s, %s) ON "
    "CONFLICT (id)"
    " DO UPDATE SET record = excluded.record, is_open = excluded.is_open"
)


def _row(record: Record) -> tuple[str, str, str, bool]:
    is_open = record["object"] == "batch" and record["status"] not in END_STATES
    return record["id"], record["owner"], json.dumps(record), is_open


class SharedHeldBatch(HeldBatch):
    """A batch that this process has, as long as the row of the batch has its token."""

    def __init__(self, files: ServedFiles, name: str, database: Database, directory: Path) -> None:
        super().__init__(files, name)
        self._token: str | None = f"{database.owner} {secrets.token_hex(8)}"
        self._database = database
        self._directory = directory
        self._lock = threading.RLock()  # held while something is sent
        self._unsent = defaultdict[str, bytearray](bytearray)
        # What may be stored already, though nobody said so
        self._piece: tuple[str, int, bytes] | None = None
        self._numbers = dict[str, int]()
        self._ended = threading.Event()

    def path(self, name: str) -> Path:
        return self._directory / name

    def claim(self) -> bool:
        """Return whether this process has the batch from now on."""
        claim = (
            "UPDATE conductor_served SET holder = %s, until = clock_timestamp() + "
            "make_interval(secs => %s)"
            " WHERE id = %s AND until < clock_timestamp() RETURNING id"
        )
        return bool(self._database.call(claim, self._token, HELD_SECONDS, self.name))

    def load(self, names: Iterable[str]) -> None:
        """Write what the files have so far to this disk."""
        for name in names:
            with self.path(name).open("wb") as file:
                self._numbers[name] = 0
                for piece in read_pieces(self._database, name):
                    file.write(piece)
                    self._numbers[name] += 1

    def keep(self) -> None:
        """Send what is appended, and keep the batch, until `free` or another process has it."""
        waited = 0.0
        while not self._ended.wait(SEND_SECONDS):
            with suppress(StateUnavailable), self._lock:
                waited += SEND_SECONDS
                if self._unsent or waited >= HELD_SECONDS / 4:
                    self._send()
                    waited = 0.0

    def free(self) -> None:
        """Send what is left, and let another process have the batch. Raises `StateUnavailable`."""
        self._ended.set()
        with self._lock:
            try:
                self._send()
            finally:
                free = (
                    "UPDATE conductor_served SET holder = '', until = '-infinity' WHERE id = "
                    "%s "
                    "AND holder = %s"
                )
                self._database.call(free, self.name, self._token)
                self._token = None

    def append(self, name: str, line: bytes) -> None:
        self._unsent[name] += line  # by one thread at a time

    def size(self, name: str) -> int:
        with self._lock:
            self._send()
        total = "SELECT COALESCE(sum(length(data)), 0)::bigint FROM conductor_pieces WHERE id = %s"
        return int(self._database.call(total, name)[0][0])

    def write(self, record: Record, files: Collection[Record] = ()) -> None:
        with self._lock:
            self._send()
            with self._database.transaction() as connection:
                mine = "SELECT 1 FROM conductor_served WHERE id = %s AND holder = %s FOR UPDATE"
                if connection.execute(mine, (self.name, self._token)).fetchone() is None:
                    raise TakenOver(_LOST)
                for written in (*files, record):
                    connection.execute(_UPSERT, _row(written))

    def _next_piece(self) -> tuple[str, int, bytes] | None:
        """Take what was appended to one of the files, and was not sent; None where all was."""
        for name, unsent in [*self._unsent.items()]:
            if unsent:
                content = bytes(unsent)
                piece = name, self._numbers[name], content
                del unsent[: len(content)]
                return piece
        return None

    def _send(self) -> None:
        """Store what was appended by now, and renew the lease.

        Raises `StateUnavailable` and `TakenOver`.
        """
        while True:
            if self._piece is None:
                self._piece = self._next_piece()
            name, number, content = self._piece or ("", -1, b"")
            statement = (
                "WITH mine AS (UPDATE conductor_served SET until = clock_timestamp() + "
                "make_interval(secs => %s)"
                " WHERE id = %s AND holder = %s RETURNING 1), added AS (INSERT INTO "
                "conductor_pieces"
                " SELECT %s, %s::integer, %s FROM mine WHERE %s <> '' ON CONFLICT DO NOTHING) "
                "SELECT 1 FROM mine"
            )
            if not self._database.call(
                statement, HELD_SECONDS, self.name, self._token, name, number, content, name
            ):
                raise TakenOver(_LOST)
            if self._piece is None:
                return
            self._numbers[name] = number + 1
            self._piece = None


_LOST: Final = "another server goes on with the batch"


class SharedServedFiles(ServedFiles):
    """All files and batches of a state in PostgreSQL. All raise `StateUnavailable`."""

    def __init__(self, state: Path, database: Database) -> None:
        super().__init__(state)
        self._working = state / "working"
        self._database = database

    def write(self, record: Record) -> None:
        self._database.call(_UPSERT, *_row(record))

    def find(self, name: str) -> Record | None:
        rows = self._database.call(
            "SELECT record FROM conductor_served WHERE id = %s", storable(name)
        )
        if not rows:
            return None
        record: Record = json.loads(rows[0][0])
        return record

    def all(self, kind: str, owner: str | None = None) -> list[Record]:
        rows = self._database.call(
            "SELECT record FROM conductor_served"
            " WHERE id LIKE %s AND client = COALESCE(%s, client)",
            f"{kind}%",
            owner,
        )
        return [json.loads(record) for (record,) in rows]

    def open_batches(self) -> list[Record]:
        rows = self._database.call("SELECT record FROM conductor_served WHERE is_open")
        return [json.loads(record) for (record,) in rows]

    def add(self, record: Record, pieces: Iterable[bytes]) -> None:
        with self._database.transaction() as connection:
            record["bytes"] = 0
            for number, piece in enumerate(pieces):
                connection.execute(
                    "INSERT INTO conductor_pieces VALUES (%s, %s, %s)",
                    (record["id"], number, piece),
                )
                record["bytes"] += len(piece)
            connection.execute(_UPSERT, _row(record))

    def content(self, name: str) -> Path | Iterator[bytes]:
        pieces = read_pieces(self._database, name)
        # A database that is away says so before anything is sent
        return chain([next(pieces, b"")], pieces)

    def remove(self, name: str) -> None:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM conductor_pieces WHERE id = %s", (name,))
            connection.execute("DELETE FROM conductor_served WHERE id = %s", (name,))

    def cancel(self, name: str) -> None:
        self._database.call("UPDATE conductor_served SET cancelled = true WHERE id = %s", name)

    def is_cancelled(self, name: str) -> bool:
        return bool(
            self._database.call("SELECT 1 FROM conductor_served WHERE id = %s AND cancelled", name)
        )

    @contextmanager
    def held(self, name: str, files: Iterable[str]) -> Iterator[HeldBatch]:
        with self._directory() as directory:
            held = SharedHeldBatch(self, name, self._database, directory)
            if not held.claim():
                raise BlockingIOError
            keeping = threading.Thread(target=held.keep, name="batch", daemon=True)
            keeping.start()
            try:
                held.load(files)
                yield held
            finally:
                with suppress(ConductorError):  # else it is free when its time is over
                    held.free()
                keeping.join()

    @contextmanager
    def _directory(self) -> Iterator[Path]:
        """Yield an empty directory, which is deleted at the end.

        Those of processes that were killed are deleted now.
        """
        make_private_directory(self._working)

        def busy() -> None:
            raise BlockingIOError

        for left in self._working.iterdir():
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > NEW_SECONDS:
                    with exclusive_lock(left / ".lock", busy, seconds=0):
                        shutil.rmtree(left, ignore_errors=True)
        with (
            tempfile.TemporaryDirectory(dir=self._working, ignore_cleanup_errors=True) as directory,
            exclusive_lock(Path(directory) / ".lock", busy, seconds=0),
        ):
            yield Path(directory)


def read_pieces(database: Database, name: str) -> Iterator[bytes]:
    """Yield the bytes of a file. Raises `StateUnavailable`."""
    number = 0
    read = (
        "SELECT data FROM conductor_pieces WHERE id = %s AND number >= %s ORDER BY number LIMIT %s"
    )
    while rows := database.call(read, name, number, ROWS_AT_ONCE):
        yield from (bytes(content) for (content,) in rows)
        number += len(rows)
