"""Stored runs as a table or as JSON. What comes in is clean and has no line ends."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.core.formatting import (
    UNKNOWN,
    format_cost_cell,
    format_duration,
    format_time,
    without_file_hash,
)
from conductor_cli.core.plan import SELF
from conductor_cli.state.stored_run import SEPARATOR, RunQuery, StoredRun, stored_run_data
from conductor_cli.system.terminal_tables import ELLIPSIS, Column, crop_text, render_rows

if TYPE_CHECKING:
    from conductor_cli.state.interfaces import Traces  # loads the events

MAX_QUESTION: Final = 100  # Cells of a question when the width is not limited
MAX_PLANNER: Final = 32  # Cells of the name of the model that planned
MAX_MATCHES: Final = 4  # Matching texts that are shown under one run
CONTEXT: Final = 60  # Characters that are shown on each side of a match

COLUMNS: Final = (
    Column("RUN"),
    Column("WHEN", drop=2),
    Column("RESULT", drop=6),
    Column("PLANNER", drop=7),
    Column("WORKERS", drop=4),
    Column("COST", drop=1),
    Column("TOOK", drop=5),
    Column("QUESTION", shrink=24),
)


def list_data(store: Traces, query: RunQuery, count: int) -> list[dict[str, Any]]:
    """Return the newest matching runs as JSON objects, with the texts that contain a search term.

    Raises `OSError`.
    """
    rows, _ = store.newest(query, count)
    fields = []
    for row in rows:
        matches = matching_texts(row, query.terms)
        hits = [{"in": name, "text": text} for name, text in matches]
        fields.append({**stored_run_data(row, store.location(row.run)), "hits": hits})
    return fields


def list_text(store: Traces, query: RunQuery, count: int, width: int) -> tuple[list[str], str]:
    """Return the newest matching runs as lines, and a remark about those that are not there.

    Raises `OSError`.
    """
    runs, has_more = store.newest(query, count)
    if not runs:
        if any(query):
            return [], "no matching runs"
        return [], "no runs are stored yet"
    remark = ""
    if has_more:
        remark = f"for more runs: -n {2 * count}"
    return run_lines(runs, width, datetime.now(UTC), query.terms), remark


def run_lines(
    runs: Sequence[StoredRun], width: int, now: datetime, terms: Sequence[str] = ()
) -> list[str]:
    """Return a table; with `terms`, the matching texts under each row. `width` 0 means no limit."""
    head, rows, foot = render_rows(COLUMNS, [_cells(run, now) for run in runs], width)
    match_width = 2 * CONTEXT
    if width:
        match_width = max(width - 18, 20)
    lines = list(head)
    for run, row in zip(runs, rows, strict=True):
        lines += row
        matches = matching_texts(run, terms, match_width)
        lines += [f"    {name}: {text}" for name, text in matches[:MAX_MATCHES]]
    return [*lines, *foot]


def _cells(run: StoredRun, now: datetime) -> list[str]:
    title = run.title or run.problem
    if run.resumed:
        title = f"again: {title}"
    workers = run.workers.split(SEPARATOR)
    cost = None
    if run.cost:
        cost = float(run.cost)
    duration = UNKNOWN
    if run.time:
        duration = format_duration(max(0.0, run.seconds - run.waited))
    return [
        run.run,
        format_time(run.time, now),
        _state_cell(run),
        crop_text(without_file_hash(run.conductor), MAX_PLANNER) or UNKNOWN,
        ", ".join("review" if name == SELF else name for name in workers) or UNKNOWN,
        format_cost_cell(cost, run.unpriced),
        duration,
        crop_text(title, MAX_QUESTION),
    ]


def _state_cell(run: StoredRun) -> str:
    state: str = run.state
    if run.waits:
        state = f"waits for {run.waits}"
    if run.recovered:
        state += ", recovered"
    if run.problem and run.state != "unreadable":
        state += ", damaged"
    return state


def matching_texts(
    run: StoredRun, terms: Sequence[str], width: int = 2 * CONTEXT
) -> list[tuple[str, str]]:
    """Return the texts of a run that contain a term.

    A name such as `answer 2`, and the part around the first match.
    """
    if not terms:
        return []
    named = [("question", run.question)]
    for name, texts in (("subtask", run.subtasks), ("answer", run.answers)):
        for number, text in enumerate(texts.split(SEPARATOR), start=1):
            named.append((f"{name} {number}", text))
    pattern = re.compile("|".join(map(re.escape, terms)), re.IGNORECASE)
    matches = []
    for name, text in named:
        if (match := pattern.search(text)) is not None:
            first = max(0, min(match.start() - width // 3, len(text) - width + 1))
            part = text[first : first + width]
            if first:
                part = f"{ELLIPSIS}{part}"
            matches.append((name, crop_text(part, width)))
    return matches


COUNT: Final = 20  # Runs that are listed by default
