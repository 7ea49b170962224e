"""What all replicas spend on each day, in PostgreSQL, held exactly to the limits of a day.

Each call is a row, which is committed before the call is made: a *hold* of the most that the call may use. The totals
of a day, one row for everybody and one for each client, are locked in the order of their keys, so that one transaction
looks at all limits of a call and takes all or none. A hold is apart from what is committed and touches it only when
the call has ended. One that has expired goes on counting in full: its provider may have charged for it. Whoever knows
better releases it.

The database has the clock. Days are those of the calendar of the replicas, which must have the same time zone.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

from conductor_cli.core.errors import ConductorError, LimitReached
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Reservation
from conductor_cli.core.pool import DayLimits, Worker
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.models.presets import recipient_of
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.spending import (
    CONDUCTOR,
    GROUPS,
    USER,
    Spender,
    SpentRow,
    clamped,
    exact_dollars,
    nano_dollars,
    spent_row,
    with_client,
)

if TYPE_CHECKING:
    from conductor_cli.state.postgres.database import Connection

HOLD_SECONDS: Final = 3600
"""How long a call may take before nobody knows what became of it."""

MAX_LATE: Final = 10_000
"""Calls that ended while the database was away, and are settled when it is back. The holds of others expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call under way: its row, its day, and what it holds."""

    row: int
    day: date
    cost: int
    tokens: int
    call: bool


class SharedSpend:
    """The spending of one process among that of all replicas. See `Spending`."""

    def __init__(
        self, database: Database, limits: DayLimits = NO_DAY_LIMITS.limits, *, planner: Worker | None = None,
        client: Spender = USER,
    ) -> None:  # fmt: skip
        self.limits = limits
        self.client = client
        self._database = database
        self._planner = planner
        self._owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._begun: dict[int, _Call] = {}
        """The calls under way, by the ids of their reservations."""
        self._late: list[tuple[_Call, Usage, bool]] = []
        """Calls that have ended and are not settled yet."""
        self._problem = ""

    @property
    def cost_limit(self) -> Decimal | None:
        """The limit on money that calls are held to: the user's, or else the client's."""
        return self.client.cost if self.limits.cost is None else self.limits.cost

    def check(self) -> None:
        """Raise `StateUnavailable` where nothing can be recorded: no call is made then, with limits or without."""
        with self._database.transaction():
            pass

    def find_problem(self) -> str:
        """Why nothing can be recorded; empty where it can."""
        try:
            self.check()
        except ConductorError as error:
            return error.message
        return ""

    def take_problem(self) -> str:
        """Why something that was spent is not recorded; empty if it is, or if that was asked before."""
        problem, self._problem = self._problem, ""
        return problem

    def today(self) -> DayBudget:
        """What is spent and held by now. Raises `StateUnavailable`."""
        with self._database.transaction() as connection:
            return self._lock_totals(connection, self._day(connection))

    def reserve(
        self,
        decide: Callable[[DayBudget], Reservation | None],
        release: Callable[[Reservation], None],
        worker: Worker | None = None,
    ) -> Reservation | None:
        """Let `decide` make a reservation for a call of `worker`, or the conductor if None.

        It is committed before another replica decides. Where that fails, `release` is called. Raises `LimitReached`.
        """
        reservation = call = None
        try:
            self._settle_late()
            with self._database.transaction() as connection:
                day = self._day(connection)
                reservation = decide(self._lock_totals(connection, day))
                if reservation is not None:
                    call = self._hold(connection, day, reservation, worker)
        except LimitReached:
            if reservation is not None:
                release(reservation)
            raise
        if reservation is not None and call is not None:
            self._begun[id(reservation)] = call
        return reservation

    def settle(self, reservation: Reservation, usage: Usage, *, failed: bool = False) -> None:
        """A call has ended. Where the database is away, that is recorded when it is back. See `take_problem`."""
        call = self._begun.pop(id(reservation))
        if len(self._late) < MAX_LATE:
            self._late.append((call, usage, failed))
        try:
            self._settle_late()
        except ConductorError as error:
            self._problem = f"what was spent is not recorded yet: {error.message}"

    def close(self) -> None:
        """Settle what is not settled yet. A hold that cannot be expires and counts in full."""
        try:
            self._settle_late()
        except ConductorError as error:
            self._problem = f"what was spent is not recorded: {error.message}"

    def _settle_late(self) -> None:
        while self._late:
            call, usage, failed = self._late[0]
            with self._database.transaction() as connection:
                self._end(connection, call, usage, failed=failed)
            self._late.pop(0)

    @property
    def _scopes(self) -> list[str]:
        """The keys of the totals that a call counts in, in order."""
        return ["", f"key:{self.client.name}"] if self.client.name else [""]

    def _day(self, connection: Connection) -> date:
        """Today; tomorrow if some replica was there already."""
        today = self._database.now().date()
        tomorrow = today + timedelta(days=1)
        found = connection.execute("SELECT 1 FROM conductor_totals WHERE day = %s LIMIT 1", [tomorrow]).fetchone()
        return tomorrow if found else today

    def _lock_totals(self, connection: Connection, day: date) -> DayBudget:
        """What is spent and held on a day. No other replica decides before the transaction has ended."""
        scopes = self._scopes
        query = (
            "SELECT cost + held_cost, tokens + held_tokens, calls + held_calls FROM conductor_totals"
            ' WHERE day = %s AND scope = ANY(%s) ORDER BY scope COLLATE "C" FOR UPDATE'
        )
        rows = connection.execute(query, [day, scopes]).fetchall()
        if len(rows) < len(scopes):
            connection.execute(
                "INSERT INTO conductor_totals (day, scope) SELECT %s, unnest(%s::text[]) ON CONFLICT DO NOTHING",
                [day, scopes],
            )
            rows = connection.execute(query, [day, scopes]).fetchall()
        cost, tokens, calls = rows[0]
        budget = DayBudget(limits=self.limits, cost=exact_dollars(cost), tokens=tokens, calls=calls)
        return with_client(budget, self.client, exact_dollars(rows[-1][0]))

    def _hold(self, connection: Connection, day: date, room: Reservation, worker: Worker | None) -> _Call:
        who = worker or self._planner or Worker(name=CONDUCTOR, kind="")
        # Without a price the reserved cost is 0, and what the call costs is unknown.
        cost = None if who.price is None and not room.cost else nano_dollars(room.cost)
        tokens = clamped(room.tokens)
        row = connection.execute(
            "INSERT INTO conductor_calls (day, owner, expires_at, worker, provider, model, client, worker_call, calls,"
            " unpriced, tokens_in, cost)"
            " VALUES (%s, %s, now() + make_interval(secs => %s), %s, %s, %s, %s, %s, 1, %s, %s, %s) RETURNING id",
            [
                day, self._owner, HOLD_SECONDS, who.copy_of or who.name, recipient_of(who), who.model, self.client.name,
                int(room.call), int(cost is None), tokens, cost,
            ],
        ).fetchone()  # fmt: skip
        assert row is not None
        call = _Call(row=row[0], day=day, cost=cost or 0, tokens=tokens, call=room.call)
        connection.execute(
            "UPDATE conductor_totals SET held_cost = held_cost + %s, held_tokens = held_tokens + %s,"
            " held_calls = held_calls + %s WHERE day = %s AND scope = ANY(%s)",
            [call.cost, call.tokens, int(call.call), day, self._scopes],
        )
        return call

    def _end(self, connection: Connection, call: _Call, usage: Usage, *, failed: bool) -> None:
        """Put what a call used in the place of its hold, once."""
        nothing = usage == NO_USAGE  # the reply came from a cache: there was no call
        self._lock_totals(connection, call.day)
        cost = None if usage.cost is None else nano_dollars(usage.cost)
        tokens_in, tokens_out = clamped(usage.tokens_in), clamped(usage.tokens_out)
        released = connection.execute(
            "SELECT released FROM conductor_calls WHERE id = %s AND owner = %s FOR UPDATE", [call.row, self._owner]
        ).fetchone()
        if released is None:
            return  # it was settled before, and the answer to that was lost
        made = 0 if nothing else int(call.call)
        connection.execute(
            "UPDATE conductor_calls SET owner = NULL, released = false, calls = %s, unpriced = %s, tokens_in = %s,"
            " tokens_out = %s, cost = %s, failed = %s, worker_call = %s WHERE id = %s",
            [usage.calls, usage.unpriced, tokens_in, tokens_out, cost, int(failed), made, call.row],
        )
        held = (0, 0, 0) if released[0] else (call.cost, call.tokens, int(call.call))
        connection.execute(
            "UPDATE conductor_totals SET held_cost = held_cost - %s, held_tokens = held_tokens - %s,"
            " held_calls = held_calls - %s, cost = cost + %s, tokens = tokens + %s, calls = calls + %s"
            " WHERE day = %s AND scope = ANY(%s)",
            [*held, cost or 0, tokens_in + tokens_out, made, call.day, self._scopes],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A call that has not ended. `expired`: nobody knows what became of it, and it goes on counting in full."""

    id: int
    day: date
    worker: str
    client: str
    cost: Decimal
    tokens: int
    expired: bool


