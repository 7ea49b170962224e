"""Looking after a database of the state: what it has, and moving a state from files to it and back.

Each record is copied whole and once, however often the same is said, so a move that was stopped
goes on with the same command. Nothing is deleted where it came from. What is there already stays as
it is; where a run differs, that is told.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import secrets
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError, describe_system_error
from conductor_cli.state.interfaces import is_sha256
from conductor_cli.state.opening import FileState, is_secret
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.records import SharedState
from conductor_cli.state.postgres.served_files import PIECE_BYTES
from conductor_cli.state.postgres.spending import Hold, read_holds
from conductor_cli.state.postgres.traces import add_run, day_of
from conductor_cli.state.records import NAMED, parse_rating
from conductor_cli.state.run_summary import summarize_run
from conductor_cli.state.served_files import END_STATES, ServedFiles
from conductor_cli.state.spending_file import FILE, MAX_SMALL_ID, open_database
from conductor_cli.state.trace_file import open_trace
from conductor_cli.system.disk import (
    AppendLog,
    make_private_directory,
    read_lines,
    write_atomically,
)
from conductor_cli.system.installation import extra_command

# What a disk, or a file of spending on it, may refuse
FILE_ERRORS: Final = (OSError, sqlite3.Error)
# What one trace may refuse, where the system does or what compressed it has other bytes
READ_ERRORS: Final = (OSError, EOFError, zlib.error)
BATCH_ROWS: Final = 1000  # Rows of spending that are sent at once
BLOCK_BYTES: Final = 1 << 18  # Bytes of lines that are sent as one row
_NAME: Final = re.compile(r"\w[\w.-]{0,150}")
_SERVED: Final = re.compile("(file-|batch_)[0-9a-f]{24}")
_CALL: Final = (
    "id",
    "day",
    "owner",
    "worker",
    "client",
    "provider",
    "model",
    "worker_call",
    "failed",
    "calls",
    "unpriced",
    "tokens_in",
    "tokens_out",
    "cost",
)
_TYPES: Final = ("bigint", "date", *["text"] * 5, *["integer"] * 2, *["bigint"] * 5)

# Called now and then with what is being moved, and how many of it are done
Tell = Callable[[str, int], None]


class Moved:
    """How many records of each kind are new at the other side, and what was not moved."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.left = list[str]()

    def add(self, kind: str, number: int = 1) -> int:
        """Count some; returns how many of this kind there are."""
        self.counts[kind] += number
        return self.counts[kind]

    def add_run(self, run: str, why: str | None, tell: Tell) -> None:
        """Count a run that is new, where `why` is None.

        Else note why it was left, where there is a reason.
        """
        if why is None:
            tell("runs", self.add("runs"))
        elif why:
            self.left.append(f"run {run!r:.80} {why}")

    def copy_names(self, source: FileState | SharedState, target: FileState | SharedState) -> None:
        """Copy the names of conversations that are not there."""
        names = target.conversations.read()
        for name, run in reversed(source.conversations.read().items()):
            if name not in names:
                target.conversations.set(name, run)
                self.add("names")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDatabase:
    """What a database has.

    `clock_ahead` is by how many seconds its clock is before that of this machine.
    """

    server: str
    version: int
    runs: int
    running: int
    clock_ahead: float
    holds: tuple[Hold, ...]


def check_database(database: Database) -> CheckedDatabase:
    """Look at a database. Raises `ConfigError` and `StateUnavailable`."""
    version = database.version()
    ((server, runs, running),) = database.call(
        "SELECT current_setting('server_version'), (SELECT count(*) FROM conductor_runs),"
        " (SELECT count(*) FROM conductor_leases WHERE until > clock_timestamp())"
    )
    return CheckedDatabase(
        server=server.split()[0],
        version=version,
        runs=runs,
        running=running,
        clock_ahead=database.clock_ahead,
        holds=read_holds(database),
    )


def import_files(source: FileState, target: SharedState, tell: Tell) -> Moved:
    """Copy what is in files into the database. Raises `FILE_ERRORS` and `StateUnavailable`."""
    moved = Moved()
    paths = source.paths
    _import_attachments(paths.attachments, target, moved, tell)
    for run in reversed(source.traces.runs()):
        moved.add_run(run, _import_run(source, target, run), tell)
    _copy_served(source.served_files, target.served_files, moved, tell)
    lines = [line for line in read_lines(paths.ratings) if parse_rating(line.encode()) is not None]
    moved.add("ratings", target.ratings.add_lines(lines))
    moved.copy_names(source, target)
    if (path := paths.spending / FILE).is_file():
        with closing(open_database(path)) as file:
            ((mark,),) = file.execute("PRAGMA application_id").fetchall()
            if not mark:  # it tells this file from others, also where it is moved
                mark = 1 + secrets.randbelow(2**31 - 1)
                file.execute(f"PRAGMA application_id = {mark}")
            # Names of columns
            calls = file.execute(f"SELECT {', '.join(_CALL)} FROM calls ORDER BY id")  # noqa: S608
            while batch := calls.fetchmany(BATCH_ROWS):
                rows = [(_number_of(mark, row[0]), *row[1:]) for row in batch]
                tell("calls", moved.add("calls", _import_calls(target.database, rows)))
    if is_secret(secret := paths.state / "serve" / "call-secret"):
        target.offer_secret(secret.read_bytes())
    return moved


