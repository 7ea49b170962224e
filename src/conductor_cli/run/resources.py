"""What a run and the runs nested in it share: the ledger, slots for calls, and which workers are down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

from conductor_cli.core.errors import Failure
from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Ledger, Reservation
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.models.base import Model
from conductor_cli.run.config import RunConfig

_NO_WAIT: Final[AbstractAsyncContextManager[None]] = nullcontext()


class RunResources:
    """One for each run that a user starts. A call that waits here holds nothing that another call needs to end."""

    def __init__(self, config: RunConfig) -> None:
        self.ledger = Ledger(config.limits)
        self.call_slots = asyncio.Semaphore(config.limits.parallel)
        """As many calls at once as the run allows; substitutes and nested runs need a slot too."""
        self._daily_spend = config.daily_spend
        self._down = dict(config.unavailable)
        self._settled = asyncio.Event()
        shared = config.turns
        self._model_semaphores = model_semaphores(config.pool, config.workers) if shared is None else shared

    @property
    def down(self) -> Mapping[str, Failure]:
        """Workers that are not asked again in this run, and why."""
        return self._down

    def mark_down(self, worker: str, why: Failure) -> None:
        self._down[worker] = why

    def turn(self, model: Model) -> AbstractAsyncContextManager[None]:
        """A turn on a model. A local one that both plans and works does one thing at a time.

        Waiting for a turn happens before the call, so that it does not count against the call's timeouts.
        """
        return self._model_semaphores.get(id(model), _NO_WAIT)

    async def reserve(self, tokens_in: int, answer: int, price: Price | None, *, call: bool = True) -> Reservation:
        """Reserve tokens and money for a call; wait where a running call may leave room. Raises `LimitReached`."""

        def decide(today: DayBudget) -> Reservation | None:
            return self.ledger.reserve(tokens_in, answer, price, call=call, today=today)

        spend = self._daily_spend
        while True:
            reservation = spend.reserve(decide, self.ledger.release) if spend else decide(NO_DAY_LIMITS)
            if reservation is not None:
                return reservation
            # There is no lock around this: nothing is awaited between looking for room and waiting for the event.
            self._settled.clear()
            await self._settled.wait()

    def settle(self, reservation: Reservation, usage: Usage, worker: Worker | None, *, cached: bool = False) -> None:
        """A call of `worker`, or of the conductor where that is None, has ended. Calls that wait for room look again.

        `cached`: the reply came from the response cache, so nothing was spent today.
        """
        self.ledger.settle(reservation, usage)
        if self._daily_spend:
            self._daily_spend.settle(reservation, NO_USAGE if cached else usage, worker)
        self._settled.set()


def model_semaphores(pool: Pool, models: Mapping[str, Model]) -> dict[int, asyncio.Semaphore]:
    """A semaphore for each model, by its `id`. Workers on one model share it; the narrowest of them sets its size."""
    widths: dict[int, int] = {}
    for worker in pool:
        if worker.name in models:
            key = id(models[worker.name])
            widths[key] = min(worker.parallel, widths.get(key, worker.parallel))
    return {key: asyncio.Semaphore(width) for key, width in widths.items()}
