"""What all replicas spend on each day, in PostgreSQL, held exactly to the limits of a day.

Each call is a row, which is committed before the call is made: a *hold* of the most that the call
may use. The totals of a day, one row for everybody and one for each client, are locked in the order
of their keys, so that one transaction looks at all limits of a call and takes all or none. A hold
is apart from what is committed and touches it only when the call has ended. One that has expired
goes on counting in full: its provider may have charged for it. Whoever knows better releases it. To
hold and to settle are one function of the database each (`schema.sql`), and so one round trip.

The database has the clock. Days are those of the calendar of the replicas, which must have the same
time zone.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Final, Literal

from conductor_cli.core.errors import ConductorError, LimitReached, StateUnavailable
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Reservation
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.state.interfaces import NANO, USER, Spender, Spending
from conductor_cli.state.postgres.database import AWAY_MESSAGE, SILENT_SECONDS, Database, storable
from conductor_cli.state.spending import (
    GROUPS,
    MAX_AMOUNT,
    SpentRow,
    clamped,
    nano_dollars,
    reserved_row,
    spent_row,
)

HOLD_SECONDS: Final = 3600  # How long a call may take before nobody knows what became of it
MAX_LATE: Final = 10_000
"""Calls that ended while the database was away, and are settled when it is back. The holds of
others expire.
"""

# How often a call is made smaller because others took the room that it should have had
MAX_TRIES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A call that has ended: its number, and what it used.

    `made` calls count for the limit on calls.
    """

    number: int
    made: int
    usage: Usage
    failed: bool


