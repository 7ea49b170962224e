"""Small records in files that only their owner reads.

Ratings, what the user has named or seen, attachments.

Ratings are lines of JSON that are only appended. A rating has no text of its run, so it stays when
the trace is deleted. A process that is killed can only leave the last line incomplete; such a line
is left out when the file is read, and its readers are told how many were. The bytes of attachments
are `attachments/ab/abcdef…`.

A conversation is the chain of its runs, so its name needs only the id of the last one.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, get_args

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.learning import RatedBy, Rating, RatingShare, Verdict
from conductor_cli.core.serialization import dump
from conductor_cli.state.interfaces import AttachmentStore, StoredRatings, is_editor_session
from conductor_cli.state.stored_run import SUFFIX
from conductor_cli.state.trace_file import open_trace, raw_lines
from conductor_cli.system.disk import (
    AppendLog,
    exclusive_lock,
    make_private_directory,
    open_finite,
    write_atomically,
)

VERDICTS: Final = frozenset(get_args(Verdict))
RATERS: Final = frozenset(get_args(RatedBy))
MAX_NAMES: Final = 1000
"""Names that are kept, of persons and as many of editors; the one that was set first is forgotten
first.
"""
NAMED: Final = re.compile(rb'"sha256":\s?"([0-9a-f]{64})"')  # How an event names an attachment
REQUEST_SECONDS: Final = 24 * 3600  # How long the request of an `Idempotency-Key` is known
CLAIM_SECONDS: Final = 10.0  # How long a process waits for another one that claims a request
NEWEST_BYTES: Final = 1 << 19
"""Bytes at the end of the file that are read, about 2,000 ratings. What is before them weighs
nothing any more.
"""


class RatingsFile:
    """The ratings in one file. They stay when a run is deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> StoredRatings:
        """Return the ratings of the file; none without one.

        Damage is reported in `problem` and never raised.
        """
        try:
            status = self._path.stat()
            if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
                return StoredRatings()
            # Each question asks, and an added line changes the size.
            version = status.st_ino, status.st_size, status.st_mtime_ns
            return _read_ratings(self._path, version)
        except FileNotFoundError:
            return StoredRatings()
        except OSError as error:
            return StoredRatings(problem=f"{self._path} cannot be read: {error.strerror}")

    def add(self, rating: Rating) -> None:
        """Append a rating. Raises `ConfigError` where the disk refuses."""
        try:
            with closing(AppendLog(self._path)) as log:
                log.append(json.dumps(dump(rating), separators=(",", ":")) + "\n")
        except OSError as error:
            raise _unwritable(self._path, error) from None


@lru_cache(maxsize=4)
def _read_ratings(path: Path, version: tuple[int, int, int]) -> StoredRatings:
    """Return the ratings of a file that has this inode, size and time. Raises `OSError`."""
    start = version[1] - NEWEST_BYTES
    with path.open("rb") as file:
        file.seek(max(start, 0))
        lines = file.read(NEWEST_BYTES).split(b"\n")
    if start > 0:
        del lines[0]  # it is cut
    parsed = [_rating_of(fields) for fields in _values_of([raw for raw in lines if raw.strip()])]
    ratings = tuple(rating for rating in parsed if rating is not None)
    damaged = len(parsed) - len(ratings)
    if not damaged:
        return StoredRatings(ratings=ratings)
    noun = "lines are"
    if damaged == 1:
        noun = "line is"
    count = format_count(len(ratings), "rating")
    problem = f"{path}: {damaged} {noun} damaged; {count} could be read"
    return StoredRatings(ratings=ratings, problem=problem)


def _values_of(lines: list[bytes]) -> list[Any]:
    """Return the JSON values of lines, None for a damaged one.

    All are read by one call, which takes a third of the time, where that says the same.
    """
    if all(line.startswith(b"{") and line.rstrip().endswith(b"}") for line in lines):
        with suppress(ValueError, RecursionError):
            values: list[Any] = json.loads(b"[%b]" % b",".join(lines))
            if len(values) == len(lines):
                return values
    return [_value_of(line) for line in lines]


