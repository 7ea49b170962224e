"""What a run has reserved and spent. Reserve before a call starts, settle when it has ended.

A reservation holds the most that a call can use, so calls in parallel cannot overshoot a limit together. Where the
whole wish does not fit, the answer is cut to what is left, as long as that is worth asking for.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from conductor_cli.core.errors import LimitReached
from conductor_cli.core.pool import Limits
from conductor_cli.core.usage import MILLION, Price, Usage

WORTH_ASKING: Final = 256
"""An answer is not cut below so many tokens; a call that cannot have them waits, or the limit is reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room for one call: so many tokens of answer, counted as so many tokens and dollars until it is settled."""

    answer: int
    tokens: int
    cost: Decimal
    call: bool


class Ledger:
    """One per run, shared with the runs nested in it. `calls` counts calls to workers."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: list[Reservation] = []
        self._calls = 0
        self.spent = Usage()

    def reserve(self, tokens_in: int, answer: int, price: Price | None, *, call: bool = True) -> Reservation | None:
        """Room for a call of `tokens_in` tokens and at most `answer` tokens of reply.

        None: not now, but calls that are running may leave room. Raises `LimitReached` when no room can come.
        """
        self._check_calls(call=call)
        room = min(answer, self._tokens_left() - tokens_in, self._affordable(tokens_in, price))
        if room < min(answer, WORTH_ASKING):
            if self._held:
                return None
            raise LimitReached(self._reason(tokens_in, answer), hint="raise the limit and resume the run")
        reservation = Reservation(answer=room, tokens=tokens_in + room, cost=_cost(tokens_in, room, price), call=call)
        self._held.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """The call has ended and cost `usage`."""
        self._held.remove(reservation)
        self._calls += reservation.call
        self.spent = self.spent + usage

    def _check_calls(self, *, call: bool) -> None:
        limit = self._limits.calls
        running = sum(held.call for held in self._held)
        if call and limit is not None and self._calls + running >= limit:
            said = f"the limit of {limit} worker calls is reached"
            raise LimitReached(said, hint="raise --max-calls and resume the run")

    def _tokens_left(self) -> int:
        if self._limits.tokens is None:
            return 1 << 62
        return self._limits.tokens - self.spent.tokens - sum(held.tokens for held in self._held)

    def _affordable(self, tokens_in: int, price: Price | None) -> int:
        """How many tokens of answer the money that is left can pay."""
        if self._limits.cost is None or price is None:
            return 1 << 62
        spent = self.spent.cost or Decimal(0)
        left = self._limits.cost - spent - sum((held.cost for held in self._held), Decimal(0))
        left -= _cost(tokens_in, 0, price)
        if left < 0:
            return -1
        return int(left * MILLION / price.output) if price.output else 1 << 62

    def _reason(self, tokens_in: int, answer: int) -> str:
        if self._tokens_left() - tokens_in < min(answer, WORTH_ASKING):
            return f"the limit of {self._limits.tokens} tokens leaves no room for another call"
        return f"the limit of ${self._limits.cost} leaves no room for another call"


def _cost(tokens_in: int, tokens_out: int, price: Price | None) -> Decimal:
    if price is None:
        return Decimal(0)
    return (tokens_in * price.input + tokens_out * price.output) / MILLION
