"""The bytes of attachments, once each, by their SHA-256: in memory until a run is stored, then beside its trace.

On disk they are `attachments/ab/abcdef…`, readable by their owner only. A trace names what it needs; what no trace
names any more is deleted with the traces. A run without a trace keeps its bytes in memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from conductor_cli.core.chat import Attachment
from conductor_cli.core.errors import ModelError
from conductor_cli.models.disk import exclusive_lock, make_private_directory, write_atomically
from conductor_cli.state.stored_run import SUFFIX
from conductor_cli.state.trace_file import open_trace, raw_lines

NAMED: Final = re.compile(rb'"sha256":\s?"([0-9a-f]{64})"')
"""How an event names an attachment."""


class Attachments:
    """The attachments of this process, and those of stored runs."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the one of the store; it is created when something is stored."""
        self._directory = directory
        self._in_memory: dict[str, bytes] = {}

    def add(self, data: bytes) -> str:
        """Keep these bytes in memory and return their hash."""
        digest = hashlib.sha256(data).hexdigest()
        self._in_memory[digest] = data
        return digest

    def holds(self, attachment: Attachment) -> bool:
        """Whether the bytes of an attachment are there."""
        return attachment.sha256 in self._in_memory or self._path(attachment.sha256).is_file()

    def read(self, attachment: Attachment) -> bytes:
        """The bytes of an attachment. Raises `ModelError` of reason `file` if they are gone or were changed."""
        data = self._in_memory.get(attachment.sha256)
        if data is not None:
            return data
        path = self._path(attachment.sha256)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError("file", f"{attachment.name} cannot be read: {error.strerror}: {path}") from None
        if hashlib.sha256(data).hexdigest() != attachment.sha256:
            raise ModelError("file", f"{attachment.name} was changed after it was attached: {path}")
        return data

    def store(self, attachments: Iterable[Attachment]) -> None:
        """Write what these runs need to the disk, and keep it in memory no longer. Raises `OSError`.

        Called once the trace that names them exists: `prune` deletes nothing that a trace names.
        """
        wanted = [each for each in attachments if each.sha256 in self._in_memory]
        if not wanted:
            return
        with self._lock():
            for each in wanted:
                path = self._path(each.sha256)
                if not path.is_file():
                    make_private_directory(path.parent)
                    write_atomically(path, self._in_memory[each.sha256], mode=0o600)
        for each in wanted:
            self._in_memory.pop(each.sha256, None)

    def prune(self, traces: Path) -> int:
        """Delete what no trace in this directory names any more; returns how many bytes that freed."""
        if not self._directory.is_dir():
            return 0
        freed = 0
        with suppress(OSError), self._lock():
            for path in self._unneeded(traces):
                with suppress(OSError):
                    size = path.stat().st_size
                    path.unlink()
                    freed += size
        return freed

    def prunable(self, traces: Path, without: Collection[str]) -> int:
        """How many bytes `prune` would free if the traces of these runs were deleted."""
        size = 0
        with suppress(OSError):
            for path in self._unneeded(traces, without):
                size += path.stat().st_size
        return size

    def _unneeded(self, traces: Path, without: Collection[str] = ()) -> Iterable[Path]:
        """What no trace names, those of some runs aside. Raises `OSError`."""
        stored = {path.name: path for path in self._directory.glob("??/*") if len(path.name) == 64}
        for digest in _named_in(traces, without) if stored else ():
            stored.pop(digest, None)
        return stored.values()

    def _path(self, digest: str) -> Path:
        # The hash may come from an edited plan file.
        name = digest if re.fullmatch(r"[0-9a-f]{64}", digest) else "invalid"
        return self._directory / name[:2] / name

    def _lock(self) -> AbstractContextManager[None]:
        make_private_directory(self._directory)
        return exclusive_lock(self._directory / ".lock")


def _named_in(traces: Path, without: Collection[str]) -> Iterator[str]:
    """The hash of every attachment that a trace names. Raises `OSError`: then nothing may be deleted."""
    left_out = {f"{run}{SUFFIX}" for run in without}
    for path in traces.glob(f"*{SUFFIX}"):
        if path.name in left_out:
            continue
        with suppress(FileNotFoundError), open_trace(path) as file:
            for line in raw_lines(file):
                for found in NAMED.finditer(line.data):
                    yield found[1].decode()
