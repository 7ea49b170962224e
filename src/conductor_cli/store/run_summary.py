"""A trace file as one row of a list, and as the texts that are searched."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import StepRecord, Trace, apply_event
from conductor_cli.store.stored_run import SEPARATOR, SUFFIX, RunTexts, StoredRun
from conductor_cli.store.trace_file import is_live, read_events

TITLE: Final = 300
"""Characters of a question that a row holds."""


def summarize_run(directory: str, run: str) -> tuple[StoredRun, RunTexts]:
    """The row and the texts of one run. Never raises: what cannot be read is listed so, with what came before it."""
    path = Path(directory) / f"{run}{SUFFIX}"
    try:
        before = path.stat()  # what is written from here on shows in the next look
    except OSError as error:
        return StoredRun(run=run, size=-1, problem=error.strerror or ""), RunTexts()
    live, trace, problem = is_live(path), Trace(), ""
    try:
        for event in read_events(path, pieces=False):
            trace = apply_event(trace, event)
    except UsageError as error:
        problem = error.message.replace(f"{path}", run)
    row = make_stored_run(trace, run, live=live, problem=problem)
    return row._replace(written=before.st_mtime_ns, size=before.st_size), collect_texts(trace)


def make_stored_run(trace: Trace, run: str, *, live: bool, problem: str) -> StoredRun:
    """What a list shows of a run, but for its file."""
    usage = trace.usage
    workers = dict.fromkeys(record.worker for record in trace.steps)
    return StoredRun(
        run=run, state=_state(trace, live=live, problem=problem), time=trace.time,
        mode=trace.mode if trace.run else "", conductor=one_line(trace.conductor), shape=plan_shape(trace),
        workers=SEPARATOR.join(map(one_line, workers)), cost=_money(usage.cost), unpriced=usage.unpriced,
        tokens=usage.tokens, seconds=trace.at, resumed=one_line(trace.resumed), problem=one_line(problem),
        title=one_line(trace.question.text)[:TITLE],
    )  # fmt: skip


def collect_texts(trace: Trace) -> RunTexts:
    """What can be searched in a run, each text as one line. An answer that is a step's stands there once."""
    records = list(_records(trace))
    answers = [one_line(record.text) for record in records]
    if trace.answer and one_line(trace.answer) not in answers:
        answers.append(one_line(trace.answer))
    return RunTexts(
        question=one_line(trace.question.text),
        subtasks=SEPARATOR.join(one_line(record.step.subtask) for record in records),
        answers=SEPARATOR.join(answers),
    )


def _records(trace: Trace) -> Iterator[StepRecord]:
    """The steps, those of a nested run behind the step that it is."""
    for record in trace.steps:
        yield record
        if record.nested is not None:
            yield from _records(record.nested)


def _state(trace: Trace, *, live: bool, problem: str) -> str:
    if problem:
        return "unreadable"
    if trace.state == "finished":
        return "partial" if trace.partial else "finished"
    return "failed" if trace.state == "failed" else "running" if live else "interrupted"


def _money(cost: Decimal | None) -> str:
    return "" if cost is None else f"{cost:f}"


def plan_shape(trace: Trace) -> str:
    """How many steps could run at once, one stage after the other: `2 > 1` are two, then one that sees them."""
    stages: dict[int, int] = {}
    for record in trace.steps:
        stages[record.number] = 1 + max((stages.get(item, 0) for item in record.step.access), default=0)
    counted = list(stages.values())
    return " > ".join(str(counted.count(stage)) for stage in sorted(set(counted)))
