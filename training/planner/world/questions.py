"""Questions with one answer that can be checked.

Compositions of two to four operations over the tables.

A composition is a tree of operations; its steps are written as the programs want them. A third of
the kinds of compositions is held out: no training has them. Word problems come from a file of
GSM8K, which is not part of this.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, Literal

Kind = Literal["current", "lasting", "division", "exact", "letters", "dates"]
"""What an operation asks of a worker: a value that changes over the years or lasts; arithmetic with
a division or without; letters of a word; dates.
"""

RIGHT: Final[dict[Kind, tuple[str, ...]]] = {
    "current": ("db",),
    "lasting": ("db", "db-old"),
    "division": ("py",),
    "exact": ("py", "bc"),
    "letters": ("py",),
    "dates": ("py",),
}
"""The programs that can do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One step of a true plan.

    What it asks of a worker, its subtask, and the steps that it reads.
    """

    kind: Kind
    subtask: str
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A question and its true steps.

    `shape` names the composition; `digits` are those after the point.
    """

    text: str
    shape: str
    steps: tuple[Operation, ...]
    digits: int = 0

    @property
    def is_held_out(self) -> bool:
        """Whether no training has compositions of this shape.

        About a third of them, by a hash of the name.
        """
        return hashlib.sha256(self.shape.encode()).digest()[0] < 85


_LOOKUPS: Final = (
    (
        "population",
        "current",
        "the population of {0}",
        ("SELECT population FROM country WHERE name = '{0}'"),
    ),
    (
        "area",
        "lasting",
        "the area of {0} in square kilometres",
        ("SELECT area FROM country WHERE name = '{0}'"),
    ),
    (
        "prefix",
        "lasting",
        "the phone prefix of {0}",
        "SELECT prefix FROM country WHERE name = '{0}'",
    ),
)
_CITY: Final = (
    "city",
    "current",
    "the population of the city of {0}",
    "SELECT population FROM city WHERE name = '{0}'",
)
_WORDS: Final = (
    ("capital", "current", "the capital of {0}", "SELECT capital FROM country WHERE name = '{0}'"),
    (
        "currency",
        "current",
        "the currency code of {0}",
        "SELECT currency FROM country WHERE name = '{0}'",
    ),
)


@dataclass(slots=True)
class Composer:
    """Writes one composition: its steps so far, and the shape."""

    random: Random
    countries: Sequence[str]
    cities: Sequence[str]
    steps: list[Operation] = field(default_factory=list)
    shape: list[str] = field(default_factory=list)

    def add(self, kind: Kind, subtask: str, access: tuple[int, ...] = ()) -> int:
        """Add a step; its number."""
        self.steps.append(Operation(kind=kind, subtask=subtask, access=access))
        return len(self.steps)

    def number(self) -> tuple[str, int]:
        """A number out of the tables: how it is asked for, and its step."""
        name, kind, words, query = self.random.choice((*_LOOKUPS[:2], _CITY))
        subject = self.random.choice(self.cities if name == "city" else self.countries)
        self.shape.append(name)
        return words.format(subject), self.add(kind, query.format(subject))  # type: ignore[arg-type]

    def letters(self) -> tuple[str, int]:
        """The number of letters of a word out of the tables."""
        name, kind, words, query = self.random.choice(_WORDS)
        subject = self.random.choice(self.countries)
        self.shape += ["letters", name]
        at = self.add(kind, query.format(subject))  # type: ignore[arg-type]
        counted = self.add("letters", f"sum(c.isalpha() for c in a{at})", (at,))
        return f"the number of letters in {words.format(subject)}", counted

    def days(self) -> tuple[str, int]:
        """The days between two dates."""
        years = sorted(self.random.sample(range(1950, 2026), 2))
        first, last = (
            f"{year}-{self.random.randint(1, 12):02}-{self.random.randint(1, 28):02}"
            for year in years
        )
        dates = [f"datetime.date.fromisoformat('{day}')" for day in (last, first)]
        self.shape.append("days")
        return f"the number of days from {first} to {last}", self.add(
            "dates", f"({dates[0]} - {dates[1]}).days"
        )


_JOINS: Final[tuple[tuple[str, Kind, str, str, int], ...]] = (
    ("ratio", "division", "{0} divided by {1}, to three decimals", "round(a{0} / a{1}, 3)", 3),
    ("share", "division", "{0} as a percentage of {1}, to two decimals",
     "round(100 * a{0} / a{1}, 2)", 2),
    ("difference", "exact", "the difference when {1} is subtracted from {0}", "a{0} - a{1}", 0),
    ("sum", "exact", "the sum of {0} and {1}", "a{0} + a{1}", 0),
    ("product", "exact", "{0} times {1}", "a{0} * a{1}", 0),
)  # fmt: skip


def compose(
    random: Random, countries: Sequence[str], cities: Sequence[str], *, dates: bool = True
) -> Composed:
    """A question of two to four operations, with `dates` also of days between two of them."""
    composer = Composer(random, countries, cities)
    if random.random() < 0.2:
        question_text, _ = composer.letters()
        return _composed(composer, question_text, 0)
    name, kind, words, subtask, digits = random.choice(_JOINS)
    composer.shape.append(name)
    short_parts = [composer.number]
    choices = [composer.number, composer.number, composer.letters]
    if dates:
        short_parts.append(composer.days)
        choices.append(composer.days)
    parts = [random.choice(choices) for _ in range(2)]
    while {composer.letters} == set(parts):  # five steps would be too many with a third operation
        parts[1] = random.choice(short_parts)
    (first, one), (second, two) = (part() for part in parts)
    composer.add(kind, subtask.format(one, two), (one, two))
    return _composed(composer, words.format(first, second), digits)


def _composed(composer: Composer, asked: str, digits: int) -> Composed:
    text = f"What is {asked}? Reply with the number only."
    return Composed(
        text=text, shape=" ".join(composer.shape), steps=tuple(composer.steps), digits=digits
    )


def subjects(tables: Path) -> tuple[list[str], list[str]]:
    """The countries and the cities of a file, by name.

    Those whose names need quoting are left out, and those without a value in every column.
    """
    database = sqlite3.connect(f"{tables.absolute().as_uri()}?mode=ro", uri=True)
    countries = database.execute(
        "SELECT name FROM country WHERE name NOT LIKE '%''%' AND population > 0 AND area > 0 "
        "AND "
        "capital <> ''"
    ).fetchall()
    cities = database.execute("SELECT name FROM city WHERE name NOT LIKE '%''%'").fetchall()
    database.close()
    return [name for (name,) in countries], [name for (name,) in cities]
