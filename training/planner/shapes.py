"""What questions of one step are drawn from: shapes, the values of their slots, files.

A text is written as people write: with a greeting, in lower case, with typing errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

HERE: Final = Path(__file__).parent
MISTYPED: Final = 0.07  # The share of questions with typing errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of question that one worker answers."""

    name: str
    skill: str
    easy: bool = False
    held: bool = False
    asked: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def follows_up(self) -> bool:
        """Whether its questions go on from an earlier one."""
        return self.name.startswith("follow up")


# Reading the files

LINE_BREAK: Final = "¶"  # How the files write a line break within a line of theirs
_SLOT: Final = re.compile(r"\{\{|\}\}|\{(\w+)(?:\.(\d))?\}")
_EITHER: Final = re.compile(r"\[([^\[\]\n]*~[^\[\]\n]*)\]")


@cache
def read_fillers() -> Mapping[str, tuple[str, ...]]:
    """The values of each slot."""
    lines = (HERE / "fillers.txt").read_text().splitlines()
    parts = [line.partition(":") for line in lines if line and not line.startswith("#")]
    return {
        name: tuple(value.strip() for value in values.split(" ; ")) for name, _, values in parts
    }


@cache
def read_shapes() -> tuple[Shape, ...]:
    """All shapes of shapes.txt."""
    shapes = list[Shape]()
    for line in (HERE / "shapes.txt").read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "=":
            name, skill, *flags = (part.strip() for part in rest.split("|"))
            shapes.append(Shape(name=name, skill=skill, easy="easy" in flags, held="held" in flags))
        elif mark == "?":
            shapes[-1] = replace(shapes[-1], asked=(*shapes[-1].asked, rest))
        elif mark == "@":
            shapes[-1] = replace(shapes[-1], files=tuple(rest.split()))
        elif line and mark != "#":
            raise ValueError(f"shapes.txt: {line}")
    return tuple(shapes)


@cache
def read_files() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The names and texts of attached files by their kind."""
    texts = dict[str, list[tuple[str, str]]]()
    for part in ("\n" + (HERE / "files.txt").read_text()).split("\n= ")[1:]:
        head, _, text = part.partition("\n")
        kind, _, name = head.partition(" | ")
        texts.setdefault(kind, []).append((name, text.rstrip()))
    return {kind: tuple(files) for kind, files in texts.items()}


@dataclass(slots=True)
class Slots:
    """The values that fill one question: a slot has the same value wherever it stands in it."""

    random: Random
    held: bool
    orders: dict[str, list[int]] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """The text with an alternative chosen and all slots filled."""
        chosen = _EITHER.sub(lambda match: self.random.choice(match[1].split("~")), text)
        return _SLOT.sub(self._value, chosen).replace(LINE_BREAK, "\n")

    def _value(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name = match[1]
        number = int(match[2] or 1)
        values = _values(name, held=self.held)
        family = _FAMILIES.get(name, name)
        if family not in self.orders:
            self.orders[family] = self.random.sample(range(len(values)), len(values))
        return values[self.orders[family][number - 1]]


_FAMILIES: Final = {"toolb": "tool", "toolc": "tool"}
"""Slots whose values stand beside those of another one, so that like is compared with like."""


def _values(name: str, *, held: bool) -> tuple[str, ...]:
    """The values of a slot: every fifth is kept for validation, where there are many."""
    values = read_fillers()[name]
    if len(values) < 14:
        return values
    kept = values[::4]
    if held:
        return kept
    return tuple(value for value in values if value not in kept)


_FORMS: Final = (
    "Answer in one line.",
    "Keep it short.",
    "As bullet points.",
    "Explain your steps.",
    "No explanations.",
    "Use at most 100 words.",
    "In a table, please.",
    "Give an example.",
    "Be precise.",
    "Thanks!",
    "thx",
    "As a numbered list.",
    "I have five minutes.",
    "Antworte bitte auf Deutsch.",
)
"""What is asked of the form of an answer: it needs no step of its own."""

_GREETINGS: Final = (
    "Hi! ",
    "Hello, ",
    "hey, ",
    "Please help: ",
    "Question: ",
    "Dear team, ",
    "Quick one: ",
    "pls: ",
    "Hallo, ",
    "Bonjour, ",
    "sorry for the dumb question, ",
)


def decorated(random: Random, text: str, *, form: bool) -> str:
    """The text as people write it: with a greeting, in lower case, without its last point."""
    if random.random() < 0.08:
        text = random.choice(_GREETINGS) + text
    if form and random.random() < 0.12:
        text = f"{text} {random.choice(_FORMS)}"
    if random.random() < 0.12:
        text = text.lower()
    if random.random() < 0.1:
        text = text.rstrip(".?!")
    if random.random() < 0.3:
        text = text[:1].upper() + text[1:]
    if random.random() < MISTYPED:
        text = _mistyped(random, text)
    return text


_WORD: Final = re.compile(r"\b[a-z]{5,}\b")


def _mistyped(random: Random, text: str) -> str:
    """The text with two letters swapped, or one left out, in one or two of its longer words."""
    words = list(_WORD.finditer(text))
    for match in sorted(random.sample(words, min(2, len(words))), key=lambda word: -word.start()):
        cut = random.randrange(match.start() + 1, match.end() - 2)
        letters = text[cut : cut + 2]
        typed = random.choice((letters[::-1], letters[0]))
        text = text[:cut] + typed + text[cut + 2 :]
    return text
