"""The bytes of attachments on the disk: `attachments/ab/abcdef…`, readable by their owner only."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from conductor_cli.models.disk import exclusive_lock, make_private_directory, write_atomically
from conductor_cli.state.interfaces import AttachmentStore
from conductor_cli.state.stored_run import SUFFIX
from conductor_cli.state.trace_file import open_trace, raw_lines

NAMED: Final = re.compile(rb'"sha256":\s?"([0-9a-f]{64})"')
"""How an event names an attachment."""


class Attachments(AttachmentStore):
    """The attachments of this process, and those of stored runs in a directory, which is created when it is needed."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def _place_of(self, digest: str) -> str:
        return str(self._path(digest))

    def _is_stored(self, digest: str) -> bool:
        return self._path(digest).is_file()

    def _load(self, digest: str) -> bytes:
        return self._path(digest).read_bytes()

    def keep(self, wanted: dict[str, bytes]) -> None:
        with self._lock():
            for digest, data in wanted.items():
                path = self._path(digest)
                if not path.is_file():
                    make_private_directory(path.parent)
                    write_atomically(path, data, mode=0o600)

    def prune(self, traces: Path) -> None:
        """Delete what no trace in this directory names any more."""
        if self._directory.is_dir():
            with suppress(OSError), self._lock():
                for path in self._unneeded(traces):
                    with suppress(OSError):
                        path.unlink()

    def prunable(self, traces: Path, without: Collection[str]) -> int:
        """How many bytes `prune` would free if the traces of these runs were deleted."""
        with suppress(OSError):
            return sum(path.stat().st_size for path in self._unneeded(traces, without))
        return 0

    def _unneeded(self, traces: Path, without: Collection[str] = ()) -> Iterable[Path]:
        """Return what no trace names, those of some runs aside. Raises `OSError`: then nothing may be deleted."""
        stored = {path.name: path for path in self._directory.glob("??/*") if len(path.name) == 64}
        left_out = {f"{run}{SUFFIX}" for run in without}
        for path in traces.glob(f"*{SUFFIX}") if stored else ():
            if path.name in left_out:
                continue
            with suppress(FileNotFoundError), open_trace(path) as file:
                for line in raw_lines(file):
                    for found in NAMED.finditer(line.data):
                        stored.pop(found[1].decode(), None)
        return stored.values()

    def _path(self, digest: str) -> Path:
        return self._directory / digest[:2] / digest

    def _lock(self) -> AbstractContextManager[None]:
        make_private_directory(self._directory)
        return exclusive_lock(self._directory / ".lock")
