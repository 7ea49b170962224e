"""Workers in their pool: order, names, cards, labels, and usage that adds up."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given

from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.profile import labels_for, labels_of
from conductor_cli.core.usage import Usage, with_cost
from tests.core.strategies import usages


def pool(*names: str) -> Pool:
    return Pool(workers=tuple(Worker(name=name, kind="x") for name in names))


def test_two_workers_of_one_name_are_refused() -> None:
    """Two workers of one name could not be told apart in a plan."""
    with pytest.raises(ConfigError, match="two workers have the name 'a'"):
        pool("a", "b", "a")


def test_a_pool_is_an_ordered_collection_by_name() -> None:
    both = pool("a", "b")
    assert (len(both), both.names, [worker.name for worker in both]) == (2, ("a", "b"), ["a", "b"])
    assert both["b"].name == "b"
    assert ("a" in both, "c" in both, 3 in both) == (True, False, False)
    with pytest.raises(KeyError):
        both["c"]


def test_a_subset_keeps_the_pools_order() -> None:
    assert pool("a", "b", "c").subset(["c", "a"]).names == ("a", "c")
    with pytest.raises(UsageError) as caught:
        pool("a", "b").subset(["a", "z"])
    assert (caught.value.message, caught.value.hint) == ("unknown worker 'z'", "known: a, b")
    with pytest.raises(UsageError) as caught:
        pool().subset(["z"])
    assert caught.value.hint == "known: none"


def test_the_best_worker_has_the_best_card_else_comes_first() -> None:
    strong = Worker(name="b", kind="x", card=Card(strengths={"math": 0.9, "code": 0.7}))
    weak = Worker(name="c", kind="x", card=Card(strengths={"math": 1.0, "code": 0.1}))
    assert Pool(workers=(Worker(name="a", kind="x"), weak, strong)).best() == strong
    assert pool("a", "b").best().name == "a"
    assert (strong.card.mean(), Card().mean()) == (0.8, 0.0)


@given(usages, usages, usages)
def test_usage_adds_up_in_any_order(first: Usage, second: Usage, third: Usage) -> None:
    in_order = (first + second) + third
    reordered = first + (third + second)
    assert (
        in_order.tokens_in,
        in_order.tokens_out,
        in_order.cost,
        in_order.calls,
        in_order.unpriced,
    ) == (
        reordered.tokens_in,
        reordered.tokens_out,
        reordered.cost,
        reordered.calls,
        reordered.unpriced,
    )
    assert in_order.seconds == pytest.approx(reordered.seconds)
    assert in_order.tokens == first.tokens + second.tokens + third.tokens
    assert first + Usage() == first


def test_an_unknown_price_does_not_hide_a_known_one() -> None:
    priced = Usage(cost=Decimal("0.5"), calls=1)
    unknown = with_cost(Usage(calls=1), None)
    assert (priced + unknown).cost == (unknown + priced).cost == Decimal("0.5")
    assert (priced + unknown).unpriced == 1
    assert (unknown + unknown).cost is None


def test_letters_go_on_after_z() -> None:
    labels = list(labels_of([str(number) for number in range(704)], "letters"))
    assert [labels[number] for number in (0, 1, 25, 26, 27, 51, 52, 701, 702, 703)] == [
        "A",
        "B",
        "Z",
        "AA",
        "AB",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
        "AAB",
    ]
    assert len(set(labels)) == 704


def test_a_label_may_be_an_entry_of_a_card() -> None:
    cards = {"x": {"math": 0.9, "code": 0.2}, "y": {"math": 0.95}, "z": {}}
    workers = [
        Worker(name=name, kind="openai", card=Card(strengths=card)) for name, card in cards.items()
    ]
    assert labels_for(workers, "entries") == {"mathA": "x", "codeA": "x", "mathB": "y", "C": "z"}
    assert labels_for(workers, "letters") == {"A": "x", "B": "y", "C": "z"}
