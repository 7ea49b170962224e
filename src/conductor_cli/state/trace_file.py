"""One trace.

A JSON Lines file of a run's events, written as they happen, readable by the owner only.

Each line is an event (`core.events`), or several pieces of text (`trace_lines`), with a hash; the
first one names the format. The file of a run that was killed can be read up to its last complete
line. A file is locked while its run is being written, so a file without an end that nobody locks
belongs to an interrupted run. When its run has ended, a file of more than one block of the disk is
compressed (gzip) under the same name.

Reading leaves out lines that are damaged, and a notice says which. It compares no hashes:
`trace_check` does.

A file is compressed without fsync, for which all streams of `serve` would wait. A damaged place in
it costs what stands behind it.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.terminal_text import one_line
from conductor_cli.state.stored_run import SUFFIX, announce_run
from conductor_cli.state.trace_lines import LineReader, LineWriter, split_records
from conductor_cli.system.disk import make_private_directory, temporary_path
from conductor_cli.system.known_secrets import KNOWN_SECRETS

# Bytes of the longest line that is read. A run writes none that is nearly as long
MAX_TRACE_LINE: Final = 64 << 20
# Bytes of a trace that stays as it is: file systems give a file whole blocks, mostly of this size
MAX_BLOCK_BYTES: Final = 4 << 10
# Bytes of the largest trace that is compressed: it is in memory meanwhile
MAX_COMPRESSED: Final = 64 << 20
# Bytes of a trace that its writer keeps, so that it need not be read to be compressed
MAX_REMEMBERED: Final = 32 << 10
GZIP: Final = b"\x1f\x8b"  # What a compressed file begins with
# Of zlib: the largest window, or one of 16 KB and less memory; with 16 more for the form of gzip
GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
SMALL_WINDOW_BITS: Final = 16 + 14
SMALL_WINDOW_BYTES: Final = 1 << 14
SMALL_MEMORY_LEVEL: Final = 7
BLOCK_BYTES: Final = 256 << 10  # Bytes that a follower reads at once
START_SECONDS: Final = 1.0  # Seconds that a writer may take between making a file and locking it
MAX_NOTICES: Final = 20  # Notices about damaged lines of one file
ENDS: Final = (ev.RunFinished, ev.RunFailed)  # The last event of a run
_HINT: Final = "conductor trace verify says what is wrong with it"


class TraceWriter:
    """Writes the events of one run; pieces of text wait for each other, as `trace_lines` says.

    Events that cannot be written are written again with the next one.
    """

    def __init__(self, path: Path) -> None:
        """Create the file. Raises `OSError`."""
        self.path = path
        self.place = str(path)
        self.problem = ""
        self._lines = LineWriter(KNOWN_SECRETS)
        self._pending = b""
        self._ended = False
        self._size = 0
        self._written: list[bytes] | None = []  # All lines, where they are few
        # O_EXCL: two processes must not write the same run. O_APPEND: a retried write goes to the
        # end.
        self._file = _create_for_append(path)
        # Locked while it is open. Without locks, a run that is being written is listed as
        # interrupted. This waits, because a list that looks at the file holds the lock for a
        # moment.
        with suppress(ImportError, OSError):
            import fcntl  # POSIX only

            fcntl.flock(self._file, fcntl.LOCK_EX)

    def write(self, event: ev.Event) -> None:
        if isinstance(event, ev.RunStarted):
            run = self.path.name.removesuffix(SUFFIX)
            announce_run(str(self.path.parent), run, one_line(event.origin))
        lines = self._lines.add(event)
        if lines or self._pending:
            self._append(lines)
        self._ended = isinstance(event, ENDS)

    @property
    def waiting(self) -> int:
        return self._lines.waiting

    def flush(self) -> None:
        if self._file >= 0:
            self._append(self._lines.flush())

    @property
    def is_closed_quickly(self) -> bool:
        return self._written is not None

    def _append(self, lines: bytes) -> None:
        self._pending += lines
        if not self._pending:
            return
        self._size += len(lines)
        if self._size > MAX_REMEMBERED:
            self._written = None
        elif self._written is not None:
            self._written.append(lines)
        try:
            while self._pending:
                self._pending = self._pending[os.write(self._file, self._pending) :]
            self.problem = ""
        except OSError as error:
            self.problem = error.strerror or str(error)

    def close(self) -> None:
        """Write what waits, close and so unlock the file.

        It is compressed where the run ended, and where that can save a block of the disk.
        """
        if self._file < 0:
            return
        self.flush()
        written = os.fstat(self._file)
        os.close(self._file)
        self._file = -1
        saves_blocks = MAX_BLOCK_BYTES < written.st_size <= MAX_COMPRESSED
        if not self._ended or self.problem or not saves_blocks:
            return
        with suppress(OSError), temporary_path(self.path) as temporary:
            content = self.path.read_bytes() if self._written is None else b"".join(self._written)
            _write_new_file(temporary, _compress(content))
            if os.path.samestat(written, self.path.stat()):  # else somebody removed it
                temporary.replace(self.path)

    def discard(self) -> None:
        self._ended = False
        self.close()
        self.path.unlink(missing_ok=True)


def _create_for_append(path: Path) -> int:
    """Create a file that nobody else has, and its directory. Raises `OSError`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private_directory(path.parent)
        return os.open(path, flags, 0o600)


