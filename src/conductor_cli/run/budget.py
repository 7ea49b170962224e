"""What many runs may cost together.

Those of a batch, an evaluation, or a job over several machines.

Every call of every run reserves the most that it can cost before it is made, so that runs side by
side cannot exceed the limit together. A call without room waits while others may leave some, that
of the oldest run first. A file remembers what was reserved and what was spent, so that calls which
a kill has cut off count as well.
"""

from __future__ import annotations

import asyncio
import heapq
import json
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from conductor_cli.core.errors import Failure, LimitReached, describe_system_error
from conductor_cli.core.formatting import format_money
from conductor_cli.core.ledger import Ledger, Reservation
from conductor_cli.core.pool import Limits
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.system.disk import AppendLog, read_lines, write_atomically

RAISE_IT: Final = "raise --max-cost to go on"
MAX_RECORD_BYTES: Final = 1 << 20  # Of a file of a budget; about 14,000 calls


class CallBudget(Protocol):
    """What the calls of many runs are paid from."""

    async def reserve(
        self, tokens_in: int, answer: int, price: Price | None, rank: int, usual: int = 0
    ) -> Reservation:
        """Wait for room for a call. The calls of a run with a lower `rank` go first.

        The answer may be cut to what is left, and with `usual` tokens to its share of that
        (`Ledger.reserve`). Raises `LimitReached` where nothing is.
        """

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Count a call that has ended, with what it used."""


def limit_of_all(limit: Decimal, spent: Decimal) -> LimitReached:
    """Return the error of a call that has no room in the limit of all runs."""
    message = f"the limit of {format_money(limit)} for all runs has no room for another call"
    spent_so_far = f"{format_money(spent)} spent"
    return LimitReached(f"{message}: {spent_so_far}", hint=RAISE_IT, reason="limit_cost_all")


class _Waiting(NamedTuple):
    """A call that waits for room.

    `rank` is that of its run, and `turn` tells the calls of a run apart.
    """

    rank: int
    turn: int
    tokens_in: int
    answer: int
    price: Price | None
    usual: int
    room: asyncio.Future[Reservation]


class Budget:
    """US dollars up to `limit` (None for no limit); `spent` counts each call when it has ended.

    No call is made without room for the most that it can cost. Beside that, fewer runs start at
    once where not all of them would have room for their last calls: a run is assumed to cost as
    much as the most expensive one so far, and `expected` before one has ended. A run may always
    start alone.
    """

    def __init__(
        self,
        limit: Decimal | None = None,
        *,
        spent: Decimal = Decimal(0),
        expected: Decimal = Decimal(0),
    ) -> None:
        self.limit = limit
        self.record: Path | None = None
        # Why a run had no room, in this limit or one of the day
        self.reached: Failure | None = None
        self.unrecorded: Failure | None = None  # Why what a call costs could not be recorded
        self._expected = expected
        self._dearest: Decimal | None = None
        self._running = 0
        self._is_full = False
        self._ended = asyncio.Event()
        self._ledger = Ledger(Limits(cost=limit))
        self._ledger.count(Usage(cost=spent), 0)
        self._queue: list[_Waiting] = []
        self._turns = count()
        self._numbers = count(1)
        self._log: AppendLog | None = None
        self._logged: dict[Reservation, list[int]] = {}

    @property
    def spent(self) -> Decimal:
        return self._spent_here + self._ledger.others_spent

    @property
    def _spent_here(self) -> Decimal:
        return self._ledger.spent.cost or Decimal(0)

    @property
    def exhausted(self) -> bool:
        """Whether nothing more can be paid.

        The limit is reached, or a call had no room though no other was running.
        """
        return self.limit is not None and (self._is_full or self.spent >= self.limit)

    @property
    def per_run(self) -> Decimal:
        """What a run is assumed to cost."""
        if self._dearest is None:
            return self._expected
        return self._dearest

    # Runs

    def start(self) -> bool:
        """Return whether one more run may start now; if so, it counts as running."""
        fits = self.limit is None or self.spent + (self._running + 1) * self.per_run <= self.limit
        allowed = not self.exhausted and (fits or not self._running)
        self._running += allowed
        return allowed

    async def wait_start(self) -> bool:
        """Wait until one more run may start, which then counts as running.

        False where none may any more.
        """
        while not self.start():
            if self.exhausted:
                return False
            self._ended.clear()
            await self._ended.wait()
        return True

    def finish(self, cost: Decimal | None) -> None:
        """Note what a run that has ended has cost, if that is known. Its calls were counted."""
        self._running -= 1
        if cost:
            self._dearest = max(self._dearest or Decimal(0), cost)
        self._ended.set()

    def add(self, cost: Decimal | None) -> None:
        """Count what was spent elsewhere."""
        if cost:
            self._ledger.count(Usage(cost=cost), 0)
            self._write({"cost": str(cost)})
            self._admit()

    # Calls

    async def reserve(
        self, tokens_in: int, answer: int, price: Price | None, rank: int, usual: int = 0
    ) -> Reservation:
        if not self._queue:  # as mostly
            reservation = self.try_reserve(tokens_in, answer, price, usual)
            if reservation is not None:
                return reservation
        room: asyncio.Future[Reservation] = asyncio.get_running_loop().create_future()
        call = _Waiting(rank, next(self._turns), tokens_in, answer, price, usual, room)
        heapq.heappush(self._queue, call)
        self._admit()
        try:
            return await call.room
        except asyncio.CancelledError:
            if call in self._queue:
                self._queue.remove(call)
                heapq.heapify(self._queue)
            elif not call.room.cancelled() and call.room.exception() is None:
                self.settle(call.room.result(), NO_USAGE)
            self._admit()
            raise

    def try_reserve(
        self, tokens_in: int, answer: int, price: Price | None, usual: int = 0
    ) -> Reservation | None:
        """Return room for a call; None where running calls may leave some.

        Raises `LimitReached`.
        """
        try:
            reservation = self._ledger.reserve(tokens_in, answer, price, whole=True, usual=usual)
        except LimitReached:
            self._is_full = True
            self._ended.set()
            raise limit_of_all(self.limit or Decimal(0), self.spent) from None
        if reservation is not None and reservation.cost and self._log is not None:
            number = next(self._numbers)
            try:
                self._log.append(json.dumps({"holds": number, "cost": str(reservation.cost)}))
            except OSError as error:
                self._ledger.release(reservation)
                why = describe_system_error(error)
                message = f"what is spent cannot be recorded: {self._log.path}: {why}"
                hint = "free some space; the same command continues"
                refused = LimitReached(message, hint=hint, reason="limit_cost_all")
                self.unrecorded = refused.failure
                raise refused from None
            self._logged.setdefault(reservation, []).append(number)
        return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        self._ledger.settle(reservation, usage)
        if numbers := self._logged.get(reservation):
            ended = numbers.pop()
            if not numbers:
                del self._logged[reservation]
            self._write({"ends": ended, "cost": str(usage.cost or 0)})
        elif usage.cost:
            self._write({"cost": str(usage.cost)})
        self._admit()

    def _admit(self) -> None:
        """Give the calls that wait their room, in their order, as far as there is some."""
        while self._queue:
            call = self._queue[0]
            if call.room.done():  # it was cancelled
                heapq.heappop(self._queue)
                continue
            try:
                reservation = self.try_reserve(call.tokens_in, call.answer, call.price, call.usual)
            except LimitReached as error:
                heapq.heappop(self._queue)
                call.room.set_exception(error)
                continue
            if reservation is None:
                return
            heapq.heappop(self._queue)
            call.room.set_result(reservation)

    # The file

    def remember(self, record: Path) -> None:
        """Read what a file says is spent, and write all that is spent from now on there.

        The larger amount counts, where the file has another one. Only one process may have it open.
        Raises `OSError`.
        """
        if self.record == record:
            return
        recorded, numbers = read_spent(record)
        self._numbers = count(numbers + 1)
        self._log = AppendLog(record)
        self.record = record
        missing = self.spent - recorded
        if missing > 0:
            self._write({"cost": str(missing)})
        else:
            self._ledger.count(Usage(cost=-missing), 0)

    def read_again(self) -> None:
        """Take over what another process has written to the file meanwhile. Raises `OSError`."""
        if self.record is not None:
            recorded, _ = read_spent(self.record)
            self._ledger.count(Usage(cost=max(recorded - self.spent, Decimal(0))), 0)

    def close(self) -> None:
        """Close the file."""
        if self._log is not None:
            self._log.close()
        self._log = None
        self.record = None

    def _write(self, line: dict[str, str | int]) -> None:
        """Write what was spent.

        Where the disk refuses it, what was reserved before goes on to count.
        """
        if self._log is not None:
            with suppress(OSError):
                self._log.append(json.dumps(line))


def shorten_record(record: Path) -> None:
    """Let one line say what a long file of a budget says. No process may have it open.

    It has two lines for each call, and is read whole whenever its batch goes on.
    """
    with suppress(OSError):  # then it stays as it is
        if record.stat().st_size > MAX_RECORD_BYTES:
            spent, _ = read_spent(record)
            write_atomically(record, json.dumps({"cost": str(spent)}) + "\n", mode=0o600)


def read_spent(record: Path) -> tuple[Decimal, int]:
    """Return the US dollars in a file of a budget, and the highest number of a call in it.

    A call that has not ended counts as the most that it could cost. Raises `OSError`.
    """
    spent = Decimal(0)
    highest = 0
    held: dict[int, Decimal] = {}
    for text in read_lines(record):
        with suppress(ValueError, LookupError, TypeError, InvalidOperation):  # a kill cut it off
            line = json.loads(text)
            cost = Decimal(line["cost"])
            if not (cost.is_finite() and cost >= 0):
                continue
            if "holds" in line:
                highest = max(highest, int(line["holds"]))
                held[int(line["holds"])] = cost
                continue
            held.pop(int(line.get("ends", 0)), None)
            spent += cost
    return spent + sum(held.values(), Decimal(0)), highest
