"""The directory of traces: opening, finding, reading and deleting runs."""

from __future__ import annotations

import glob
import heapq
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.state.interfaces import TraceCheck, Traces
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.stored_run import (
    EVERY_RUN,
    SUFFIX,
    RunQuery,
    StoredRun,
    last_announced_run,
)
from conductor_cli.state.trace_check import ASIDE, check_trace, repair_trace
from conductor_cli.state.trace_file import (
    TraceFollower,
    TraceWriter,
    is_live,
    open_trace,
    read_events,
    unreadable,
)

_SECOND: Final = len("20261231-235959")


class TraceStore(Traces):
    """The directory of traces."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.place = str(directory)

    def open(self, run: str) -> TraceWriter:
        return TraceWriter(self.path(run))

    def path(self, run: str) -> Path:
        return self.directory / f"{run}{SUFFIX}"

    def runs(self) -> list[str]:
        """Return the ids of all stored runs, newest first.

        Raises `UsageError` when the directory cannot be read.

        Ids sort by time, to the second; within a second the time of the last write decides.
        """
        return self._newest_first(self._names())

    def newest_ids(self, count: int = 1) -> list[str]:
        """Return the ids of so many runs, the newest first, as `runs` does.

        All names are read, and the files only of those that may be among the newest.
        """
        names = self._names()
        newest = heapq.nlargest(count, names)
        if not newest:
            return []
        since = newest[-1][:_SECOND]
        return self._newest_first([name for name in names if name >= since])[:count]

    def last_begun(self) -> str:
        run = last_announced_run(str(self.directory))
        if run and self.path(run).exists():
            return run
        return super().last_begun()

    def _names(self) -> list[str]:
        """Return the names of all traces. Raises `UsageError`."""
        try:
            names = os.listdir(self.directory)  # noqa: PTH208 - before each question
            return [name for name in names if name.endswith(SUFFIX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.directory, error) from None

    def _newest_first(self, names: Sequence[str]) -> list[str]:
        """Return the runs of traces of these names, sorted."""
        files = []
        for name in names:
            written = 0  # of one that has just vanished, and of a broken link
            with suppress(OSError):
                written = (self.directory / name).stat().st_mtime_ns
            files.append((name, written))
        files.sort(key=lambda file: (file[0][:_SECOND], file[1]), reverse=True)
        return [name.removesuffix(SUFFIX) for name, _ in files]

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        return RunIndex(str(self.directory)).newest(query, count)

    def location(self, run: str) -> str:
        return str(self.path(run))

    def follow(self, run: str) -> TraceFollower:
        return TraceFollower(self.path(run))

    def refresh(self) -> None:
        with suppress(OSError):
            RunIndex(str(self.directory)).refresh()

    def _read(self, run: str, *, pieces: bool) -> Iterator[ev.Event]:
        return read_events(self.path(run), pieces=pieces)

    def is_running(self, run: str) -> bool:
        return is_live(self.path(run))

    def check(self, run: str) -> TraceCheck:
        path = self.path(run)
        running = self.is_running(run)
        try:
            with open_trace(path) as file:
                return check_trace(file, run, running=running)
        except OSError as error:
            raise unreadable(path, error) from None

    def repair(self, run: str, check: TraceCheck) -> str:
        path = self.path(run)
        if self.is_running(run):
            raise UsageError(
                f"run {run} is still being written", hint="wait until it ends, or stop it first"
            )
        try:
            aside = repair_trace(path, check)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be repaired: {error.strerror}", hint="free some disk space"
            ) from None
        if aside is None:
            return ""
        RunIndex(str(self.directory)).forget(run)
        return str(aside)

    def remove(self, run: str) -> None:
        path = self.path(run)
        if is_live(path):
            raise UsageError(f"run {run} is still being written", hint="stop it first")
        try:
            path.unlink(missing_ok=True)
            # What was set aside of it by a repair goes with it.
            for aside in self.directory.glob(f"{glob.escape(path.name)}{ASIDE}*"):
                aside.unlink(missing_ok=True)
        except OSError as error:
            hint = "fix its permissions, or delete it by hand"
            raise UsageError(f"cannot delete {path}: {error.strerror}", hint=hint) from None

    def prune(self, runs: Collection[str]) -> list[UsageError]:
        errors = []
        for run in runs:
            try:
                self.remove(run)
            except UsageError as error:
                errors.append(error)
        return errors
