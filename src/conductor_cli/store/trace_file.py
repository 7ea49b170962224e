"""One trace: a JSON Lines file of a run's events, written as it happens, readable by the owner only.

A line is an event (`core.events`); the first one names the format. A run that was killed leaves a file that reads up to
its last whole line. While a run is being written its file is locked, so a file without an end that nobody locks belongs
to a run that was interrupted.
"""

from __future__ import annotations

import json
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
        self._pending += ev.to_line(event, KNOWN_SECRETS).encode("utf-8", "backslashreplace") + b"\n"
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


def read_events(path: Path, *, pieces: bool = True) -> Iterator[ev.Event]:
    """The events of a trace file, up to its last whole line; none when not even the first one is whole.

    Without `pieces` the texts that were streamed are passed over: a step that has ended holds its whole text. Raises
    `UsageError` when the file cannot be read, has another format, or is broken before its last line.
    """
    for number, line, ended in _lines(path, pieces=pieces):
        try:
            event = ev.from_line(line)
        except DecodeError as error:
            if not ended and (number > 1 or is_start(line)):
                return
            raise _broken(path, number, line, error) from None
        if number == 1 and not isinstance(event, ev.RunStarted):
            raise UsageError(
                f"{path} does not begin with the start of a run", hint="this file is no trace of conductor"
            )
        if isinstance(event, ev.RunStarted) and event.format != ev.FORMAT:
            raise _wrong_format(path, event.format)
        yield event


def _broken(path: Path, number: int, line: str, error: DecodeError) -> UsageError:
    """A line that cannot be read. A start that names another format is reported as that, whatever else it has."""
    if number == 1 and line.startswith(_BEGINS):
        with suppress(ValueError, RecursionError):
            told = json.loads(line).get("format")
            if isinstance(told, int) and told != ev.FORMAT:
                return _wrong_format(path, told)
    return UsageError(f"{path}, line {number}: {error}", hint="this file is no trace of conductor, or was damaged")


def _wrong_format(path: Path, number: int) -> UsageError:
    hint = "update conductor" if number > ev.FORMAT else "run the question again"
    return UsageError(
        f"{path} has trace format {number}; this version of conductor reads format {ev.FORMAT}", hint=hint
    )


_BEGINS: Final = '{"kind":"' + ev.RunStarted.kind + '"'


def is_start(line: str) -> bool:
    """Whether `line` is the beginning of a trace's first line, and no more than that."""
    return not line.endswith("\n") and (line.startswith(_BEGINS) or _BEGINS.startswith(line))


def _lines(path: Path, *, pieces: bool) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and whether another line follows (only the last line may be broken)."""
    try:
        with path.open("rb") as file:
            held: tuple[int, str] | None = None
            for number, raw in enumerate(file, start=1):
                if held is not None:
                    yield (*held, True)
                passed = not pieces and number > 1 and raw.endswith(b"\n") and _is_piece(raw)
                held = None if passed else (number, raw.decode("utf-8", "replace"))
            if held is not None:
                yield (*held, False)
    except OSError as error:
        raise unreadable(path, error) from None


def _is_piece(line: bytes) -> bool:
    """Whether a line is a piece of text, by how it begins; that of a nested run stands behind `"event":`."""
    return line.startswith(_PIECES) or (line.startswith(_INNER) and any(piece in line[:400] for piece in _INNER_PIECES))


def unreadable(path: Path, error: OSError) -> UsageError:
    """What to say of a file or directory that the system does not let us read."""
    return UsageError(f"{path} cannot be read: {error.strerror}", hint="conductor doctor shows where traces are")


def _lock(file: int) -> None:
    """Hold the file as long as it is open. Where the system or the file system has no locks, nobody is seen as alive.

    It waits: a list that looks at the file at this moment holds it for a moment.
    """
    with suppress(ImportError, OSError):
        import fcntl  # POSIX only

        fcntl.flock(file, fcntl.LOCK_EX)


def is_live(path: Path) -> bool:
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
