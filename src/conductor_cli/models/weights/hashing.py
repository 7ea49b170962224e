"""The SHA-256 of a file, read in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError

PIECE: Final = 4 << 20
"""Bytes that are read at once."""

Report = Callable[[str, int, int], None]
"""Hears what is done with which file, how many bytes of it are done, and how many there are; 0 if that is unknown."""


def ignore_progress(label: str, done: int, total: int) -> None:
    """For callers that want no progress."""


def hash_file(path: Path, report: Report = ignore_progress, name: str = "") -> str:
    """Read the whole file; progress is reported under `name`. Raises `ModelError` of kind `file`."""
    digest, done = hashlib.sha256(), 0
    total = path.stat().st_size if path.exists() else 0
    for piece in read_pieces(path):
        digest.update(piece)
        done += len(piece)
        report(f"checking {name or path.name}", done, total)
    return digest.hexdigest()


def read_pieces(path: Path) -> Iterator[memoryview]:
    """The file piece by piece, each valid until the next one. Raises `ModelError` of kind `file`."""
    buffer = memoryview(bytearray(PIECE))
    try:
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                yield buffer[:size]
    except OSError as error:
        message = f"cannot read {path}: {error.strerror}"
        raise ModelError("file", message, hint="check the path and its permissions") from None
