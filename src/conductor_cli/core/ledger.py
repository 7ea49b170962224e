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
from conductor_cli.core.usage import MILLION, NO_USAGE, Price, Usage

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
    # It is cut to its share of what is left, and there is more
    is_share: bool = False


SHARES: Final = 8
"""A reply that may be as long as its model writes gets one of so many shares of what is left: as
many calls run side by side by default.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBudget:
    """The limits of a day, and what all runs together have spent and reserved today."""

    limits: DayLimits = DayLimits()
    cost: Decimal = Decimal(0)
    tokens: int = 0
    calls: int = 0


NO_DAY_LIMITS: Final = DayBudget()  # A day without limits


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedCall:
    """A call that asks for room: its tokens of prompt, and the most of answer that it wants."""

    tokens_in: int
    answer: int
    price: Price | None

    @property
    def least_answer(self) -> int:
        """A call that wants less than `WORTH_ASKING` in the first place needs only that much."""
        return min(self.answer, WORTH_ASKING)

    def cost_with_answer(self, answer: int) -> Decimal:
        """Return the most that the call can cost with so many tokens of answer; 0 if unpriced."""
        if self.price is None:
            return Decimal(0)
        return self.price.most(self.tokens_in, answer)


@dataclass(frozen=True, slots=True)
class _TokenLimit:
    """A limit on tokens, and what of it is used or reserved."""

    limit: int
    used: int
    name: str
    reason: LimitReason

    @property
    def amount(self) -> str:
        return format_count(self.limit, "token")

    def room_for_answer(self, call: _WantedCall) -> int:
        return self.limit - self.used - call.tokens_in

    def suggested_value(self, call: _WantedCall) -> str:
        """Return a value of the limit that would be enough for the call."""
        needed = call.tokens_in + call.least_answer
        return str(max(2 * self.limit, self.used + needed))


@dataclass(frozen=True, slots=True)
class _CostLimit:
    """A limit on money, and what of it is spent or reserved."""

    limit: Decimal
    used: Decimal
    name: str
    reason: LimitReason

    @property
    def amount(self) -> str:
        return format_money(self.limit)

    def room_for_answer(self, call: _WantedCall) -> int:
        """So many tokens of answer can be paid for; less than 0 where the prompt cannot."""
        if call.price is None:
            return call.answer
        money = self.limit - self.used - call.cost_with_answer(0)
        if money < 0:
            return -1
        price_of_answer = call.price.at(call.tokens_in).written
        if not price_of_answer:
            return call.answer
        return int(money * MILLION / price_of_answer)

    def suggested_value(self, call: _WantedCall) -> str:
        """Return a limit that would be enough, rounded up to two significant digits."""
        needed = call.cost_with_answer(call.least_answer)
        enough = max(2 * self.limit, self.used + needed)
        second_digit = Decimal(1).scaleb(enough.adjusted() - 1)
        return f"{enough.quantize(second_digit, ROUND_UP).normalize():f}"


class Ledger:
    """One per run, shared with the runs nested in it. `calls` counts calls to workers."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: list[Reservation] = []
        self._calls = 0
        self.spent = NO_USAGE
        self.others_spent = Decimal(0)
        """US dollars that others have spent of the same limit on cost, such as other machines."""
        self.others_held = Decimal(0)
        """What their calls under way may cost, of which some may become free."""

    def reserve(  # noqa: PLR0913 - each is part of what a call may use
        self,
        tokens_in: int,
        answer: int,
        price: Price | None,
        *,
        call: bool = True,
        whole: bool = False,
        usual: int = 0,
        today: DayBudget = NO_DAY_LIMITS,
    ) -> Reservation | None:
        """Return room for a call of `tokens_in` prompt tokens and at most `answer` reply tokens.

        With `usual`, nobody asked for as many as `answer`: a reply then gets only its share of what
        a limit leaves, and at least so many tokens, so that calls side by side all have room. Where
        a `whole` answer is wanted, it is cut only while no other call is running, which could leave
        it room. None: not now, but running calls may leave room. Raises `LimitReached` if they
        cannot.
        """
        if call:
            self._check_call_limits(today)
        wanted = _WantedCall(tokens_in=tokens_in, answer=answer, price=price)
        limits = self._limits_of_size(today)
        share, cut = _share_of(limits, wanted, usual)
        room = share
        tightest: _TokenLimit | _CostLimit | None = None
        for limit in limits:
            left = limit.room_for_answer(wanted)
            if left < room:
                room = left
                cut = limit.reason
            if left < wanted.least_answer and tightest is None:
                tightest = limit
        if tightest is not None:
            # Running calls hold the most they may use; when they settle, some of that becomes free.
            if self._are_calls_under_way:
                return None
            raise LimitReached(
                f"stopped: {tightest.name} of {tightest.amount}, no room for another call",
                reason=tightest.reason,
                suggested=tightest.suggested_value(wanted),
            )
        if whole and room < share and self._are_calls_under_way:
            return None
        reservation = Reservation(
            answer=room,
            tokens=tokens_in + room,
            cost=wanted.cost_with_answer(room),
            call=call,
            cut=cut,
            is_share=room == share < answer,
        )
        self._held.append(reservation)
        return reservation

    @property
    def _are_calls_under_way(self) -> bool:
        """Whether a call has not ended yet, here or of others."""
        return bool(self._held) or self.others_held > 0

    def _check_call_limits(self, today: DayBudget) -> None:
        """Raise `LimitReached` where the run or the day has no call left."""
        made = self._calls + sum(held.call for held in self._held)
        counted: list[tuple[int | None, int, str, LimitReason]] = [
            (self._limits.calls, made, "limit", "limit_calls"),
            (today.limits.calls, today.calls, "today's limit", "limit_calls_day"),
        ]
        for most, so_far, name, reason in counted:
            if most is not None and so_far >= most:
                message = f"stopped: {name} of {format_count(most, 'call')}"
                raise LimitReached(message, reason=reason, suggested=str(2 * most))

    def _limits_of_size(self, today: DayBudget) -> list[_TokenLimit | _CostLimit]:
        """Return the limits that are set on tokens and on cost.

        Those of the run come before those of the day: the first that is too tight is reported.
        """
        tokens = self.spent.tokens + sum(held.tokens for held in self._held)
        cost = sum((held.cost for held in self._held), self.spent.cost or Decimal(0))
        cost += self.others_spent + self.others_held
        limits: list[_TokenLimit | _CostLimit] = []
        if self._limits.tokens is not None:
            limits.append(_TokenLimit(self._limits.tokens, tokens, "limit", "limit_tokens"))
        if self._limits.cost is not None:
            limits.append(_CostLimit(self._limits.cost, cost, "limit", "limit_cost"))
        day = today.limits
        if day.tokens is not None:
            limits.append(
                _TokenLimit(day.tokens, today.tokens, "today's limit", "limit_tokens_day")
            )
        if day.cost is not None:
            limits.append(_CostLimit(day.cost, today.cost, "today's limit", "limit_cost_day"))
        return limits

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


def _share_of(
    limits: list[_TokenLimit | _CostLimit], call: _WantedCall, usual: int
) -> tuple[int, LimitReason | Literal[""]]:
    """Return how many tokens of answer a call may have beside others, and the limit that says so.

    That is all that it wants without `usual`, and at least `usual` with it.
    """
    share = call.answer
    cut: LimitReason | Literal[""] = ""
    if not usual:
        return share, cut
    for limit in limits:
        share_of_limit = max(limit.room_for_answer(call) // SHARES, usual)
        if share_of_limit < share:
            share = share_of_limit
            cut = limit.reason
    return share, cut
