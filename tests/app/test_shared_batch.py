"""A batch that several machines work on.

Each question is asked once, and each machine has every answer.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app.batches import (
    BatchItem,
    BatchProgress,
    BatchResult,
    ParallelAsker,
    failed_path,
    open_batch,
    run_batch,
    shared,
    shared_budget,
)
from conductor_cli.app.batches.shared import SharedQuestions, batch_hash, shard_count
from conductor_cli.app.batches.shared_budget import SharedBudget
from conductor_cli.core.errors import ConductorError, Failure, LimitReached
from conductor_cli.core.usage import Price, Usage
from conductor_cli.state.postgres.database import Database
from conductor_cli.state.postgres.records import SharedBatch
from tests.state.cluster import Cluster
from tests.state.conftest import postgres

__all__ = ["postgres"]

COUNT = 53
EACH = 5
TEN_CENTS = Price(input=Decimal(0), output=Decimal(100))  # for an answer of 1000 tokens
Ask = Callable[[BatchItem], Awaitable[BatchResult]]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "SHARD_QUESTIONS", EACH)
    monkeypatch.setattr(shared, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(shared, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(shared_budget, "COSTS_SECONDS", 0.02)


class Machine:
    """A machine with its own files and its own connection.

    `asked` are the ids that it has asked.
    """

    def __init__(self, directory: Path, url: str) -> None:
        directory.mkdir()
        self.answers = directory / "a.jsonl"
        self.database = Database(url)
        self.source = directory / "q.jsonl"
        self.source.write_text(
            "".join(f'{{"id": "q{n}", "question": "{n}?"}}\n' for n in range(COUNT))
        )
        self.asked = list[str]()
        self.limit: Decimal | None = None
        self.locks = directory / "locks"
        self.bill = Decimal(0)
        self.overstates = 1
        self.running = 0
        self.most_running = 0

    async def work(self, ask: Ask | None = None, parallel: int = 3) -> Failure | None:
        """Ask what is left; as a new process does."""

        async def answer(item: BatchItem) -> BatchResult:
            self.asked.append(item.id)
            if ask is not None:
                return await ask(item)
            await asyncio.sleep(0.02)  # so that each machine has its turn
            return result_of(item)

        with open_batch(self.source, self.answers, self.locks) as batch:
            key = batch_hash(self.source, self.answers, "models")
            shards = SharedBatch(self.database, key, shard_count(COUNT))
            budget = SharedBudget(shards, self.limit, spent=batch.progress.cost)
            budget.remember(batch.record)
            self.budget = budget
            asker = ParallelAsker(answer, parallel=parallel, budget=budget)
            async with SharedQuestions(batch, shards, budget, ignore).kept() as questions:
                return await run_batch(
                    questions, batch.files, asker, parallel=parallel, tell=ignore
                )

    async def pay(self, item: BatchItem) -> BatchResult:
        """Answer by a call that is billed, with honesty, by just what it may cost: ten cents."""
        try:
            room = await self.budget.reserve(0, 1000, TEN_CENTS, rank=1)
        except LimitReached as error:
            line = {**item.fields, "error": {"message": error.message}}
            return BatchResult(line=line, failure=error.failure)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(0.02)  # others come meanwhile
        self.running -= 1
        cost = room.cost * self.overstates
        self.bill += cost
        self.budget.settle(room, Usage(cost=cost, calls=1))
        if room.cut:
            failure = Failure(kind="limit", message="cut", reason="limit_cost_all")
            return BatchResult(line=item.fields, cost=cost, failure=failure)
        return BatchResult(line={**item.fields, "answer": "yes", "cost": float(cost)}, cost=cost)

    @property
    def ids(self) -> Counter[str]:
        """The ids in its files."""
        paths = [path for path in (self.answers, failed_path(self.answers)) if path.exists()]
        lines = chain.from_iterable(path.read_text().splitlines() for path in paths)
        return Counter(json.loads(line)["id"] for line in lines)


def ignore(_: BatchProgress) -> None:
    """Show no progress."""


def result_of(item: BatchItem) -> BatchResult:
    """What becomes of a question: the thirteenth fails."""
    if item.id == "q13":
        failure = Failure(kind="worker", message="no thirteens")
        return BatchResult(
            line={**item.fields, "error": {"message": "no thirteens"}}, failure=failure
        )
    return BatchResult(line={**item.fields, "answer": "yes"})


ALL = Counter(f"q{n}" for n in range(COUNT))


@pytest.fixture
def machines(tmp_path: Path, postgres: Cluster) -> Iterator[list[Machine]]:
    url = postgres.new_database()
    opened = [Machine(tmp_path / str(number), url) for number in range(3)]
    yield opened
    for machine in opened:
        machine.database.close()


def test_each_question_is_asked_once_and_every_machine_has_all_answers(
    machines: list[Machine],
) -> None:

    async def all_at_once() -> None:
        have_begun = asyncio.Event()

        async def answer_after_all_have_begun(item: BatchItem) -> BatchResult:
            if all(machine.asked for machine in machines):
                have_begun.set()
            await have_begun.wait()
            return result_of(item)

        working = [machine.work(answer_after_all_have_begun) for machine in machines]
        assert await asyncio.gather(*working) == [None] * 3

    asyncio.run(all_at_once())
    assert sum((Counter(machine.asked) for machine in machines), Counter[str]()) == ALL
    for machine in machines:
        assert machine.ids == ALL
        assert [
            json.loads(line)["id"] for line in failed_path(machine.answers).read_text().splitlines()
        ] == ["q13"]


def test_what_a_killed_machine_had_is_asked_by_another_and_it_asks_nothing_when_it_is_back(
    machines: list[Machine],
) -> None:
    """Its lease has to run out first.

    Lines that it has written are sent by it, and not asked again there.
    """
    first, second, _ = machines

    async def killed() -> None:
        stalled = asyncio.Event()

        async def stall(item: BatchItem) -> BatchResult:
            if len(first.asked) == 8:
                stalled.set()
                await asyncio.sleep(60)
            return result_of(item)

        task = asyncio.create_task(first.work(stall, parallel=1))
        await stalled.wait()
        with pytest.MonkeyPatch.context() as patch:  # a process that is killed releases nothing
            patch.setattr(SharedBatch, "release", lambda _: None)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    asyncio.run(killed())
    second.database.call(
        "UPDATE conductor_shards SET until = now() - interval '1 s' WHERE answers IS NULL"
    )
    assert asyncio.run(second.work()) is None
    assert Counter(second.asked) == ALL - Counter(f"q{n}" for n in range(EACH)), (
        "the first shard had been sent"
    )
    assert second.ids == ALL
    request_count = len(first.asked)
    assert asyncio.run(first.work()) is None
    assert (first.ids, len(first.asked)) == (ALL, request_count)


def test_lines_of_an_earlier_process_are_sent_without_asking_again(machines: list[Machine]) -> None:
    """As where it was killed between the last answer of a shard and the sending of it."""
    first, second, _ = machines
    lines = [json.dumps({"id": f"q{n}", "question": f"{n}?", "answer": "yes"}) for n in range(7)]
    first.answers.write_text("\n".join(lines) + "\n")
    assert asyncio.run(first.work()) is None
    assert Counter(first.asked) == ALL - Counter(f"q{n}" for n in range(7))
    assert asyncio.run(second.work()) is None
    assert (second.ids, second.asked) == (ALL, [])


@pytest.mark.parametrize("renews", [True, False])
def test_a_machine_that_is_late_counts_its_own_answers_once(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch, renews: bool
) -> None:
    """Another one has taken its shard meanwhile.

    It asks no more of it once it knows, and has no question twice.
    """
    monkeypatch.setattr(shared, "RENEW_SECONDS", 0.05 if renews else 60)
    first, second, _ = machines
    renewals = list[Collection[int]]()
    renew = SharedBatch.renew

    def count(shards: SharedBatch, held: Collection[int]) -> list[int]:
        renewed = renew(shards, held)
        renewals.append(held)
        return renewed

    monkeypatch.setattr(SharedBatch, "renew", count)

    async def late() -> None:
        begun = asyncio.Event()
        is_takeover = asyncio.Event()

        async def slow(item: BatchItem) -> BatchResult:
            if len(first.asked) == 3:
                begun.set()
                await is_takeover.wait()
            return result_of(item)

        task = asyncio.create_task(first.work(slow, parallel=1))
        await begun.wait()
        take = "UPDATE conductor_shards SET owner = '', until = '-infinity' WHERE answers IS NULL"
        await asyncio.to_thread(first.database.call, take)
        assert await second.work() is None
        before = len(renewals)
        # The second of them begins after the first has told what is lost
        while renews and len(renewals) < before + 2:  # noqa: ASYNC110 - a thread counts them
            await asyncio.sleep(0.01)
        is_takeover.set()
        assert await task is None

    asyncio.run(late())
    assert (first.ids, second.ids) == (ALL, ALL)
    assert first.asked == [f"q{n}" for n in range(3 if renews else EACH)]


def test_a_machine_that_slept_for_longer_than_it_had_a_shard_asks_nothing_twice(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody took the shard, so it gets it again, with questions of it under way."""
    monkeypatch.setattr(shared, "RENEW_SECONDS", 60)
    first, second, _ = machines

    async def sleepy(item: BatchItem) -> BatchResult:
        if item.id in ("q3", "q8"):
            free = "UPDATE conductor_shards SET until = '-infinity' WHERE answers IS NULL"
            await asyncio.to_thread(first.database.call, free)
            await asyncio.sleep(0.3)  # the other worker asks for more meanwhile
        return result_of(item)

    assert asyncio.run(first.work(sleepy, parallel=2)) is None
    assert (first.ids, Counter(first.asked)) == (ALL, ALL)
    assert asyncio.run(second.work()) is None
    assert (second.ids, second.asked) == (ALL, [])


