"""What a batch may cost on all machines that work on it: the database of the state counts.

Each call is counted there before it is made, with the most that it can cost, in one transaction
that looks at the calls of all machines. So together they hold the limit as one machine does. A
machine says what it has spent and holds in all, so that saying it twice changes nothing. What a
machine held when it was killed counts in full.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import ConductorError
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.run.budget import Budget

if TYPE_CHECKING:
    from conductor_cli.state.postgres.records import SharedBatch, SharedCosts

# Between two looks at what others have spent, and two signs that this machine lives
COSTS_SECONDS: Final = 2.0
ROUNDING: Final = Decimal("3E-9")
"""US dollars by which an amount may be larger in the database, which counts whole billionths."""


class SharedBudget(Budget):
    """A `Budget` that several machines share.

    Their calls have room in it only where the database says so. A call without room waits while
    calls of other machines may leave some.
    """

    def __init__(
        self,
        shards: SharedBatch,
        limit: Decimal | None = None,
        *,
        spent: Decimal = Decimal(0),
        expected: Decimal = Decimal(0),
    ) -> None:
        super().__init__(limit, spent=spent, expected=expected)
        self.shards = shards
        self._turn_of_statement = count(1)
        self._asking = asyncio.Lock()
        # What calls of this machine hold in the database, by the ids of their reservations
        self._granted: dict[int, Decimal] = {}
        # What this machine knew to be spent before: the database has that as well
        self._brought: Decimal | None = None
        self._recorded_of_others = Decimal(0)

    @asynccontextmanager
    async def kept(self, least: Decimal) -> AsyncIterator[None]:
        """Look at what others have spent while the block goes on.

        `least` US dollars were spent before, as the lines of the batch say.
        """
        with suppress(ConductorError):  # the first call that wants room tells it
            await self._join(least)
        looking = asyncio.create_task(self._look_often())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(ConductorError):  # what is held there then counts in full
                await self._say()

    async def reserve(
        self, tokens_in: int, answer: int, price: Price | None, rank: int, usual: int = 0
    ) -> Reservation:
        """Wait for room for a call on all machines. Raises `StateUnavailable`, too."""
        await self._join(Decimal(0))
        while True:
            reservation = await super().reserve(tokens_in, answer, price, rank, usual)
            is_granted = False
            try:
                is_granted = not reservation.cost or await self._is_granted(reservation)
            finally:
                if not is_granted:
                    self.settle(reservation, NO_USAGE)
            if is_granted:
                return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        self._granted.pop(id(reservation), None)
        super().settle(reservation, usage)

    async def _join(self, least: Decimal) -> None:
        """Count what was spent before this machine shared the batch, once."""
        if self._brought is not None:
            return
        brought = self._spent_here
        await asyncio.to_thread(self.shards.begin_spending, max(brought, least))
        if self._brought is None:  # no other call has done it meanwhile
            self._brought = brought
        await self._say()

    async def _look_often(self) -> None:
        while True:
            await asyncio.sleep(COSTS_SECONDS)
            with suppress(ConductorError):  # the next time may be soon enough
                await self._say()

    async def _say(self) -> None:
        """Tell the database what this machine has spent and holds, and learn of the others."""
        async with self._asking:
            costs = await self._spend(Decimal(0), None)
        self._count_others(costs)

    async def _is_granted(self, reservation: Reservation) -> bool:
        """Return whether a call has room beside those of all machines; it then holds it."""
        async with self._asking:
            costs = await self._spend(reservation.cost, self.limit)
            if costs.is_granted:
                self._granted[id(reservation)] = reservation.cost
        self._count_others(costs, refused=not costs.is_granted)
        return costs.is_granted

    async def _spend(self, wanted: Decimal, limit: Decimal | None) -> SharedCosts:
        brought = self._brought or Decimal(0)
        held = sum(self._granted.values(), wanted)
        return await asyncio.to_thread(
            self.shards.spend,
            next(self._turn_of_statement),
            spent=self._spent_here - brought,
            held=held,
            limit=limit,
        )

    def _count_others(self, costs: SharedCosts, *, refused: bool = False) -> None:
        """Count what others have spent and hold, here and in the file of the budget."""
        spent = costs.others_spent - (self._brought or Decimal(0))
        if spent > self._recorded_of_others:
            self._write({"cost": str(spent - self._recorded_of_others)})
            self._recorded_of_others = spent
        if refused:
            spent += ROUNDING
        self._ledger.others_spent = spent
        self._ledger.others_held = costs.others_held
        self._admit()