def export_files(source: SharedState, target: FileState, tell: Tell) -> Moved:
    """Copy what is in the database into files. Raises `FILE_ERRORS` and `StateUnavailable`."""
    moved = Moved()
    paths = target.paths
    database = source.database
    for run, size, written, live in database.call(
        # The row of a run whose process is gone is that of its beginning, until somebody lists it
        "SELECT r.run, COALESCE(l.size, r.size), COALESCE(l.written, r.written),"
        " COALESCE(l.until > clock_timestamp(), false)"
        " FROM conductor_runs r LEFT JOIN conductor_leases l ON l.run = r.run ORDER BY r.day, r.run"
    ):
        if live:
            moved.add_run(run, "is being written", tell)
        else:
            moved.add_run(run, _export_run(source, target, run, size, written), tell)
    _copy_served(source.served_files, target.served_files, moved, tell)
    _export_ratings(database, paths.ratings, moved)
    moved.copy_names(source, target)
    _export_attachments(database, paths.attachments, moved, tell)
    with closing(open_database(paths.spending / FILE)) as calls:
        last = -(2**63)
        # A hold that was released is over, and has cost nothing as far as anybody knows
        over = "CASE WHEN released THEN NULL ELSE owner END"
        columns = ", ".join(_CALL).replace("day", "day::text").replace("owner", over)
        # Names of columns
        page = f"SELECT {columns} FROM conductor_calls WHERE id > %s ORDER BY id LIMIT %s"  # noqa: S608
        while rows := database.call(page, last, BATCH_ROWS):
            last = rows[-1][0]
            tell("calls", moved.add("calls", _export_calls(calls, rows)))
    if not (secret := paths.state / "serve" / "call-secret").exists():
        make_private_directory(secret.parent)
        write_atomically(secret, source.secret(), mode=0o600)
    target.secret()
    return moved


def _export_ratings(database: Database, path: Path, moved: Moved) -> None:
    """Add the ratings that a file lacks."""
    written_lines = set(read_lines(path))
    with closing(AppendLog(path)) as log:
        for (line,) in database.call("SELECT rating FROM conductor_ratings ORDER BY id"):
            if line not in written_lines:
                log.append(line + "\n")
                moved.add("ratings")


def _export_attachments(database: Database, directory: Path, moved: Moved, tell: Tell) -> None:
    """Copy the bytes of the attachments that a directory lacks."""
    for (digest,) in database.call("SELECT sha256 FROM conductor_attachments ORDER BY 1"):
        path = directory / digest[:2] / digest
        if not path.is_file():
            ((content,),) = database.call(
                "SELECT data FROM conductor_attachments WHERE sha256 = %s", digest
            )
            make_private_directory(path.parent)
            write_atomically(path, bytes(content), mode=0o600)
            tell("attachments", moved.add("attachments"))


def export_days(source: SharedState, address: str, tell: Tell) -> Moved:
    """Write the traces of each day that is over as a Parquet file below a directory or URL.

    The file has a row for each line. A day whose file is there stays as it is, unless runs came or
    went since. Raises `OSError`, `StateUnavailable`, and `ConfigError` where pyarrow is not
    installed or knows no such place.
    """
    try:
        import pyarrow as pa
        from pyarrow import fs, parquet

        uri = address
        if "://" not in uri:
            uri = str(Path(uri).absolute())
        files, root = fs.FileSystem.from_uri(uri)
    except ImportError:
        hint = extra_command("parquet")
        raise ConfigError("Parquet needs pyarrow, which is not installed", hint=hint) from None
    except pa.ArrowException as error:
        message = f"{address}: {str(error).splitlines()[0]:.200}"
        raise ConfigError(message, hint="for example s3://bucket/traces.parquet") from None
    moved = Moved()
    files.create_dir(root)
    for day, runs, size, live in source.database.call(
        "SELECT r.day, array_agg(r.run ORDER BY r.run), sum(COALESCE(l.size, r.size))::bigint,"
        " bool_or(COALESCE(l.until > clock_timestamp(), false)) FROM conductor_runs r"
        " LEFT JOIN conductor_leases l ON l.run = r.run"
        " WHERE r.day < (clock_timestamp() AT TIME ZONE 'UTC')::date GROUP BY r.day ORDER BY r.day"
    ):
        path = f"{root}/{day}.parquet"
        has = {"runs": str(len(runs)), "bytes": str(size)}
        schema = pa.schema(
            [("run", pa.string()), ("number", pa.int64()), ("line", pa.binary())], metadata=has
        )
        there = None
        if files.get_file_info(path).is_file:
            with suppress(pa.ArrowException):  # one that is damaged is written again
                there = parquet.read_schema(path, filesystem=files).metadata
        if live:
            moved.left.append(f"day {day} has a run that is being written")
        elif there != schema.metadata:
            # A file that is being written has another name, so the day is there whole or not at
            # all.
            with parquet.ParquetWriter(
                f"{path}.part", schema, filesystem=files, compression="zstd"
            ) as out:
                for run in runs:
                    lines = source.traces.lines_of(run).splitlines(keepends=True)
                    columns = [[run] * len(lines), range(1, len(lines) + 1), lines]
                    out.write_table(pa.table(columns, schema=schema))
            files.move(f"{path}.part", path)
            tell("days", moved.add("days"))
    return moved


