"""When each attempt of a run began and ended, as bars in percent of the whole time. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from conductor_cli.core.formatting import format_duration
from conductor_cli.core.recovery import FailedAttempt
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.run_text import LONGEST_MESSAGE

LEAST: Final = 0.8
"""Percent of a bar that is shown, however short it was."""


class Bar(NamedTuple):
    """What happened from `start` on, for `length` percent of the time: a state of a step, `planning` or `waited`.

    An attempt that failed is a bar of its own, and so is the wait after it.
    """

    kind: str
    start: float
    length: float
    title: str


class TimelineRow(NamedTuple):
    """The planner or one worker at one step: the label, how long it took in all, and its bars."""

    label: str
    took: str
    bars: tuple[Bar, ...]


class Timeline(NamedTuple):
    """The rows, and what the beginning, the middle and the end of the axis are called."""

    rows: tuple[TimelineRow, ...]
    ticks: tuple[str, ...]


def timeline(trace: Trace) -> Timeline:
    """The planner and all steps that have started, those of nested runs below the step they belong to."""
    whole = max(trace.at, 0.0)
    rows = [*_planning(trace, whole), *_steps(trace, whole, 0.0, "")]
    return Timeline(tuple(rows), tuple(format_duration(whole * part) for part in (0, 0.5, 1)))


def _planning(trace: Trace, whole: float) -> Iterator[TimelineRow]:
    """Until the last step was planned."""
    end = max((record.planned for record in trace.steps), default=trace.at)
    if trace.planning.calls or trace.plan_text:
        yield TimelineRow("planner", format_duration(end), (_bar("planning", 0.0, end, whole, "planning"),))


def _steps(trace: Trace, whole: float, begin: float, outer: str) -> Iterator[TimelineRow]:
    """The rows of a run that began at `begin`; `outer` is the number of the step that it is."""
    for record in trace.steps:
        if record.started is None and not record.failed:
            continue
        number = f"{outer}{record.number}"
        bars = tuple(_bars(record, trace, whole, begin))
        yield TimelineRow(f"{number} {one_line(record.worker)}", format_duration(record.seconds(trace.at)), bars)
        if record.nested is not None:
            yield from _steps(record.nested, whole, begin + (record.started or 0.0), f"{number}.")


def _bars(record: StepRecord, trace: Trace, whole: float, begin: float) -> Iterator[Bar]:
    """The failed attempts with the waits after them, and the attempt that ended the step."""
    for failed in record.failed:
        if failed.started is None:
            continue  # this worker was not asked at all
        yield _bar("failed", begin + failed.started, begin + failed.ended, whole, _failure(failed))
        if failed.retry_in:
            after = begin + failed.ended
            yield _bar("waited", after, after + failed.retry_in, whole, f"waited {format_duration(failed.retry_in)}")
    if record.started is None or (record.state == "failed" and record.failed):
        return
    start = record.started if record.attempted is None else record.attempted
    end = trace.at if record.ended is None else record.ended
    yield _bar(record.state, begin + start, begin + end, whole, f"{one_line(record.worker)} {record.state}")


def _failure(failed: FailedAttempt) -> str:
    return f"{one_line(failed.worker)}, attempt {failed.attempt} failed: {one_line(failed.message)[:LONGEST_MESSAGE]}"


def _bar(kind: str, start: float, end: float, whole: float, title: str) -> Bar:
    """From `start` to `end` seconds, within the whole."""
    if whole <= 0:
        return Bar(kind, 0.0, 100.0, title)
    first, last = (min(max(100 * at / whole, 0.0), 100.0) for at in (start, end))
    length = max(last - first, LEAST)
    return Bar(kind, min(first, 100 - length), length, title)
