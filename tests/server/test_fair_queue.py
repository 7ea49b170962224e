"""FairQueue: so many at once, and those that wait come by owner, one after the other."""

from __future__ import annotations

from conductor_cli.server.run_registry import FairQueue, QueuePlace


def taken(turns: FairQueue, owners: str) -> list[QueuePlace]:
    found = [turns.take(owner) for owner in owners]
    assert None not in found
    return [turn for turn in found if turn is not None]


def order(turns: FairQueue, waiting: list[QueuePlace], running: QueuePlace) -> str:
    owners = ""
    while waiting:
        turns.leave(running)
        running = next(turn for turn in waiting if turn.granted.is_set())
        waiting.remove(running)
        owners += running.owner
    return owners


def test_owners_take_turns_and_each_is_served_in_its_own_order() -> None:
    turns = FairQueue(1, 100)
    running, *waiting = taken(turns, "aaaabbc")
    assert order(turns, list(waiting), running) == "abcaba"


def test_a_place_is_given_back_by_who_leaves_before_its_turn() -> None:
    turns = FairQueue(1, 100)
    running, first, second = taken(turns, "aab")
    turns.leave(first)
    turns.leave(running)
    assert second.granted.is_set()
    turns.leave(second)
    assert turns.waiting == 0
    assert taken(turns, "c")[0].granted.is_set()


def test_one_owner_alone_cannot_fill_the_queue() -> None:
    turns = FairQueue(1, 8)
    taken(turns, "a" * 7)
    assert turns.take("a") is None
    assert turns.waiting == 6
    taken(turns, "bc")
    assert turns.take("d") is None