def _write_new_file(path: Path, content: bytes) -> None:
    """Write a file that is not there yet. Raises `OSError`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        while content:
            content = content[os.write(file, content) :]
    finally:
        os.close(file)


def _compress(content: bytes) -> bytes:
    """Return the bytes as a file of gzip.

    Short ones need no larger window, and to set up that of gzip takes longer than to fill it.
    """
    window_bits = GZIP_WINDOW_BITS
    memory_level = zlib.DEF_MEM_LEVEL
    if len(content) <= SMALL_WINDOW_BYTES:
        window_bits = SMALL_WINDOW_BITS
        memory_level = SMALL_MEMORY_LEVEL
    packing = zlib.compressobj(6, zlib.DEFLATED, window_bits, memory_level)
    return packing.compress(content) + packing.flush()


def open_trace(path: Path) -> BinaryIO:
    """Open a trace for reading; one that is compressed reads as its lines. Raises `OSError`."""
    file = path.open("rb", buffering=0)
    is_packed = file.read(2) == GZIP
    file.seek(0)
    if not is_packed:
        return io.BufferedReader(file)
    lines = gzip.GzipFile(fileobj=file)
    lines.myfileobj = file  # closes it too
    return cast("BinaryIO", lines)


class RawLine(NamedTuple):
    """A line of a file.

    `data` has no line break; it is empty where `problem` says why the line cannot be read.

    `size` are its bytes with the line break; `complete` says whether there is one.
    """

    number: int
    size: int
    raw: bytes
    complete: bool
    problem: str = ""


def raw_lines(file: BinaryIO) -> Iterator[RawLine]:
    """Yield the lines of a file, none of them larger in memory than `MAX_TRACE_LINE`.

    Raises `OSError`.
    """
    # In a small file no line is too long, and reading it as it is takes half the time.
    beginnings: Iterable[bytes] = file
    raw = getattr(file, "raw", None)
    if not isinstance(raw, io.FileIO) or os.fstat(raw.fileno()).st_size > MAX_TRACE_LINE:
        beginnings = iter(partial(file.readline, MAX_TRACE_LINE), b"")
    number = 0
    try:
        for line in beginnings:
            size = len(line)
            complete = line.endswith(b"\n")
            while not complete and (rest := file.readline(1 << 20)):
                size = size + len(rest)
                complete = rest.endswith(b"\n")
            number += 1
            if size > MAX_TRACE_LINE:
                yield RawLine(
                    number, size, b"", complete, f"it is longer than {MAX_TRACE_LINE >> 20} MB"
                )
            else:
                yield RawLine(number, size, line[: len(line) - complete], complete)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield RawLine(
            number + 1, 0, b"", complete=True, problem="the compressed file is damaged from here on"
        )


def read_events(path: Path, *, pieces: bool = True) -> Iterator[ev.Event]:
    """Yield the events of a trace file, up to its last complete line.

    A notice takes the place of lines that are damaged.

    Without `pieces`, streamed texts are left out; a finished step has its whole text. Raises
    `UsageError` when the file cannot be read, or does not begin as a trace of this version does.
    """
    try:
        with open_trace(path) as file:
            yield from events_in(file, str(path), pieces=pieces)
    except OSError as error:
        raise unreadable(path, error) from None


def events_in(file: BinaryIO, name: str, *, pieces: bool = True) -> Iterator[ev.Event]:
    """Yield the same for a file that is open. `name` is for messages.

    Raises `UsageError` and `OSError`.
    """
    # First line, last line, problem of the first, of what was not told yet
    damaged = list[tuple[int, int, str]]()
    count_told = 0
    at = 0.0
    end = list[ev.Event]()
    reader = LineReader(pieces=pieces)

    def notices() -> Iterator[ev.Notice]:
        nonlocal count_told
        for first, last, problem in damaged:
            count_told += 1
            text = _describe_damage(first, last, problem)
            if count_told > MAX_NOTICES:
                text = "the trace is damaged in more places: conductor trace verify names them"
            yield ev.Notice(at=at, text=text, reason="trace_damaged")
        damaged.clear()

    for line in raw_lines(file):
        if not line.complete:
            break  # a process that was killed left the last line incomplete
        if line.number == 1:
            events, problem = _read_first(name, line, reader)
        else:
            events, problem = parse_line(line, reader)
        for number, event in enumerate(events):
            if end:
                problem = "it comes after the end of the run"
            elif isinstance(event, ev.RunStarted) and (line.number > 1 or number):
                problem = "it begins another run"
            elif isinstance(event, ENDS):
                end.append(event)
            else:
                yield from notices()
                at = event.at
                yield event
        if problem and damaged and damaged[-1][1] == line.number - 1:
            damaged[-1] = damaged[-1][0], line.number, damaged[-1][2]
        elif problem and count_told + len(damaged) <= MAX_NOTICES:
            damaged.append((line.number, line.number, problem))
    yield from notices()
    yield from end


def _describe_damage(first: int, last: int, problem: str) -> str:
    lines = f"lines {first} to {last} are"
    if first == last:
        lines = f"line {first} is"
    return f"the trace is damaged: {lines} incomplete or left out: {problem[:200]}"


def parse_line(line: RawLine, reader: LineReader) -> tuple[list[ev.Event], str]:
    """Return the events of a line, and what is wrong with it; empty where nothing is."""
    if line.problem:
        return [], line.problem
    content = line.raw.strip(b"\0")
    problem = ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("utf-8", "replace")
        problem = "what is not UTF-8 was replaced"
    try:
        return reader.read_line(text), problem
    except DecodeError as error:
        records = split_records(content)  # several, where line breaks were lost
        with suppress(DecodeError):
            if len(records) > 1:
                events = list[ev.Event]()
                for record in records:
                    events += reader.read_line(record.decode("utf-8", "replace"))
                return events, problem
        return [], str(error)


def _read_first(name: str, line: RawLine, reader: LineReader) -> tuple[list[ev.Event], str]:
    """Return the same for the first line.

    Raises `UsageError` where that is not the start of a run of this version.
    """
    content = line.raw.removeprefix(codecs.BOM_UTF8)
    events, problem = parse_line(line._replace(raw=content), reader)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        problem = "it is UTF-16, in which another program has saved the file"
    if not events:
        raise UsageError(f"{name}, line 1: {problem}", hint=_HINT)
    event = events[0]
    if isinstance(event, ev.RunStarted) and event.format == ev.FORMAT:
        return events, problem
    if isinstance(event, ev.RunStarted) and event.format > ev.FORMAT:
        message = (
            f"{name} was written by a newer conductor: format {event.format}, and this one "
            f"reads {ev.FORMAT}"
        )
        raise UsageError(
            message, hint="install the newer version: pip install --upgrade conductor-llm"
        )
    raise UsageError(f"{name} does not begin with the start of a run", hint=_HINT)


class TraceFollower:
    """The events of one trace, also while it is written, each once. It holds no open file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = LineReader()
        self._position = 0
        self._read_version: tuple[int, ...] = ()  # empty where there may be more to read
        self._changed = time.time()

    def read(self) -> list[ev.Event]:
        """Return the events of the next complete lines, of about `BLOCK_BYTES` bytes at most.

        Raises `OSError`.

        Damaged lines are left out.
        """
        version = self._version()
        try:
            with open_trace(self._path) as file:
                file.seek(self._position)
                block = file.read(BLOCK_BYTES)
                end = block.rfind(b"\n") + 1
                if not end and len(block) == BLOCK_BYTES:  # one line is longer than a block
                    block += file.readline()
                    if block.endswith(b"\n"):
                        end = len(block)
        except (EOFError, zlib.error) as error:
            raise OSError(f"{error}") from None
        self._position += end
        self._read_version = ()
        if len(block) < BLOCK_BYTES:
            self._read_version = version
        # never older than the text
        self._changed = max(self._path.stat().st_mtime, version[-1] / 1e9)
        return self._reader.read_lines(block[:end])

    def is_behind(self) -> bool:
        return self._version() != self._read_version

    def _version(self) -> tuple[int, ...]:
        """Return what changes whenever the file does."""
        status = self._path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns

    @property
    def idle(self) -> float:
        return max(0.0, time.time() - self._changed)

    def is_written(self) -> bool:
        return is_live(self._path) or self.idle < START_SECONDS


def unreadable(path: Path | str, error: OSError) -> UsageError:
    """Return the error for a file or directory that the system does not let us read."""
    return UsageError(
        f"{path} cannot be read: {error.strerror}", hint="conductor doctor shows where traces are"
    )


def is_live(path: Path) -> bool:
    """Return whether another process is writing the file."""
    try:
        import fcntl  # POSIX only

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False
