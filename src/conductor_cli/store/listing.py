"""Stored runs as lines of text, as wide as there is room. Pure; what comes in is clean and without line ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from conductor_cli.store.rows import BETWEEN, Found, Row, Texts, data_of

NARROW: Final = 60
"""Columns below which a run takes two lines."""

ENOUGH: Final = 24
"""Columns of a question that one can tell runs apart by."""

WIDE: Final = 100
"""Columns of a question where nobody says how many there are."""

MOST: Final = 4
"""Texts of one run that are shown where they hold what was searched."""

AROUND: Final = 60
"""Characters that are shown on each side of what was found."""

GAP: Final = "  "
ELLIPSIS: Final = "…"

Mark = Callable[[str], str]
"""What makes a found text stand out."""


class Column(NamedTuple):
    """A head and what stands under it. `spare`: the higher, the sooner it is left out where it is narrow."""

    head: str
    cell: Callable[[Row, datetime], str]
    spare: int = 0


COLUMNS: Final = (
    Column("RUN", lambda row, _: row.run),
    Column("WHEN", lambda row, now: when(row.time, now), 2),
    Column("RESULT", lambda row, _: row.state),
    Column("PLAN", lambda row, _: row.shape or "-", 3),
    Column("WORKERS", lambda row, _: row.workers.replace(BETWEEN, ", ") or "-", 4),
    Column("COST", lambda row, _: money(row), 1),
    Column("TOOK", lambda row, _: took(row.seconds) if row.time else "-", 5),
)
"""All but the question, which takes what is left."""


def lines(found: Sequence[Found], width: int, now: datetime, terms: Sequence[str] = (), mark: Mark = str) -> list[str]:
    """Heads and rows; with `terms`, under each row where they were found. `width` 0: as long as it takes."""
    rows = [each.row for each in found]
    narrow = 0 < width < NARROW
    head, *shown = [[], *[_stacked(row, width, now) for row in rows]] if narrow else _table(rows, width, now)
    under = [_told(each, terms, width, mark) for each in found]
    return [*head, *[line for row, told in zip(shown, under, strict=True) for line in (*row, *told)]]


def _table(rows: Sequence[Row], width: int, now: datetime) -> list[list[str]]:
    """The heads, then each row, as one line each."""
    columns = _fitting(rows, width, now)
    cells = [[column.head for column in columns], *[[column.cell(row, now) for column in columns] for row in rows]]
    widths = [max(map(cells_of, column)) for column in zip(*cells, strict=True)]
    begins = ["".join(padded(cell, room) + GAP for cell, room in zip(line, widths, strict=True)) for line in cells]
    room = max(width - cells_of(begins[0]), 1) if width else WIDE
    titles = ["QUESTION", *map(_title, rows)]
    return [[f"{begin}{cropped(title, room)}".rstrip()] for begin, title in zip(begins, titles, strict=True)]


def _fitting(rows: Sequence[Row], width: int, now: datetime) -> list[Column]:
    """The columns that leave enough room for the question."""
    columns = list(COLUMNS)
    for spared in sorted(filter(lambda column: column.spare, COLUMNS), key=lambda column: -column.spare):
        if not width or _taken(rows, columns, now) + ENOUGH <= width:
            break
        columns.remove(spared)
    return columns


def _taken(rows: Sequence[Row], columns: Sequence[Column], now: datetime) -> int:
    widest = [max(len(c.head), *(cells_of(c.cell(row, now)) for row in rows)) for c in columns]
    return sum(widest) + len(GAP) * len(columns)


def _stacked(row: Row, width: int, now: datetime) -> list[str]:
    """A run on a narrow screen."""
    return [
        cropped(f"{row.run} {row.state}", width),
        cropped(f"  {when(row.time, now)}, plan {row.shape or '-'}, {money(row)}", width),
        cropped(f"  {_title(row)}", width),
    ]


def _title(row: Row) -> str:
    return ("again: " if row.resumed else "") + (row.title or row.problem)


def _told(found: Found, terms: Sequence[str], width: int, mark: Mark) -> list[str]:
    """Where the terms stand in a run, a line for each text that holds one; `MOST` at most."""
    if not terms or found.texts is None:
        return []
    told = [
        f"    {place}: {text}" for place, text in hits(found.texts, terms, max(width - 18, 20) if width else 0, mark)
    ]
    more = len(told) - MOST
    return [*told[:MOST], *([f"    and in {more} more"] if more > 0 else [])]


def hits(texts: Texts, terms: Sequence[str], width: int = 0, mark: Mark = str) -> list[tuple[str, str]]:
    """The texts of a run that hold one of the terms: what it is, such as `answer 2`, and the part around the first."""
    found = [(place, hit(text, terms, width or 2 * AROUND, mark)) for place, text in _places(texts)]
    return [(place, text) for place, text in found if text]


def _places(texts: Texts) -> list[tuple[str, str]]:
    subtasks, answers = texts.subtasks.split(BETWEEN), texts.answers.split(BETWEEN)
    named = [("question", texts.question)]
    named += [(f"subtask {number}", text) for number, text in enumerate(subtasks, start=1)]
    named += [
        (f"answer {number}" if number <= len(subtasks) else "answer", text)
        for number, text in enumerate(answers, start=1)
    ]
    return named


def data(found: Found, directory: str, terms: Sequence[str] = ()) -> dict[str, Any]:
    """A run as a JSON object; with `terms`, where they stand."""
    told = data_of(found.row, directory)
    if terms and found.texts is not None:
        told["hits"] = [{"in": place, "text": text} for place, text in hits(found.texts, terms)]
    return told


def hit(text: str, terms: Sequence[str], width: int, mark: Mark) -> str:
    """The part of a text around the first term in it, the terms marked; empty where none is."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two: places in one are not those in the other
        lower = text
    spots = sorted((at, len(term)) for term in terms if (at := lower.find(term.lower())) >= 0)
    if not spots:
        return ""
    first = max(0, min(spots[0][0] - width // 3, len(text) - width + 1))
    begin = ELLIPSIS if first else ""
    part = cropped(begin + text[first : first + width], width)
    return marked(part, terms, mark)


def marked(text: str, terms: Sequence[str], mark: Mark) -> str:
    """The text with every term in it marked, the longest first."""
    lower = text.lower()
    if len(lower) != len(text):
        return text
    parts, at = [], 0
    while at < len(text):
        spots = [(lower.find(term.lower(), at), -len(term)) for term in terms]
        begin, length = min((spot for spot in spots if spot[0] >= 0), default=(len(text), 0))
        parts += [text[at:begin], mark(text[begin : begin - length]) if length else ""]
        at = begin - length if length else len(text)
    return "".join(parts)


def when(time: str, now: datetime) -> str:
    """How long ago, from a time in ISO 8601: `5 min ago`; the day where that is more than a month."""
    try:
        then = datetime.fromisoformat(time)
        seconds = (now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()
    except ValueError:
        return "-"
    if not 0 <= seconds < 30 * 86_400:
        return f"{then:%Y-%m-%d}" if seconds > 0 else "now"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "now"


def money(row: Row) -> str:
    """What is known of the price: `$0.0042`, with a plus where some calls had none; `-` where nothing is known."""
    if not row.cost:
        return "-"
    cost = float(row.cost)
    return (f"${cost:.2f}" if cost == 0 or cost >= 1 else f"${cost:.4f}") + ("+" if row.unpriced else "")


def took(seconds: float) -> str:
    """`3.2 s`, `42 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def cells_of(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def padded(text: str, width: int) -> str:
    """The text with spaces behind it up to so many columns."""
    return text + " " * (width - cells_of(text))


def cropped(text: str, width: int) -> str:
    """The beginning of a text that fits."""
    if cells_of(text) <= width:
        return text
    end = width - 1
    while end > 0 and cells_of(text[:end]) > width - 1:
        end -= 1
    return text[:end] + ELLIPSIS
