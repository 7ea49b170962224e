"""The input of a batch after all of it was checked: it is asked only as long as it stays the same.

A batch reads its input twice, the second time while it asks, which may take hours. What somebody
writes into the file meanwhile moves the lines under the reader: it would get half a line for a
question, or the same question under another id.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from conductor_cli.app.batches.input_forms import BatchItem, read_items
from conductor_cli.core.errors import UsageError

_Version = tuple[int, int, int]
"""What changes whenever a file does: its inode, its size, and the time of its last change."""


class CheckedInput:
    """An input that was not changed since this was made, before it was checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version = self._version_now()
        self._digest = ""

    def read(self, skip: int = 0) -> Iterator[BatchItem]:
        """Yield the questions after the first `skip`.

        Raises `UsageError` where the input cannot be read any more, or has other content by now.
        """
        if not self._digest:
            self._digest = self._digest_now()
            if self._version_now() != self._version:
                raise self._changed()
        items = read_items(self.path, skip)
        while True:
            try:
                item = next(items, None)
            except UsageError:
                self._check()  # What was changed may have become no question at all
                raise
            self._check()
            if item is None:
                return
            yield item

    def _check(self) -> None:
        """Raise `UsageError` where the content is another one. One that is gone is read on."""
        version = self._version_now()
        if version in (None, self._version):
            return
        if self._digest_now() != self._digest:
            raise self._changed()
        self._version = version  # It was only written again, or touched

    def _changed(self) -> UsageError:
        message = f"{self.path} was changed after it was checked, and nothing more of it is asked"
        return UsageError(message, hint="the same command checks it again, and goes on")

    def _version_now(self) -> _Version | None:
        with suppress(OSError):
            status = os.stat(self.path)  # noqa: PTH116 - before each question
            return status.st_ino, status.st_size, status.st_mtime_ns
        return None

    def _digest_now(self) -> str:
        with suppress(OSError), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return ""