def _import_attachments(directory: Path, target: SharedState, moved: Moved, tell: Tell) -> None:
    """Copy the bytes that are not there."""
    store = target.attachments()
    for path in sorted(directory.glob("??/*")):
        if not is_sha256(path.name) or store.knows(path.name):
            continue
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != path.name:
            moved.left.append(f"attachment {path} was changed after it was stored")
            continue
        store.keep({path.name: content})
        tell("attachments", moved.add("attachments"))


def _import_run(source: FileState, target: SharedState, run: str) -> str | None:
    """Copy one trace.

    Returns None where it is new, nothing where it is there, and else why it was left.
    """
    traces = source.traces
    if not _NAME.fullmatch(run):
        return "has no name that a run has"
    if traces.is_running(run):
        return "is being written"
    try:
        content = _lines_of(traces.path(run))
    except READ_ERRORS as error:
        return f"cannot be read whole: {describe_system_error(error)}"
    row = summarize_run(str(traces.directory), run)._replace(size=len(content))
    blocks = []
    position = 0
    while position < len(content):
        end = (
            content.rfind(b"\n", position, position + BLOCK_BYTES) + 1
            or content.find(b"\n", position) + 1
            or len(content)
        )
        blocks.append(content[position:end])
        position = end
    target.traces.add_day(day_of(run))
    attachments = sorted({digest.decode() for digest in NAMED.findall(content)})
    if add_run(target.database, row, blocks, attachments):
        return None
    size = (
        "SELECT COALESCE(l.size, r.size) FROM conductor_runs r"
        " LEFT JOIN conductor_leases l ON l.run = r.run WHERE r.day = %s AND r.run = %s"
    )
    if target.database.call(size, day_of(run), run) == [(len(content),)]:
        return ""
    return "differs in the database"


def _lines_of(path: Path) -> bytes:
    """Return the lines of a trace. Raises one of `READ_ERRORS`, also where its end is missing."""
    with open_trace(path) as file:
        return file.read()


def _export_run(
    source: SharedState, target: FileState, run: str, size: int, written: int
) -> str | None:
    """Copy one trace, with the time of its file. Returns as `_import_run`."""
    if not _NAME.fullmatch(run):
        return "has no name that a file can have"
    path = target.traces.path(run)
    if path.exists():
        with suppress(*READ_ERRORS):
            if len(_lines_of(path)) == size:
                return ""
        return "differs in the files"
    make_private_directory(path.parent)
    write_atomically(
        path, gzip.compress(source.traces.lines_of(run), compresslevel=6, mtime=0), mode=0o600
    )
    os.utime(path, ns=(written, written))
    return None


def _copy_served(source: ServedFiles, target: ServedFiles, moved: Moved, tell: Tell) -> None:
    """Copy the files and batches of the clients of `serve`.

    A batch that is not over goes on where it is.
    """
    # Before the files, so that those which a batch has written are there
    batches = source.all("batch")
    for record in [*source.all("file"), *batches]:
        name = record["id"]
        kind = "batches"
        if record["object"] == "file":
            kind = "files"
        if not _SERVED.fullmatch(name) or target.find(name) is not None:
            continue
        if kind == "batches" and record["status"] not in END_STATES:
            moved.left.append(f"batch {name} is not over")
            continue
        try:
            if kind == "files":
                target.add(dict(record), _bytes_of(source, name))
            else:
                target.write(record)
            tell(kind, moved.add(kind))
        except FileNotFoundError:
            moved.left.append(f"file {name} is gone")


