"""One trace: a JSON Lines file of a run's events, written as they happen, readable by the owner only.

Each line is an event (`core.events`); the first one names the format. The file of a run that was killed can be read up
to its last complete line. A file is locked while its run is being written, so a file without an end that nobody locks
belongs to an interrupted run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import DecodeError
from conductor_cli.models.known_secrets import KNOWN_SECRETS

_PIECES: Final = (b'{"kind":"step_delta"', b'{"kind":"plan_delta"')
_INNER: Final = b'{"kind":"nested_event"'
_INNER_PIECES: Final = tuple(b'"event":' + piece for piece in _PIECES)


class TraceWriter:
    """Writes the events of one run. Events that cannot be written are written again with the next one."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises `OSError`."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path = path
        self.error: OSError | None = None
        self._pending = b""
        # O_EXCL: two processes must not write the same run. O_APPEND: a retried write goes to the end.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        _lock(self._file)

    def write(self, event: ev.Event) -> None:
        """Append one event. `error` is set when that fails, and cleared by a later success."""
        self._pending += ev.to_line(event, KNOWN_SECRETS).encode("utf-8", "backslashreplace") + b"\n"
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._file, self._pending) :]
            self.error = None
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Close the file, which also unlocks it."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def discard(self) -> None:
        """Close and delete the file, because nothing in it is worth keeping."""
        self.close()
        self.path.unlink(missing_ok=True)


def read_events(path: Path, *, pieces: bool = True) -> Iterator[ev.Event]:
    """The events of a trace file, up to its last complete line.

    Without `pieces`, streamed texts are skipped; a finished step has its whole text. Raises `UsageError` when the file
    cannot be read, or is no trace of this version.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # a process that was killed left the last line incomplete
                if pieces or number == 1 or not _is_piece(line):
                    yield _read_event(path, number, line)
    except OSError as error:
        raise unreadable(path, error) from None


def _read_event(path: Path, number: int, line: bytes) -> ev.Event:
    hint = "the file is damaged, or of another version of conductor"
    try:
        event = ev.from_line(line.decode("utf-8", "replace"))
    except DecodeError as error:
        raise UsageError(f"{path}, line {number}: {error}", hint=hint) from None
    if number == 1 and not (isinstance(event, ev.RunStarted) and event.format == ev.FORMAT):
        raise UsageError(f"{path} does not begin with the start of a run in format {ev.FORMAT}", hint=hint)
    return event


def _is_piece(line: bytes) -> bool:
    """Whether a line is a streamed piece of text, judged by its beginning; in a nested run it follows `"event":`."""
    return line.startswith(_PIECES) or (line.startswith(_INNER) and any(piece in line[:400] for piece in _INNER_PIECES))


def unreadable(path: Path, error: OSError) -> UsageError:
    """The error for a file or directory that the system does not let us read."""
    return UsageError(f"{path} cannot be read: {error.strerror}", hint="conductor doctor shows where traces are")


def _lock(file: int) -> None:
    """Lock the file while it is open. Without locks, a run that is being written is listed as interrupted.

    This waits, because a list that looks at the file holds the lock for a moment.
    """
    with suppress(ImportError, OSError):
        import fcntl  # POSIX only

        fcntl.flock(file, fcntl.LOCK_EX)


def is_live(path: Path) -> bool:
    """Whether another process is writing the file."""
    try:
        import fcntl  # POSIX only

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False