def test_a_shard_that_looks_free_is_asked_once(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its last question is asked, its questions are read again, or it is sent."""
    first = machines[0]
    finish = SharedBatch.finish
    read = SharedQuestions._read_shard

    def late(work: Callable[[], object]) -> object:
        first.database.call("UPDATE conductor_shards SET until = '-infinity' WHERE answers IS NULL")
        time.sleep(0.05)
        return work()

    async def ask(item: BatchItem) -> BatchResult:
        await asyncio.sleep(0.03)
        return result_of(item)

    monkeypatch.setattr(SharedBatch, "finish", lambda *given: partial(late, finish(*given)))
    monkeypatch.setattr(SharedQuestions, "_read_shard", lambda *given: late(partial(read, *given)))
    assert asyncio.run(first.work(ask, parallel=4)) is None
    assert (first.ids, Counter(first.asked)) == (ALL, ALL)


def bill(machines: list[Machine]) -> Decimal:
    return sum((machine.bill for machine in machines), Decimal(0))


@pytest.mark.parametrize("limit", ["0.35", "2.05", "4.75"])
def test_machines_at_once_spend_no_cent_more_than_the_limit(
    machines: list[Machine], limit: str
) -> None:
    """And what is left of it at the end is too little for another call."""
    for machine in machines:
        machine.limit = Decimal(limit)

    async def all_at_once() -> list[Failure | None]:
        return await asyncio.gather(
            *(machine.work(machine.pay, parallel=8) for machine in machines)
        )

    stopped = asyncio.run(all_at_once())
    assert all(failure is None or failure.reason == "limit_cost_all" for failure in stopped)
    assert Decimal(limit) - Decimal("0.0257") < bill(machines) <= Decimal(limit)


def test_what_is_spent_is_remembered_by_all_when_the_batch_goes_on(machines: list[Machine]) -> None:
    """A machine that comes later, whose limit is used up, gets the answers and asks nothing."""
    first, second, third = machines
    first.limit = Decimal("2.05")
    asyncio.run(first.work(first.pay, parallel=1))
    second.limit = Decimal("2.05")
    asyncio.run(second.work(second.pay, parallel=8))
    assert not second.bill
    assert len(second.ids) == 20
    first.limit = Decimal("3.15")
    asyncio.run(first.work(first.pay, parallel=4))
    assert Decimal("3.12") < bill(machines) <= Decimal("3.15")
    first.database.call("DELETE FROM conductor_batch_costs")  # as a week later
    third.limit = Decimal("3.15")
    asyncio.run(first.work(first.pay, parallel=4))
    asyncio.run(third.work(third.pay, parallel=4))
    assert bill(machines) <= Decimal("3.15"), "one's own files know it, too"


def test_machines_at_once_with_a_provider_that_lies_exceed_the_limit_by_the_calls_under_way(
    machines: list[Machine],
) -> None:
    for machine in machines:
        machine.limit = Decimal("2.05")
        machine.overstates = 10

    async def all_at_once() -> None:
        await asyncio.gather(*(machine.work(machine.pay, parallel=3) for machine in machines))

    asyncio.run(all_at_once())
    under_way = sum(machine.most_running for machine in machines)
    assert bill(machines) <= Decimal("2.05") + under_way * Decimal("0.1") * 10


def test_what_a_killed_machine_held_counts_in_full(machines: list[Machine]) -> None:
    """Others wait for it as long as it may live, and then go on with what is left."""
    first, second, _ = machines
    second.limit = Decimal("0.15")

    async def killed() -> None:
        async def stall(_: BatchItem) -> BatchResult:
            await first.budget.reserve(0, 1000, TEN_CENTS, rank=1)
            stalled.set()
            await asyncio.sleep(60)
            raise AssertionError

        stalled = asyncio.Event()
        task = asyncio.create_task(first.work(stall, parallel=1))
        await stalled.wait()
        with pytest.MonkeyPatch.context() as patch:  # a process that is killed says nothing
            patch.setattr(SharedBatch, "spend", refuse)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def refuse(*_: object, **__: object) -> None:
        raise LimitReached("killed", reason="limit_cost_all")

    async def others() -> None:
        task = asyncio.create_task(second.work(second.pay, parallel=1))
        await asyncio.sleep(0.3)
        assert not second.bill
        assert not task.done(), "a whole call waits for room"
        gone = "UPDATE conductor_batch_costs SET until = '-infinity' WHERE held > 0"
        await asyncio.to_thread(first.database.call, gone)
        await task

    asyncio.run(killed())
    asyncio.run(others())
    assert Decimal("0.04") < second.bill <= Decimal("0.05")


def test_a_database_that_is_away_lets_no_call_be_made(machines: list[Machine]) -> None:
    first, *_ = machines
    first.database.call("ALTER TABLE conductor_batch_costs RENAME TO elsewhere")
    with pytest.raises(ConductorError) as caught:
        asyncio.run(first.work(first.pay))
    assert caught.value.reason == "state"
    assert not first.bill


@pytest.mark.parametrize(
    "failure",
    [
        Failure(kind="key", message="refused"),
        Failure(kind="unreachable", message="away", reason="state"),
    ],
)
def test_a_failure_that_says_nothing_about_questions_frees_them_for_others(
    machines: list[Machine], failure: Failure
) -> None:
    """Such as a refused key, or a database that is away when a call is held."""
    first, second, _ = machines

    async def refuse(item: BatchItem) -> BatchResult:
        return BatchResult(line={**item.fields, "error": {"message": "x"}}, failure=failure)

    assert asyncio.run(first.work(refuse)) == failure
    assert not first.ids
    assert asyncio.run(second.work()) is None, "it does not wait for a lease"
    assert second.ids == ALL


@pytest.mark.parametrize("begun", ["claim", "renew"])
def test_what_a_thread_has_begun_keeps_no_shard_after_the_release(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    """Else others would wait for its lease."""
    first, second, _ = machines
    shards = SharedBatch(first.database, "batch", 2)
    assert shards.claim() == 0
    call = first.database.call
    is_begun = threading.Event()
    go = threading.Event()

    def late(statement: str, *values: object) -> Any:
        if "RETURNING" in statement:
            is_begun.set()
            assert go.wait(30)
        return call(statement, *values)

    monkeypatch.setattr(first.database, "call", late)
    late_work: Callable[[], object] = shards.claim
    if begun == "renew":
        late_work = partial(shards.renew, [0])
    with ThreadPoolExecutor() as threads:
        working = threads.submit(late_work)
        assert is_begun.wait(30)
        releasing = threads.submit(shards.release)
        futures.wait([releasing], timeout=0.2)
        go.set()
        working.result()
        releasing.result()
    others = SharedBatch(second.database, "batch", 2)
    assert {others.claim(), others.claim()} == {0, 1}
    assert shards.claim() is None
    assert shards.renew([0]) == []


def test_a_database_that_is_away_stops_the_batch_and_loses_nothing(machines: list[Machine]) -> None:
    first, *_ = machines

    async def cut_off(item: BatchItem) -> BatchResult:
        if item.id == "q6":
            await asyncio.to_thread(
                first.database.call, "ALTER TABLE conductor_shards RENAME TO elsewhere"
            )
        return result_of(item)

    stopped = asyncio.run(first.work(cut_off, parallel=1))
    assert stopped is not None
    assert stopped.reason == "state"
    assert first.ids == Counter(f"q{n}" for n in range(10)), "the shard that it had is done"
    first.database.call("ALTER TABLE elsewhere RENAME TO conductor_shards")
    first.database.call(
        "UPDATE conductor_shards SET until = now() - interval '1 s' WHERE answers IS NULL"
    )
    assert asyncio.run(first.work()) is None
    assert (first.ids, Counter(first.asked)) == (ALL, ALL)