def _value_of(line: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def parse_rating(raw: bytes) -> Rating | None:
    """Return the rating of a line, None where it is none."""
    return _rating_of(_value_of(raw))


def _rating_of(fields: Any) -> Rating | None:  # noqa: ANN401 - any JSON value
    """Return the rating of a JSON value, None where it is none.

    It is read before the first question, so in a tenth of `load`'s time.
    """
    try:
        rating = Rating(
            run=fields["run"],
            step=fields["step"],
            verdict=fields["verdict"],
            by=fields["by"],
            time=fields["time"],
            shares=tuple(map(_parse_share, fields["shares"])),
        )
        is_rating = (
            type(rating.run) is str
            and type(rating.step) is int
            and type(rating.time) in (int, float)
            and math.isfinite(rating.time)
            and rating.verdict in VERDICTS
            and rating.by in RATERS
        )
    except (ValueError, LookupError, TypeError):
        return None
    return rating if is_rating else None


def _parse_share(fields: Any) -> RatingShare:  # noqa: ANN401 - any JSON value
    """Raises `ValueError`, `LookupError` or `TypeError`."""
    share = RatingShare(
        worker=fields["worker"],
        key=fields["key"],
        step=fields["step"],
        kind=fields["kind"],
        weight=fields["weight"],
        good=fields["good"],
    )
    texts = type(share.worker) is type(share.key) is type(share.kind) is str
    if (
        not texts
        or type(share.step) is not int
        or type(share.good) is not bool
        or not 0 < share.weight <= 1
    ):
        raise ValueError("not a share")
    return share


class Names:
    """The names in one file of JSON, each with its value.

    A conversation with its last run, a text with its path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, str]:
        """Return the names with their values, the newest first; none where the file is damaged."""
        try:
            with open_finite(self._path) as file:
                names = json.loads(file.read())
            return {str(name): str(value) for name, value in reversed(names.items())}
        except (OSError, ValueError, AttributeError, RecursionError):
            return {}

    def set(self, name: str, value: str) -> None:
        """Set a name, which is the newest then. Raises `ConfigError` where the disk refuses."""
        with self._editing() as names:
            names.pop(name, None)
            names[name] = value

    def forget(self, name: str) -> None:
        """Let a name stand for nothing any more. Raises as `set`."""
        with self._editing() as names:
            names.pop(name, None)

    @contextmanager
    def _editing(self) -> Iterator[dict[str, str]]:
        """Yield the names, the newest last, and write them when the block has changed them."""
        try:
            make_private_directory(self._path.parent)
            with exclusive_lock(self._path.with_name(f".{self._path.name}.lock")):
                names = dict(reversed(self.read().items()))
                yield names
                newest = _newest_of_each_kind(dict(reversed(names.items())))
                kept = dict(reversed(newest))
                write_atomically(
                    self._path, json.dumps(kept, ensure_ascii=False, indent=1) + "\n", mode=0o600
                )
        except OSError as error:
            raise _unwritable(self._path, error) from None


def _newest_of_each_kind(names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names that are kept. An editor has a new one whenever it is opened."""
    counts = Counter[bool]()
    kept = []
    for name, value in names.items():
        kind = is_editor_session(name)
        counts[kind] += 1
        if counts[kind] <= MAX_NAMES:
            kept.append((name, value))
    return kept


class RequestClaims:
    """Which run answers the request of an `Idempotency-Key`, in one file of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def claim_request(
        self, key: str, request: str, run: str, instead_of: str = ""
    ) -> tuple[str, float]:
        """As `FileState.claim_request`, for all processes that have the file.

        Raises `ConfigError` where the disk refuses.
        """
        now = time.time()
        try:
            make_private_directory(self._path.parent)
            with self._claiming() as database:
                database.execute("DELETE FROM requests WHERE at < ?", (now - REQUEST_SECONDS,))
                row = database.execute(
                    "SELECT request, run, at FROM requests WHERE key = ?", (key,)
                ).fetchone()
                if row is None or row[1] == instead_of:
                    row = (request if row is None else row[0]), run, now
                    database.execute("REPLACE INTO requests VALUES (?, ?, ?, ?)", (key, *row))
        except OSError as error:
            raise _unwritable(self._path, error) from None
        except sqlite3.Error as error:
            raise _unwritable(self._path, OSError(0, str(error))) from None
        first_request, answering_run, claimed_at = row
        if first_request != request:
            raise key_reused()
        return str(answering_run), max(0.0, now - claimed_at)

    @contextmanager
    def _claiming(self) -> Iterator[sqlite3.Connection]:
        """Let one process decide at a time."""
        with closing(
            sqlite3.connect(self._path, timeout=CLAIM_SECONDS, isolation_level=None)
        ) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(
                "CREATE TABLE IF NOT EXISTS requests"
                " (key TEXT PRIMARY KEY, request TEXT, run TEXT, at REAL)"
            )
            database.execute("CREATE INDEX IF NOT EXISTS requests_by_time ON requests (at)")
            yield database
            database.execute("COMMIT")


def key_reused() -> UsageError:
    """Return the error that a client sends another request with a key that it has used."""
    return UsageError(
        "this Idempotency-Key was used for another request",
        hint="use a new one for each request",
    )


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be written: {error.strerror}",
        hint="check the disk and the file permissions",
    )


class Attachments(AttachmentStore):
    """The attachments of this process, and those that `traces` name, in a directory.

    It is created when needed.
    """

    def __init__(self, directory: Path, traces: Path) -> None:
        super().__init__()
        self._directory = directory
        self._traces = traces

    def _place_of(self, digest: str) -> str:
        return str(self._path(digest))

    def _is_stored(self, digest: str) -> bool:
        return self._path(digest).is_file()

    def _load(self, digest: str) -> bytes:
        return self._path(digest).read_bytes()

    def keep(self, wanted: dict[str, bytes]) -> None:
        with self._lock():
            for digest, content in wanted.items():
                path = self._path(digest)
                if not path.is_file():
                    make_private_directory(path.parent)
                    write_atomically(path, content, mode=0o600)

    def prune(self) -> None:
        if self._directory.is_dir():
            with suppress(OSError), self._lock():
                for path in self._unneeded():
                    with suppress(OSError):
                        path.unlink()

    def prunable(self, without: Collection[str]) -> int:
        with suppress(OSError):
            return sum(path.stat().st_size for path in self._unneeded(without))
        return 0

    def _unneeded(self, without: Collection[str] = ()) -> Iterable[Path]:
        """Return what no trace names, those of some runs aside.

        Raises `OSError`: then nothing may be deleted.
        """
        stored = {path.name: path for path in self._directory.glob("??/*") if len(path.name) == 64}
        if not stored:
            return ()
        left_out = {f"{run}{SUFFIX}" for run in without}
        for path in self._traces.glob(f"*{SUFFIX}"):
            if path.name in left_out:
                continue
            with suppress(FileNotFoundError), open_trace(path) as file:
                for line in raw_lines(file):
                    for digest in NAMED.finditer(line.raw):
                        stored.pop(digest[1].decode(), None)
        return stored.values()

    def _path(self, digest: str) -> Path:
        return self._directory / digest[:2] / digest

    def _lock(self) -> AbstractContextManager[None]:
        make_private_directory(self._directory)
        return exclusive_lock(self._directory / ".lock")
