"""What calls reserve of the limits of a run and of a day, before anything is spent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from conductor_cli.core.errors import LimitReached
from conductor_cli.core.ledger import DayBudget, Ledger, Reservation
from conductor_cli.core.pool import DayLimits, Limits
from conductor_cli.core.usage import Price, Usage, with_cost

DEAR = Price(input=Decimal(1), output=Decimal(10))
FREE_INPUT = Price(input=Decimal(0), output=Decimal(10))
FREE_OUTPUT = Price(input=Decimal(1), output=Decimal(0))


def used(tokens_in: int = 0, tokens_out: int = 0, price: Price | None = None) -> Usage:
    return with_cost(Usage(tokens_in=tokens_in, tokens_out=tokens_out, calls=1), price)


def room_in(
    ledger: Ledger, tokens_in: int, answer: int, price: Price | None = None, **options: Any
) -> Reservation:
    """The reservation of a call that fits."""
    room = ledger.reserve(tokens_in, answer, price, **options)
    assert room is not None
    return room


def test_what_does_not_fit_waits_while_others_may_leave_room() -> None:
    ledger = Ledger(Limits(tokens=1000))
    first = room_in(ledger, 100, 4096)
    assert ledger.reserve(100, 4096, None) is None
    ledger.settle(first, used(100, 50))
    assert room_in(ledger, 100, 4096).answer == 750


def test_where_no_room_can_come_the_limit_is_reached() -> None:
    ledger = Ledger(Limits(tokens=1000))
    with pytest.raises(
        LimitReached, match="stopped: limit of 1,000 tokens, no room for another call"
    ):
        ledger.reserve(900, 4096, None)
    dear = Ledger(Limits(cost=Decimal("0.001"), tokens=10_000))
    with pytest.raises(LimitReached, match=r"stopped: limit of \$0.0010, no room for another call"):
        dear.reserve(100, 4096, DEAR)
    small = Ledger(Limits(cost=Decimal("0.0001"), tokens=250))
    with pytest.raises(LimitReached, match=r"limit of \$0.0001"):
        small.reserve(100, 50, DEAR)


def test_a_short_wish_needs_no_more_than_itself() -> None:
    assert room_in(Ledger(Limits(tokens=150)), 100, 50).answer == 50
    with pytest.raises(LimitReached):
        Ledger(Limits(tokens=149)).reserve(100, 50, None)


def test_money_bounds_what_is_read_and_what_is_written() -> None:
    room = room_in(Ledger(Limits(cost=Decimal("0.01"))), 1000, 4096, DEAR)
    assert (room.answer, room.cost) == (900, Decimal("0.01"))
    with pytest.raises(LimitReached):
        Ledger(Limits(cost=Decimal("0.01"))).reserve(10_001, 4096, DEAR)
    for price, answer in ((FREE_INPUT, 1000), (FREE_OUTPUT, 4096)):
        assert room_in(Ledger(Limits(cost=Decimal("0.01"))), 1000, 4096, price).answer == answer


def test_a_reservation_holds_the_most_that_tokens_may_cost() -> None:
    price = Price(
        input=Decimal(1),
        output=Decimal(10),
        cached=Decimal("0.1"),
        stored=Decimal(2),
        reasoning=Decimal(30),
        longer=(Price(input=Decimal(5), output=Decimal(50), above=1000),),
    )
    ledger = Ledger(Limits(cost=Decimal(1)))
    assert room_in(ledger, 1000, 1000, price).cost == Decimal("0.032")
    assert room_in(ledger, 1001, 1000, price).cost == Decimal(5 * 1001 + 50 * 1000) / 1_000_000


def test_a_limit_suggests_an_amount_that_is_enough() -> None:
    cases = [
        (Limits(cost=Decimal("1E-4")), ("limit_cost", "0.0027")),
        (Limits(cost=Decimal("0.0015")), ("limit_cost", "0.003")),
        (Limits(tokens=10), ("limit_tokens", "356")),
        (Limits(tokens=300), ("limit_tokens", "600")),
    ]
    for limits, expected in cases:
        with pytest.raises(LimitReached) as caught:
            Ledger(limits).reserve(100, 1000, DEAR)
        assert (caught.value.reason, caught.value.suggested_limit) == expected


def test_a_day_is_held_beside_the_run() -> None:
    today = DayBudget(
        limits=DayLimits(cost=Decimal("0.02"), tokens=5000), cost=Decimal("0.009"), tokens=3000
    )
    assert room_in(Ledger(Limits(tokens=9000)), 1000, 4096, DEAR, today=today).answer == 1000
    with pytest.raises(LimitReached, match="today's limit of 5,000 tokens"):
        Ledger(Limits()).reserve(1900, 4096, DEAR, today=today)
    with pytest.raises(LimitReached, match=r"today's limit of \$0.02"):
        Ledger(Limits()).reserve(
            100, 4096, DEAR, today=DayBudget(limits=today.limits, cost=Decimal("0.019"))
        )


def test_a_reply_as_long_as_its_model_writes_gets_its_share_of_a_limit() -> None:
    """So calls side by side all have room, and none has less than is usual."""
    ledger = Ledger(Limits(cost=Decimal("0.80")))
    first = room_in(ledger, 0, 100_000, DEAR, usual=4096)
    assert (first.answer, first.is_share, first.cut) == (10_000, True, "limit_cost")
    assert room_in(ledger, 0, 100_000, DEAR, usual=4096).answer == 8750
    small = Ledger(Limits(tokens=10_000))
    assert room_in(small, 0, 100_000, usual=4096).answer == 4096
    assert room_in(small, 0, 100_000, usual=4096).answer == 4096
    rest = room_in(small, 0, 100_000, usual=4096)
    assert (rest.answer, rest.is_share) == (1808, False)


def test_a_share_needs_not_wait_for_calls_that_run() -> None:
    ledger = Ledger(Limits(tokens=80_000))
    held = room_in(ledger, 0, 100_000, usual=4096, whole=True)
    assert (held.answer, held.is_share) == (10_000, True)
    assert room_in(ledger, 0, 100_000, usual=4096, whole=True).is_share
    assert ledger.reserve(0, 100_000, None, whole=True) is None


def test_without_a_limit_a_reply_may_be_as_long_as_its_model_writes() -> None:
    room = room_in(Ledger(Limits()), 0, 100_000, DEAR, usual=4096)
    assert (room.answer, room.is_share, room.cut) == (100_000, False, "")
