"""What all processes spend on each day, in one SQLite file, held to the limits of a day.

Each call is a row, which is there before the call is made: it holds the most that the call may cost
until that is known. So a call whose process is killed counts, because its provider may charge for
it. With limits, `BEGIN IMMEDIATE` lets one process decide at a time, so that processes side by side
cannot overshoot a limit together. Where many calls of one process are under way, those that begin
at the same moment are decided and written by one transaction, each after the one before.

Days are those of the local calendar, and a call counts for the day on which it began. A clock that
is set back by up to a day opens no new day.

A client of a server may have a limit of its own on each day, beside those of the user.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from conductor_cli.core.errors import ConfigError, LimitReached, describe_system_error
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Reservation
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.state.interfaces import USER, Spender, Spending
from conductor_cli.state.spending_file import (
    FILE,
    MAX_SMALL_ID,
    clamped,
    has_exported,
    nano_dollars,
    open_database,
    reserved_row,
)

GROUP_SECONDS: Final = 0.1
"""How long the end of a call waits for the next transaction where there was one just before. Until
then its reservation counts, which is at least as much.
"""
# For so long a transaction shows a server, or who has many calls, that the file can be written
CHECKED_SECONDS: Final = 1.0
MAX_WRITTEN_AT_ONCE: Final = 4  # Calls under way beside which the end of one is written at once


def local_now() -> datetime:
    """Return the time by the local calendar."""
    return datetime.now().astimezone()


class _Ended(NamedTuple):
    """A call that has ended: its row, if it has one, and what it was."""

    row: int | None
    day: date
    reservation: Reservation
    worker: Worker | None
    usage: Usage
    failed: bool


_Decision = Reservation | Exception | None
"""What became of a call: its room, why it has none, or None where it has to wait for room."""


class _Wanted(NamedTuple):
    """A call that waits to be reserved, as `Spending.reserve` has it. `done` gets the decision."""

    decide: Callable[[DayBudget], Reservation | None]
    release: Callable[[Reservation], None]
    worker: Worker | None
    done: asyncio.Future[Reservation | None]


def _decide(wanted: _Wanted, today: DayBudget) -> _Decision:
    try:
        return wanted.decide(today)
    except Exception as error:  # noqa: BLE001 - whoever waits raises it
        return error


class DailySpend(Spending):
    """The spending of one process among that of all, in a file."""

    def __init__(
        self,
        directory: Path,
        limits: DayLimits = NO_DAY_LIMITS.limits,
        *,
        planner: Worker | None = None,
        client: Spender = USER,
        now: Callable[[], datetime] = local_now,
    ) -> None:
        super().__init__(limits, planner, client)
        self.directory = directory
        self._path = directory / FILE
        self._now = now
        self.checkpoints = True
        """Whether the log is moved into the file by calls, which wait for the disk; else somebody
        else moves it, as for a server.
        """
        # Not the process id alone: another container that shares the directory may have the same.
        self._owner = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._has_exported = False  # Whether the file has calls of a database, too
        self._begun: dict[int, tuple[int | None, date, Worker | None]] = {}
        """For each call under way, by the id of its reservation: its row, if it has one, its day,
        and who is called.
        """
        self._wanted: list[_Wanted] = []  # Calls that wait to be reserved
        self._unrecorded = deque[_Ended](maxlen=10_000)
        """The newest calls that have ended and are not in the file, which a full disk may refuse
        for hours.
        """
        self._written = -math.inf  # When the newest transaction has ended
        self._recording: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        """What records the calls that have ended, where no other transaction does it before."""

    @property
    def _has_limits(self) -> bool:
        return bool(self.limits) or self.client.cost is not None

    @property
    def _is_busy(self) -> bool:
        """Whether more calls are to be expected in a moment: of a server, a batch, or many runs."""
        is_serving = not self.checkpoints
        return is_serving or self.expects_calls or len(self._begun) > MAX_WRITTEN_AT_ONCE

    def check(self) -> None:
        if not self._has_limits:
            return
        shown_seconds = GROUP_SECONDS
        if self._is_busy:
            shown_seconds = CHECKED_SECONDS
        # A transaction of a moment ago has shown that the file can be written.
        if time.monotonic() - self._written < shown_seconds:
            return
        if problem := self.find_problem():
            raise ConfigError(
                f"the limits per day cannot be enforced: {self.directory}: {problem}",
                hint="free some disk space, fix the permissions, or unset limits.cost_day, "
                "limits.tokens_day and limits.calls_day",
            )

    def find_problem(self) -> str:
        try:
            with self._transaction():
                return ""
        except (OSError, sqlite3.Error) as error:
            return describe_system_error(error)

    def today(self) -> DayBudget:
        """Return what is spent and reserved by now. Raises `OSError` and `sqlite3.Error`."""
        with self._transaction() as database:
            return self._budget_of(database, self._day(database))

    async def reserve(
        self,
        decide: Callable[[DayBudget], Reservation | None],
        release: Callable[[Reservation], None],
        worker: Worker | None = None,
        leased: str = "",  # noqa: ARG002 - files have no leases
    ) -> Reservation | None:
        if not self._has_limits:
            if (reservation := decide(NO_DAY_LIMITS)) is not None:
                row = None
                day = self._now().date()
                with suppress(OSError, sqlite3.Error), self._transaction() as database:
                    day = self._day(database)
                    row = self._record_reservation(database, day, reservation, worker)
                self._begun[id(reservation)] = row, day, worker
            return reservation
        loop = asyncio.get_running_loop()
        wanted = _Wanted(decide, release, worker, loop.create_future())
        self._wanted.append(wanted)
        if not self.expects_calls and len(self._begun) <= MAX_WRITTEN_AT_ONCE:
            self._reserve_waiting()
        elif len(self._wanted) == 1:
            # The calls that come until the loop gets to it are reserved by the same transaction.
            loop.call_soon(self._reserve_waiting)
        try:
            return await wanted.done
        except asyncio.CancelledError:
            self._give_up(wanted)
            raise

    def _reserve_waiting(self) -> None:
        """Reserve for the calls that wait, in their order, by one transaction."""
        waiting = [wanted for wanted in self._wanted if not wanted.done.cancelled()]
        self._wanted.clear()
        if not waiting:
            return
        decisions: list[_Decision] = []
        try:
            with self._transaction() as database:
                day = self._day(database)
                for wanted in waiting:
                    decision = _decide(wanted, self._budget_of(database, day))
                    decisions.append(decision)
                    if isinstance(decision, Reservation):
                        row = self._record_reservation(database, day, decision, wanted.worker)
                        self._begun[id(decision)] = row, day, wanted.worker
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            for wanted, decision in zip(waiting, decisions, strict=False):
                if isinstance(decision, Reservation):
                    self._begun.pop(id(decision), None)
                    wanted.release(decision)
            decisions = [self._refusal(error) for _ in waiting]
        for wanted, decision in zip(waiting, decisions, strict=True):
            if isinstance(decision, Exception):
                wanted.done.set_exception(decision)
            else:
                wanted.done.set_result(decision)

    def _refusal(self, error: Exception) -> Exception:
        """Return why a call is not made that could not be recorded."""
        if not isinstance(error, (OSError, sqlite3.Error)):
            return error
        return LimitReached(
            f"today's limit cannot be enforced: {self.directory}: {describe_system_error(error)}",
            hint="free some disk space or fix the permissions, then run it again",
        )

    def _give_up(self, wanted: _Wanted) -> None:
        """Give the room of a call back that nobody waits for any more."""
        if wanted in self._wanted:
            self._wanted.remove(wanted)
        if wanted.done.cancelled() or wanted.done.exception() is not None:
            return
        reservation = wanted.done.result()
        if reservation is not None:
            wanted.release(reservation)
            self.settle(reservation, NO_USAGE)

    def settle(self, reservation: Reservation, usage: Usage, *, failed: bool = False) -> None:
        row, day, worker = self._begun.pop(id(reservation))
        if row is None and usage == NO_USAGE:
            return
        self._unrecorded.append(_Ended(row, day, reservation, worker, usage, failed))
        since = time.monotonic() - self._written
        # A server writes it with the next call, or a moment later; so does who has many of them.
        waits = since < GROUP_SECONDS and self._is_busy
        if not waits or not self._record_soon():
            self._record_ended()

    def _record_soon(self) -> bool:
        """Have the calls that have ended recorded in a moment; False outside an event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        if self._recording is None or self._recording[0] is not loop:
            self._recording = (loop, loop.call_later(GROUP_SECONDS, self._record_ended))
        return True

    def _record_ended(self) -> None:
        self._recording = None
        if not self._unrecorded:
            return
        if problem := self.find_problem():  # which records them
            self._problem = f"what was spent is not recorded: {self.directory}: {problem}"

    def close(self) -> None:
        if self._recording is not None:
            self._recording[1].cancel()
            self._recording = None
        if self._unrecorded:
            self.find_problem()  # which records it
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the database for nobody else, with the calls that have ended recorded in it.

        Raises `OSError` and `sqlite3.Error`.
        """
        database = self._open()
        with database:  # commits at the end, or rolls back
            database.execute("BEGIN IMMEDIATE")
            for ended in self._unrecorded:
                self._record_end(database, ended)
            yield database
        self._unrecorded.clear()
        self._written = time.monotonic()

    def _open(self) -> sqlite3.Connection:
        """Return the database of the file, opened again where that is another one now.

        Somebody may remove the file, and another run begin it again.
        """
        database = self._database
        if database is not None and (self._file is None or self._file != _identity(self._path)):
            database.close()
            database = None
            self._database = None
        if database is None:
            database = open_database(self._path, checkpoints=self.checkpoints)
            self._database = database
            self._file = _identity(self._path)
            self._has_exported = has_exported(database)
        return database

    def _record_end(self, database: sqlite3.Connection, ended: _Ended) -> None:
        """Record what a call has used; one that has used nothing is not there any more."""
        if ended.usage == NO_USAGE:
            delete = "DELETE FROM calls WHERE id = ? AND owner = ?"
            database.execute(delete, (ended.row, self._owner))
        elif not self._end(database, ended.row, ended.usage, failed=ended.failed):
            # Its reservation is not in this file
            row = self._record_reservation(database, ended.day, ended.reservation, ended.worker)
            self._end(database, row, ended.usage, failed=ended.failed)

    def _day(self, database: sqlite3.Connection) -> date:
        """Return today; tomorrow if the clock was there already."""
        today = self._now().date()
        tomorrow = today + timedelta(days=1)
        call_of_tomorrow = "SELECT 1 FROM calls WHERE day = ? LIMIT 1"
        if database.execute(call_of_tomorrow, (str(tomorrow),)).fetchone():
            return tomorrow
        return today

    def _budget_of(self, database: sqlite3.Connection, day: date) -> DayBudget:
        """Return what is spent and reserved on a day.

        Reserved is what calls hold that are under way or were killed.
        """
        client_scope = f"/{self.client.name}"
        totals = "SELECT scope, cost, tokens, calls FROM totals WHERE day = ? AND scope IN ('', ?)"
        sums = {"": (0, 0, 0), client_scope: (0, 0, 0)}
        for scope, *amounts in database.execute(totals, (str(day), client_scope)):
            sums[scope] = tuple(amounts)
        cost, tokens, calls = sums[""]
        client_cost, _, _ = sums[client_scope]
        return self._budget(cost, tokens, calls, client_cost)

    def _record_reservation(
        self, database: sqlite3.Connection, day: date, room: Reservation, worker: Worker | None
    ) -> int | None:
        *whom, cost = reserved_row(worker or self._planner, room)
        number = None  # That behind the largest one
        if self._has_exported:
            # Which in each copy of that export would be the same one, for another call
            largest = "SELECT COALESCE(MAX(id), 0) FROM calls WHERE id > 0 AND id < ?"
            number = database.execute(largest, (MAX_SMALL_ID,)).fetchone()[0] + 1
        return database.execute(
            "INSERT INTO calls (id, day, owner, worker, provider, model, client, worker_call, "
            "calls, unpriced, tokens_in, cost) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?)",
            (
                number,
                str(day),
                self._owner,
                *whom,
                self.client.name,
                room.call,
                cost is None,
                clamped(room.tokens),
                cost,
            ),
        ).lastrowid

    def _end(
        self, database: sqlite3.Connection, row: int | None, usage: Usage, *, failed: bool
    ) -> bool:
        """Put what a call used in the place of its reservation; false where there is none.

        That row is looked for by its owner too: where the user has removed the file, another
        process may have its number in the new one.
        """
        cost = None
        if usage.cost is not None:
            cost = nano_dollars(usage.cost)
        tokens_in = clamped(usage.tokens_in)
        tokens_out = clamped(usage.tokens_out)
        changed = database.execute(
            "UPDATE calls SET owner = NULL, calls = ?, unpriced = ?, tokens_in = ?, "
            "tokens_out = ?, cost = ?, failed = ? WHERE id = ? AND owner = ?",
            (usage.calls, usage.unpriced, tokens_in, tokens_out, cost, failed, row, self._owner),
        )
        return bool(changed.rowcount)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one under its name.

    As long as a file is open, no other one is the same.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - at each call
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
