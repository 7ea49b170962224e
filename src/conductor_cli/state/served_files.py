"""The files and batches of the clients of `conductor serve`, in directories of the state.

A file is its bytes and a record of JSON beside them, a batch a record and what it has written so far. Each is named by
its id, and `owner` in a record says whose it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from conductor_cli.models.disk import exclusive_lock, make_private_directory, write_atomically

Record = dict[str, Any]
"""What is kept of a file or a batch: the object that its client is shown, and `owner`, which it is not."""

PRIVATE: Final = 0o600

OVER: Final = frozenset({"completed", "failed", "expired", "cancelled"})
"""The states in which nothing more becomes of a batch."""


def output_files(batch: str) -> dict[str, str]:
    """Return the ids of the files that a batch writes: its `output`, and its `error` for requests that failed."""
    number = batch.removeprefix("batch_")
    return {"output": f"file-{number[:-1]}0", "error": f"file-{number[:-1]}1"}


class HeldBatch:
    """A batch that no other process works on meanwhile."""

    def __init__(self, files: ServedFiles) -> None:
        self._files = files

    def path(self, name: str) -> Path:
        """Return where the bytes of a file are on this disk."""
        return self._files.path(name)

    def write(self, record: Record) -> None:
        """Keep its record. Raises `OSError`, or `TakenOver` where another process has the batch by now."""
        self._files.write(record)

    def append(self, name: str, line: bytes) -> None:
        """Store what was appended to a file of this disk."""

    def flush(self) -> None:
        """Return when all that was appended is stored. Raises `StateUnavailable`."""


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
        write_atomically(path, json.dumps(record), mode=PRIVATE)

    def find(self, name: str) -> Record | None:
        """Return the record of an id; None where there is none."""
        return self._load(self._path_of(name, ".json"))

    def all(self, kind: str) -> list[Record]:
        """Return the records of a kind, `file` or `batch`, in any order."""
        found = map(self._load, self._directories[kind].glob(f"{kind}*.json"))
        return [record for record in found if record is not None]

    def store(self, name: str, pieces: Iterable[bytes]) -> int:
        """Store the bytes of a new file, all or none of them, and return how many there are."""
        path = self.path(name)
        make_private_directory(path.parent)
        try:
            with path.open("xb") as file:
                path.chmod(PRIVATE)
                file.writelines(pieces)
            return path.stat().st_size
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def content(self, name: str) -> Path | Iterator[bytes]:
        """Return the bytes of a file, or the path of a file that has them."""
        return self.path(name)

    def remove(self, name: str) -> None:
        """Delete a file and its record."""
        for path in (self._path_of(name, ".json"), self.path(name)):
            path.unlink(missing_ok=True)

    def cancel(self, name: str) -> None:
        """Tell whoever works on a batch that its client wants no more of it."""
        self._path_of(name, ".cancel").touch(mode=PRIVATE)

    def is_cancelled(self, name: str) -> bool:
        """Return whether `cancel` was called."""
        return self._path_of(name, ".cancel").exists()

    @contextmanager
    def held(self, name: str, files: Iterable[str]) -> Iterator[HeldBatch]:  # noqa: ARG002 - they are on this disk
        """Hold a batch, with what its `files` have so far. Raises `BlockingIOError` where another process has it."""

        def busy() -> NoReturn:
            raise BlockingIOError

        with exclusive_lock(self._path_of(name, ".lock"), busy, seconds=0):
            yield HeldBatch(self)

    def _path_of(self, name: str, suffix: str) -> Path:
        return self._directories[name[: -len("-") - 24]] / f"{name}{suffix}"

    def _load(self, path: Path) -> Record | None:
        try:
            found = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None  # it is deleted, or was damaged by somebody else
        return found if isinstance(found, dict) and {"id", "owner", "created_at"} <= found.keys() else None
