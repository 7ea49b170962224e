"""How people ask for each operation: a small grammar and its rules. Pure.

The phrasings stand in `ways.txt`. `[a|b|]` is a choice; `{x}` and `{y}` are the values of an
operation, in its order. A line starts with its form: `n` a thing ("the capital of {x}"), `a` a
whole question ("which city is …"), `o` an order ("name the capital of {x}"), `t` an order about the
answers just found, which needs no other word for them ("add them", "count its letters"). Lines with
`!` are held out: no training uses them. They combine known words in other ways, since no small
model can read a word that it has never seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Final, Literal

from training.rehearsal.words import sections

PhrasingSet = Literal["known", "loose", "held", "all"]
"""Phrasings used in training, the same ones put together more loosely, held-out ones, or all."""

PhrasingForm = Literal["noun", "ask", "order", "then"]
"""A thing, a whole question, an order, an order about the answers just found."""

_FORMS: Final[Mapping[str, PhrasingForm]] = {"n": "noun", "a": "ask", "o": "order", "t": "then"}

_LINES: Final = sections(Path(__file__).with_name("ways.txt"))
AROUND: Final = {name: _LINES.pop(name) for name in ("checks", "frames", "openings", "pairs")}
"""How people ask for a check, what stands around a phrasing, and how several orders and joins
begin.
"""

MACROS: Final = dict(line.split(" ", 1) for line in _LINES.pop("macros").splitlines())
JOINTS: Final = tuple(
    f"{joint} " if joint[0] in ",." else f" {joint} " for joint in _LINES.pop("joints").splitlines()
)
TYPED: Final = _LINES.pop("typed")

WAYS: Final[Mapping[str, str]] = _LINES  # the lines of each operation, by its name


@dataclass(frozen=True, slots=True)
class Phrasing:
    """One line of the grammar, with its choices still open."""

    form: PhrasingForm
    text: str
    held: bool


def _read(lines: str) -> tuple[Phrasing, ...]:
    phrasings = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        mark, _, text = line.partition(" ")
        phrasings.append(Phrasing(_FORMS[mark.removeprefix("!")], text, held=mark.startswith("!")))
    return tuple(phrasings)


@cache
def lines_of(lines: str, form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
    """The lines of a form, choices open.

    Held-out ones alone for "held" if there are any of this form.
    """
    able = [line for line in _read(lines) if line.form == form]
    kept = [line.text for line in able if which == "all" or line.held == (which == "held")]
    return tuple(kept or [line.text for line in able])


@cache
def expand(text: str) -> tuple[str, ...]:
    """Every text that the choices of a line allow."""
    for macro, choices in MACROS.items():
        text = text.replace(macro, choices)
    return tuple(dict.fromkeys(map(_tidy, _options(text))))


def _options(text: str) -> list[str]:
    """As `expand`, with spaces as they are. A choice may hold another."""
    start = text.find("[")
    depth = 0
    if start < 0:
        return [text]
    cuts = [start]  # where the choices of the first brackets begin and end
    for at in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[at], 0)
        if depth == 0 or (depth == 1 and text[at] == "|"):
            cuts.append(at)
        if depth == 0:
            break
    choices: list[str] = []
    for begin, end in pairwise(cuts):
        choices += _options(text[begin + 1 : end])
    endings = _options(text[cuts[-1] + 1 :])
    return [f"{text[:start]}{choice}{ending}" for choice, ending in product(choices, endings)]


def _tidy(text: str) -> str:
    return " ".join(text.split())


def fill(phrasing: str, x: str, y: str = "") -> str:
    """The phrasing with its values; "it's" is written "its"."""
    owner = f"{x}'s"
    if x == "it":
        owner = "its"
    text = phrasing.replace("{x}'s", owner)
    return _tidy(text.replace("{x}", x).replace("{y}", y))


def vocabulary() -> frozenset[str]:
    """Every word that questions consist of.

    Any other word is an operand; so is a table, unless it is periodic.
    """
    read = chain.from_iterable(map(_read, (*WAYS.values(), *AROUND.values())))
    lines = [line.text for line in read]
    text = re.sub(r"\{\w+\}('s)?", "", " ".join([*lines, *JOINTS, *MACROS.values(), TYPED]))
    return frozenset(re.findall("[a-z]+", text.replace("'", ""))) - {"table"}
