"""An append-only file of text blocks that survives being cut at any byte, and several processes writing it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


class AppendLog:
    """One file. Each block is written at once and begins with a new line of its own.

    So what was cut off when a process was killed can spoil no block but its own, which a reader drops because it does
    not parse.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, or create it, readable by its owner only. Raises `OSError`."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, block: str) -> int:
        """Write a block that has no blank line in it; returns the byte at which it begins. Raises `OSError`.

        The place is right where one process writes at a time; that the blocks are whole holds for any number.
        """
        begin = os.lseek(self._file, 0, os.SEEK_END) + 1
        rest = b"\n" + block.encode("utf-8", "backslashreplace")
        while rest:
            rest = rest[os.write(self._file, rest) :]
        return begin

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def read_lines(path: Path, begin: int = 0) -> Iterator[str]:
    """The lines of a journal from a byte on, blank ones left out; none where there is no file. Raises `OSError`."""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            for raw in file:
                line = raw.decode("utf-8", "replace").rstrip("\n")
                if line:
                    yield line
    except FileNotFoundError:
        return
