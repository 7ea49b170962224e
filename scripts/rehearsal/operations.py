"""What can be done in the demo's world: small operations of three skills. Pure.

A value is a text: a word in upper case or a whole number. An operation may have an amount too, as in "plus 3".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from conductor_cli.rehearsal.normalize import Skill
from scripts.rehearsal.words import CAPITALS, ELEMENTS, MONTHS, OPPOSITES

SKILLS: Final[tuple[Skill, ...]] = ("letters", "numbers", "facts")

LENGTHS: Final = range(3, 10)
"""How many letters a word may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do with a value.

    `does` computes the answer from the value and the amount. `amounts` are the amounts that fit a value: none if the
    value does not fit, a single 0 if no amount is needed. `starts` are the values that a question may start with; empty
    means any word. `undoes` is the inverse operation.
    """

    name: str
    skill: Skill
    does: Callable[[str, int], str]
    amounts: Callable[[str], Sequence[int]]
    starts: tuple[str, ...] = ()
    undoes: str = ""


def _letters(name: str, does: Callable[[str], str]) -> Operation:
    return Operation(
        name=name, skill="letters", does=lambda value, _: does(value),
        amounts=lambda value: (0,) if value.isalpha() and len(value) in LENGTHS else (), undoes=name,
    )  # fmt: skip


def _numbers(name: str, does: Callable[[int, int], int], values: range, amounts: range) -> Operation:
    def fitting(value: str) -> Sequence[int]:
        if not value.isdecimal() or int(value) not in values:
            return ()
        return [amount for amount in amounts if does(int(value), amount) > 0]

    return Operation(
        name=name, skill="numbers", does=lambda value, amount: str(does(int(value), amount)), amounts=fitting,
        starts=tuple(map(str, values)), undoes=name,
    )  # fmt: skip


def _fact(name: str, table: Mapping[str, str], undoes: str = "") -> Operation:
    return Operation(
        name=name, skill="facts", does=lambda value, _: table[value],
        amounts=lambda value: (0,) if value in table else (), starts=tuple(table), undoes=undoes,
    )  # fmt: skip


def _made(*operations: Operation) -> dict[str, Operation]:
    return {operation.name: operation for operation in operations}


OPERATIONS: Final[Mapping[str, Operation]] = _made(
    _letters("reverse", lambda word: word[::-1]),
    _letters("count", lambda word: str(len(word))),
    _letters("sort", lambda word: "".join(sorted(word))),
    _letters("first", lambda word: word[0]),
    _letters("last", lambda word: word[-1]),
    _numbers("add", lambda one, other: one + other, range(1, 51), range(1, 10)),
    _numbers("subtract", lambda one, other: one - other, range(2, 61), range(1, 10)),
    _numbers("multiply", lambda one, other: one * other, range(2, 13), range(2, 6)),
    _fact("capital", CAPITALS),
    _fact("element", {symbol: name for name, symbol, _ in ELEMENTS}, undoes="symbol"),
    _fact("symbol", {name: symbol for name, symbol, _ in ELEMENTS}, undoes="element"),
    _fact("number", {name: str(number) for name, _, number in ELEMENTS}, undoes="numbered"),
    _fact("numbered", {str(number): name for name, _, number in ELEMENTS}, undoes="number"),
    _fact("opposite", {**dict(OPPOSITES), **{two: one for one, two in OPPOSITES}}, undoes="opposite"),
    _fact("after", dict(pairwise((*MONTHS, MONTHS[0]))), undoes="before"),
    _fact("before", dict(pairwise((MONTHS[0], *MONTHS[::-1]))), undoes="after"),
)  # fmt: skip
"""By name. On a word: reverse, count (its letters), sort, first, last. On a number: add, subtract, multiply.

Facts: the capital of a country; the element with a symbol or an atomic number; symbol and atomic number of an element;
the opposite; the months after and before.
"""


def of_skill(skill: Skill) -> tuple[Operation, ...]:
    """The operations of a skill, in order."""
    return tuple(operation for operation in OPERATIONS.values() if operation.skill == skill)


def facts() -> frozenset[str]:
    """Every word and number that a fact is known about."""
    return frozenset(start for operation in of_skill("facts") for start in operation.starts)
