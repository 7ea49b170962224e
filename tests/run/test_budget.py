"""What many runs may cost together.

The oldest goes first, nothing without room, and a record of what a kill cut.
"""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.core.errors import LimitReached
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.run.budget import Budget, read_spent

MOST = 1000  # Tokens of an answer, which costs a dollar then
PRICE = Price(input=Decimal(0), output=Decimal(1000))


def used(dollars: str) -> Usage:
    return Usage(cost=Decimal(dollars))


def test_the_oldest_run_that_waits_goes_first() -> None:
    order = list[int]()

    async def call(budget: Budget, rank: int) -> None:
        reservation = await budget.reserve(0, MOST, PRICE, rank)
        order.append(rank)
        await asyncio.sleep(0)
        budget.settle(reservation, used("0.1"))

    async def all_at_once() -> None:
        budget = Budget(Decimal("1.5"))
        held = await budget.reserve(0, MOST, PRICE, 0)
        calls = [asyncio.create_task(call(budget, rank)) for rank in (3, 1, 2)]
        await asyncio.sleep(0)
        assert not order
        budget.settle(held, used("0.1"))
        await asyncio.gather(*calls)
        assert budget.spent == Decimal("0.4")

    asyncio.run(all_at_once())
    assert order == [1, 2, 3]


def test_a_call_that_is_cancelled_while_it_waits_holds_nothing() -> None:

    async def cancelled() -> None:
        budget = Budget(Decimal(1))
        held = await budget.reserve(0, MOST, PRICE, 0)
        waiting = asyncio.create_task(budget.reserve(0, MOST, PRICE, 1))
        granted = asyncio.create_task(budget.reserve(0, MOST, PRICE, 2))
        await asyncio.sleep(0)
        waiting.cancel()
        budget.settle(held, NO_USAGE)
        granted.cancel()  # it has its room by now, and does not know it
        await asyncio.gather(waiting, granted, return_exceptions=True)
        assert (await budget.reserve(0, MOST, PRICE, 3)).answer == MOST

    asyncio.run(cancelled())


def test_an_answer_is_cut_only_for_a_call_that_is_alone() -> None:

    async def cut() -> None:
        budget = Budget(Decimal("1.5"))
        held = await budget.reserve(0, MOST, PRICE, 0)
        assert budget.try_reserve(0, MOST, PRICE) is None
        budget.settle(held, used("1"))
        last = await budget.reserve(0, MOST, PRICE, 0)
        assert last.answer == 500
        budget.settle(last, used("0.5"))
        with pytest.raises(LimitReached, match="no room for another call") as caught:
            await budget.reserve(0, MOST, PRICE, 0)
        assert caught.value.reason == "limit_cost_all"
        assert not await budget.wait_start()

    asyncio.run(cut())


def test_calls_that_did_not_end_count_as_the_most_that_they_could_cost(tmp_path: Path) -> None:
    record = tmp_path / "spent.jsonl"

    async def killed() -> None:
        budget = Budget()
        budget.remember(record)
        first = await budget.reserve(0, MOST, PRICE, 0)
        second = await budget.reserve(0, MOST // 2, PRICE, 0)
        budget.settle(second, used("0.125"))
        budget.add(Decimal("0.25"))
        assert first.cost == 1

    asyncio.run(killed())
    with record.open("a") as file:
        file.write('\n{"cost": "-3"}\n{"cost": "NaN"}\n{"cost": "1e')
    assert read_spent(record)[0] == Decimal("1.375")
    again = Budget(Decimal(5), spent=Decimal(1))
    again.remember(record)
    assert again.spent == Decimal("1.375")
    again.close()
    resumed = Budget(Decimal(5), spent=Decimal(2))
    resumed.remember(record)
    assert (resumed.spent, read_spent(record)[0]) == (Decimal(2), Decimal(2))


def test_where_nothing_can_be_recorded_nothing_is_asked(tmp_path: Path) -> None:

    async def full() -> None:
        budget = Budget(Decimal(5))
        budget.remember(tmp_path / "spent.jsonl")
        assert budget._log is not None
        budget._log.close()  # writing to it fails from now on
        with pytest.raises(LimitReached, match="cannot be recorded"):
            await budget.reserve(0, MOST, PRICE, 0)

    asyncio.run(full())
