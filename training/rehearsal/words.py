"""What there is in the demo's world: the tables of `facts.txt`, months and days."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final


def sections(name: str) -> dict[str, str]:
    """The lines of a file beside this one by the names in brackets above them."""
    found: dict[str, list[str]] = {}
    for line in map(str.strip, Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()):
        if re.fullmatch(r"\[\w+\]", line):
            found[line[1:-1]] = []
        elif line and not line.startswith("#"):
            found[next(reversed(found))].append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


_FACTS: Final = {name: text.split() for name, text in sections("facts.txt").items()}


def _pairs(name: str) -> tuple[tuple[str, str], ...]:
    return tuple(zip(_FACTS[name][::2], _FACTS[name][1::2], strict=True))


CAPITALS: Final = dict(_pairs("capitals"))
"""Country -> capital."""

_ELEMENTS: Final = _FACTS["elements"]
ELEMENTS: Final = tuple(zip(_ELEMENTS[::3], _ELEMENTS[1::3], map(int, _ELEMENTS[2::3]), strict=True))
"""Name, symbol, atomic number."""

OPPOSITES: Final = _pairs("opposites")
"""Each word is the opposite of the other."""

SPANISH: Final = dict(_pairs("spanish"))
"""English -> Spanish, without accents."""

COLOURS: Final = dict(_pairs("colours"))
"""Thing -> the colour that people think of first."""

MONTHS: Final = (
    "JANUARY", "FEBRUARY", "MARCH", "APRIL", "MAY", "JUNE",
    "JULY", "AUGUST", "SEPTEMBER", "OCTOBER", "NOVEMBER", "DECEMBER",
)  # fmt: skip

WEEKDAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")

WORDS: Final = tuple(_FACTS["words"])
"""Everyday words of 3 to 10 letters for questions about letters."""
