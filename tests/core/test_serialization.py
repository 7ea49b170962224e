"""Values to JSON and back.

What is dumped loads as it was, and a wrong value is named with its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import serialization
from conductor_cli.core.plan import KeepAnswer, Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.serialization import (
    MAX_PIECE_CHARACTERS,
    DecodeError,
    dump,
    encode_json,
    json_pieces,
    load,
)
from conductor_cli.core.usage import Usage
from tests.core.strategies import any_plans, json_values, limits, pools, questions


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    whole: int
    number: float = 0.5
    flag: bool = False
    money: Decimal | None = None
    choice: Literal["a", "b"] = "a"
    items: tuple[int, ...] = ()
    table: Mapping[str, float] = field(default_factory=dict)
    anything: Any = None


@given(pools | limits | questions | any_plans)
def test_what_was_dumped_loads_as_it_was(value: Any) -> None:
    assert load(type(value), json.loads(json.dumps(dump(value)))) == value


def test_unknown_keys_are_ignored_and_missing_ones_take_their_default() -> None:
    assert load(Sample, {"whole": 3, "colour": "red"}) == Sample(whole=3)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "Sample: 'whole' is missing"),
        ([], "Sample: expected an object, found a list"),
        (None, "Sample: expected an object, found nothing"),
        ({"whole": "3"}, "whole: expected a whole number, found text ('3')"),
        ({"whole": True}, "whole: expected a whole number, found true or false (True)"),
        ({"whole": 1, "number": "x"}, "number: expected a number, found text ('x')"),
        (
            {"whole": 1, "number": 10**400},
            f"number: expected a number, found a number ({str(10**400)[:40]})",
        ),
        ({"whole": 1, "number": float("inf")}, "number: expected a number, found a number (inf)"),
        ({"whole": 1, "flag": 1}, "flag: expected true or false, found a number (1)"),
        ({"whole": 1, "money": "much"}, "money: expected a number, found text ('much')"),
        ({"whole": 1, "money": "sNaN"}, "money: expected a number, found text ('sNaN')"),
        ({"whole": 1, "choice": "c"}, "choice: expected one of a, b, found 'c'"),
        ({"whole": 1, "items": "12"}, "items: expected a list, found text ('12')"),
        ({"whole": 1, "items": [1, None]}, "items[1]: expected a whole number, found nothing"),
        ({"whole": 1, "table": [1]}, "table: expected an object, found a list"),
        ({"whole": 1, "table": {"x": "y"}}, "table.x: expected a number, found text ('y')"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(value: Any, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        load(Sample, value)
    assert str(caught.value) == problem


def test_numbers_of_any_kind_are_numbers() -> None:
    loaded = load(Sample, {"whole": 1, "number": 2, "money": 0.1, "table": {"x": 1}})
    assert (loaded.number, loaded.money, loaded.table) == (2.0, Decimal("0.1"), {"x": 1.0})
    assert load(Sample, {"whole": 1, "money": "1.10"}).money == Decimal("1.10")
    assert dump(Usage(cost=Decimal("0.10")))["cost"] == "0.10"


def test_a_union_is_told_apart_by_required_keys() -> None:
    assert load(_Held, {"plan": {"steps": []}}).plan == Plan(steps=())
    assert load(_Held, {"plan": {"reasoning": "fine"}}).plan == KeepAnswer(reasoning="fine")
    with pytest.raises(DecodeError, match="plan: expected an object, found a list"):
        load(_Held, {"plan": []})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    plan: Plan | KeepAnswer


def test_a_value_that_a_class_refuses_is_a_decode_error() -> None:
    twice = dump(Pool(workers=(Worker(name="a", kind="x"),)))["workers"] * 2
    with pytest.raises(DecodeError, match="Pool: two workers have the name 'a'"):
        load(Pool, {"workers": twice})


def test_dumping_knows_containers_and_leaves_the_rest() -> None:
    value = {1: (Step(worker="a", subtask="b"), [Decimal("1.5")]), "x": None}
    assert dump(value) == {"1": [{"worker": "a", "subtask": "b", "access": []}, ["1.5"]], "x": None}


@given(json_values, st.sampled_from([Plan, Limits, Pool, Usage, Sample]))
def test_any_value_loads_or_raises_a_decode_error(value: Any, kind: type[Any]) -> None:
    try:
        loaded = load(kind, value)
    except DecodeError:
        return
    assert isinstance(loaded, kind)


ENCODERS = (
    json.JSONEncoder(),
    json.JSONEncoder(ensure_ascii=False, separators=(",", ":")),
    json.JSONEncoder(sort_keys=True, separators=(",", ":")),
)


@given(json_values)
def test_json_that_is_written_in_pieces_is_what_one_call_writes(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serialization, "MAX_PIECE_CHARACTERS", 12)
        for encoder in ENCODERS:
            assert encode_json(value, encoder) == encoder.encode(value)


@pytest.mark.parametrize(
    "value",
    [
        {"text": "\n" * 1_000_000},
        {"messages": [{"role": "user", "content": "x" * 400}] * 5_000},
        [[0] * 200_000, {str(number): [] for number in range(50_000)}],
    ],
    ids=["one text", "messages", "numbers and names"],
)
def test_no_call_writes_much_json_at_once(value: Any) -> None:
    """Such a call would hold up every other thread, and so all streams of a server."""
    longest = max(map(len, json_pieces(value, json.JSONEncoder())))
    assert longest <= 3 * MAX_PIECE_CHARACTERS
