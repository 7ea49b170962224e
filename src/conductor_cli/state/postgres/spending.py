"""What all replicas spend on each day, in PostgreSQL, held exactly to the limits of a day.

Each call is a row, which is committed before the call is made: a *hold* of the most that the call
may use. The totals of a day, one row for everybody and one for each client, are locked in the order
of their keys, so that one transaction looks at all limits of a call and takes all or none. A hold
is apart from what is committed and touches it only when the call has ended. One that has expired
goes on counting in full: its provider may have charged for it. Whoever knows better releases it. To
hold and to settle are one function of the database each (`schema.sql`). The calls that come while a
transaction is under way are held, or settled, by the next one together: it locks the totals once,
and waits for the disk once.

The database has the clock. Days are those of the calendar of the replicas, which must have the same
time zone.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Literal

from conductor_cli.core.errors import ConductorError, LimitReached, StateUnavailable
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Reservation
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.state.interfaces import NANO, USER, Spender, Spending
from conductor_cli.state.postgres.database import AWAY_MESSAGE, SILENT_SECONDS, Database, storable
from conductor_cli.state.spending_file import (
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

MAX_GROUP: Final = 256  # Calls that one transaction holds or settles

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


_Held = tuple[bool, tuple[int, int, int, int]]
"""Whether the database holds a call, and what was spent and held without it: money, tokens, calls,
a client's money.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Wanted:
    """A call that waits to be held: its number, and what `done` is told of it.

    `leased` is the run that another process may have, or empty.
    """

    number: int
    room: Reservation
    worker: Worker | None
    leased: str
    done: Future[_Held]


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
        self._wanted: list[_Wanted] = []  # Calls that wait to be held
        self._queueing = threading.Lock()  # Held where what waits, or who works, is changed
        self._is_holding = False  # Whether a thread holds what waits
        self._will_settle = False  # Whether a thread is about to settle what has ended

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
            holding: Future[_Held] = Future()
            holding.set_running_or_notify_cancel()  # the database may hold it from now on
            self._hold_soon(
                _Wanted(
                    number=number,
                    room=reservation,
                    worker=worker,
                    leased=leased,
                    done=holding,
                )
            )
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
        with self._queueing:
            is_planned = self._will_settle
            self._will_settle = True
        if not is_planned:
            self._database.soon(self._try_to_settle)

    def _try_to_settle(self) -> None:
        with self._queueing:
            self._will_settle = False
        try:
            self._settle_ended()
        except ConductorError as error:
            self._problem = f"what was spent is not recorded yet: {error.message}"

    def _settle_ended(self) -> None:
        with self._settling:
            while self._ended:
                group = list(islice(self._ended, MAX_GROUP))
                self._settle(group)
                for _ in group:
                    self._ended.popleft()

    def _settle(self, group: Sequence[_Ended]) -> None:
        """Settle calls by one transaction, the oldest first, so that days are locked in order."""
        rows = []
        for call in sorted(group, key=attrgetter("number")):
            usage = call.usage
            cost = None
            if usage.cost is not None:
                cost = nano_dollars(usage.cost)
            row = (
                call.number,
                call.made,
                usage.calls,
                usage.unpriced,
                clamped(usage.tokens_in),
                clamped(usage.tokens_out),
                cost,
                int(call.failed),
            )
            rows.append(row)
        self._database.call(_SETTLE, self._database.owner, *_columns(rows))

    def _hold_soon(self, wanted: _Wanted) -> None:
        """Have a call held by a thread, with all others that come before it is at work."""
        with self._queueing:
            self._wanted.append(wanted)
            is_planned = self._is_holding
            self._is_holding = True
        if not is_planned:
            self._database.soon(self._hold_waiting)

    def _hold_waiting(self) -> None:
        """Hold the calls that wait, in groups, until none waits."""
        while group := self._next_group():
            try:
                self._settle_ended()
                outcomes = self._hold(group)
            except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
                for wanted in group:
                    wanted.done.set_exception(error)
            else:
                for wanted, outcome in zip(group, outcomes, strict=True):
                    wanted.done.set_result(outcome)

    def _next_group(self) -> list[_Wanted]:
        """Take calls that wait to be held. One whose run may be lost to others is alone."""
        with self._queueing:
            size = 0
            for wanted in self._wanted[:MAX_GROUP]:
                if wanted.leased:
                    break
                size += 1
            group = self._wanted[: max(size, 1)]
            del self._wanted[: len(group)]
            self._is_holding = bool(group)
            return group

    def _hold(self, group: Sequence[_Wanted]) -> list[_Held]:
        """Hold calls by one transaction, in their order, each under all limits or not at all."""
        rows = []
        for wanted in group:
            *whom, cost = reserved_row(wanted.worker or self._planner, wanted.room)
            names = [storable(str(name)) for name in whom]
            row = (
                wanted.number,
                *names,
                int(wanted.room.call),
                clamped(wanted.room.tokens),
                cost,
            )
            rows.append(row)
        limits = self.limits
        values = (
            self._database.owner,
            self._database.now().date(),
            HOLD_SECONDS,
            self.client.name,
            nano_limit(limits.cost),
            limits.tokens,
            limits.calls,
            nano_limit(self.client.cost),
        )
        (leased,) = {wanted.leased for wanted in group}
        statement = _HOLD
        fence: tuple[str, ...] = ()
        if leased:
            statement = f"{_HOLD}, conductor_fence(%s, %s)"
            fence = (leased, self._database.owner)
        outcomes = []
        for held, _, *spent in self._database.call(statement, *_columns(rows), *values, *fence):
            outcomes.append((held, (spent[0], spent[1], spent[2], spent[3])))
        return outcomes


_SETTLE: Final = (
    "SELECT conductor_settle(call.id, %s, call.made, call.calls, call.unpriced, call.tokens_in,"
    " call.tokens_out, call.cost, call.failed)"
    " FROM unnest(%s::bigint[], %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[],"
    " %s::bigint[], %s::bigint[], %s::integer[])"
    " AS call (id, made, calls, unpriced, tokens_in, tokens_out, cost, failed)"
)

_HOLD: Final = (
    "SELECT r.* FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::integer[],"
    " %s::bigint[], %s::bigint[])"
    " AS call (id, worker, provider, model, made, tokens, cost),"
    " conductor_reserve(call.id, %s, %s, %s, call.worker, call.provider, call.model, %s,"
    " call.made, call.tokens, call.cost, %s, %s, %s, %s) r"
)
"""A function in FROM is called for one row after the other, in the order of the arrays."""


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    """Return the columns of rows, as PostgreSQL takes them for arrays."""
    return tuple(map(list, zip(*rows, strict=True)))


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
