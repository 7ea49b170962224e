"""The hashes of a file, read in pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.weights.progress import ProgressMeter, Report, ignore_progress

PIECE: Final = 4 << 20
"""Bytes that are read at once."""

GIT_LIMIT: Final = 256 << 20
"""Git's own hash is computed below this many bytes: the hub names small files by it, never large ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHashes:
    """The size of a file, its SHA-256, and the hash by which git knows it (empty for large files)."""

    size: int
    sha256: str
    git: str = ""

    def match(self, sha256: str, etag: str, size: int = 0) -> bool:
        """Whether the file is what was expected, as far as that is known: by SHA-256, else by ETag, else by size."""
        if sha256:
            return self.sha256 == sha256
        # An ETag is the SHA-256 of a large file and git's hash of a small one. Any other ETag proves nothing.
        own = {64: self.sha256, 40: self.git}.get(len(etag))
        return own == etag if own else size in {0, self.size}


def hash_file(path: Path, report: Report = ignore_progress, name: str = "") -> FileHashes:
    """Read the whole file; progress is reported under `name`. Raises `ModelError` of kind `file`."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _unreadable(path, error) from None
    meter = ProgressMeter(report, "checking", name or path.name, size)
    sha256, git, done = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False), 0
    for piece in read_pieces(path):
        sha256.update(piece)
        if size < GIT_LIMIT:
            git.update(piece)
        done += len(piece)
        meter.update(done)
    return FileHashes(size=done, sha256=sha256.hexdigest(), git=git.hexdigest() if size < GIT_LIMIT else "")


def read_pieces(path: Path) -> Iterator[memoryview]:
    """The file piece by piece, each valid until the next one. Raises `ModelError` of kind `file`."""
    buffer = memoryview(bytearray(PIECE))
    try:
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                yield buffer[:size]
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> ModelError:
    return ModelError("file", f"cannot read {path}: {error.strerror}", hint="check the path and its permissions")
