"""Untrusted text made safe for a terminal, and plain-text tables that fit a width.

`sanitize` removes escape sequences (colours, cursor moves, titles, links, clipboard writes),
control characters, and the marks that reverse the reading order. It keeps newline, tab and every
printable character. Line ends of any kind become newlines. A lone surrogate, which no encoding can
write, becomes the replacement character.

In a table on a narrow screen the columns that may shrink are cropped or wrapped down to their least
width; then the least important columns are left out, which a line below the table says; then every
other column is cropped, the first one last. No rich here: its import costs more than a whole `trace
list`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

UNSEEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters that nobody can see, as a set of a regular expression: joiners, marks of
direction, fillers, tags.
"""
_UNSEEN_RUN = re.compile(f"[{UNSEEN}]+")
_BLANK = re.compile(f"[{UNSEEN}\\s\ufe00-\ufe0f\u2800]*")
_HIDDEN = re.compile("[\u00ad\u061c\u200b\u200e\u200f\U000e0000-\U000e007f]")

# Each pattern is a sequence without its end. The bounds keep a sequence that never ends from
# swallowing the text.
_CSI = "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}"  # colours, cursor, erase
# OSC, DCS, SOS, PM, APC: one line
_STRING = "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]{0,4096}"
_SHORT = "\x1b[ -/]{0,8}"  # two-character and character-set escapes
_PIECES = re.compile(
    f"{_CSI}[@-~]|{_STRING}(?:\x07|\x9c|\x1b\\\\)|{_SHORT}[0-~]|\r\n|{_UNSAFE.pattern}"
)
_TAIL = re.compile(f"(?:\r|{_CSI}|{_STRING}\x1b?|{_SHORT})\\Z")


def is_sanitized(text: str) -> bool:
    """Return whether `sanitize` would leave `text` unchanged."""
    return (text.isascii() and text.isprintable()) or _UNSAFE.search(text) is None


def sanitize(text: str) -> str:
    """Return `text` without anything that a terminal would obey instead of displaying."""

    def replacement(found: re.Match[str]) -> str:
        piece = found[0]
        if piece == "\r\n" or (len(piece) == 1 and piece in "\r\x0b\x0c\x85\u2028\u2029"):
            return "\n"
        return "\ufffd" if "\ud800" <= piece <= "\udfff" else ""

    return text if is_sanitized(text) else _PIECES.sub(replacement, text)


def one_line(text: str) -> str:
    """Return `text`, sanitized, with every run of white space as one space.

    For places with room for one line.
    """
    return " ".join(sanitize(text).split())


def short_line(text: str, max_length: int = 200) -> str:
    """Return a text from a file or a library as an error may show it: one line, printable, short.

    What is not printable becomes a blank, so that the rest of an escape sequence stays visible as
    what it is.
    """
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(printable.split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def reveal(text: str) -> str:
    """Return `text` with a name such as ⟨U+200B⟩ for each character that nobody can see.

    Long rows of them are counted.

    A joiner after a letter or sign of a script that needs it, as in Persian or between emoji,
    stays.
    """

    def revealed(found: re.Match[str]) -> str:
        run = found[0]
        before = found.string[found.start() - 1 : found.start()]
        if run in "\u200c\u200d" and not before.isascii() and not before.isspace():
            return run
        named = "".join(f"\u27e8U+{ord(letter):04X}\u27e9" for letter in run[:3])
        rest = len(run) - 3
        return f"{named}\u27e8and {rest} more that cannot be seen\u27e9" if rest > 0 else named

    return text if text.isascii() else _UNSEEN_RUN.sub(revealed, text)


def without_hidden(text: str) -> str:
    """Return `text` without what can hide words in it or change their order.

    Joiners stay, which scripts need.
    """
    return text if text.isascii() else _HIDDEN.sub("", text)


def is_blank(text: str) -> bool:
    """Return whether there is nothing to see in `text`."""
    return _BLANK.fullmatch(text) is not None


def without_controls(text: str) -> str:
    """Return `text` without escape sequences and control characters.

    All else stays as it is, line ends too.
    """

    def replacement(found: re.Match[str]) -> str:
        piece = found[0]
        if piece == "\r\n" or (len(piece) == 1 and (piece in "\r\x0b\x0c" or piece >= "\u2028")):
            return piece
        return "\n" if piece == "\x85" else ""

    return text if is_sanitized(text) else _PIECES.sub(replacement, text)


def escape_unseen(line: str) -> str:
    """Return the same line of JSON, with escapes for the characters that nobody can see."""
    return (
        line if line.isascii() else _UNSEEN_RUN.sub(lambda found: json.dumps(found[0])[1:-1], line)
    )


def escape_json(line: str) -> str:
    """Return the same line of JSON, with escapes for whatever is unsafe in it."""
    return (
        line if is_sanitized(line) else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
    )


class StreamSanitizer:
    """`sanitize` for text that comes in pieces.

    It recognizes an escape sequence that is split between two pieces.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what may be shown now.

        A sequence that has begun at the end of the text is held back.
        """
        if not self._held and is_sanitized(piece):
            return piece
        text = self._held + piece
        tail = _TAIL.search(text)
        self._held = tail[0] if tail else ""
        return sanitize(text[: len(text) - len(self._held)])

    def close(self) -> str:
        held = self._held
        self._held = ""
        return sanitize(held)


GAP: Final = 2  # Spaces between two columns
LEAST_WRAPPED: Final = 20  # The narrowest column that text is wrapped into

ELLIPSIS: Final = "…"


class Column(NamedTuple):
    """How one column is shown.

    `drop` orders the columns that a narrow screen leaves out: the highest first, 0 never. `shrink`
    allows cropping down to that many cells before a column is left out, `wrap` allows several
    lines.
    """

    head: str
    right: bool = False
    drop: int = 0
    shrink: int = 0
    wrap: bool = False


class TableLines(NamedTuple):
    """A rendered table.

    Its heading, the lines of each row, and the line that says what is left out, if anything.
    """

    head: list[str]
    rows: list[list[str]]
    foot: list[str]


def render_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = 0
) -> list[str]:
    """Return the table as lines of at most `width` cells; 0 means no limit.

    Only a wrapped word may be longer.
    """
    head, blocks, foot = render_rows(columns, rows, width)
    return [*head, *(line for block in blocks for line in block), *foot]


