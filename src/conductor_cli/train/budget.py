"""What a training spends on its workers, over all its stages: counted call by call, and held to a limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from decimal import Decimal, InvalidOperation
from pathlib import Path

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import LimitReached, ModelError
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.pool import Limits, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.usage import NO_USAGE, Usage, with_cost
from conductor_cli.models.append_log import AppendLog, read_lines
from conductor_cli.models.base import Model
from conductor_cli.models.response_cache import HEARTBEAT
from conductor_cli.run.calls import estimated_tokens, estimated_usage


class TrainingBudget:
    """US dollars up to `limit`, None for no limit, of which a file knows what was spent before.

    A call is reserved with the most that it can cost before it is made, so calls in parallel cannot pass the limit
    together. `reached` says that it is used up.
    """

    def __init__(self, path: Path, limit: Decimal | None = None) -> None:
        """Read the file, or create it; lines that are cut off do not count. Raises `OSError`."""
        self.spent = sum(map(_cost_in, read_lines(path)), Decimal(0))
        self.limit = limit
        self.reached: LimitReached | None = None
        self.error: OSError | None = None
        self._ledger = Ledger(Limits(cost=None if limit is None else limit - self.spent))
        self._under_way = 0
        self._settled = asyncio.Event()
        self._journal = AppendLog(path)

    def reserve(self, request: Request, worker: Worker) -> Reservation | None:
        """Room for a whole call; None: not now, but calls under way may leave some. Raises `LimitReached`."""
        if self.reached is not None:
            raise self.reached
        wanted = request.max_tokens or WorkerProfile().max_tokens
        try:
            held = self._ledger.reserve(estimated_tokens(request.messages), wanted, worker.price)
        except LimitReached:
            raise self._used_up() from None
        if held is not None and held.answer < wanted:
            # A call that is cut short would be kept as the answer to the whole one.
            self._ledger.release(held)
            if not self._under_way:
                raise self._used_up()
            held = None
        self._under_way += held is not None
        return held

    async def wait(self) -> None:
        """Until a call has ended, or a `PULSE` is over."""
        self._settled.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARTBEAT):
                await self._settled.wait()

    def settle(self, held: Reservation, usage: Usage) -> None:
        """The call has ended, and cost `usage`. A disk that refuses to hold that shows in `error`."""
        self._ledger.settle(held, usage)
        self._under_way -= 1
        self._settled.set()
        if usage.cost:
            self.spent += usage.cost
            try:
                self._journal.append(json.dumps({"cost": str(usage.cost)}))
            except OSError as error:
                self.error = error

    def close(self) -> None:
        self._journal.close()

    def _used_up(self) -> LimitReached:
        said = f"the limit of ${self.limit} leaves no room for another call: ${self.spent:.2f} are spent"
        self.reached = LimitReached(said, hint="the same command with a larger --max-cost goes on")
        return self.reached


def _cost_in(line: str) -> Decimal:
    with suppress(ValueError, TypeError, KeyError, InvalidOperation):
        return Decimal(json.loads(line)["cost"])
    return Decimal(0)


class BudgetedModel:
    """A worker's model whose calls are paid from a purse."""

    def __init__(self, model: Model, worker: Worker, purse: TrainingBudget) -> None:
        self._model = model
        self._worker = worker
        self._purse = purse

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The model's reply. Raises `ModelError` where the purse has no room for it."""
        try:
            while (held := self._purse.reserve(request, self._worker)) is None:
                yield Chunk()  # to wait for others to settle is no silence of the model
                await self._purse.wait()
        except LimitReached as error:
            raise ModelError("refused", error.message, hint=error.hint) from None
        said, written, begun = None, "", True
        try:
            async with aclosing(self._model.stream(request)) as chunks:
                async for chunk in chunks:
                    said, written = chunk.usage or said, written + chunk.text + chunk.thinking
                    yield chunk
        except ModelError as error:
            said = error.usage or said
            begun = said is not None or bool(written)
            raise
        finally:
            used = (said or estimated_usage(request.messages, written)) if begun else NO_USAGE
            self._purse.settle(held, with_cost(used, self._worker.price))

    async def close(self) -> None:
        """Close the model; the purse is closed by whoever opened it."""
        await self._model.close()
