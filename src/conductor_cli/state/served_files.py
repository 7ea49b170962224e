"""The files and batches of the clients of `conductor serve`, in directories of the state.

A file is its bytes and a record of JSON beside them, a batch a record and what it has written so
far. Each is named by its id, and `owner` in a record says whose it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from conductor_cli.system.disk import exclusive_lock, make_private_directory, write_atomically

Record = dict[str, Any]
"""What is kept of a file or a batch: the object that its client is shown, and `owner`, which it is
not.
"""

PRIVATE_MODE: Final = 0o600

END_STATES: Final = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states in which nothing more becomes of a batch."""


class HeldBatch:
    """A batch that no other process works on meanwhile.

    Its methods raise `OSError` where a disk refuses.
    """

    def __init__(self, files: ServedFiles, name: str) -> None:
        self._files = files
        self.name = name

    def path(self, name: str) -> Path:
        """Return where the bytes of a file are on this disk."""
        return self._files.path(name)

    def append(self, name: str, line: bytes) -> None:
        """Store a line that was appended to a file of this disk. Returns before it is there."""

    def size(self, name: str) -> int:
        """Return how many bytes of a file are stored, once all that was appended is."""
        path = self.path(name)
        if not path.exists():
            return 0
        return path.stat().st_size

    def write(self, record: Record, files: Collection[Record] = ()) -> None:
        """Keep its record, and those of files that it has written.

        Raises `TakenOver` where another process has it.
        """
        for written in (*files, record):
            self._files.write(written)


class ServedFiles:
    """All files and batches of a state. Methods raise `OSError` where a disk refuses."""

    def __init__(self, state: Path) -> None:
        self._directories = {"file": state / "files", "batch": state / "served-batches"}

    def path(self, name: str) -> Path:
        """Return where the bytes of a file are on this disk."""
        return self._directories["file"] / name

    def write(self, record: Record) -> None:
        """Keep a record, in the place of an earlier one."""
        path = self._path_of(record["id"], ".json")
        make_private_directory(path.parent)
        write_atomically(path, json.dumps(record), mode=PRIVATE_MODE)

    def find(self, name: str) -> Record | None:
        """Return the record of an id; None where there is none."""
        return self._load(self._path_of(name, ".json"))

    def all(self, kind: str, owner: str | None = None) -> list[Record]:
        """Return the records of a kind, `file` or `batch`, in any order.

        Of one client, or of all.
        """
        loaded = map(self._load, self._directories[kind].glob(f"{kind}*.json"))
        records = [record for record in loaded if record is not None]
        if owner is None:
            return records
        return [record for record in records if record["owner"] == owner]

    def open_batches(self) -> list[Record]:
        return [
            record
            for record in self.all("batch")
            if record.get("status", "failed") not in END_STATES
        ]

    def add(self, record: Record, pieces: Iterable[bytes]) -> None:
        """Store a new file, all of it or nothing, and write its size into its record."""
        path = self.path(record["id"])
        make_private_directory(path.parent)
        try:
            with path.open("wb") as file:
                path.chmod(PRIVATE_MODE)
                file.writelines(pieces)
            record["bytes"] = path.stat().st_size
            self.write(record)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def content(self, name: str) -> Path | Iterator[bytes]:
        """Return the bytes of a file, or the path of a file that has them."""
        return self.path(name)

    def remove(self, name: str) -> None:
        for path in (self._path_of(name, ".json"), self.path(name)):
            path.unlink(missing_ok=True)

    def cancel(self, name: str) -> None:
        """Tell whoever works on a batch that its client wants no more of it."""
        self._path_of(name, ".cancel").touch(mode=PRIVATE_MODE)

    def is_cancelled(self, name: str) -> bool:
        return self._path_of(name, ".cancel").exists()

    @contextmanager
    # They are on this disk
    def held(self, name: str, files: Iterable[str]) -> Iterator[HeldBatch]:  # noqa: ARG002
        """Hold a batch, with what its `files` have so far.

        Raises `BlockingIOError` where another process has it.
        """

        def busy() -> NoReturn:
            raise BlockingIOError

        with exclusive_lock(self._path_of(name, ".lock"), busy, seconds=0):
            yield HeldBatch(self, name)
            if (self.find(name) or {}).get("status") in END_STATES:
                self._path_of(name, ".cancel").unlink(missing_ok=True)

    def _path_of(self, name: str, suffix: str) -> Path:
        return self._directories[name[: -len("-") - 24]] / f"{name}{suffix}"

    def _load(self, path: Path) -> Record | None:
        try:
            record = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None  # it is deleted, or was damaged by somebody else
        if isinstance(record, dict) and {"id", "owner", "created_at"} <= record.keys():
            return record
        return None