def shown_heads(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = 0
) -> list[str]:
    """Return the headings of the columns that are not left out at this width."""
    return [columns[index].head for index in _column_sizes(columns, _clean_rows(rows), width)]


def render_rows(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int = 0
) -> TableLines:
    """Return the table row by row."""
    rows = _clean_rows(rows)
    sizes = _column_sizes(columns, rows, width)
    shown = [(columns[index], size) for index, size in sizes.items()]
    head = _render_row(shown, [crop_text(column.head, size) for column, size in shown])
    left_out = [column.head for index, column in enumerate(columns) if index not in sizes]
    foot = [crop_text(f"not shown here: {', '.join(left_out)}", width)] if left_out else []
    return TableLines(
        head, [_render_row(shown, [row[index] for index in sizes]) for row in rows], foot
    )


def _clean_rows(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[cell if cell.isprintable() else one_line(cell) for cell in row] for row in rows]


def _column_sizes(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> dict[int, int]:
    """Return the cells of each column that is shown, by its index.

    The widest one gives way first.
    """
    natural = [
        max(display_width(column.head), *(display_width(row[index]) for row in rows), 0)
        for index, column in enumerate(columns)
    ]
    least = [
        min(size, LEAST_WRAPPED)
        if column.wrap
        else max(min(size, column.shrink), display_width(column.head))
        if column.shrink
        else size
        for column, size in zip(columns, natural, strict=True)
    ]
    sizes = dict(enumerate(natural))

    def excess(taken: Sequence[int]) -> int:
        return sum(taken) + GAP * (len(taken) - 1) - width if width else 0

    while excess([least[index] for index in sizes]) > 0 and any(
        columns[index].drop for index in sizes
    ):
        del sizes[max(sizes, key=lambda index: (columns[index].drop, index))]
    shrinking = [
        1 if column.shrink or column.wrap else size
        for column, size in zip(columns, least, strict=True)
    ]
    for floor in (
        least,
        shrinking,
        [shrinking[0], *(1 for _ in columns[1:])],
        [1 for _ in columns],
    ):
        while (over := excess([*sizes.values()])) > 0:
            wider = [index for index in sizes if sizes[index] > floor[index]]
            if not wider:
                break
            widest = max(wider, key=lambda index: sizes[index])
            sizes[widest] = max(floor[widest], sizes[widest] - over)
    return sizes


def _render_row(columns: Sequence[tuple[Column, int]], row: Sequence[str]) -> list[str]:
    cells = [
        wrap_text(cell, size) if column.wrap else [crop_text(cell, size)]
        for (column, size), cell in zip(columns, row, strict=True)
    ]
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = []
        for (column, size), cell in zip(columns, cells, strict=True):
            text = cell[number] if number < len(cell) else ""
            space = " " * (size - display_width(text))
            parts.append(space + text if column.right else text + space)
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def display_width(text: str) -> int:
    """Return how many terminal cells a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # most lists are ASCII and never load it

    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def crop_text(text: str, width: int) -> str:
    """Return the beginning of a text that fits, with an ellipsis when something was cut."""
    if display_width(text) <= width:
        return text
    end = max(width - 1, 0)
    while end > 0 and display_width(text[:end]) > width - 1:
        end -= 1
    return text[:end] + ELLIPSIS


def wrap_text(text: str, width: int) -> list[str]:
    """Return the text as lines broken between words.

    A word stays whole, so that paths and options can be copied.
    """
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and display_width(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines
