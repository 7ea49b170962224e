"""The limits of a day while the clock goes back, forward and through daylight saving.

What holds: no day has more than its limit, going back by up to a day opens no new day, what was
spent is what is recorded, and a limit is used up. The sums are read from the file by SQL of our
own.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

from conductor_cli.core.errors import LimitReached
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.pool import DayLimits, Limits
from conductor_cli.core.usage import Price, Usage, with_cost
from conductor_cli.state.spending import DailySpend
from conductor_cli.state.spending_file import FILE
from scripts.faults.tries import Outcome, Tries

WALKS: Final = 400  # random walks of the clock
HOUR: Final = 3600.0
LIMIT: Final = Decimal("0.05")
PRICE: Final = Price(input=Decimal(1), output=Decimal(10))
CALL: Final = Decimal("0.0031")  # what a call of 100 tokens in and 300 out costs at that price
BEGIN: Final = datetime(2026, 11, 21, 23, 50, tzinfo=UTC).timestamp()

ZONES: Final = {
    "New York": "EST5EDT,M3.2.0,M11.1.0",
    "half an hour, in the south": "SST-10:30SDT-11,M11.1.0,M3.2.0",
    "back over midnight": "XST5XDT,M3.2.0/0,M11.1.0/0:30",
    "forward over midnight": "YST5YDT,M3.2.0/23:30,M11.1.0",
}
"""Rules of daylight saving as POSIX writes them, which need no files of time zones."""

NIGHTS: Final = {
    "spring": datetime(2026, 3, 6, 12, tzinfo=UTC),
    "autumn": datetime(2026, 10, 30, 12, tzinfo=UTC),
}


def run(tries: Tries) -> None:
    """Walk the clock, and go through nights of daylight saving."""
    for number in range(WALKS):
        tries.attempt(f"walk {number}", partial(walk, tries.seed * WALKS + number))
    for zone in ZONES:
        for night in NIGHTS:
            tries.attempt(
                f"daylight saving in {night}, {zone}", partial(through_a_night, zone, night)
            )


class Spending:
    """One process that spends; `clock` holds the time in seconds since 1970."""

    def __init__(self, directory: Path, clock: list[float]) -> None:
        self.clock = clock
        self.ledger = Ledger(Limits())
        self.spend = DailySpend(directory, DayLimits(cost=LIMIT), now=self.now)

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock[0], tz=UTC).astimezone()

    def reserve(self) -> Reservation | None:
        """A reservation for one call; None where the limit of the day leaves no room."""
        try:
            return asyncio.run(
                self.spend.reserve(
                    lambda today: self.ledger.reserve(100, 300, PRICE, today=today),
                    self.ledger.release,
                )
            )
        except LimitReached:
            return None

    def settle(self, reservation: Reservation) -> None:
        """End the call: it has cost `CALL`."""
        usage = with_cost(Usage(tokens_in=100, tokens_out=300, calls=1), PRICE)
        self.ledger.settle(reservation, usage)
        self.spend.settle(reservation, usage)


def query(directory: Path, sql: str) -> list[tuple[str, int]]:
    """What the record of spending has."""
    with closing(sqlite3.connect(directory / FILE)) as database:
        return database.execute(sql).fetchall()


def days(directory: Path) -> dict[str, Decimal]:
    """What was spent and reserved on each day, in dollars."""
    rows = query(directory, "SELECT day, SUM(cost) FROM calls GROUP BY day")
    return {day: Decimal(cost) / 10**9 for day, cost in rows}


def walk(seed: int) -> Outcome:
    """Spend while the clock jumps, also within calls."""
    chance = random.Random(seed)
    jumps = (60.0, HOUR, 24 * HOUR, -60.0, -HOUR, -24 * HOUR, -30 * 24 * HOUR, 400 * 24 * HOUR)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        clock = [BEGIN]
        settled = 0
        processes = [Spending(directory, clock) for _ in range(3)]
        under_way: list[tuple[Spending, Reservation]] = []
        counted: list[tuple[float, str]] = []
        for _ in range(60):
            if chance.random() < 0.5:
                clock[0] = max(86_400.0, clock[0] + chance.choice(jumps) * chance.random())
            process = chance.choice(processes)
            room = process.reserve()
            if room is not None:
                under_way.append((process, room))
                ((day, _),) = query(
                    directory, "SELECT day, cost FROM calls ORDER BY id DESC LIMIT 1"
                )
                today = str(process.now().date())
                later = [then for at, then in counted if 0 <= at - clock[0] <= 24 * HOUR]
                if day < max(later, default=""):
                    return Outcome(
                        problem=f"the clock went back by less than a day: {max(later)}, then {day}"
                    )
                if day == today:  # else it counts for tomorrow, where the clock was already
                    counted.append((clock[0], day))
            if under_way and chance.random() < 0.8:
                owner, ended = under_way.pop(chance.randrange(len(under_way)))
                owner.settle(ended)
                settled += 1
            if problem := _too_much(days(directory)):
                return Outcome(problem=problem)
        for owner, ended in under_way:
            owner.settle(ended)
        settled += len(under_way)
        total = sum(days(directory).values())
        return Outcome(
            problem="" if total == settled * CALL else f"{settled} calls, {total} dollars recorded"
        )


def _too_much(spent: dict[str, Decimal]) -> str:
    over = {day: str(cost) for day, cost in spent.items() if cost > LIMIT}
    return f"more than {LIMIT} on {over}" if over else ""


@contextmanager
def time_zone(rule: str) -> Iterator[None]:
    """Let this process be somewhere else."""
    with patch.dict(os.environ, TZ=rule):
        time.tzset()
        yield
    time.tzset()


def through_a_night(zone: str, night: str) -> Outcome:
    """Spend all that may be spent every ten minutes of four days in which the clock changes."""
    with tempfile.TemporaryDirectory() as name, time_zone(ZONES[zone]):
        directory = Path(name)
        begin = NIGHTS[night].timestamp()
        clock = [begin]
        wanted = set[str]()
        offsets = set[object]()
        process = Spending(directory, clock)
        for _ in range(4 * 24 * 6):
            wanted.add(str(process.now().date()))
            offsets.add(process.now().utcoffset())
            while (room := process.reserve()) is not None:
                process.settle(room)
            clock[0] += 600
        spent = days(directory)
        if len(offsets) != 2:
            return Outcome(hit=False)
        unused = [day for day, cost in spent.items() if cost <= LIMIT - CALL]
        if problem := _too_much(spent):
            return Outcome(problem=problem)
        return Outcome(
            problem=""
            if set(spent) == wanted and not unused
            else f"days {sorted(spent)}, unused {unused}"
        )
