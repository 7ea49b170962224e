"""The files of the day book: their lines, one file read as it grows, and what all of them say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.usage import NO_USAGE, Usage

SUFFIX: Final = ".jsonl"

ABSURD: Final = Decimal(10) ** 12
"""Dollars that no call costs: a line with so many is damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One call that has ended. `provider` is who read it: a kind, a host, or this machine."""

    worker: str
    provider: str
    model: str
    usage: Usage
    call: bool = True
    ends: str = ""


def entry_line(entry: Entry, now: datetime) -> dict[str, Any]:
    """A call that has ended, as a line."""
    usage = entry.usage
    return {
        "at": now.isoformat(timespec="seconds"), "worker": entry.worker, "provider": entry.provider,
        "model": entry.model, "call": entry.call, "calls": usage.calls, "unpriced": usage.unpriced,
        "tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out,
        "cost": None if usage.cost is None else str(usage.cost), **({"ends": entry.ends} if entry.ends else {}),
    }  # fmt: skip


def hold_line(hold: str, room: Reservation) -> dict[str, Any]:
    """The room that a call under way holds, as a line."""
    return {"holds": hold, "cost": str(room.cost), "tokens": room.tokens, "call": room.call}


class Day:
    """One file, read as far as it goes; read again, only what was added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.entries: list[Entry] = []
        self.holds: dict[str, Reservation] = {}
        self.cost, self.tokens, self.calls = Decimal(0), 0, 0
        self.damaged = 0
        """Lines that say nothing that can be used."""
        self._at = 0

    def read(self) -> None:
        """Take in what is new. A last line that is not whole yet waits. Raises `OSError`, not for a missing file."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._at:
                    self._forget()
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            self._forget()
            return
        *whole, last = data.split(b"\n")
        for line in whole:
            self.damaged += bool(line) and not self._take(line)
        taken = bool(last) and self._take(last)
        self._at += len(data) - (0 if taken else len(last))

    def _take(self, line: bytes) -> bool:
        """Count one line; whether it could be read."""
        try:
            data = json.loads(line)
            if "holds" in data:
                room = Reservation(
                    answer=0, tokens=_whole(data["tokens"]), cost=_money(data["cost"]), call=data["call"] is True
                )
                self.holds[str(data["holds"])] = room
            else:
                self._ended(_entry(data))
        except (ValueError, TypeError, KeyError, RecursionError, ArithmeticError):
            return False
        return True

    def _ended(self, entry: Entry) -> None:
        self.holds.pop(entry.ends, None)
        self.entries.append(entry)
        self.cost += entry.usage.cost or 0
        self.tokens += entry.usage.tokens
        self.calls += entry.call


def _entry(data: Mapping[str, Any]) -> Entry:
    cost = data["cost"]
    usage = Usage(
        tokens_in=_whole(data["tokens_in"]), tokens_out=_whole(data["tokens_out"]), calls=_whole(data["calls"]),
        unpriced=_whole(data["unpriced"]), cost=None if cost is None else _money(cost),
    )  # fmt: skip
    return Entry(
        worker=str(data["worker"]), provider=str(data["provider"]), model=str(data["model"]), usage=usage,
        call=data["call"] is True, ends=str(data.get("ends", "")),
    )  # fmt: skip


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"no amount: {value!r:.40}")
    return value


def _money(value: object) -> Decimal:
    money = Decimal(str(value))
    if not (money.is_finite() and 0 <= money < ABSURD):
        raise ValueError(f"no amount: {value!r:.40}")
    return money


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one worker used on one day."""

    day: date
    provider: str
    worker: str
    model: str
    usage: Usage
    calls: int
    """Calls to workers, which the limits count: the conductor's own are none."""


def spent(directory: Path, first: date) -> tuple[tuple[Spent, ...], int]:
    """What was used from day `first` on, by day, provider and worker, and how many lines cannot be read.

    Raises `ConfigError` where the files cannot be read at all.
    """
    sums: dict[tuple[date, str, str, str], tuple[Usage, int]] = {}
    damaged = 0
    try:
        for day, path in files(directory):
            if day < first:
                continue
            book = Day(path)
            book.read()
            damaged += book.damaged
            for entry in book.entries:
                key = (day, entry.provider, entry.worker, entry.model)
                usage, calls = sums.get(key, (NO_USAGE, 0))
                sums[key] = usage + entry.usage, calls + entry.call
    except OSError as error:
        said = f"{error.filename or directory} cannot be read: {error.strerror}"
        raise ConfigError(said, hint="mend its rights, or move it away") from None
    rows = [
        Spent(day=day, provider=provider, worker=worker, model=model, usage=usage, calls=calls)
        for (day, provider, worker, model), (usage, calls) in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.day, row.provider, row.worker, row.model))), damaged


def files(directory: Path) -> Iterator[tuple[date, Path]]:
    """The days of which there is a file, the oldest first. Raises `OSError`."""
    if not directory.exists():
        return
    for path in sorted(directory.iterdir()):
        with suppress(ValueError):
            if path.suffix == SUFFIX:
                yield date.fromisoformat(path.stem), path
