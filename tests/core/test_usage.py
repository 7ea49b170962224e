"""Numbers that others state: bounded where they come in, whatever they are."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest

from conductor_cli.core.serialization import DecodeError, load
from conductor_cli.core.usage import (
    MAX_COUNTED,
    MAX_DOLLARS,
    NO_USAGE,
    Price,
    Usage,
    stated_dollars,
    token_count,
    with_cost,
)

NOTHING = [
    None,
    True,
    False,
    "",
    "12",
    "NaN",
    "9" * 400,
    [12],
    [[12]],
    {"tokens": 12},
    float("nan"),
    -5,
    -1e30,
    -(10**400),
]
"""What is no number of tokens, and no cost."""


@pytest.mark.parametrize("value", [*NOTHING, float("-inf")])
def test_what_is_no_number_counts_nothing(value: object) -> None:
    assert token_count(value) == 0
    assert stated_dollars(value) is None


def _short_number(value: float) -> str | None:
    """Return the id of a case; a float has its usual one."""
    if isinstance(value, float):
        return None
    if value >= 10**300:
        return "huge"
    return f"{value:.3e}"


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (0, 0),
        (12, 12),
        (12.0, 12),
        (12.7, 12),
        (10**12, 10**12),
        (10**18, MAX_COUNTED),
        (1e30, MAX_COUNTED),
        (10**400, MAX_COUNTED),
        (10**5000, MAX_COUNTED),
        (float("inf"), MAX_COUNTED),
    ],
    ids=_short_number,
)
def test_a_number_of_tokens_is_bounded(value: float, tokens: int) -> None:
    assert token_count(value) == tokens


@pytest.mark.parametrize(
    ("value", "dollars"),
    [
        (0, "0"),
        (-0.0, "0.0"),
        (0.0012, "0.0012"),
        (5e-324, "1E-12"),
        (10**6, "1000000"),
        (1e300, "1000000"),
        (10**5000, "1000000"),
        (float("inf"), None),
    ],
    ids=["0", "-0", "usual", "tiny", "most", "1e300", "10^5000", "inf"],
)
def test_a_cost_is_bounded(value: float, dollars: str | None) -> None:
    assert str(stated_dollars(value)) == str(dollars)


def test_a_computed_cost_is_bounded_too() -> None:
    price = Price(input=Decimal(500), output=Decimal(500))
    assert (
        with_cost(Usage(tokens_in=MAX_COUNTED, tokens_out=MAX_COUNTED, calls=1), price).cost
        == MAX_DOLLARS
    )


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(tokens_in=10, tokens_out=4), "140"),
        (Usage(tokens_in=10, tokens_cached=3), "73"),  # 7 at 10, 3 at 1
        (Usage(tokens_in=10, tokens_stored=2), "110"),  # 8 at 10, 2 at 15
        (Usage(tokens_in=10, tokens_cached=3, tokens_stored=2), "83"),  # 5 at 10, 3 at 1, 2 at 15
        (Usage(tokens_out=4, tokens_reasoning=1), "45"),  # 3 at 10, 1 at 15
        (Usage(tokens_in=10, cost=Decimal("0.5")), "0.5"),
    ],
)
def test_each_kind_of_token_has_its_price(usage: Usage, dollars: str) -> None:
    price = Price(
        input=Decimal(10),
        output=Decimal(10),
        cached=Decimal(1),
        stored=Decimal(15),
        reasoning=Decimal(15),
    )
    million: dict[str, Any] = {
        kind.name: getattr(price, kind.name) * 10**6 for kind in fields(price)[:5]
    }
    assert with_cost(usage, replace(price, **million)).cost == Decimal(dollars)


@pytest.mark.parametrize("cost", [None, Decimal(0), Decimal("0.5")])
def test_nothing_added_changes_nothing(cost: Decimal | None) -> None:
    """The same usage comes back: sums over many outcomes begin with nothing and add it often."""
    usage = Usage(tokens_in=3, tokens_out=2, cost=cost, seconds=1.5, calls=1, unpriced=1)
    assert usage + NO_USAGE is NO_USAGE + usage is usage
    assert usage + Usage() == usage


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens_in", -1),
        ("tokens_out", 10**30),
        ("tokens_cached", 1e30),
        ("calls", -1),
        ("unpriced", "3"),
        ("cost", "-1"),
        ("cost", "NaN"),
        ("cost", "1E+999999999"),
        ("cost", "1E-999999999"),
        ("cost", "-Infinity"),
        ("cost", "9" * 5000),
        ("cost", 10**400),
        ("seconds", float("inf")),
        ("seconds", 1e300),
    ],
)
def test_a_usage_of_a_damaged_trace_is_refused(name: str, value: object) -> None:
    with pytest.raises(DecodeError, match="usage"):
        load(Usage, {name: value}, "usage")