def read_holds(database: Database) -> tuple[Hold, ...]:
    """Return the calls that have not ended, the oldest first. Raises `StateUnavailable`."""
    with database.transaction() as connection:
        rows = connection.execute(
            "SELECT id, day, worker, client, COALESCE(cost, 0), tokens_in, expires_at < now() FROM conductor_calls"
            " WHERE owner IS NOT NULL AND NOT released ORDER BY id"
        ).fetchall()
    return tuple(
        Hold(id=row[0], day=row[1], worker=row[2], client=row[3], cost=exact_dollars(row[4]), tokens=row[5],
             expired=row[6])
        for row in rows
    )  # fmt: skip


def release_hold(database: Database, number: int) -> bool:
    """Let an expired hold count nothing any more; false where there is none of this number.

    Where its call has an end after all, that is counted. Raises `StateUnavailable`.
    """
    find = (
        "SELECT day, client, COALESCE(cost, 0), tokens_in, worker_call FROM conductor_calls"
        " WHERE id = %s AND owner IS NOT NULL AND NOT released AND expires_at < now()"
    )
    with database.transaction() as connection:
        row = connection.execute(find, [number]).fetchone()
        if row is None:
            return False
        scopes = ["", f"key:{row[1]}"] if row[1] else [""]
        connection.execute(
            'SELECT 1 FROM conductor_totals WHERE day = %s AND scope = ANY(%s) ORDER BY scope COLLATE "C" FOR UPDATE',
            [row[0], scopes],
        )
        if connection.execute(f"{find} FOR UPDATE", [number]).fetchone() is None:
            return False  # it was settled meanwhile
        connection.execute(
            "UPDATE conductor_calls SET released = true, cost = 0, tokens_in = 0, calls = 0, unpriced = 0,"
            " worker_call = 0 WHERE id = %s",
            [number],
        )
        connection.execute(
            "UPDATE conductor_totals SET held_cost = held_cost - %s, held_tokens = held_tokens - %s,"
            " held_calls = held_calls - %s WHERE day = %s AND scope = ANY(%s)",
            [*row[2:], row[0], scopes],
        )
    return True


def read_shared_spent(database: Database, first: date, by: Literal["worker", "key"] = "worker") -> tuple[SpentRow, ...]:
    """What was used from day `first` on: by day, provider and worker, or by day and key. Raises `StateUnavailable`."""
    with database.transaction() as connection:
        rows = connection.execute(
            f"SELECT day::text, {GROUPS[by]}, SUM(worker_call), SUM(calls)::bigint, SUM(unpriced)::bigint,"  # noqa: S608 - constants
            " SUM(tokens_in)::bigint, SUM(tokens_out)::bigint, SUM(cost)::bigint, SUM(calls * failed)::bigint,"
            " SUM(CASE WHEN failed = 1 THEN cost END)::bigint, COUNT(owner) FILTER (WHERE NOT released)"
            " FROM conductor_calls WHERE day >= %s GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
            [first],
        ).fetchall()
    return tuple(map(spent_row, rows))
