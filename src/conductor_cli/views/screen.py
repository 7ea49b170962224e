"""How text fits a screen: widths in cells, cropping, wrapping, and what an encoding can write. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, chop_cells, set_cell_size

from conductor_cli.core.clean import one_line
from conductor_cli.views.port import encodable

Span = tuple[str, str]
"""Text, and the name of its style."""

Line = tuple[Span, ...]

STRIDE: Final = 500
"""A line of more than twice so many characters is wrapped from a multiple of it on, so that its breaks stand still."""

_UNSURE = re.compile("[\u00ad\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")
"""Joiners, variation selectors, skin tones: terminals differ in how wide they make what these join."""


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

    def line(self, text: str) -> str:
        """`text` as one safe line that the encoding can write."""
        text = one_line(text)
        return text if text.isascii() else encodable(_UNSURE.sub("", text), self.encoding)

    def crop(self, text: str, width: int) -> str:
        """`text` as one line of at most `width` cells."""
        text = self.line(text)
        if cell_len(text) <= width:
            return text
        dots = self.dots[: max(0, width)]
        return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots

    def wrap(self, text: str, width: int) -> list[str]:
        """`text` as lines of at most `width` cells, broken between words where that can be."""
        lines = [""]
        width = max(1, width)
        for word in self.line(text).split():
            joined = f"{lines[-1]} {word}" if lines[-1] else word
            if cell_len(joined) <= width:
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


def cells(line: Line) -> int:
    """How many columns `line` takes."""
    return sum(cell_len(text) for text, _ in line)
