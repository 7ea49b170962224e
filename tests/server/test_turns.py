"""Turns: so many at once, and those that wait come by owner, one after the other."""

from __future__ import annotations

from conductor_cli.server.run_registry import Turn, Turns


def taken(turns: Turns, owners: str) -> list[Turn]:
    """A turn for each letter, which all have a place."""
    found = [turns.take(owner) for owner in owners]
    assert None not in found
    return [turn for turn in found if turn is not None]


def order(turns: Turns, waiting: list[Turn], running: Turn) -> str:
    """The owners in the order in which they get their turn, one at a time."""
    owners = ""
    while waiting:
        turns.leave(running)
        running = next(turn for turn in waiting if turn.granted.is_set())
        waiting.remove(running)
        owners += running.owner
    return owners


def test_owners_take_turns_and_each_is_served_in_its_own_order() -> None:
    """Who came with many waits behind those who came later with few."""
    turns = Turns(1, 100)
    running, *waiting = taken(turns, "aaaabbc")
    assert order(turns, list(waiting), running) == "abcaba"


def test_a_place_is_given_back_by_who_leaves_before_its_turn() -> None:
    """Nobody waits for it, and no turn is lost."""
    turns = Turns(1, 100)
    running, first, second = taken(turns, "aab")
    turns.leave(first)
    turns.leave(running)
    assert second.granted.is_set()
    turns.leave(second)
    assert turns.waiting == 0
    assert taken(turns, "c")[0].granted.is_set()


def test_one_owner_alone_cannot_fill_the_queue() -> None:
    """It gets three quarters; then others still get in, until it is full."""
    turns = Turns(1, 8)
    taken(turns, "a" * 7)
    assert turns.take("a") is None
    assert turns.waiting == 6
    taken(turns, "bc")
    assert turns.take("d") is None


def test_a_queue_of_one_has_a_place_and_one_of_none_has_not() -> None:
    """The share of an owner is no bound where there is hardly anything to share."""
    short, none = Turns(1, 1), Turns(1, 0)
    taken(short, "aa")
    taken(none, "a")
    assert short.take("b") is None
    assert none.take("b") is None
