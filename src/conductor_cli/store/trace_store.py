"""The directory of traces: opening, finding, reading and removing runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.store.run_index import RunIndex
from conductor_cli.store.stored_run import EVERY_RUN, SUFFIX, FoundRun, RunQuery
from conductor_cli.store.trace_file import TraceWriter, is_live, read_events, unreadable

_SECOND: Final = len("20261231-235959")
_LAST: Final = re.compile(r"last(?:~(\d{1,9}))?")


class TraceStore:
    """The directory of traces."""

    def __init__(self, directory: Path, reading: Callable[[int], None] = lambda _: None) -> None:
        """`reading` is called where the index takes a while, with how many files are read for it."""
        self.directory = directory
        self.reading = reading

    def open(self, run: str) -> TraceWriter:
        """A writer for a new run. Raises `OSError`."""
        return TraceWriter(self.path(run))

    def path(self, run: str) -> Path:
        return self.directory / f"{run}{SUFFIX}"

    def runs(self) -> list[str]:
        """The ids of all stored runs, newest first. Raises `UsageError` when the directory cannot be read.

        Ids sort by time, to the second; those of one second are told apart by when they were last written.
        """
        try:
            with os.scandir(self.directory) as found:
                files = [(entry.name, _written(entry)) for entry in found if entry.name.endswith(SUFFIX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.directory, error) from None
        files.sort(key=lambda file: (file[0][:_SECOND], file[1]), reverse=True)
        return [name.removesuffix(SUFFIX) for name, _ in files]

    def newest(self, wanted: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[FoundRun], int]:
        """The newest runs that are wanted, by the index, and how many more there are; see `Index.newest`.

        Raises `UsageError` when the directory cannot be read.
        """
        try:
            return RunIndex(str(self.directory), self.reading).newest(wanted, count)
        except OSError as error:
            raise unreadable(self.directory, error) from None

    def refresh(self) -> None:
        """Take what was deleted out of the index, its texts too."""
        with suppress(OSError):
            RunIndex(str(self.directory)).refresh()

    def find(self, name: str) -> str:
        """The run that `name` means. Raises `UsageError`.

        An id, the beginning of exactly one id, `last`, or `last~2` for the one two before it.
        """
        runs = self.runs()
        back = _LAST.fullmatch(name)
        if back is not None and runs:
            return _before_last(runs, int(back[1] or 0))
        matching = [run for run in runs if run.startswith(name)] if name and back is None else []
        if name in matching or len(matching) == 1:
            return name if name in matching else matching[0]
        if len(matching) > 1:
            more = "give more of the id: conductor trace list"
            raise UsageError(f"{len(matching)} runs begin with {name!r}", hint=more)
        what = f"there is no run {name!r}" if runs and back is None else "no run is stored yet"
        raise UsageError(what, hint="conductor trace list shows what there is")

    def events(self, run: str, *, pieces: bool = True) -> Iterator[ev.Event]:
        """The events of a stored run, up to its last whole line; without `pieces` none of the streamed texts.

        Raises `UsageError` for a file that is no trace, or not even the start of one.
        """
        empty = True
        for event in read_events(self.path(run), pieces=pieces):
            empty = False
            yield event
        if empty:
            raise UsageError(f"{self.path(run)} holds no whole event", hint=f"conductor trace rm {run} takes it away")

    def trace(self, run: str) -> Trace:
        """The fold of a stored run. Raises `UsageError` as `events` does."""
        trace = Trace()
        for event in self.events(run):
            trace = apply_event(trace, event)
        return trace

    def ended(self, name: str) -> Trace:
        """The fold of the run that `name` means. Raises `UsageError`, also while another process is busy with it."""
        run = self.find(name)
        if self.is_running(run):
            raise UsageError(f"run {run} is still going on", hint="wait for its end, or stop it first")
        return self.trace(run)

    def is_running(self, run: str) -> bool:
        """Whether another process still writes this run."""
        return is_live(self.path(run))

    def remove(self, run: str) -> None:
        """Delete a stored run. Raises `UsageError` while it is being written, or when the system refuses."""
        path = self.path(run)
        if is_live(path):
            raise UsageError(f"run {run} is still being written", hint="stop it first")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be removed: {error.strerror}", hint="mend its rights, or remove it by hand"
            ) from None


def _before_last(runs: list[str], back: int) -> str:
    if back >= len(runs):
        raise UsageError(f"there are only {len(runs)} runs", hint="conductor trace list shows what there is")
    return runs[back]


def _written(entry: os.DirEntry[str]) -> int:
    """When a file was last written, in nanoseconds; 0 for one that has just vanished or leads nowhere."""
    try:
        return entry.stat().st_mtime_ns
    except OSError:
        return 0
