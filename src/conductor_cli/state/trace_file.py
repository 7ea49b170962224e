"""One trace: a JSON Lines file of a run's events, written as they happen, readable by the owner only.

Each line is an event (`core.events`), or several pieces of text (`trace_lines`), with a hash (`hash_chain`); the first
one names the format. The file of a run that was killed can be read up to its last complete line. A file is locked while
its run is being written, so a file without an end that nobody locks belongs to an interrupted run.

Reading leaves out lines that are damaged, and a notice says which. It compares no hashes: `trace_check` does.

The chain of hashes through the lines of a trace: each line names its own content and, through it, all lines before.

The last field of a line is `hash`: 8 digits of the SHA-256 of the line without this field, then 24 digits of the
SHA-256 of the 24 digits of the line before and that whole hash. So a line that was changed shows it by itself, and a
line that does not follow the one before it does too. It has no key: whoever can write the file can make a new chain.
Pure.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import DecodeError
from conductor_cli.models.disk import make_private_directory
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.state.trace_lines import LineReader, LineWriter

OWN: Final = 8
LINK: Final = 24

START: Final = b"0" * LINK
"""What the first line follows."""

_HASH: Final = rb',"hash":"([0-9a-f]{%d})([0-9a-f]{%d})"\}' % (OWN, LINK)
_END: Final = re.compile(_HASH + rb"\Z")
_BETWEEN: Final = re.compile(rb"(?<=%s)(?=\{)" % _HASH.replace(b"(", b"(?:"))
_LENGTH: Final = len(b',"hash":""}') + OWN + LINK


class HashedLine(NamedTuple):
    """A line with a hash. `body` has no closing brace; `own` and `link` are the digits as they are stored."""

    body: bytes
    own: bytes
    link: bytes

    @property
    def is_unchanged(self) -> bool:
        return hashlib.sha256(self.body).hexdigest()[:OWN].encode() == self.own

    def follows(self, link: bytes) -> bool:
        """Whether the line was written behind the one with this `link`."""
        return self.link_behind(link) == self.link

    def link_behind(self, link: bytes) -> bytes:
        """The link that the line has behind the one with this `link`."""
        return _link(link, hashlib.sha256(self.body).digest())


def add_hash(line: bytes, before: bytes) -> tuple[bytes, bytes]:
    """A JSON object, as a line that follows the one with the link `before`; and its own link."""
    body = line[:-1]
    digest = hashlib.sha256(body).digest()
    link = _link(before, digest)
    return b'%b,"hash":"%b%b"}' % (body, digest[: OWN // 2].hex().encode(), link), link


def read_hash(line: bytes) -> HashedLine | None:
    """The line without its hash; None where it has none at its end."""
    found = _END.search(line, max(0, len(line) - _LENGTH))
    return None if found is None else HashedLine(line[: found.start()], found[1], found[2])


def split_records(line: bytes) -> list[bytes]:
    """The records of a line: several where line breaks between them were lost."""
    return _BETWEEN.split(line)


def _link(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(before + digest).hexdigest()[:LINK].encode()


LONGEST_LINE: Final = 64 << 20
"""Bytes of the longest line that is read. A run writes none that is nearly as long."""

MOST_NOTICES: Final = 20
"""Notices about damaged lines of one file."""

ENDS: Final = (ev.RunFinished, ev.RunFailed)
"""The last event of a run."""

_HINT: Final = "conductor trace verify says what is wrong with it"


class TraceWriter:
    """Writes the events of one run; pieces of text wait for each other, as `trace_lines` says.

    Events that cannot be written are written again with the next one.
    """

    def __init__(self, path: Path) -> None:
        """Create the file. Raises `OSError`."""
        make_private_directory(path.parent)
        self.path = path
        self.error: OSError | None = None
        self._lines = LineWriter(KNOWN_SECRETS)
        self._pending = b""
        self._link = START
        # O_EXCL: two processes must not write the same run. O_APPEND: a retried write goes to the end.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        _lock(self._file)

    def write(self, event: ev.Event) -> None:
        """Append one event and the pieces that waited for it, or let it wait as one.

        `error` is set when that fails, and cleared by a later success.
        """
        self._append(self._lines.add(event))

    @property
    def waiting(self) -> int:
        """How many pieces wait for others. Whoever writes them calls `flush` after `longest_wait` seconds."""
        return self._lines.waiting

    @property
    def longest_wait(self) -> float:
        """Seconds for which the first piece that waits may do so."""
        return self._lines.longest_wait

    def flush(self) -> None:
        """Write the pieces that wait. `error` is set as by `write`."""
        if self._file >= 0:
            self._append(self._lines.flush())

    def _append(self, lines: list[str]) -> None:
        for line in lines:
            hashed, self._link = add_hash(line.encode("utf-8", "backslashreplace"), self._link)
            self._pending += hashed + b"\n"
        if not lines and not self._pending:
            return
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._file, self._pending) :]
            self.error = None
        except OSError as error:
            self.error = error

    def close(self) -> None:
        """Write what waits, and close the file, which also unlocks it."""
        if self._file >= 0:
            self.flush()
            os.close(self._file)
        self._file = -1

    def discard(self) -> None:
        """Close and delete the file, because nothing in it is worth keeping."""
        self.close()
        self.path.unlink(missing_ok=True)


class RawLine(NamedTuple):
    """A line of a file. `data` has no line break; it is empty where the line is longer than `LONGEST_LINE`.

    `size` are its bytes with the line break; `complete` says whether there is one.
    """

    number: int
    start: int
    size: int
    data: bytes
    complete: bool

    @property
    def is_too_long(self) -> bool:
        return self.size > LONGEST_LINE


def raw_lines(file: BinaryIO) -> Iterator[RawLine]:
    """The lines of a file, none of them larger in memory than `LONGEST_LINE`. Raises `OSError`."""
    start = 0
    # In a small file no line is too long, and reading it as it is takes half the time.
    small = os.fstat(file.fileno()).st_size <= LONGEST_LINE
    for number, data in enumerate(file if small else iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
        size = len(data)
        complete = data.endswith(b"\n")
        while not complete and (more := file.readline(1 << 20)):
            size, complete = size + len(more), more.endswith(b"\n")
        kept = data[: len(data) - complete] if size <= LONGEST_LINE else b""
        yield RawLine(number, start, size, kept, complete)
        start += size


def read_events(path: Path, *, pieces: bool = True) -> Iterator[ev.Event]:
    """The events of a trace file, up to its last complete line. A notice takes the place of lines that are damaged.

    Without `pieces`, streamed texts are left out; a finished step has its whole text. Raises `UsageError` when the file
    cannot be read, or does not begin as a trace of this version does.
    """
    damage, end, reader = _Damage(), list[ev.Event](), LineReader(pieces=pieces)
    try:
        with path.open("rb") as file:
            for line in raw_lines(file):
                if not line.complete:
                    break  # a process that was killed left the last line incomplete
                events, problem = _read_first(path, line, reader) if line.number == 1 else read_line(line, reader)
                for number, event in enumerate(events):
                    if end:
                        problem = "it comes after the end of the run"
                    elif isinstance(event, ev.RunStarted) and (line.number > 1 or number):
                        problem = "it begins another run"
                    elif isinstance(event, ENDS):
                        end.append(event)
                    else:
                        yield from damage.notices(event.at)
                        yield event
                if problem:
                    damage.add(line.number, problem)
    except OSError as error:
        raise unreadable(path, error) from None
    yield from damage.notices(end[0].at if end else None)
    yield from end


def read_line(line: RawLine, reader: LineReader) -> tuple[list[ev.Event], str]:
    """The events of a line, and what is wrong with it; empty where nothing is."""
    if line.is_too_long:
        return [], f"it is longer than {LONGEST_LINE >> 20} MB"
    data, problem = line.data.strip(b"\0"), ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text, problem = data.decode("utf-8", "replace"), "what is not UTF-8 was replaced"
    try:
        return reader.read_line(text), problem
    except DecodeError as error:
        events = _joined_events(text, reader)
        return events, problem if events else f"{error}"


def _joined_events(text: str, reader: LineReader) -> list[ev.Event]:
    """The events of a line in which line breaks were lost; none where that is not all."""
    decoder, found, at = json.JSONDecoder(), list[Any](), 0
    try:
        while at < len(text):
            data, at = decoder.raw_decode(text, at)
            found.append(data)
        return [event for data in found for event in reader.read(data)] if len(found) > 1 else []
    except (ValueError, RecursionError):
        return []


def _read_first(path: Path, line: RawLine, reader: LineReader) -> tuple[list[ev.Event], str]:
    """The same for the first line. Raises `UsageError` where that is not the start of a run of this version."""
    data = line.data.removeprefix(codecs.BOM_UTF8)
    events, problem = read_line(line._replace(data=data), reader)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problem = "it is UTF-16, in which another program has saved the file"
    if not events:
        raise UsageError(f"{path}, line 1: {problem}", hint=_HINT)
    event = events[0]
    if isinstance(event, ev.RunStarted) and event.format == ev.FORMAT:
        return events, problem
    found = f"; it is in format {event.format}" if isinstance(event, ev.RunStarted) else ""
    raise UsageError(f"{path} does not begin with the start of a run in format {ev.FORMAT}{found}", hint=_HINT)


class _Damage:
    """Which lines are damaged, told once for those that follow each other, and in at most `MOST_NOTICES` notices."""

    def __init__(self) -> None:
        self._found = list[tuple[int, int, str]]()  # first line, last line, problem of the first
        self._told = 0
        self._at = 0.0

    def add(self, number: int, problem: str) -> None:
        if self._found and self._found[-1][1] == number - 1:
            self._found[-1] = self._found[-1][0], number, self._found[-1][2]
        elif self._told + len(self._found) <= MOST_NOTICES:
            self._found.append((number, number, problem))

    def notices(self, at: float | None) -> Iterator[ev.Notice]:
        """Notices of what was found since the last call, at the time of the event before; `at` is that of the next."""
        for first, last, problem in self._found:
            self._told += 1
            where = f"line {first} is" if first == last else f"lines {first} to {last} are"
            text = f"the trace is damaged: {where} incomplete or left out: {problem[:200]}"
            if self._told > MOST_NOTICES:
                text = "the trace is damaged in more places: conductor trace verify names them"
            yield ev.Notice(at=self._at, text=text, reason="trace_damaged")
        self._found.clear()
        self._at = self._at if at is None else at


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
