"""Fitting text to a screen: widths in cells, cropping, wrapping, and encodings; and printing it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from conductor_cli.core.formatting import format_count
from conductor_cli.core.terminal_text import one_line, reveal
from conductor_cli.views.base import OutputContext, Stdout, cannot_redraw, encodable

if TYPE_CHECKING:
    from rich.console import Console

Span = tuple[str, str]  # Text, and the name of its style
Line = tuple[Span, ...]
BLANK: Final[Line] = (("", "plain"),)
MAX_COLUMNS: Final = 100
"""Beyond this many columns prose is hard to read, and figures at the right edge are too far from
their row.
"""

STRIDE: Final = 500
"""A longer line is wrapped from a multiple of this many characters on, so that its breaks do not
move as it grows.
"""

MAX_LAYOUT_LINE: Final = 4096  # Characters of a text that are looked at to make one cropped line

_UNSURE = re.compile(
    "[\u00ad\u061c\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U0001f3fb-\U0001f3ff\U000e0000-\U000e0fff]"
)
"""Joiners, variation selectors, skin tones and invisible characters: terminals disagree about their
width.
"""

_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
UNSEEN: Final = (
    f"[{_MARKS[1:-1]}"
    "\u00ad\u061c\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
"""A pattern for a character that takes no cell."""

_FLOOD = re.compile(f"({_MARKS}{{3}}){_MARKS}+")
"""More marks on one letter than any script needs: they would cover other lines while counting as no
cell.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The size of a screen, and its encoding.

    `words`: it is read out, so that words are better than marks.
    """

    width: int = 80
    height: int = 24
    encoding: str = "utf-8"
    words: bool = False

    @property
    def marks(self) -> bool:
        """Whether it can show lines, dots and marks."""
        return not self.words and _has_marks(self.encoding)

    @property
    def dots(self) -> str:
        return "\u2026" if self.marks else "..."

    @property
    def bar(self) -> str:
        return "\u2502" if self.marks else "|"

    def line(self, text: str) -> str:
        """Return `text` as one sanitized line that the encoding can write.

        What nobody can see is named.
        """
        text = one_line(reveal(text))
        if text.isascii():
            return text
        return encodable(_FLOOD.sub(r"\1", _UNSURE.sub("", text)), self.encoding)

    def crop(self, text: str, width: int) -> str:
        """Return `text` as one line of at most `width` cells."""
        from rich.cells import set_cell_size

        # Cut first, so that a text of megabytes is not sanitized for one line of it.
        whole = len(text) <= MAX_LAYOUT_LINE
        text = self.line(text[:MAX_LAYOUT_LINE])
        if whole and text_cells(text) <= width:
            return text
        dots = self.dots[: max(0, width)]
        return set_cell_size(text, max(0, width - len(dots))).rstrip() + dots

    def styled_rows(self, text: str, style: str, indent: str = "") -> list[Line]:
        """Return a text in the rows of the screen, each of one style and with an indent."""
        rows = self.wrap(text, self.width - len(indent))
        return [((indent + row, style),) for row in rows]

    def wrap(self, text: str, width: int) -> list[str]:
        """Return `text` as lines of at most `width` cells, broken between words if possible."""
        from rich.cells import chop_cells

        lines: list[str] = []
        width = max(1, width)
        used = 0
        text = self.line(text)
        measure = len if text.isascii() else text_cells
        for word in text.split():
            size = measure(word)
            if lines and used + 1 + size <= width:
                lines[-1] += f" {word}"
                used += 1 + size
            else:
                if size <= width:
                    lines.append(word)
                else:
                    lines += chop_cells(word, width)
                used = text_cells(lines[-1])
        return lines

    def _wrap_indented(self, text: str, width: int) -> list[str]:
        """Return the rows of a line, as `wrap` does, each with the indentation of the line."""
        line = text.lstrip("\n").expandtabs(4)
        depth = min(len(line) - len(line.lstrip(" ")), width // 2)
        return [" " * depth + row for row in self.wrap(line, width - depth)]

    def head(self, text: str, width: int, count: int) -> list[str]:
        """At most the first `count` lines of `text`, each of at most `width` cells.

        Dots say that more follows.
        """
        read = text[: count * STRIDE]
        lines = list[str]()
        for line in read.split("\n"):
            if len(lines) > count:
                break
            lines += self._wrap_indented(line, width)
        is_cut = len(lines) > count or len(read) < len(text.rstrip())
        lines = lines[:count]
        if is_cut and lines:
            lines[-1] = self.crop(f"{lines[-1]} {self.dots}", width)
        return lines

    def block(self, text: str, width: int) -> list[str]:
        """Return all lines of `text`, wrapped.

        At most a third of the screen, and then how many lines follow: `+3 lines`.
        """
        from rich.cells import set_cell_size

        most = max(3, self.height // 3)
        lines = text.strip().splitlines()
        left = len(lines)
        shown = list[str]()
        for line in lines:
            # No more of a very long line is wrapped than can be shown.
            shown += self.wrap(line[: (most + 1) * width], width) or [""]
            if len(shown) > most:
                break  # this line is not shown whole
            left -= 1
            if len(shown) == most:
                break
        if not left:
            return shown
        rest = self.dots
        if len(lines) > 1:
            rest += f" +{format_count(left, 'line')}"
        last = set_cell_size(shown[most - 1], max(0, width - len(rest) - 1)).rstrip()
        return [*shown[: most - 1], f"{last} {rest}"]

    def tail(self, text: str, width: int, count: int) -> list[str]:
        """At most the last `count` lines of `text`, each of at most `width` cells.

        As fast for any length.
        """
        lines: list[str] = []
        end = len(text)
        while end > 0 and len(lines) < count:
            # A line without an end is cut at fixed places, so that it is not wrapped from its
            # beginning each time.
            start = max(text.rfind("\n", 0, end), (end // STRIDE - 1) * STRIDE, 0)
            is_whole_line = start == 0 or text[start] == "\n"
            wrap = self._wrap_indented if is_whole_line else self.wrap
            lines = wrap(text[start:end], width) + lines
            end = start
        return lines[-count:]


@cache
def _has_marks(encoding: str) -> bool:
    marks = "\u2026\u2193\u2502\u251c\u2514\u2500\u25cf\u25cb\u21bb\u2713\u2717\u2013"
    return encodable(marks, encoding) == marks


def line_texts(lines: Iterable[Line]) -> list[str]:
    """Lines without their colours."""
    texts = []
    for line in lines:
        texts.append("".join(text for text, _ in line).rstrip())
    return texts


def text_cells(text: str) -> int:
    """Return how many cells sanitized text takes."""
    from rich.cells import cell_len  # Rich takes long to load

    if text.isascii():
        return len(text)
    return cell_len(text)


def cells(line: Line) -> int:
    """Return how many cells `line` takes."""
    return sum(text_cells(text) for text, _ in line)


def cut(line: Line, width: int) -> Line:
    """Return `line` without what is beyond `width` cells."""
    from rich.cells import set_cell_size  # Rich takes long to load

    if cells(line) <= width:
        return line
    kept: list[Span] = []
    for text, style in line:
        kept.append((set_cell_size(text, min(text_cells(text), max(0, width))), style))
        width -= text_cells(text)
    return tuple(kept)


def page_screen(width: int, encoding: str, environ: Mapping[str, str]) -> Screen:
    """Return a screen for a page of text on a terminal of this width; 0 for a file or a pipe."""
    return Screen(width=width or MAX_COLUMNS, encoding=encoding, words=cannot_redraw(environ))


class Printer:
    """Prints styled lines to one stream: with colours on a terminal, as plain text elsewhere."""

    def __init__(self, stream: Stdout, context: OutputContext) -> None:
        self._stream = stream
        self._context = context
        self._console: Console | None = None

    @property
    def screen(self) -> Screen:
        """The room there is now; a terminal's size may change."""
        width = MAX_COLUMNS
        if self._stream.terminal:
            width = min(self._open().size.width, MAX_COLUMNS)
        return Screen(width=width, encoding=self._stream.encoding)

    def print(self, lines: Iterable[Line]) -> None:
        """Write the lines. Errors of the stream are raised."""
        shown = list(lines)
        if self._stream.terminal:
            from conductor_cli.views.styled_lines import StyledLines

            self._open().print(StyledLines(lambda: shown), end="", crop=False)
        else:
            self._stream.write("".join(f"{line}\n" for line in line_texts(shown)))
        self._stream.flush()

    def _open(self) -> Console:
        self._console = self._console or self._context.open_console(self._stream)
        return self._console
