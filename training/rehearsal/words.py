"""What there is in the demo's world: the tables of `facts.txt`, months and days."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final


def sections(path: Path) -> dict[str, str]:
    """The lines of a file by the names in brackets above them."""
    lines_by_section: dict[str, list[str]] = {}
    for line in map(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if re.fullmatch(r"\[\w+\]", line):
            lines_by_section[line[1:-1]] = []
        elif line and not line.startswith("#"):
            lines_by_section[next(reversed(lines_by_section))].append(line)
    return {name: "\n".join(lines) for name, lines in lines_by_section.items()}


def pairs(text: str) -> dict[str, str]:
    """A table of two columns, however many rows a line has."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_FACTS: Final = sections(Path(__file__).with_name("facts.txt"))

CAPITALS: Final = pairs(_FACTS["capitals"])  # country -> capital
_ELEMENTS: Final = _FACTS["elements"].split()
ELEMENTS: Final = tuple(
    zip(_ELEMENTS[::3], _ELEMENTS[1::3], map(int, _ELEMENTS[2::3]), strict=True)
)
"""Name, symbol, atomic number."""

OPPOSITES: Final = pairs(_FACTS["opposites"])  # each word is the opposite of the other

SPANISH: Final = pairs(_FACTS["spanish"])  # English -> Spanish, without accents

COLOURS: Final = pairs(_FACTS["colours"])  # thing -> the colour that people think of first

MONTHS: Final = (
    "JANUARY",
    "FEBRUARY",
    "MARCH",
    "APRIL",
    "MAY",
    "JUNE",
    "JULY",
    "AUGUST",
    "SEPTEMBER",
    "OCTOBER",
    "NOVEMBER",
    "DECEMBER",
)

WEEKDAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")

# Everyday words of 3 to 10 letters for questions about letters
WORDS: Final = tuple(_FACTS["words"].split())
