"""Traces on disk: one JSON Lines file a run, written as it happens, readable by the owner only.

A line is an event (`core.events`); the first one names the format. A run that was killed leaves a file that reads up to
its last whole line. While a run is being written its file is locked, so a file without an end that nobody locks belongs
to a run that was interrupted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.trace import Trace, apply
from conductor_cli.core.wire import WireError

SUFFIX: Final = ".jsonl"
_TAIL: Final = 1 << 16
_SECOND: Final = len("20261231-235959")

State = Literal["finished", "partial", "failed", "running", "interrupted", "unreadable"]


class Writer:
    """Writes the events of one run. What the disk does not take is kept and tried again with the next event."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises `OSError`."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self.error: OSError | None = None
        self._pending = b""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        _lock(self._file)

    def write(self, event: ev.Event) -> None:
        """Append one event. A refused write shows in `error`, which a later success clears."""
        self._pending += ev.to_line(event).encode("utf-8", "backslashreplace") + b"\n"
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._file, self._pending) :]
            self.error = None
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Close the file; anybody may see that nobody writes it any more."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def discard(self) -> None:
        """Close the file and take it away: nothing worth keeping is in it."""
        self.close()
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stored run as a list shows it."""

    run: str
    path: Path
    time: str
    question: str
    state: State
    size: int


class Store:
    """The directory of traces."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, run: str) -> Writer:
        """A writer for a new run. Raises `OSError`."""
        return Writer(self.path(run))

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
            raise _unreadable(self.directory, error) from None
        files.sort(key=lambda file: (file[0][:_SECOND], file[1]), reverse=True)
        return [name.removesuffix(SUFFIX) for name, _ in files]

    def find(self, name: str) -> str:
        """The run that `name` means: `last`, an id, or the beginning of exactly one id. Raises `UsageError`."""
        runs = self.runs()
        if name == "last" and runs:
            return runs[0]
        matching = [run for run in runs if run.startswith(name)] if name not in {"", "last"} else []
        if name in matching or len(matching) == 1:
            return name if name in matching else matching[0]
        if len(matching) > 1:
            more = "give more of the id: conductor trace list"
            raise UsageError(f"{len(matching)} runs begin with {name!r}", hint=more)
        what = f"there is no run {name!r}" if runs and name != "last" else "no run is stored yet"
        raise UsageError(what, hint="conductor trace list shows what there is")

    def events(self, run: str) -> Iterator[ev.Event]:
        """The events of a stored run, up to its last whole line.

        Raises `UsageError` for a file that is no trace, or not even the start of one.
        """
        empty = True
        for event in read(self.path(run)):
            empty = False
            yield event
        if empty:
            raise UsageError(f"{self.path(run)} holds no whole event", hint=f"conductor trace rm {run} takes it away")

    def trace(self, run: str) -> Trace:
        """The fold of a stored run. Raises `UsageError` as `events` does."""
        trace = Trace()
        for event in self.events(run):
            trace = apply(trace, event)
        return trace

    def entry(self, run: str) -> Entry:
        """One line of the list, from the first and the last event only. Never raises: what is broken is listed so."""
        path = self.path(run)
        try:
            first = _first_line(path)
            size = path.stat().st_size
            state = _state(path, first)
        except OSError:
            return Entry(run=run, path=path, time="", question="", state="unreadable", size=0)
        start = _json(first)
        question = start.get("question")
        text = question.get("text", "") if isinstance(question, dict) else ""
        return Entry(
            run=run, path=path, time=str(start.get("time", "")), question=str(text), state=state, size=size
        )  # fmt: skip

    def remove(self, run: str) -> None:
        """Delete a stored run. Raises `UsageError` while it is being written, or when the system refuses."""
        path = self.path(run)
        if _is_live(path):
            raise UsageError(f"run {run} is still being written", hint="stop it first")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path} cannot be removed: {error.strerror}", hint="mend its rights") from None


def read(path: Path) -> Iterator[ev.Event]:
    """The events of a trace file, up to its last whole line; none when not even the first one is whole.

    Raises `UsageError` when the file cannot be read, is of a newer format, or is broken before its last line.
    """
    for number, line, ended in _lines(path):
        try:
            event = ev.from_line(line)
        except WireError as error:
            if not ended and (number > 1 or _is_start(line)):
                return
            raise UsageError(f"{path}, line {number}: {error}", hint="this file is no trace of conductor") from None
        if number == 1 and not isinstance(event, ev.RunStarted):
            raise UsageError(
                f"{path} does not begin with the start of a run", hint="this file is no trace of conductor"
            )
        if isinstance(event, ev.RunStarted) and event.format > ev.FORMAT:
            reads = f"this conductor reads up to {ev.FORMAT}"
            raise UsageError(f"{path} has trace format {event.format}; {reads}", hint="update conductor")
        yield event


def _is_start(line: str) -> bool:
    """Whether `line` is the beginning of a trace's first line, and no more than that."""
    begins = '{"kind":"' + ev.RunStarted.kind + '"'
    return not line.endswith("\n") and (line.startswith(begins) or begins.startswith(line))


def _lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and whether another line follows (only the last line may be broken)."""
    try:
        with path.open("rb") as file:
            held: tuple[int, str] | None = None
            for number, raw in enumerate(file, start=1):
                if held is not None:
                    yield (*held, True)
                held = (number, raw.decode("utf-8", "replace"))
            if held is not None:
                yield (*held, False)
    except OSError as error:
        raise _unreadable(path, error) from None


def _written(entry: os.DirEntry[str]) -> int:
    """When a file was last written, in nanoseconds; 0 for one that has just vanished or leads nowhere."""
    try:
        return entry.stat().st_mtime_ns
    except OSError:
        return 0


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path} cannot be read: {error.strerror}", hint="conductor doctor shows where traces are")


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def _json(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        data = json.loads(line)
        if isinstance(data, dict):
            return data
    return {}


def _state(path: Path, first: bytes) -> State:
    start = _json(first)
    if start.get("kind") != ev.RunStarted.kind and not _is_start(first.decode("utf-8", "replace")):
        return "unreadable"
    last = _json(_last_line(path))
    if last.get("kind") == ev.RunFinished.kind:
        return "partial" if last.get("partial") else "finished"
    if last.get("kind") == ev.RunFailed.kind:
        return "failed"
    return "running" if _is_live(path) else "interrupted"


def _last_line(path: Path) -> bytes:
    """The last line; the end of a run may hold a long answer, so more and more of the file is read."""
    size, want = path.stat().st_size, _TAIL
    with path.open("rb") as file:
        while True:
            file.seek(max(size - want, 0))
            lines = file.read().splitlines()
            if len(lines) > 1 or want >= size:
                return lines[-1] if lines else b""
            want *= 8


def _lock(file: int) -> None:
    """Hold the file as long as it is open. Where the system or the file system has no locks, nobody is seen as alive.

    It waits: a list that looks at the file at this moment holds it for a moment.
    """
    with suppress(ImportError, OSError):
        import fcntl  # POSIX only

        fcntl.flock(file, fcntl.LOCK_EX)


def _is_live(path: Path) -> bool:
    """Whether another process still writes the file."""
    try:
        import fcntl  # POSIX only

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False
