"""Which worker is tried instead of the planned one, and with what probability."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from conductor_cli.core.learning import ALL_KINDS, Choice, Estimate, Exploration, choose_worker
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import FREE, Price


def worker(name: str, cost: str | None = "1", **more: object) -> Worker:
    price = None if cost is None else Price(input=Decimal(cost), output=Decimal(cost))
    return Worker(name=name, kind="scripted", **{"price": price, **more})  # type: ignore[arg-type]


def exploring(dearer: bool = False, **cards: float | None) -> Exploration:
    estimates = {name: {ALL_KINDS: Estimate(card=figure)} for name, figure in cards.items()}
    return Exploration(probability=0.1, estimates=estimates, dearer=dearer)


def test_each_candidate_gets_the_same_part_of_the_probability() -> None:
    """The stored propensity is the true one: the shares of the draws add up to it."""
    draws = [choose_worker("a", ("b", "c"), 0.2, n / 1000) for n in range(1000)]
    counts = Counter(choice.worker for choice in draws)
    assert counts == {"a": 800, "b": 100, "c": 100}
    assert {choice.worker: choice.propensity for choice in draws} == {"a": 0.8, "b": 0.1, "c": 0.1}
    assert {choice.preferred for choice in draws if choice.worker != "a"} == {"a"}


def test_nothing_is_left_to_chance_without_a_candidate() -> None:
    """Then there is no propensity."""
    assert choose_worker("a", (), 0.2, 0.0) == choose_worker("a", ("b",), 0.0, 0.0) == Choice(worker="a")


def test_only_a_worker_that_may_be_as_good_is_tried() -> None:
    """Its figure and some deviations reach the planned one's; a worker that nothing is known of is uncertain."""
    found = exploring(a=0.8, near=0.75, far=0.4, new=None)
    others = [worker(name) for name in ("near", "far", "new", "unknown")]
    assert found.candidates(worker("a"), others, "math") == ("near", "new")


@pytest.mark.parametrize(
    ("other", "planned", "allowed"),
    [("1", "1", True), ("0.5", "1", True), ("2", "1", False), (None, "1", False), ("1", None, False),
     (None, None, False), ("0", None, True)],
)  # fmt: skip
def test_a_dearer_worker_is_never_tried_unless_that_is_allowed(
    other: str | None, planned: str | None, allowed: bool
) -> None:  # fmt: skip
    """A price that is not known counts as dearer; what costs nothing never is."""
    found = exploring(a=0.5, b=0.5)
    assert bool(found.candidates(worker("a", planned), [worker("b", other)], "")) is allowed
    assert exploring(dearer=True, a=0.5, b=0.5).candidates(worker("a", planned), [worker("b", other)], "")


def test_a_worker_with_other_tools_is_never_tried() -> None:
    """The subtask may need them, or not allow for more."""
    found = exploring(a=0.5, b=0.5)
    with_tools = Worker(name="b", kind="scripted", price=FREE, tools=("git",))
    assert found.candidates(worker("a"), [with_tools], "") == ()
