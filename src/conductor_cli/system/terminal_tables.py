"""Plain-text tables and lines that fit a terminal, its width, and how many cells a text takes.

On a narrow screen the columns that may shrink are cropped or wrapped down to their least width;
then the least important columns are left out, which a line below the table says; then every other
column is cropped, the first one last. No rich here: its import costs more than a whole `trace
list`.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple, TextIO

from conductor_cli.core.terminal_text import one_line

GAP_CELLS: Final = 2  # Spaces between two columns
MIN_WRAPPED_CELLS: Final = 20  # The narrowest column that text is wrapped into

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
    return [*head, *chain.from_iterable(blocks), *foot]


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
    blocks = [_render_row(shown, [row[index] for index in sizes]) for row in rows]
    foot = []
    left_out = [column.head for index, column in enumerate(columns) if index not in sizes]
    if left_out:
        foot.append(crop_text(f"not shown here: {', '.join(left_out)}", width))
    return TableLines(head, blocks, foot)


def _clean_rows(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [list(map(_clean_cell, row)) for row in rows]


def _clean_cell(cell: str) -> str:
    if cell.isprintable():
        return cell
    return one_line(cell)


def _column_sizes(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int
) -> dict[int, int]:
    """Return the cells of each column that is shown, by its index.

    The widest one gives way first.
    """
    natural = []
    for index, column in enumerate(columns):
        natural.append(_natural_size(column, [row[index] for row in rows]))
    sizes = dict(enumerate(natural))
    if not width:
        return sizes
    least = [_least_size(column, size) for column, size in zip(columns, natural, strict=True)]
    while _row_cells([least[index] for index in sizes]) > width:
        droppable = [index for index in sizes if columns[index].drop]
        if not droppable:
            break
        del sizes[max(droppable, key=lambda index: (columns[index].drop, index))]
    shrinking = list(least)
    for index, column in enumerate(columns):
        if column.shrink or column.wrap:
            shrinking[index] = 1
    others = [1] * (len(columns) - 1)
    for floor in (least, shrinking, [shrinking[0], *others], [1, *others]):
        _shrink_widest(sizes, floor, width)
    return sizes


def _natural_size(column: Column, cells: Iterable[str]) -> int:
    """Return how many cells a column takes where there is room."""
    return max(display_width(column.head), *map(display_width, cells), 0)


def _least_size(column: Column, natural: int) -> int:
    """Return how far a column may shrink before another one is left out for it."""
    if column.wrap:
        return min(natural, MIN_WRAPPED_CELLS)
    if column.shrink:
        return max(min(natural, column.shrink), display_width(column.head))
    return natural


def _row_cells(sizes: Sequence[int]) -> int:
    return sum(sizes) + GAP_CELLS * (len(sizes) - 1)


def _shrink_widest(sizes: dict[int, int], floor: Sequence[int], width: int) -> None:
    """Shrink the widest column, again and again, until the row fits or each is at its floor."""
    while (excess := _row_cells([*sizes.values()]) - width) > 0:
        wider = [index for index in sizes if sizes[index] > floor[index]]
        if not wider:
            return
        widest = max(wider, key=lambda index: sizes[index])
        sizes[widest] = max(floor[widest], sizes[widest] - excess)


def _render_row(columns: Sequence[tuple[Column, int]], row: Sequence[str]) -> list[str]:
    cells = [_cell_lines(*column, cell) for column, cell in zip(columns, row, strict=True)]
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = []
        for (column, size), cell in zip(columns, cells, strict=True):
            text = ""
            if number < len(cell):
                text = cell[number]
            space = " " * (size - display_width(text))
            if column.right:
                parts.append(space + text)
            else:
                parts.append(text + space)
        lines.append((" " * GAP_CELLS).join(parts).rstrip())
    return lines


def _cell_lines(column: Column, size: int, cell: str) -> list[str]:
    if column.wrap:
        return wrap_text(cell, size)
    return [crop_text(cell, size)]


def display_width(text: str) -> int:
    """Return how many terminal cells a text of one line takes."""
    if text.isascii():
        return len(text)
    from wcwidth import width  # most lists are ASCII and never load it

    return width(text)


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
        joined = word
        if lines[-1]:
            joined = f"{lines[-1]} {word}"
        if lines[-1] and display_width(joined) > width:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


# Lines are wrapped for at least so many columns; a narrower terminal breaks them itself
MIN_COLUMNS: Final = 20

_INDENT: Final = re.compile(r" *(?:\d+\. |[a-z]{1,10} {2,})?")
"""The indent of a line with its number or label. The rest of a wrapped line is aligned after it."""


def terminal_width(stream: TextIO) -> int:
    """Return the columns of a stream's terminal, or COLUMNS, at least `MIN_COLUMNS`.

    0 where it is no terminal.
    """
    with suppress(OSError, ValueError):  # it has no file, or is closed
        if stream.isatty():
            given = os.environ.get("COLUMNS", "")
            columns = int(given) if given.isdecimal() else 0
            columns = columns or os.get_terminal_size(stream.fileno()).columns
            return max(columns, MIN_COLUMNS) if columns else 0
    return 0


def wrap_lines(text: str, width: int) -> str:
    """The text in lines of at most so many characters; long words, such as paths, stay whole.

    Pure.
    """
    lines = []
    for whole in text.split("\n"):
        line = whole
        if 0 < width < len(whole):
            match = _INDENT.match(whole)
            indent = match[0] if match else ""
            line = textwrap.fill(
                whole[len(indent) :].strip(),
                width,
                initial_indent=indent,
                subsequent_indent=" " * len(indent),
                break_long_words=False,
                break_on_hyphens=False,
            )
        lines.append(line)
    return "\n".join(lines)
