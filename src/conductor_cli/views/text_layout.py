"""How text fits a screen: widths in cells, cropping, wrapping, and what an encoding can write. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells, set_cell_size

from conductor_cli.core.sanitize import one_line
from conductor_cli.views.base import encodable

Span = tuple[str, str]
"""Text, and the name of its style."""

Line = tuple[Span, ...]

BLANK: Final[Line] = (("", "plain"),)

WIDEST: Final = 100
"""Columns beyond which prose is hard to read, and figures at the right edge stand too far from what they belong to."""

STRIDE: Final = 500
"""A line of more than twice so many characters is wrapped from a multiple of it on, so that its breaks stand still."""

LONG: Final = 4096
"""Characters of a text that a single line is made of at most."""

COMMON: Final = (70, 24)
"""Columns and rows to which a larger window may shrink without a trace of what was drawn on it."""

_UNSURE = re.compile(
    "[\u00ad\u061c\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
)
"""Joiners, variation selectors, skin tones: terminals differ in how wide they make what these join. What is unseen."""

_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
UNSEEN: Final = f"[{_MARKS[1:-1]}\u00ad\u061c\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
"""A character that takes no room."""

_FLOOD = re.compile(f"({_MARKS}{{3}}){_MARKS}+")
"""More marks on one letter than any script needs: they would cover other lines, and count as no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Columns, rows, and the encoding that decides between glyphs and ASCII."""

    width: int = 80
    height: int = 24
    encoding: str = "utf-8"

    @property
    def glyphs(self) -> bool:
        """Whether a line and three dots in one character can be written."""
        return encodable("\u2026\u2502", self.encoding) == "\u2026\u2502"

    @property
    def dots(self) -> str:
        return "\u2026" if self.glyphs else "..."

    @property
    def bar(self) -> str:
        return "\u2502" if self.glyphs else "|"

    @property
    def narrow(self) -> bool:
        """Whether words must be saved."""
        return self.width < 60

    def fits(self, widths: Sequence[int]) -> bool:
        """Whether live rows of these widths still fit when somebody splits the window either way, or shrinks it.

        Then its terminal breaks them anew, and what does not fit has left the screen before it can be erased.
        """
        width, height = self.width, self.height
        smaller = (width // 2, height), (width, height // 2), (min(width, COMMON[0]), min(height, COMMON[1]))
        return all(folded(widths, columns) < lines for columns, lines in smaller)

    def line(self, text: str) -> str:
        """`text` as one safe line that the encoding can write."""
        text = one_line(text)
        return text if text.isascii() else encodable(_FLOOD.sub(r"\1", _UNSURE.sub("", text)), self.encoding)

    def crop(self, text: str, width: int) -> str:
        """`text` as one line of at most `width` cells."""
        whole = len(text) <= LONG
        text = self.line(text[:LONG])
        if whole and taken(text) <= width:
            return text
        dots = self.dots[: max(0, width)]
        return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots

    def wrap(self, text: str, width: int) -> list[str]:
        """`text` as lines of at most `width` cells, broken between words where that can be."""
        lines = [""]
        width = max(1, width)
        for word in self.line(text).split():
            joined = f"{lines[-1]} {word}" if lines[-1] else word
            if taken(joined) <= width:
                lines[-1] = joined
            else:
                lines += chop_cells(word, width)
        return [line for line in lines if line]

    def tail(self, text: str, width: int, count: int) -> list[str]:
        """The last `count` lines of `text` at most, each of at most `width` cells. Costs the same for any length."""
        lines: list[str] = []
        end = len(text)
        while end > 0 and len(lines) < count:
            start = max(text.rfind("\n", 0, end), (end // STRIDE - 1) * STRIDE, 0)
            lines = self.wrap(text[start:end], width) + lines
            end = start
        return lines[-count:]


def taken(text: str) -> int:
    """How many columns clean text takes."""
    return len(text) if text.isascii() else cell_len(text)


def cells(line: Line) -> int:
    """How many columns `line` takes."""
    return sum(taken(text) for text, _ in line)


def folded(widths: Iterable[int], width: int) -> int:
    """How many rows lines of so many cells take on a terminal that breaks them at `width`."""
    return sum(max(1, -(-cells // max(1, width))) for cells in widths)
