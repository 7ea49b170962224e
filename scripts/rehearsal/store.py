"""Remembers on disk what files wrote, so that no evaluation asks the same twice. Pure but for the database.

An entry belongs to the bytes of a file, and a file that was trained again has other bytes.
"""

from __future__ import annotations

import hashlib
import sqlite3
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

GREEDY: Final = -1
"""The seed of a text that was written without chance."""

_COMMIT: Final = 200
"""Entries that are written together. Until then, another process waits."""

_PATIENCE: Final = 120.0
"""Seconds to wait for another process."""


class Written(NamedTuple):
    """A reply as it is stored. `confidence` is the probability of all of it, 0 where nobody computed it."""

    text: str
    confidence: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    complete: bool = True


class Store:
    """Replies by the file that wrote them, the prompt, and the seed. Several processes may use one."""

    def __init__(self, path: Path | str = ":memory:") -> None:
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, timeout=_PATIENCE, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=OFF")  # a lost entry is written again
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS replies (file TEXT, seed INTEGER, prompt TEXT, text TEXT, confidence REAL, "
            "tokens_in INTEGER, tokens_out INTEGER, complete INTEGER, PRIMARY KEY (file, seed, prompt)) WITHOUT ROWID"
        )
        self._database.commit()
        self._open = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.commit()
        self._database.close()

    def get(self, file: Path, prompt: str, seed: int = GREEDY) -> Written | None:
        """What the file wrote after this prompt, if it is known."""
        row = self._database.execute(
            "SELECT text, confidence, tokens_in, tokens_out, complete FROM replies "
            "WHERE file=? AND seed=? AND prompt=?",
            (digest(file), seed, prompt),
        ).fetchone()
        return None if row is None else Written(*row)

    def put(self, file: Path, prompt: str, written: Written, seed: int = GREEDY) -> None:
        """Remember a reply."""
        self._database.execute(
            "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (digest(file), seed, prompt, *written[:4], int(written.complete)),
        )
        self._open += 1
        if self._open >= _COMMIT:
            self._database.commit()
            self._open = 0


def digest(file: Path) -> str:
    """The name of a file's bytes."""
    status = file.stat()
    return _digest(file, status.st_mtime_ns, status.st_size)


@cache
def _digest(file: Path, time: int, size: int) -> str:
    del time, size  # they tell a changed file from the one that was read
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20]
