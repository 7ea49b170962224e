"""Stored runs as lines of text that fit the width. Pure; what comes in is clean and has no line ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_count, format_duration, format_time
from conductor_cli.core.table import ELLIPSIS, Column, crop_text, render_rows
from conductor_cli.store.stored_run import SEPARATOR, FoundRun, RunTexts, StoredRun, stored_run_data

NO_MATCH: Final = "no matching runs"

LONGEST_QUESTION: Final = 100
"""Cells of a question when the width is not limited."""

MOST_MATCHES: Final = 4
"""Matching texts that are shown under one run."""

CONTEXT: Final = 60
"""Characters that are shown on each side of a match."""

Highlight = Callable[[str], str]

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
    found: Sequence[FoundRun], width: int, now: datetime, terms: Sequence[str] = (), mark: Highlight = str
) -> list[str]:
    """A table; with `terms`, the matching texts under each row. `width` 0 means no limit."""
    head, rows = render_rows(COLUMNS, [_cells(each.row, now) for each in found], width)
    lines = list(head)
    for each, row in zip(found, rows, strict=True):
        lines += row
        if terms and each.texts is not None:
            matches = matching_texts(each.texts, terms, max(width - 18, 20) if width else 0, mark)
            lines += [f"    {place}: {text}" for place, text in matches[:MOST_MATCHES]]
            if len(matches) > MOST_MATCHES:
                lines.append(f"    and in {len(matches) - MOST_MATCHES} more")
    return lines


def describe_older(more: int, count: int) -> str:
    """What is said when only the newest `count` runs are shown; `more` is -1 when the number is not known."""
    if more < 0:
        return f"more runs exist; use -n {max(50, 2 * count)}"
    return f"{format_count(more, 'older run')}; use -n {count + more}"


def _cells(run: StoredRun, now: datetime) -> list[str]:
    title = ("again: " if run.resumed else "") + (run.title or run.problem)
    return [
        run.run, format_time(run.time, now), run.state, run.shape or UNKNOWN,
        run.workers.replace(SEPARATOR, ", ") or UNKNOWN,
        format_cost_cell(float(run.cost) if run.cost else None, run.unpriced),
        format_duration(run.seconds) if run.time else UNKNOWN, crop_text(title, LONGEST_QUESTION),
    ]  # fmt: skip


def found_data(found: FoundRun, directory: str, terms: Sequence[str] = ()) -> dict[str, Any]:
    """A run as a JSON object; with `terms`, also the texts that match."""
    data = stored_run_data(found.row, directory)
    if terms and found.texts is not None:
        data["hits"] = [{"in": place, "text": text} for place, text in matching_texts(found.texts, terms)]
    return data


def matching_texts(
    texts: RunTexts, terms: Sequence[str], width: int = 0, mark: Highlight = str
) -> list[tuple[str, str]]:
    """The texts of a run that contain a term: a name such as `answer 2`, and the part around the first match."""
    subtasks, answers = texts.subtasks.split(SEPARATOR), texts.answers.split(SEPARATOR)
    named = [("question", texts.question)]
    named += [(f"subtask {number}", text) for number, text in enumerate(subtasks, start=1)]
    # The run's own answer is listed after those of the steps when it is none of them.
    named += [
        (f"answer {number}" if number <= len(subtasks) else "answer", text)
        for number, text in enumerate(answers, start=1)
    ]
    found = [(place, matching_part(text, terms, width or 2 * CONTEXT, mark)) for place, text in named]
    return [(place, text) for place, text in found if text]


def matching_part(text: str, terms: Sequence[str], width: int, mark: Highlight) -> str:
    """The part of a text around the first term in it, all terms highlighted; empty without a match."""
    # The longest first, because a shorter term may be the beginning of a longer one.
    pattern = re.compile("|".join(map(re.escape, sorted(terms, key=len, reverse=True))), re.IGNORECASE)
    match = pattern.search(text)
    if match is None:
        return ""
    first = max(0, min(match.start() - width // 3, len(text) - width + 1))
    part = crop_text((ELLIPSIS if first else "") + text[first : first + width], width)
    return pattern.sub(lambda found: mark(found[0]), part)
