"""What can be done in the demo's world: each operation, what it takes and gives, and the words that ask for it.

`operations.json` follows from the phrasings and tables in `scripts/rehearsal`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from conductor_cli.rehearsal.normalize import Skill

Kind = Literal["word", "number"]
"""What a value is."""

LARGEST_SUM: Final = 99
MOST_JOINED: Final = 14
"""The most letters of two joined words."""

_FIT: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "plus": lambda one, other: int(one) + int(other) <= LARGEST_SUM,
    "joined": lambda one, other: one != other and len(one + other) <= MOST_JOINED,
    "longer": lambda one, other: len(one) != len(other),
    "shorter": lambda one, other: len(one) != len(other),
    "larger": lambda one, other: int(one) != int(other),
    "smaller": lambda one, other: int(one) != int(other),
    "alphabetical": lambda one, other: one != other,
}
"""Which two values go together, for operations that do not take any two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. It takes `arity` values that `allows` accepts.

    `words` are the telling words of its phrasings, and `asks` sets of them of which each asks for it.
    """

    name: str
    skill: Skill
    arity: int
    takes: Kind
    gives: Kind
    allows: Callable[[str], bool]
    words: frozenset[str]
    asks: tuple[frozenset[str], ...]

    def is_asked_by(self, words: frozenset[str]) -> bool:
        """Whether these telling words ask for this operation and for no other."""
        return words <= self.words and any(ask <= words for ask in self.asks)

    def fits(self, values: Sequence[str]) -> bool:
        """Whether it can be done with these values, or with some others beside them."""
        fit = _FIT.get(self.name)
        return all(map(self.allows, values)) and (fit is None or len(values) < self.arity or fit(*values))


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The operations, the words that no plan may lose, and the words that facts are known about."""

    operations: tuple[Operation, ...]
    telling: frozenset[str]
    subjects: frozenset[str]


@cache
def world() -> World:
    """What ships in `operations.json`."""
    found = json.loads(Path(__file__).with_name("operations.json").read_text(encoding="utf-8"))
    items: Mapping[str, Mapping[str, Any]] = found["operations"]
    subjects = " ".join(item["takes"].get("subjects", "") for item in items.values()).split()
    return World(
        operations=tuple(_operation(name, item) for name, item in items.items()),
        telling=frozenset(found["telling"].split()),
        subjects=frozenset(subject for subject in subjects if not subject.isdecimal()),
    )


def _operation(name: str, item: Mapping[str, Any]) -> Operation:
    takes, allows = _values(item["takes"])
    return Operation(
        name=name, skill=item["skill"], arity=item["arity"], takes=takes, gives=item["gives"], allows=allows,
        words=frozenset(item["words"].split()), asks=tuple(frozenset(ask.split()) for ask in item["asks"]),
    )  # fmt: skip


def _values(takes: Mapping[str, Any]) -> tuple[Kind, Callable[[str], bool]]:
    """Of which kind the values of an operation are, and which it allows."""
    if "letters" in takes:
        least, most = takes["letters"]
        return "word", lambda value: value.isalpha() and least <= len(value) <= most
    if "numbers" in takes:
        numbers = range(*takes["numbers"])
        return "number", lambda value: value.isdecimal() and int(value) in numbers
    subjects = frozenset(takes["subjects"].split())
    return "number" if min(subjects).isdecimal() else "word", subjects.__contains__
