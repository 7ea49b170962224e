"""Stored runs as lines of text, as wide as there is room. Pure; what comes in is clean and without line ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_duration, format_time
from conductor_cli.core.table import ELLIPSIS, Column, crop_text, render_rows
from conductor_cli.store.stored_run import BETWEEN, FoundRun, RunTexts, StoredRun, run_data

WIDE: Final = 100
"""Cells of a question where the width is not limited."""

MOST: Final = 4
"""Texts of one run that are shown where they hold what was searched."""

AROUND: Final = 60
"""Characters that are shown on each side of what was found."""

Mark = Callable[[str], str]
"""What makes a found text stand out."""


COLUMNS: Final = (
    Column("RUN"),
    Column("WHEN", drop=2),
    Column("RESULT"),
    Column("PLAN", drop=3),
    Column("WORKERS", drop=4),
    Column("COST", drop=1),
    Column("TOOK", drop=5),
    Column("QUESTION", shrink=24),
)


def run_lines(
    found: Sequence[FoundRun], width: int, now: datetime, terms: Sequence[str] = (), mark: Mark = str
) -> list[str]:
    """Heads and rows; with `terms`, under each row where they were found. `width` 0 means no limit."""
    head, rows = render_rows(COLUMNS, [_cells(each.row, now) for each in found], width)
    under = [_told(each, terms, width, mark) for each in found]
    return [*head, *(line for row, told in zip(rows, under, strict=True) for line in (*row, *told))]


def _cells(row: StoredRun, now: datetime) -> list[str]:
    return [
        row.run, format_time(row.time, now), row.state, row.shape or UNKNOWN,
        row.workers.replace(BETWEEN, ", ") or UNKNOWN,
        format_cost_cell(float(row.cost) if row.cost else None, row.unpriced),
        format_duration(row.seconds) if row.time else UNKNOWN, crop_text(_title(row), WIDE),
    ]  # fmt: skip


def _title(row: StoredRun) -> str:
    return ("again: " if row.resumed else "") + (row.title or row.problem)


def _told(found: FoundRun, terms: Sequence[str], width: int, mark: Mark) -> list[str]:
    """Where the terms stand in a run, a line for each text that holds one; `MOST` at most."""
    if not terms or found.texts is None:
        return []
    told = [
        f"    {place}: {text}"
        for place, text in matching_texts(found.texts, terms, max(width - 18, 20) if width else 0, mark)
    ]
    more = len(told) - MOST
    return [*told[:MOST], *([f"    and in {more} more"] if more > 0 else [])]


def matching_texts(texts: RunTexts, terms: Sequence[str], width: int = 0, mark: Mark = str) -> list[tuple[str, str]]:
    """The texts of a run that hold one of the terms: what it is, such as `answer 2`, and the part around the first."""
    found = [(place, matching_part(text, terms, width or 2 * AROUND, mark)) for place, text in _places(texts)]
    return [(place, text) for place, text in found if text]


def _places(texts: RunTexts) -> list[tuple[str, str]]:
    subtasks, answers = texts.subtasks.split(BETWEEN), texts.answers.split(BETWEEN)
    named = [("question", texts.question)]
    named += [(f"subtask {number}", text) for number, text in enumerate(subtasks, start=1)]
    named += [
        (f"answer {number}" if number <= len(subtasks) else "answer", text)
        for number, text in enumerate(answers, start=1)
    ]
    return named


def found_data(found: FoundRun, directory: str, terms: Sequence[str] = ()) -> dict[str, Any]:
    """A run as a JSON object; with `terms`, where they stand."""
    told = run_data(found.row, directory)
    if terms and found.texts is not None:
        told["hits"] = [{"in": place, "text": text} for place, text in matching_texts(found.texts, terms)]
    return told


def matching_part(text: str, terms: Sequence[str], width: int, mark: Mark) -> str:
    """The part of a text around the first term in it, the terms marked; empty where none is."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose small form is two: places in one are not those in the other
        lower = text
    spots = sorted((at, len(term)) for term in terms if (at := lower.find(term.lower())) >= 0)
    if not spots:
        return ""
    first = max(0, min(spots[0][0] - width // 3, len(text) - width + 1))
    begin = ELLIPSIS if first else ""
    part = crop_text(begin + text[first : first + width], width)
    return mark_terms(part, terms, mark)


def mark_terms(text: str, terms: Sequence[str], mark: Mark) -> str:
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
