"""What a run has reserved and spent. Reserve before a call starts, settle when it has ended.

A reservation holds the most that a call can use, so parallel calls cannot exceed a limit together. If the longest
answer does not fit, it is cut to what is left, as long as that is worth asking for. The limits of a day work the same
way, counting what other runs have spent and reserved today.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import Final, NamedTuple

from conductor_cli.core.errors import LimitReached, LimitReason
from conductor_cli.core.formatting import format_count, format_money
from conductor_cli.core.pool import DayLimits, Limits
from conductor_cli.core.usage import MILLION, Price, Usage

WORTH_ASKING: Final = 256
"""An answer is not cut below this many tokens. A call that cannot have them waits, or the limit is reached."""

_PLENTY: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room for one call: `answer` tokens may be written, and `tokens` and `cost` count as used until it is settled."""

    answer: int
    tokens: int
    cost: Decimal
    call: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBudget:
    """The limits of a day, and what all runs together have spent and reserved today."""

    limits: DayLimits = DayLimits()
    cost: Decimal = Decimal(0)
    tokens: int = 0
    calls: int = 0


NO_DAY_LIMITS: Final = DayBudget()  # A day without limits


class Ledger:
    """One per run, shared with the runs nested in it. `calls` counts calls to workers."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: list[Reservation] = []
        self._calls = 0
        self.spent = Usage()

    def reserve(
        self, tokens_in: int, answer: int, price: Price | None, *, call: bool = True, today: DayBudget = NO_DAY_LIMITS
    ) -> Reservation | None:
        """Return room for a call with `tokens_in` tokens of prompt and at most `answer` tokens of reply.

        None: not now, but running calls may leave room. Raises `LimitReached` if they cannot.
        """
        used = self._calls + sum(held.call for held in self._held)
        counted: list[tuple[int | None, int, str, LimitReason]] = [
            (self._limits.calls, used, "limit", "limit_calls"),
            (today.limits.calls, today.calls, "today's limit", "limit_calls_day"),
        ]
        for limit, made, name, reason in counted:
            if call and limit is not None and made >= limit:
                message = f"stopped: {name} of {format_count(limit, 'call')}"
                raise LimitReached(message, reason=reason, suggested=str(2 * limit))
        # A call that wants less than WORTH_ASKING in the first place needs only that much.
        least = min(answer, WORTH_ASKING)
        bounds = list(self._bounds(tokens_in, least, price, today))
        room = min([answer, *(bound.room for bound in bounds)])
        if room < least:
            # Running calls hold the most they may use; when they settle, some of that becomes free.
            if self._held:
                return None
            # The limits of the run come before those of the day.
            tightest = next(bound for bound in bounds if bound.room < least)
            message = f"stopped: {tightest.limit}, no room for another call"
            raise LimitReached(message, reason=tightest.reason, suggested=tightest.suggested)
        cost = Decimal(0) if price is None else price.most(tokens_in, room)
        reservation = Reservation(answer=room, tokens=tokens_in + room, cost=cost, call=call)
        self._held.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        """The call has ended and cost `usage`."""
        # What was reserved beyond the real usage is free again from here on.
        self._held.remove(reservation)
        self._calls += reservation.call
        self.spent = self.spent + usage

    def count(self, usage: Usage, calls: int) -> None:
        """Count what was used before this ledger was there, with so many calls to workers."""
        self._calls += calls
        self.spent = self.spent + usage

    def release(self, reservation: Reservation) -> None:
        """The call is not made after all."""
        self._held.remove(reservation)

    def _bounds(self, tokens_in: int, least: int, price: Price | None, today: DayBudget) -> Iterator[_Bound]:
        """How many tokens of answer each limit leaves room for; the first that is too tight is the one reported."""
        limits, day = self._limits, today.limits
        tokens = self.spent.tokens + sum(held.tokens for held in self._held)
        cost = sum((held.cost for held in self._held), self.spent.cost or Decimal(0))
        used: list[tuple[Decimal | int | None, Decimal | int, str, LimitReason]] = [
            (limits.tokens, tokens, "limit", "limit_tokens"),
            (limits.cost, cost, "limit", "limit_cost"),
            (day.tokens, today.tokens, "today's limit", "limit_tokens_day"),
            (day.cost, today.cost, "today's limit", "limit_cost_day"),
        ]
        for limit, before, name, reason in used:
            if isinstance(limit, Decimal):
                room, amount = _affordable(limit - before, tokens_in, price), format_money(limit)
                needed = Decimal(0) if price is None else price.most(tokens_in, least)
                most = max(2 * limit, before + needed)
                # Rounded up to two significant digits.
                suggested = f"{most.quantize(Decimal(1).scaleb(most.adjusted() - 1), ROUND_UP).normalize():f}"
            elif limit is not None:
                room, amount = limit - int(before) - tokens_in, format_count(limit, "token")
                suggested = str(max(2 * limit, int(before) + tokens_in + least))
            else:
                continue
            yield _Bound(room, f"{name} of {amount}", reason, suggested)


def _affordable(left: Decimal, tokens_in: int, price: Price | None) -> int:
    """Return how many tokens of answer the money that is left can pay, after the prompt."""
    if price is None:
        return _PLENTY
    left -= price.most(tokens_in, 0)
    if left < 0:
        return -1
    each = price.at(tokens_in).written
    return int(left * MILLION / each) if each else _PLENTY


class _Bound(NamedTuple):
    """How many tokens of answer one limit leaves room for, and a value of the limit that would be enough."""

    room: int
    limit: str
    reason: LimitReason
    suggested: str
