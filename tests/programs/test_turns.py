"""Places that clients get by turns."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random

import pytest

from conductor_cli.programs.turns import CURRENT_CLIENT, FairPlaces, SharedPlaces


def taken_by(places: FairPlaces, client: str) -> int:
    """How many places a client gets without waiting."""
    count = 0
    while places.take(client):
        count += 1
    return count


@pytest.mark.parametrize(
    ("count", "first", "second", "third"),
    [(1, 1, 0, 0), (2, 1, 1, 0), (4, 3, 1, 0), (16, 12, 3, 1)],
)
def test_one_client_leaves_places_for_others(
    count: int, first: int, second: int, third: int
) -> None:
    places = FairPlaces(count)
    assert [taken_by(places, name) for name in ("a", "b", "c")] == [first, second, third]


def test_a_user_alone_takes_every_place() -> None:
    assert taken_by(FairPlaces(4), "") == 4


def test_who_waits_gets_places_in_turn_and_a_cancelled_wait_takes_none() -> None:
    order = list[str]()

    async def work(places: FairPlaces, client: str) -> None:
        async with places.held(client):
            order.append(client)
            await asyncio.sleep(0)

    async def main() -> None:
        places = FairPlaces(1)
        await places.wait_for("a")
        tasks = [asyncio.create_task(work(places, client)) for client in "aaab"]
        gone = asyncio.create_task(work(places, "c"))
        await asyncio.sleep(0)
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
        places.give_back("a")
        await asyncio.gather(*tasks)
        assert places.free == 1
        assert places.held_by("a") == 0

    asyncio.run(main())
    assert order == ["a", "b", "a", "a"]


def test_a_place_that_is_granted_to_a_cancelled_task_goes_to_the_next() -> None:
    async def main() -> None:
        places = FairPlaces(1)
        await places.wait_for("a")
        first = asyncio.create_task(places.wait_for("b"))
        second = asyncio.create_task(places.wait_for("c"))
        await asyncio.sleep(0)
        places.give_back("a")
        first.cancel()  # it has the place, and does not know it yet
        await asyncio.wait([first, second])
        assert first.cancelled()
        assert places.held_by("c") == 1

    asyncio.run(main())


def test_tasks_share_places_by_the_client_for_whom_they_work() -> None:
    shared = SharedPlaces(2)

    async def work(client: str) -> None:
        CURRENT_CLIENT.set(client)
        await shared.take()  # and never gives it back

    async def main() -> None:
        many = [asyncio.create_task(work("many")) for _ in range(5)]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await asyncio.create_task(work("few"))
        assert sum(task.done() for task in many) == 1
        for task in many:
            task.cancel()
        await asyncio.gather(*many, return_exceptions=True)

    asyncio.run(main())


def test_a_place_that_becomes_free_as_waits_are_cancelled_is_not_lost() -> None:
    """Whoever is cancelled in the same moment is still in the list of those that wait."""

    async def main() -> None:
        places = FairPlaces(1)
        await places.wait_for("a")
        gone = [asyncio.create_task(places.wait_for(client)) for client in "bbc"]
        waits = asyncio.create_task(places.wait_for("c"))
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        places.give_back("a")
        await waits
        assert all(isinstance(error, asyncio.CancelledError) for error in await ended(gone))
        places.give_back("c")
        assert places.free == 1

    asyncio.run(main())


async def ended(tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seed", range(20))
def test_no_place_is_lost_or_made_however_waits_are_cancelled(seed: int) -> None:
    random = Random(seed)

    async def work(places: FairPlaces, client: str) -> None:
        async with places.held(client):
            for _ in range(random.randrange(3)):
                await asyncio.sleep(0)

    async def main() -> None:
        places = FairPlaces(3)
        tasks = []
        for _ in range(200):
            tasks.append(asyncio.create_task(work(places, random.choice("abcd"))))
            for task in random.sample(tasks, min(len(tasks), random.randrange(4))):
                task.cancel()
            if random.random() < 0.5:
                await asyncio.sleep(0)
        for error in await ended(tasks):
            assert error is None or isinstance(error, asyncio.CancelledError)
        assert places.free == 3
        assert [places.held_by(client) for client in "abcd"] == [0, 0, 0, 0]

    asyncio.run(main())
