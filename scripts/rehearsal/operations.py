"""What can be done in the demo's world: small operations of eleven skills. Pure.

A value is a text: a word in upper case or a whole number. An operation takes one or two values; each of them stands in
the question or is the answer of an earlier step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from conductor_cli.rehearsal.words import Skill
from scripts.rehearsal.words import CAPITALS, COLOURS, ELEMENTS, MONTHS, OPPOSITES, SPANISH, WEEKDAYS

SKILLS: Final[tuple[Skill, ...]] = (
    "spelling", "counting", "adding", "multiplying", "geography", "chemistry", "opposites", "calendar", "translation",
    "comparing",
)  # fmt: skip
"""The skills of the conductor's training."""

UNSEEN: Final[Skill] = "colours"
"""A skill that no training of the conductor contains. Its worker is trained like the others."""

LONGEST: Final = 10
"""How many letters a word may have to be spelled; LONGEST_COUNTED: to be counted or compared."""

LONGEST_COUNTED: Final = 14

WordDraw = Callable[[Random], str]
"""Draws a word for a question about letters."""

Values = tuple[str, ...]


class Letters(NamedTuple):
    """Words with so many letters."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing to do with one value or two.

    `values` are those that it takes: words of so many letters, numbers of a range, or the subjects of a table. `does`
    computes the answer; None if the values do not fit. `starts` draws values that a question may name, and
    `arity` says how many there are. `undoes` is the inverse operation. `swaps`: the order of two values has no meaning.
    """

    name: str
    skill: Skill
    does: Callable[..., str | None]
    starts: Callable[[Random, WordDraw], Values]
    values: Letters | range | Mapping[str, str]
    arity: int = 1
    undoes: str = ""
    swaps: bool = False


def _on_word(name: str, skill: Skill, does: Callable[[str], str], longest: int, undoes: str = "") -> Operation:
    return Operation(
        name=name, skill=skill, starts=lambda random, word: (word(random),), undoes=undoes, values=Letters(2, longest),
        does=lambda value: does(value) if value.isalpha() and 2 <= len(value) <= longest else None,
    )  # fmt: skip


def _on_words(name: str, skill: Skill, does: Callable[[str, str], str | None], *, swaps: bool) -> Operation:
    def fitting(one: str, other: str) -> str | None:
        fits = one.isalpha() and other.isalpha() and one != other and max(len(one), len(other)) <= LONGEST_COUNTED
        fits = fits and min(len(one), len(other)) >= 2
        return does(one, other) if fits else None

    return Operation(
        name=name, skill=skill, does=fitting, arity=2, swaps=swaps, values=Letters(2, LONGEST_COUNTED),
        starts=lambda random, word: (word(random), word(random)),
    )  # fmt: skip


def _on_number(name: str, does: Callable[[int], int], values: range) -> Operation:
    return Operation(
        name=name, skill="multiplying", starts=lambda random, _: (str(random.choice(values)),), values=values,
        does=lambda value: str(does(int(value))) if value.isdecimal() and int(value) in values else None,
    )  # fmt: skip


def _on_numbers(
    name: str, skill: Skill, does: Callable[[int, int], int | None], values: range, *, swaps: bool = True
) -> Operation:
    def fitting(one: str, other: str) -> str | None:
        if not (one.isdecimal() and other.isdecimal()) or int(one) not in values or int(other) not in values:
            return None
        found = does(int(one), int(other))
        return None if found is None else str(found)

    def starts(random: Random, _: WordDraw) -> Values:
        while True:
            drawn = str(random.choice(values)), str(random.choice(values))
            if fitting(*drawn) is not None:
                return drawn

    return Operation(name=name, skill=skill, does=fitting, starts=starts, values=values, arity=2, swaps=swaps)


def _fact(name: str, skill: Skill, table: Mapping[str, str], undoes: str = "") -> Operation:
    subjects = tuple(table)
    return Operation(
        name=name, skill=skill, does=table.get, starts=lambda random, _: (random.choice(subjects),), values=table,
        undoes=undoes,
    )  # fmt: skip


def _made(*operations: Operation) -> dict[str, Operation]:
    return {operation.name: operation for operation in operations}


def _turned(table: Mapping[str, str]) -> dict[str, str]:
    return {value: key for key, value in table.items()}


def _next(names: tuple[str, ...]) -> dict[str, str]:
    return dict(pairwise((*names, names[0])))


def _sum(one: int, other: int) -> int | None:
    return one + other if one + other <= MOST else None


