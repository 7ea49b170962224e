"""What a run has reserved and spent. Reserve before a call starts, settle when it has ended.

A reservation holds the most that a call can use, so parallel calls cannot exceed a limit together.
If the longest answer does not fit, it is cut to what is left, as long as that is worth asking for.
The limits of a day work the same way, counting what other runs have spent and reserved today.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import Final, Literal

from conductor_cli.core.errors import LimitReached, LimitReason
from conductor_cli.core.formatting import format_count, format_money
from conductor_cli.core.pool import DayLimits, Limits
from conductor_cli.core.usage import MILLION, Price, Usage

WORTH_ASKING: Final = 256
"""An answer is not cut below this many tokens. A call that cannot have them waits, or the limit is
reached.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room for one call.

    `answer` tokens may be written, and `tokens` and `cost` count as used until it is settled.
    """

    answer: int
    tokens: int
    cost: Decimal
    call: bool
    # The limit that has cut `answer`; empty where all that was wanted is there
    cut: LimitReason | Literal[""] = ""


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

    def reserve(  # noqa: PLR0913 - each is part of what a call may use
        self,
        tokens_in: int,
        answer: int,
        price: Price | None,
        *,
        call: bool = True,
        whole: bool = False,
        today: DayBudget = NO_DAY_LIMITS,
    ) -> Reservation | None:
        """Return room for a call with `tokens_in` tokens of prompt and at most `answer` tokens of
        reply.

        Where a `whole` answer is wanted, it is cut only while no other call is running, which could
        leave it room. None: not now, but running calls may leave room. Raises `LimitReached` if
        they cannot.
        """
        limits = self._limits
        day = today.limits
        made = self._calls + sum(held.call for held in self._held)
        counted: list[tuple[int | None, int, str, LimitReason]] = [
            (limits.calls, made, "limit", "limit_calls"),
            (day.calls, today.calls, "today's limit", "limit_calls_day"),
        ]
        for most, so_far, name, reason in counted:
            if call and most is not None and so_far >= most:
                message = f"stopped: {name} of {format_count(most, 'call')}"
                raise LimitReached(message, reason=reason, suggested=str(2 * most))
        # A call that wants less than WORTH_ASKING in the first place needs only that much.
        least = min(answer, WORTH_ASKING)
        tokens = self.spent.tokens + sum(held.tokens for held in self._held)
        spent = sum((held.cost for held in self._held), self.spent.cost or Decimal(0))
        room = answer
        cut: LimitReason | Literal[""] = ""
        tightest: LimitReached | None = None
        # The limits of the run come before those of the day: the first that is too tight is the one
        # reported.
        used: list[tuple[Decimal | int | None, Decimal | int, str, LimitReason]] = [
            (limits.tokens, tokens, "limit", "limit_tokens"),
            (limits.cost, spent, "limit", "limit_cost"),
            (day.tokens, today.tokens, "today's limit", "limit_tokens_day"),
            (day.cost, today.cost, "today's limit", "limit_cost_day"),
        ]
        for limit, before, name, reason in used:
            # How many tokens of answer the limit leaves room for, and a value of it that would be
            # enough.
            if isinstance(limit, Decimal):
                amount = format_money(limit)
                needed = Decimal(0)
                left = answer
                if price is not None:
                    needed = price.most(tokens_in, least)
                    each = price.at(tokens_in).written
                    money = limit - before - price.most(tokens_in, 0)
                    left = -1 if money < 0 else int(money * MILLION / each) if each else answer
                enough = max(2 * limit, before + needed)
                # Rounded up to two significant digits.
                suggested = f"{enough.quantize(Decimal(1).scaleb(enough.adjusted() - 1), ROUND_UP).normalize():f}"
            elif limit is not None:
                left = limit - int(before) - tokens_in
                amount = format_count(limit, "token")
                suggested = str(max(2 * limit, int(before) + tokens_in + least))
            else:
                continue
            if left < room:
                room = left
                cut = reason
            if left < least and tightest is None:
                message = f"stopped: {name} of {amount}, no room for another call"
                tightest = LimitReached(message, reason=reason, suggested=suggested)
        if tightest is not None:
            # Running calls hold the most they may use; when they settle, some of that becomes free.
            if self._held:
                return None
            raise tightest
        if whole and room < answer and self._held:
            return None
        cost = Decimal(0) if price is None else price.most(tokens_in, room)
        reservation = Reservation(
            answer=room, tokens=tokens_in + room, cost=cost, call=call, cut=cut
        )
        self._held.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, usage: Usage) -> None:
        # What was reserved beyond the real usage is free again from here on.
        self._held.remove(reservation)
        self._calls += reservation.call
        self.spent = self.spent + usage

    def count(self, usage: Usage, calls: int) -> None:
        self._calls += calls
        self.spent = self.spent + usage

    def release(self, reservation: Reservation) -> None:
        self._held.remove(reservation)
