"""What a run and the runs nested in it have in common: the ledger, places for calls, and which workers are down."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

from conductor_cli.core.ledger import NO_DAY_LIMITS, DayBudget, Ledger, Reservation
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.models.base import Model
from conductor_cli.run.config import RunConfig


class RunResources:
    """One for each run that a user starts. Whoever waits here holds nothing that another call needs to end."""

    def __init__(self, setting: RunConfig) -> None:
        limits = setting.limits
        self.ledger = Ledger(limits)
        self._daily_spend = setting.daily_spend
        self.down = dict(setting.absent)
        """Workers that need not be asked again, and why."""
        self._settled = asyncio.Event()
        self.places = asyncio.Semaphore(limits.parallel)
        """As many calls at once as the run allows; substitutes and nested runs need a place too."""
        self._of_model = model_semaphores(setting.pool, setting.workers) if setting.turns is None else setting.turns

    def turn(self, model: Model) -> AbstractAsyncContextManager[None]:
        """A turn on a model: a local one that plans and works does one thing at a time, and waiting is no silence."""
        return self._of_model.get(id(model), _NO_TURN)

    async def reserve(self, tokens_in: int, answer: int, price: Price | None, *, call: bool = True) -> Reservation:
        """Room in the ledger; waits where a running call that settles may make some. Raises `LimitReached`."""

        def decide(today: DayBudget) -> Reservation | None:
            return self.ledger.reserve(tokens_in, answer, price, call=call, today=today)

        book = self._daily_spend
        while (reservation := book.reserve(decide, self.ledger.release) if book else decide(NO_DAY_LIMITS)) is None:
            self._settled.clear()
            await self._settled.wait()
        return reservation

    def settle(self, reservation: Reservation, usage: Usage, worker: Worker | None, *, kept: bool = False) -> None:
        """A call of `worker`, or of the conductor where that is None, has ended: whoever waits for room looks again.

        `kept`: the reply was made before, and nothing is spent on it now.
        """
        self.ledger.settle(reservation, usage)
        if self._daily_spend:
            self._daily_spend.settle(reservation, NO_USAGE if kept else usage, worker)
        self._settled.set()


_NO_TURN: AbstractAsyncContextManager[None] = nullcontext()


def model_semaphores(pool: Pool, models: Mapping[str, Model]) -> dict[int, asyncio.Semaphore]:
    """Turns by the `id` of a model: workers on one model share them, as many as the narrowest of these allows."""
    widths: dict[int, int] = {}
    for worker in pool:
        if worker.name in models:
            key = id(models[worker.name])
            widths[key] = min(worker.parallel, widths.get(key, worker.parallel))
    return {key: asyncio.Semaphore(width) for key, width in widths.items()}
