"""The budget of a job over several machines, whose calls are all counted by one actor."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from conductor_cli.app.ray_jobs import SILENT_SECONDS, JobControl, _Node
from conductor_cli.core.errors import Failure, LimitReached
from conductor_cli.core.ledger import Reservation
from conductor_cli.core.usage import Price, Usage
from conductor_cli.run.budget import CallBudget, read_spent

MOST = 1000  # Tokens of an answer, which costs a dollar then
PRICE = Price(input=Decimal(0), output=Decimal(1000))


class Actor:
    """An object whose methods are called as those of an actor of Ray: everything goes as bytes."""

    def __init__(self, target: JobControl) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return _Method(getattr(self._target, name))


@dataclass
class _Method:
    call: Callable[..., Any]

    def remote(self, *arguments: Any) -> asyncio.Future[Any]:
        outcome = self.call(*pickle.loads(pickle.dumps(arguments)))
        if asyncio.iscoroutine(outcome):
            return asyncio.ensure_future(outcome)
        result = asyncio.get_running_loop().create_future()
        result.set_result(outcome)
        return result


@dataclass(frozen=True)
class Result:
    cost: Decimal


@asynccontextmanager
async def opener(budget: CallBudget | None) -> AsyncIterator[Callable[[Any], Awaitable[Result]]]:
    """What is asked makes two calls, each of which uses all that it may."""
    assert budget is not None

    async def ask(row: Any) -> Result:
        spent = Decimal(0)
        for _ in range(2):
            reservation = await budget.reserve(0, MOST, PRICE, 0)
            await asyncio.sleep(0)
            budget.settle(reservation, Usage(cost=reservation.cost))
            spent += reservation.cost
        return Result(spent)

    yield ask


def release(node: _Node) -> None:
    """Leave nothing for the node to close when it is collected, after the loop has ended."""
    for task in node._watching:
        task.cancel()
    node._watching.clear()
    node._ask = None


def test_all_nodes_together_spend_no_cent_too_much(tmp_path: Path) -> None:
    record = tmp_path / "spent.jsonl"
    actor = Actor(JobControl(Decimal("7.5"), Decimal(1), Decimal(0), record))

    async def ask_all() -> list[Any]:
        nodes = [_Node(opener, actor) for _ in range(3)]
        rows = [pickle.dumps(number) for number in range(8)]
        batches = await asyncio.gather(
            *(node({"number": list(range(8)), "row": rows}) for node in nodes)
        )
        for node in nodes:
            release(node)
        results = chain.from_iterable(batch["result"] for batch in batches)
        return [pickle.loads(result) for result in results]

    results = asyncio.run(ask_all())
    assert Decimal("6.5") < read_spent(record)[0] <= Decimal("7.5")
    whole = [result for result in results if isinstance(result, Result)]
    assert whole
    assert all(
        result is None or isinstance(result, Result) or result.reason == "limit_cost_all"
        for result in results
    )


def test_what_a_dead_node_has_reserved_counts_as_spent() -> None:
    """Others do not wait for it for ever; and where it is alive after all, nothing counts twice."""
    now = 0.0
    budget = JobControl(Decimal(3), Decimal(0), Decimal(3), None, lambda: now)
    assert budget.start("dead")
    held = budget.reserve("dead", 0, MOST, PRICE)
    assert isinstance(held, Reservation)
    assert budget.start("alive") is None, "the first may cost all of it"
    now = SILENT_SECONDS + 1
    assert budget.start("alive")
    assert budget._budget.spent == Decimal(1)
    budget.settle("dead", held, Usage(cost=Decimal("0.5")))
    budget.finish("dead", Decimal("0.5"))
    assert budget._budget.spent == Decimal(1)
    for _ in range(2):
        room = budget.reserve("alive", 0, MOST, PRICE)
        assert isinstance(room, Reservation)
        budget.settle("alive", room, Usage(cost=Decimal(1)))
    failure = budget.reserve("alive", 0, MOST, PRICE)
    assert isinstance(failure, Failure)
    assert failure.reason == "limit_cost_all"
    assert budget.start("alive") is False


def test_a_call_without_room_is_told_on_its_node() -> None:
    actor = Actor(JobControl(Decimal("0.1"), Decimal(0), Decimal(0), None))

    async def ask() -> str:
        node = _Node(opener, actor)
        assert node._budget is not None
        try:
            await node._budget.reserve(0, MOST, PRICE, 0)
        except LimitReached as error:
            return error.reason
        return ""

    assert asyncio.run(ask()) == "limit_cost_all"


def test_a_stopped_job_asks_no_further_row_and_ends_what_is_under_way() -> None:
    control = JobControl(None, Decimal(0), Decimal(0), None)

    async def ask() -> list[Any]:
        node = _Node(opener_without_limit, Actor(control), False)
        first = asyncio.create_task(node({"number": [0], "row": [pickle.dumps(0)]}))
        await is_asked.wait()
        control.stop()
        second = await node({"number": [1], "row": [pickle.dumps(1)]})
        answer.set()
        results = [pickle.loads(batch["result"][0]) for batch in (await first, second)]
        release(node)
        return results

    is_asked = asyncio.Event()
    answer = asyncio.Event()

    @asynccontextmanager
    async def opener_without_limit(
        budget: CallBudget | None,
    ) -> AsyncIterator[Callable[[Any], Awaitable[Result]]]:
        assert budget is None

        async def wait(row: Any) -> Result:
            is_asked.set()
            await answer.wait()
            return Result(Decimal(row))

        yield wait

    assert asyncio.run(ask()) == [Result(Decimal(0)), None]


def test_a_cancelled_job_ends_rows_that_would_never_end() -> None:
    control = JobControl(None, Decimal(0), Decimal(0), None)
    is_asked = asyncio.Event()

    @asynccontextmanager
    async def opener_for_ever(
        budget: CallBudget | None,
    ) -> AsyncIterator[Callable[[Any], Awaitable[Result]]]:
        async def wait(row: Any) -> Result:
            is_asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        yield wait

    async def ask() -> Any:
        node = _Node(opener_for_ever, Actor(control), False)
        rows = asyncio.create_task(node({"number": [0], "row": [pickle.dumps(0)]}))
        await is_asked.wait()
        control.cancel()
        block = await rows
        release(node)
        return pickle.loads(block["result"][0])

    assert asyncio.run(ask()) is None
    assert not any(control._runs.values())
