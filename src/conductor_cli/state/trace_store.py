"""The directory of traces: opening, finding, reading and deleting runs."""

from __future__ import annotations

import glob
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.trace import Trace, apply_event
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.stored_run import EVERY_RUN, SUFFIX, RunQuery, StoredRun
from conductor_cli.state.trace_check import ASIDE, TraceCheck, check_trace, repair_trace
from conductor_cli.state.trace_file import TraceFollower, TraceWriter, is_live, open_trace, read_events, unreadable

_SECOND: Final = len("20261231-235959")
_LAST: Final = re.compile(r"last(?:~(\d{1,9}))?")


def find_run(name: str, runs: Sequence[str]) -> str:
    """The one of these runs, newest first, that is called `name`. Raises `UsageError` for none, or more than one."""
    back = _LAST.fullmatch(name)
    if back is not None:
        found = runs[int(back[1] or 0) :][:1]
    else:
        found = [name] if name in runs else [run for run in runs if name and run.startswith(name)]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} runs begin with {name!r}" if found else f"there is no run {name!r}"
    raise UsageError(what, hint="conductor trace list shows the stored runs")


class StoredTraces(ABC):
    """What follows from the events of the runs, wherever they are stored."""

    @abstractmethod
    def runs(self) -> list[str]: ...
    @abstractmethod
    def events(self, run: str, *, pieces: bool = True) -> Iterator[ev.Event]: ...
    @abstractmethod
    def is_running(self, run: str) -> bool: ...
    @abstractmethod
    def remove(self, run: str) -> None: ...

    def find(self, name: str, among: Sequence[str] | None = None) -> str:
        """The id of the run called `name`: an id, the beginning of one, `last`, or `last~2` for the one two before it.

        `among` are the only runs that may be meant, newest first. Raises `UsageError` when there is none, or more than
        one.
        """
        return find_run(name, self.runs() if among is None else among)

    def trace(self, run: str, *, pieces: bool = True) -> Trace:
        """The trace of a stored run. Raises `UsageError` as `events` does."""
        return reduce(apply_event, self.events(run, pieces=pieces), Trace())

    def ended(self, name: str, *, pieces: bool = True) -> Trace:
        """The trace of the run called `name`. Raises `UsageError`, also while another process is writing it."""
        run = self.find(name)
        if self.is_running(run):
            raise UsageError(f"run {run} is still running", hint="wait until it ends, or stop it first")
        return self.trace(run, pieces=pieces)

    def prune(self, runs: Collection[str]) -> list[UsageError]:
        """Delete runs; returns why some could not be: one was resumed meanwhile, or the disk refuses."""
        errors = []
        for run in runs:
            try:
                self.remove(run)
            except UsageError as error:
                errors.append(error)
        return errors


class TraceStore(StoredTraces):
    """The directory of traces."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def place(self) -> str:
        """The directory."""
        return str(self.directory)

    def open(self, run: str) -> TraceWriter:
        """A writer for a new run. Raises `OSError`."""
        return TraceWriter(self.path(run))

    def path(self, run: str) -> Path:
        return self.directory / f"{run}{SUFFIX}"

    def runs(self) -> list[str]:
        """The ids of all stored runs, newest first. Raises `UsageError` when the directory cannot be read.

        Ids sort by time, to the second; within a second the time of the last write decides.
        """
        files = []
        try:
            with os.scandir(self.directory) as found:
                for entry in found:
                    if entry.name.endswith(SUFFIX):
                        written = 0  # of one that has just vanished, and of a broken link
                        with suppress(OSError):
                            written = entry.stat().st_mtime_ns
                        files.append((entry.name, written))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.directory, error) from None
        files.sort(key=lambda file: (file[0][:_SECOND], file[1]), reverse=True)
        return [name.removesuffix(SUFFIX) for name, _ in files]

    def newest(self, query: RunQuery = EVERY_RUN, count: int = 20) -> tuple[list[StoredRun], bool]:
        """The newest matching runs, all for -1, and whether there are more. Raises `OSError`."""
        return RunIndex(str(self.directory)).newest(query, count)

    def location(self, run: str) -> str:
        """The path of a run's file."""
        return str(self.path(run))

    def follow(self, run: str) -> TraceFollower:
        """A reader of the events of a run, also while it is written."""
        return TraceFollower(self.path(run))

    def refresh(self) -> None:
        """Remove deleted runs and their texts from the index."""
        with suppress(OSError):
            RunIndex(str(self.directory)).refresh()

    def events(self, run: str, *, pieces: bool = True) -> Iterator[ev.Event]:
        """The events of a stored run, up to its last complete line; without `pieces`, no streamed texts.

        Raises `UsageError` for a file that is not a trace, or has no complete line.
        """
        empty = True
        for event in read_events(self.path(run), pieces=pieces):
            empty = False
            yield event
        if empty:
            raise UsageError(f"{self.path(run)} has no complete event", hint=f"conductor trace rm {run} deletes it")

    def is_running(self, run: str) -> bool:
        """Whether another process is writing this run."""
        return is_live(self.path(run))

    def check(self, run: str) -> TraceCheck:
        """Whether the trace of a run is whole. Raises `UsageError` when it cannot be read."""
        path, running = self.path(run), self.is_running(run)
        try:
            with open_trace(path) as file:
                return check_trace(file, run, running=running)
        except OSError as error:
            raise unreadable(path, error) from None

    def repair(self, run: str, check: TraceCheck) -> Path | None:
        """Keep what is whole of a trace. Returns the file that has what it was; None where nothing had to be done.

        Raises `UsageError` where nothing can be kept, while it is being written, or when the system refuses.
        """
        path = self.path(run)
        if self.is_running(run):
            raise UsageError(f"run {run} is still being written", hint="wait until it ends, or stop it first")
        try:
            aside = repair_trace(path, check)
        except OSError as error:
            raise UsageError(f"{path} cannot be repaired: {error.strerror}", hint="free some disk space") from None
        if aside is not None:
            RunIndex(str(self.directory)).forget(run)
        return aside

    def remove(self, run: str) -> None:
        """Delete a stored run, and what was set aside of it.

        Raises `UsageError` while it is being written, or when the system refuses.
        """
        path = self.path(run)
        if is_live(path):
            raise UsageError(f"run {run} is still being written", hint="stop it first")
        try:
            path.unlink(missing_ok=True)
            for aside in self.directory.glob(f"{glob.escape(path.name)}{ASIDE}*"):
                aside.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"cannot delete {path}: {error.strerror}", hint="fix its permissions, or delete it by hand"
            ) from None
