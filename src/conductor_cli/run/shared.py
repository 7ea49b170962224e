"""What a run and the runs nested in it have in common: the ledger, places for calls, and which workers are down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from conductor_cli.core.errors import Failure
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.pool import Limits, Pool, Price, Usage


class Shared:
    """One for each run that a user starts. Whoever waits here holds nothing that another call needs to end."""

    def __init__(self, pool: Pool, limits: Limits, absent: Mapping[str, Failure]) -> None:
        self.ledger = Ledger(limits)
        self.down = dict(absent)
        """Workers that need not be asked again, and why."""
        self._settled = asyncio.Event()
        self._places = asyncio.Semaphore(limits.parallel)
        self._of_worker = {worker.name: asyncio.Semaphore(worker.parallel) for worker in pool}

    @asynccontextmanager
    async def place(self, worker: str) -> AsyncIterator[None]:
        """One of the places for calls, of the run and of this worker. Substitutes and nested runs need one too."""
        async with self._of_worker[worker], self._places:
            yield

    async def reserve(self, tokens_in: int, answer: int, price: Price | None, *, call: bool = True) -> Reservation:
        """Room in the ledger; waits where a running call that settles may make some. Raises `LimitReached`."""
        while (reservation := self.ledger.reserve(tokens_in, answer, price, call=call)) is None:
            self._settled.clear()
            await self._settled.wait()
        return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """A call has ended: whoever waits for room looks again."""
        self.ledger.settle(reservation, usage)
        self._settled.set()
