"""Whether a trace is whole: its chain of hashes, from the question to the end of the run.

And keeping what is whole.

A chain without a key detects damage and careless edits, but not a person who calculates all hashes
again. A file that was cut behind a complete line looks like one of an interrupted run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import format_count
from conductor_cli.core.serialization import DecodeError
from conductor_cli.state.format_upgrades import OLD_FORMATS
from conductor_cli.state.interfaces import Fault, TraceCheck, TraceFault
from conductor_cli.state.trace_file import RawLine, open_trace, parse_line, raw_lines, read_events
from conductor_cli.state.trace_lines import (
    START,
    HashedLine,
    LineReader,
    LineWriter,
    add_hash,
    read_hash,
    split_records,
)
from conductor_cli.system.disk import free_path, link_or_copy, write_atomically
from conductor_cli.system.known_secrets import KNOWN_SECRETS

ASIDE: Final = ".damaged-"
"""Between the name of a trace and a number, in the name of what it was before it was repaired."""

_NOT_KEPT: Final = frozenset({"changed", "added", "incomplete", "behind_end", "foreign"})
_ENDS: Final = (b'{"kind":"run_finished"', b'{"kind":"run_failed"')


class _Record(NamedTuple):
    """A record and the number of its line. `hashed` is None where it has no hash."""

    line: int
    raw: bytes
    hashed: HashedLine | None
    problem: str = ""


def check_trace(file: BinaryIO, run: str, *, running: bool = False) -> TraceCheck:
    """Follow the chain of the trace of a run; of one that is being written, as far as it has come.

    Raises `OSError`.
    """
    checker = _Checker()
    for line in raw_lines(file):
        checker.add_line(line, running=running)
    is_ended = any(record.raw.startswith(_ENDS) for record in checker.open)
    checker.settle()
    if not checker.lines:
        checker.add(0, "empty", "the file is empty")
    elif not (checker.ended or is_ended or running):
        text = (
            f"nothing follows line {checker.lines}: the run was interrupted, or the end was cut off"
        )
        checker.add(checker.lines, "no_end", text)
    faults = list(checker.faults)
    if checker.run and checker.run != run:
        text = f"line 1 begins the run {checker.run}, and the file has another name"
        faults.append(TraceFault(line=1, fault="foreign", text=text))
    faults.sort(key=lambda fault: fault.line)
    link = (checker.good or START).decode()
    return TraceCheck(
        run=run, lines=checker.lines, link=link, running=running, faults=tuple(faults)
    )


@dataclass(slots=True)
class _Checker:
    """Reads records in order. `good` is the link of the last one that is known to be in its place.

    Which fault a record has may only be known from the next one: `open` are those that wait for it.
    """

    faults: list[TraceFault] = field(default_factory=list)
    good: bytes = START
    open: list[_Record] = field(default_factory=list)
    lines: int = 0
    run: str = ""
    ended: bool = False
    old: bool = False

    def add_line(self, line: RawLine, *, running: bool) -> None:
        self.lines = line.number
        if not line.complete:
            if not running:
                self.add(line.number, "incomplete", "is incomplete: whatever wrote it was stopped")
            return
        records = split_records(line.raw)
        if len(records) > 1:
            text = f"has {format_count(len(records), 'record')}: line breaks are missing"
            self.add(line.number, "joined", text)
        if line.number == 1:  # it says what run this is
            reader = LineReader(strict=False)
            events, problem = parse_line(line, reader)
            first = None
            if events:
                first = events[0]
            if not isinstance(first, ev.RunStarted):
                text = f"is not the start of a run in format {ev.FORMAT}"
                if problem:
                    text = f"{text}: {problem}"
                self.add(1, "foreign", text)
            elif first.format != ev.FORMAT:
                text = (
                    f"is in format {first.format}; this version of conductor reads format "
                    f"{ev.FORMAT}"
                )
                self.add(1, "foreign", text)
            else:
                self.run = first.run
                self.old = reader.format in OLD_FORMATS and read_hash(line.raw) is None
                text = (
                    f"is in format {reader.format}, whose lines have no hashes: nothing tells "
                    "whether it was changed"
                )
                if self.old:
                    self.add(1, "old", text)
        for record in records:
            if self.old:
                self.ended = self.ended or record.startswith(_ENDS)
            else:
                self._add_record(_Record(line.number, record, read_hash(record), line.problem))

    def _add_record(self, record: _Record) -> None:
        hashed = record.hashed
        if self.ended:
            self.add(record.line, "behind_end", "comes after the end of the run")
        elif hashed is None or not hashed.is_unchanged:
            self.open.append(record)
        elif hashed.follows(self.good):
            for waiting in self.open:
                self.add(waiting.line, "added", "was added, or moved here")
            self._accept(record, hashed)
        elif not self.open:
            self.open.append(record)
        else:
            last = self.open[-1].hashed
            before = b""
            if last is not None and last.is_unchanged:
                before = last.link_behind(self.good)
            # As it was before its link was changed
            if len(self.open) == 1 and before and hashed.follows(before):
                self.add(
                    self.open[0].line,
                    "changed",
                    "was changed: its hash does not follow the line before",
                )
                self._accept(record, hashed)
                return
            self.settle()
            # What it follows may have lost its link
            if not before or (last is not None and hashed.follows(last.link)):
                self._accept(record, hashed)
            else:
                self.open.append(record)

    def _accept(self, record: _Record, hashed: HashedLine) -> None:
        self.open.clear()
        self.good = hashed.link
        self.ended = record.raw.startswith(_ENDS)

    def settle(self) -> None:
        """Say what is wrong with the records that wait: they are where they belong."""
        for record in self.open:
            if record.hashed is not None and record.hashed.is_unchanged:
                self.add(record.line, "missing", f"lines are missing before line {record.line}")
                self.good = record.hashed.link
                self.ended = record.raw.startswith(_ENDS)
            else:
                line = RawLine(
                    record.line,
                    len(record.raw),
                    record.raw,
                    complete=True,
                    problem=record.problem,
                )
                _, problem = parse_line(line, LineReader(strict=False))
                problem = problem[:200]
                if b"\0" in record.raw:
                    problem = "it has NUL bytes"
                text = "was changed"
                if problem:
                    text = f"was changed: {problem}"
                if record.hashed is None and not problem:
                    text = "has no hash: another program wrote or changed it"
                self.add(record.line, "changed", text)
        self.open.clear()

    def add(self, line: int, fault: Fault, text: str) -> None:
        whole = text
        if fault not in ("missing", "no_end", "empty"):
            whole = f"line {line} {text}"
        self.faults.append(TraceFault(line=line, fault=fault, text=whole))


def repair_trace(path: Path, check: TraceCheck) -> Path | None:
    """Keep the lines that are whole, with a notice for what is not.

    The file as it was gets another name.

    Returns that name, None where nothing has to be done. Raises `UsageError` where nothing can be
    kept, and `OSError`.
    """
    kinds = {fault.fault for fault in check.faults} - {"no_end"}
    if not kinds:
        return None
    if "empty" in kinds or any(
        fault.line == 1 and fault.fault in _NOT_KEPT for fault in check.faults
    ):
        message = (
            f"nothing can be kept of {path}: its first line, which begins the run, is not whole"
        )
        hint = f"conductor trace rm {check.run} deletes it"
        raise UsageError(message, hint=hint)
    content = list[bytes]()
    if "old" in kinds:
        lines = LineWriter(KNOWN_SECRETS)
        content = [*map(lines.add, read_events(path)), lines.flush()]
    else:
        link = START
        for record in _repaired_records(path, check.faults):
            line, link = add_hash(record, link)
            content += [line, b"\n"]
    aside = free_path(path, ASIDE)
    # The old file has its second name before the new one takes its first: a kill in between loses
    # nothing.
    link_or_copy(path, aside)
    write_atomically(path, b"".join(content), mode=0o600)
    return aside


def _repaired_records(path: Path, faults: Sequence[TraceFault]) -> list[bytes]:
    """Return the records that are kept, without hashes, and a notice wherever there were others."""
    left_out = {fault.line for fault in faults if fault.fault in _NOT_KEPT}
    missing = {fault.line for fault in faults if fault.fault == "missing"}
    records = list[bytes]()
    gap = list[str]()
    reader = LineReader()
    with open_trace(path) as file:
        for line in raw_lines(file):
            if line.number in left_out:
                gap.append(f"line {line.number} was set aside")
                continue
            if line.number in missing:
                gap.append("lines were missing")
            for record in split_records(line.raw):
                hashed = read_hash(record)
                if hashed is None:
                    continue
                try:
                    reader.read_line((hashed.body + b"}").decode("utf-8", "replace"))
                except DecodeError:
                    gap.append(f"line {line.number} repeats what was set aside")
                    continue
                if gap:
                    records.append(_notice(records, gap))
                    gap.clear()
                records.append(hashed.body + b"}")
    if gap:
        end = []
        if records[-1].startswith(_ENDS):  # no event follows the end of a run
            end = [records.pop()]
        records += [_notice(records, gap), *end]
    return records


def _notice(before: Sequence[bytes], gap: Sequence[str]) -> bytes:
    """Return a notice at the time of the event before it."""
    at = 0.0
    if before:
        at = LineReader(strict=False).read_line(before[-1].decode("utf-8", "replace"))[-1].at
    text = f"the trace was repaired: {gap[0]}"
    if len(gap) > 1:
        text += f", and {len(gap) - 1} more"
    return ev.to_line(ev.Notice(at=at, text=text, reason="trace_damaged")).encode()