class SharedSpend(Spending):
    """The spending of one process among that of all replicas."""

    def __init__(
        self,
        database: Database,
        limits: DayLimits = NO_DAY_LIMITS.limits,
        *,
        planner: Worker | None = None,
        client: Spender = USER,
    ) -> None:
        super().__init__(limits, planner, client)
        self._database = database
        self._begun: dict[int, tuple[int, Reservation]] = {}
        """The numbers of the calls under way, by the ids of their reservations."""
        self._ended = deque[_Ended]()  # Calls that have ended and are not settled yet
        self._settling = threading.Lock()

    def check(self) -> None:
        self._database.check()

    def find_problem(self) -> str:
        try:
            self.check()
        except ConductorError as error:
            return error.message
        return ""

    def today(self) -> DayBudget:
        self._settle_ended()
        day = self._database.now().date()
        ((_, *spent),) = self._database.call(
            "SELECT * FROM conductor_today(%s, %s)", day, self.client.name
        )
        return self._budget(*spent)

    async def reserve(
        self,
        decide: Callable[[DayBudget], Reservation | None],
        release: Callable[[Reservation], None],
        worker: Worker | None = None,
        leased: str = "",
    ) -> Reservation | None:
        # The database takes a reservation under all limits, or says what is spent; then `decide`
        # makes a smaller one.
        budget = self._budget(0, 0, 0, 0)
        for _ in range(MAX_TRIES):
            if (reservation := decide(budget)) is None:
                return None
            # Newer calls have larger ones
            number = (time.time_ns() // 1_000_000 << 21) | secrets.randbits(21)
            holding = self._database.soon(self._hold, number, reservation, worker, leased)
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    held, spent = await asyncio.shield(asyncio.wrap_future(holding))
            except BaseException as error:
                # Nobody waits for it any more, but the database may hold it by now, or in a moment.
                release(reservation)
                holding.add_done_callback(partial(self._give_up, number))
                if isinstance(error, TimeoutError):
                    raise StateUnavailable(
                        AWAY_MESSAGE, hint="nothing is called before it answers", reason="state"
                    ) from None
                raise
            if held:
                self._begun[id(reservation)] = number, reservation
                return reservation
            release(reservation)
            # Half a billionth may have been rounded up: one less is what surely fits.
            budget = self._budget(spent[0] + 1, spent[1], spent[2], spent[3] + 1)
        raise LimitReached(
            "other replicas take what today's limits leave", hint="ask again in a moment"
        )

    def settle(self, reservation: Reservation, usage: Usage, *, failed: bool = False) -> None:
        number, _ = self._begun.pop(id(reservation))
        made = int(reservation.call)
        if usage == NO_USAGE:  # a reply from a cache was no call
            made = 0
        self._settle_soon(_Ended(number=number, made=made, usage=usage, failed=failed))

    def close(self) -> None:
        self._try_to_settle()  # a hold that cannot be settled expires and counts in full

    def _give_up(self, number: int, _: object) -> None:
        self._settle_soon(_Ended(number=number, made=0, usage=NO_USAGE, failed=False))

    def _settle_soon(self, call: _Ended) -> None:
        # What was perhaps never held must not take the room of what was spent.
        most = MAX_LATE
        if not call.made:
            most = MAX_LATE // 2
        if len(self._ended) < most:
            self._ended.append(call)
        self._database.soon(self._try_to_settle)

    def _try_to_settle(self) -> None:
        try:
            self._settle_ended()
        except ConductorError as error:
            self._problem = f"what was spent is not recorded yet: {error.message}"

    def _settle_ended(self) -> None:
        with self._settling:
            while self._ended:
                call = self._ended[0]
                usage = self._ended[0].usage
                cost = None
                if usage.cost is not None:
                    cost = nano_dollars(usage.cost)
                self._database.call(
                    "SELECT conductor_settle(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                    call.number,
                    self._database.owner,
                    call.made,
                    usage.calls,
                    usage.unpriced,
                    clamped(usage.tokens_in),
                    clamped(usage.tokens_out),
                    cost,
                    int(call.failed),
                )
                self._ended.popleft()

    def _hold(
        self, number: int, room: Reservation, worker: Worker | None, leased: str
    ) -> tuple[bool, tuple[int, int, int, int]]:
        """Return whether the database holds it, and what was spent and held.

        Money, tokens, calls, a client's money.
        """
        self._settle_ended()
        *whom, cost = reserved_row(worker or self._planner, room)
        names = [storable(str(name)) for name in whom]
        limits = self.limits
        fence = ""
        fence_values: tuple[str, ...] = ()
        if leased:
            fence = ", conductor_fence(%s, %s)"
            fence_values = (leased, self._database.owner)
        ((held, _, *spent),) = self._database.call(
            # Nothing of it is text
            f"SELECT r.* FROM conductor_reserve({', '.join(['%s'] * 15)}) r{fence}",  # noqa: S608
            number,
            self._database.owner,
            self._database.now().date(),
            HOLD_SECONDS,
            *names,
            self.client.name,
            int(room.call),
            clamped(room.tokens),
            cost,
            nano_limit(limits.cost),
            limits.tokens,
            limits.calls,
            nano_limit(self.client.cost),
            *fence_values,
        )
        return held, (spent[0], spent[1], spent[2], spent[3])


def nano_limit(limit: Decimal | None) -> int | None:
    """Return the whole billionths of a dollar that a limit allows."""
    if limit is None:
        return None
    return int(min(limit, Decimal(MAX_AMOUNT) / NANO).scaleb(9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A call that has not ended.

    `expired`: nobody knows what became of it, and it goes on counting in full.
    """

    id: int
    day: date
    worker: str
    client: str
    cost: Decimal
    tokens: int
    expired: bool


def read_holds(database: Database) -> tuple[Hold, ...]:
    """Return the calls that have not ended, the oldest first. Raises `StateUnavailable`."""
    rows = database.call(
        "SELECT id, day, worker, client, COALESCE(cost, 0), tokens_in, expires_at < "
        "clock_timestamp()"
        " FROM conductor_calls WHERE owner IS NOT NULL AND NOT released ORDER BY id"
    )
    holds = []
    for row in rows:
        hold = Hold(
            id=row[0],
            day=row[1],
            worker=row[2],
            client=row[3],
            cost=Decimal(row[4]) / NANO,
            tokens=row[5],
            expired=row[6],
        )
        holds.append(hold)
    return tuple(holds)


def release_hold(database: Database, number: int) -> bool:
    """Let an expired hold count nothing any more; false where there is none of this number.

    Where its call has an end after all, that is counted. Raises `StateUnavailable`.
    """
    return bool(database.call("SELECT conductor_release(%s)", number)[0][0])


def read_shared_spent(
    database: Database, first: date, by: Literal["worker", "key"] = "worker"
) -> tuple[SpentRow, ...]:
    """Return what was used from `first` on: by day, provider and worker, or day and key.

    Raises `StateUnavailable`.
    """
    rows = database.call(
        # constants
        f"SELECT day::text, {GROUPS[by]}, SUM(worker_call), SUM(calls)::bigint,"  # noqa: S608
        " SUM(unpriced)::bigint, SUM(tokens_in)::bigint, SUM(tokens_out)::bigint,"
        " SUM(cost)::bigint, SUM(calls * failed)::bigint,"
        " SUM(CASE WHEN failed = 1 THEN cost END)::bigint, COUNT(owner) FILTER (WHERE NOT released)"
        " FROM conductor_calls WHERE day >= %s GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
        first,
    )
    return tuple(map(spent_row, rows))