def _difference(one: int, other: int) -> int | None:
    return one - other if one >= other else None


def _joined(one: str, other: str) -> str | None:
    return one + other if len(one + other) <= LONGEST_COUNTED else None


def _by_length(one: str, other: str, *, longer: bool) -> str | None:
    if len(one) == len(other):
        return None
    return one if (len(one) > len(other)) == longer else other


MOST: Final = 99
"""The largest sum."""

_NUMBERED_MONTHS: Final = {name: str(number) for number, name in enumerate(MONTHS, start=1)}

OPERATIONS: Final[Mapping[str, Operation]] = _made(
    _on_word("reverse", "spelling", lambda word: word[::-1], LONGEST, undoes="reverse"),
    _on_word("sort", "spelling", lambda word: "".join(sorted(word)), LONGEST, undoes="sort"),
    _on_word("first", "spelling", lambda word: word[0], LONGEST_COUNTED, undoes="first"),
    _on_word("last", "spelling", lambda word: word[-1], LONGEST_COUNTED, undoes="last"),
    _on_words("joined", "spelling", _joined, swaps=False),
    _on_word("letters", "counting", lambda word: str(len(word)), LONGEST_COUNTED),
    _on_word("vowels", "counting", lambda word: str(sum(map("AEIOU".count, word))), LONGEST_COUNTED),
    _on_numbers("plus", "adding", _sum, range(MOST + 1)),
    _on_numbers("minus", "adding", _difference, range(MOST + 1), swaps=False),
    _on_numbers("times", "multiplying", lambda one, other: one * other, range(13)),
    _on_number("double", lambda number: 2 * number, range(51)),
    _on_number("triple", lambda number: 3 * number, range(34)),
    _on_number("half", lambda number: number // 2, range(0, 101, 2)),
    _fact("capital", "geography", CAPITALS, undoes="country"),
    _fact("country", "geography", _turned(CAPITALS), undoes="capital"),
    _fact("element", "chemistry", {symbol: name for name, symbol, _ in ELEMENTS}, undoes="symbol"),
    _fact("symbol", "chemistry", {name: symbol for name, symbol, _ in ELEMENTS}, undoes="element"),
    _fact("atomic", "chemistry", {name: str(number) for name, _, number in ELEMENTS}, undoes="numbered"),
    _fact("numbered", "chemistry", {str(number): name for name, _, number in ELEMENTS}, undoes="atomic"),
    _fact("opposite", "opposites", {**dict(OPPOSITES), **_turned(dict(OPPOSITES))}, undoes="opposite"),
    _fact("month_after", "calendar", _next(MONTHS), undoes="month_before"),
    _fact("month_before", "calendar", _turned(_next(MONTHS)), undoes="month_after"),
    _fact("day_after", "calendar", _next(WEEKDAYS), undoes="day_before"),
    _fact("day_before", "calendar", _turned(_next(WEEKDAYS)), undoes="day_after"),
    _fact("month_number", "calendar", _NUMBERED_MONTHS, undoes="month_numbered"),
    _fact("month_numbered", "calendar", _turned(_NUMBERED_MONTHS), undoes="month_number"),
    _fact("spanish", "translation", SPANISH, undoes="english"),
    _fact("english", "translation", _turned(SPANISH), undoes="spanish"),
    _on_numbers("larger", "comparing", lambda one, other: max(one, other) if one != other else None, range(151)),
    _on_numbers("smaller", "comparing", lambda one, other: min(one, other) if one != other else None, range(151)),
    _on_words("longer", "comparing", lambda one, other: _by_length(one, other, longer=True), swaps=True),
    _on_words("shorter", "comparing", lambda one, other: _by_length(one, other, longer=False), swaps=True),
    _on_words("alphabetical", "comparing", min, swaps=True),
    _fact("colour", UNSEEN, COLOURS),
)  # fmt: skip
"""By name."""


def of_skill(skill: Skill) -> tuple[Operation, ...]:
    """The operations of a skill, in order."""
    return tuple(operation for operation in OPERATIONS.values() if operation.skill == skill)


def subjects() -> frozenset[str]:
    """Every word that a fact is known about."""
    opposites = dict(OPPOSITES)
    tables = (CAPITALS, _turned(CAPITALS), SPANISH, _turned(SPANISH), COLOURS, opposites, _turned(opposites))
    names = {name for name, symbol, _ in ELEMENTS} | {symbol for _, symbol, _ in ELEMENTS} | {*MONTHS, *WEEKDAYS}
    return frozenset(names.union(*tables))
