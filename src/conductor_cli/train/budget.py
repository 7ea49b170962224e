"""What a training spends on its workers, held to a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import LimitReached, ModelError
from conductor_cli.core.estimate import estimated_usage, prompt_tokens
from conductor_cli.core.formatting import format_money
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.pool import Limits, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.models.base import Features, Model
from conductor_cli.models.disk import AppendLog, read_lines
from conductor_cli.models.response_cache import HEARTBEAT


class TrainingBudget:
    """US dollars up to `limit` (None for no limit). A file remembers what earlier runs have spent.

    Before a call is made, the most that it can cost is reserved, so that parallel calls cannot exceed the limit
    together. `exhausted` is the error once the limit is reached, `write_error` the one if the file cannot be written.
    """

    def __init__(self, path: Path, limit: Decimal | None = None) -> None:
        """Read or create the file. A line that was cut off does not count. Raises `OSError`."""
        self.limit = limit
        self.exhausted: LimitReached | None = None
        self.write_error: OSError | None = None
        self._active = 0
        self._settled = asyncio.Event()
        self._log, self._path = AppendLog(path), path
        self.share(1)

    def share(self, processes: int) -> None:
        """Divide what the file says is left over the processes that write it. Call it while no call is active."""
        self.spent = sum(map(_read_cost, read_lines(self._path)), Decimal(0))
        left = None if self.limit is None else (self.limit - self.spent) / processes
        self._ledger = Ledger(Limits(cost=left))

    def reserve(self, request: Request, worker: Worker) -> Reservation | None:
        """Reserve a whole call. None: not now, but active calls may leave room. Raises `LimitReached`."""
        if self.exhausted is not None:
            raise self.exhausted
        wanted = request.max_tokens or WorkerProfile().max_tokens
        try:
            reservation = self._ledger.reserve(prompt_tokens(request.messages), wanted, worker.price)
        except LimitReached:
            raise self._exhaust() from None
        if reservation is not None and reservation.answer < wanted:
            # A shorter answer would be cached as the answer to the whole request.
            self._ledger.release(reservation)
            if not self._active:
                raise self._exhaust()
            reservation = None
        self._active += reservation is not None
        return reservation

    async def wait(self) -> None:
        """Wait until a call has ended, but no longer than a `HEARTBEAT`."""
        self._settled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT):
                await self._settled.wait()

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Record that a call has ended and what it used."""
        self._ledger.settle(reservation, usage)
        self._active -= 1
        self._settled.set()
        if usage.cost:
            self.spent += usage.cost
            try:
                self._log.append(json.dumps({"cost": str(usage.cost)}))
            except OSError as error:
                self.write_error = error

    def close(self) -> None:
        self._log.close()

    def _exhaust(self) -> LimitReached:
        limit = format_money(self.limit or Decimal(0))
        self.exhausted = LimitReached(
            f"the limit of {limit} leaves no room for another call: {format_money(self.spent)} are spent",
            hint="to continue, run the same command with a larger --max-cost",
        )
        return self.exhausted


def _read_cost(line: str) -> Decimal:
    with suppress(ValueError, TypeError, KeyError, InvalidOperation):
        return Decimal(json.loads(line)["cost"])
    return Decimal(0)


class BudgetedModel:
    """A worker's model whose calls are paid from a budget."""

    def __init__(self, model: Model, worker: Worker, budget: TrainingBudget) -> None:
        self._model = model
        self._worker = worker
        self._budget = budget

    @property
    def features(self) -> Features:
        return self._model.features

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The model's reply. Raises `ModelError` if the budget has no room for it."""
        try:
            while (reservation := self._budget.reserve(request, self._worker)) is None:
                yield Chunk()  # waiting for the budget must not count as silence of the model
                await self._budget.wait()
        except LimitReached as error:
            raise ModelError("refused", error.message, hint=error.hint) from None
        reported: Usage | None = None
        text, billable = "", True
        try:
            async with aclosing(self._model.stream(request)) as chunks:
                async for chunk in chunks:
                    reported, text = chunk.usage or reported, text + chunk.text + chunk.thinking
                    yield chunk
        except ModelError as error:
            reported = error.usage or reported
            # A call that failed before its first word is assumed to cost nothing. One that was cancelled is not: its
            # request has been sent.
            billable = reported is not None or bool(text)
            raise
        finally:
            usage = (reported or estimated_usage(request.messages, text)) if billable else NO_USAGE
            self._budget.settle(reservation, with_cost(usage, self._worker.price))

    async def close(self) -> None:
        """Close the model. Whoever opened the budget closes it."""
        await self._model.close()