def _bytes_of(source: ServedFiles, name: str) -> Iterator[bytes]:
    content = source.content(name)
    if isinstance(content, Path):
        with content.open("rb") as file:
            yield from iter(partial(file.read, PIECE_BYTES), b"")
    else:
        yield from content


def _number_of(mark: int, number: int) -> int:
    """Return the number of a call of a file in every database.

    Below zero, where no call of a database is.
    """
    if not 0 < number < MAX_SMALL_ID:
        return number  # it came from a database
    return -1 - (
        int.from_bytes(hashlib.sha256(f"{mark}:{number}".encode()).digest()[:8], "big") >> 1
    )


def _import_calls(database: Database, rows: list[tuple[Any, ...]]) -> int:
    """Add calls and their sums.

    Those that had not ended become holds that have expired, until their end is known.
    """
    columns = [list(values) for values in zip(*rows, strict=True)]
    arrays = ", ".join(f"%s::{kind}[]" for kind in _TYPES)
    added = database.call(
        # Names of columns
        f"WITH file AS (SELECT * FROM unnest({arrays}) AS each({', '.join(_CALL)})),"  # noqa: S608
        f" added AS (INSERT INTO conductor_calls ({', '.join(_CALL)}, expires_at)"
        " SELECT id, day, CASE WHEN owner IS NOT NULL THEN 'imported' END,"
        f" {', '.join(_CALL[3:])}, clock_timestamp() FROM file ON CONFLICT DO NOTHING RETURNING *),"
        " sums AS (INSERT INTO conductor_totals AS t"
        " (day, scope, cost, tokens, calls, held_cost, held_tokens, held_calls)"
        " SELECT day, scope, SUM(CASE WHEN owner IS NULL THEN COALESCE(cost, 0) ELSE 0 END),"
        " SUM(CASE WHEN owner IS NULL THEN tokens_in + tokens_out ELSE 0 END),"
        " SUM(CASE WHEN owner IS NULL THEN worker_call ELSE 0 END),"
        " SUM(CASE WHEN owner IS NOT NULL THEN COALESCE(cost, 0) ELSE 0 END),"
        " SUM(CASE WHEN owner IS NOT NULL THEN tokens_in ELSE 0 END),"
        " SUM(CASE WHEN owner IS NOT NULL THEN worker_call ELSE 0 END)"
        " FROM added, LATERAL unnest(CASE client WHEN '' THEN ARRAY[''] ELSE ARRAY['', 'key:' || "
        "client] END) scope"
        ' GROUP BY day, scope ORDER BY day, scope COLLATE "C"'
        " ON CONFLICT (day, scope) DO UPDATE SET cost = t.cost + excluded.cost, tokens = t.tokens "
        "+ excluded.tokens,"
        " calls = t.calls + excluded.calls, held_cost = t.held_cost + excluded.held_cost,"
        " held_tokens = t.held_tokens + excluded.held_tokens, held_calls = t.held_calls + "
        "excluded.held_calls)"
        " SELECT count(*), (SELECT array_agg(f.id) FROM file f JOIN conductor_calls c ON c.id = "
        "f.id"
        " WHERE f.owner IS NULL AND c.owner = 'imported' AND (f.calls > 0 OR NOT c.released))"
        " FROM added",
        *columns,
    )
    ended = set(added[0][1] or ())
    for row in rows:
        if row[0] in ended:  # it had not when the file was imported before
            call = dict(zip(_CALL, row, strict=True))
            values = []
            for name in ("worker_call", "calls", "unpriced", "tokens_in", "tokens_out", "cost"):
                values.append(call[name])
            settle = "SELECT conductor_settle(%s, 'imported', %s, %s, %s, %s, %s, %s, %s)"
            database.call(settle, row[0], *values, call["failed"])
    return int(added[0][0])


def _export_calls(file: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> int:
    """Write calls into a file, but for those that came from it; returns how many were not there."""
    ((mark,),) = file.execute("PRAGMA application_id").fetchall()
    # Those below zero came from other files, by this database, which may know more of them by now
    numbers = file.execute("SELECT id FROM calls WHERE id > 0 AND id < ?", (MAX_SMALL_ID,))
    of_the_file = {_number_of(mark, number) for (number,) in numbers}
    places = ", ".join("?" * len(_CALL))
    with file:
        file.execute("BEGIN IMMEDIATE")
        before = file.execute("SELECT count(*) FROM calls").fetchone()[0]
        file.executemany(
            # Names of columns
            f"INSERT OR REPLACE INTO calls ({', '.join(_CALL)}) VALUES ({places})",  # noqa: S608
            [row for row in rows if row[0] not in of_the_file],
        )
        return int(file.execute("SELECT count(*) FROM calls").fetchone()[0]) - int(before)
