"""The SHA-256 of a file, read in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError

PIECE: Final = 4 << 20
"""Bytes that are read at once."""


Reading = Callable[[Path, int, int], None]
"""Hears of which file how many bytes are read, and how many it has."""


def silent(done: int) -> None:
    """Says nothing of how far a file was read."""
    del done


def sha256_of(path: Path, tell: Callable[[int], None] = silent) -> str:
    """The SHA-256 of the file, in hex; `tell` hears after each piece how many bytes were read so far.

    Raises `ModelError` of kind `file` for a file that cannot be read.
    """
    digest = hashlib.sha256()
    done = 0
    for piece in pieces(path):
        digest.update(piece)
        done += len(piece)
        tell(done)
    return digest.hexdigest()


def pieces(path: Path) -> Iterator[memoryview]:
    """The file piece by piece, each valid until the next is asked for. Raises as `sha256_of` does."""
    buffer = memoryview(bytearray(PIECE))
    try:
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                yield buffer[:size]
    except OSError as error:
        hint = "check the path and its rights"
        raise ModelError("file", f"{path} cannot be read: {error.strerror}", hint=hint) from None
