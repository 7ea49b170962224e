"""Two stored runs beside each other, as text and as JSON, for `trace diff`. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from conductor_cli.core.formatting import format_duration
from conductor_cli.core.sanitize import sanitize
from conductor_cli.core.table import display_width, pad_text
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.json_output import run_data
from conductor_cli.views.run_text import describe_access, describe_worker
from conductor_cli.views.trace_text import usage_text

NARROW: Final = 80
"""Below this many cells one run is shown under the other."""

SAME, DIFFERENT = "   ", " | "
"""What separates two lines that are equal, and two that differ."""


class ComparedPart(NamedTuple):
    """What both runs have in one place; empty where one has nothing. Heads in capitals start a section."""

    head: str
    one: str
    other: str


def compare_traces(one: Trace, other: Trace) -> Iterator[ComparedPart]:
    """Everything that is compared, in the order in which it is shown."""
    yield ComparedPart("RUN", _describe_run(one), _describe_run(other))
    yield ComparedPart("QUESTION", one.question.text, other.question.text)
    for number, (mine, others) in enumerate(zip_longest(one.steps, other.steps), start=1):
        yield ComparedPart(f"STEP {number}", _describe_step(mine), _describe_step(others))
        yield ComparedPart("answer", _describe_answer(mine), _describe_answer(others))
        yield ComparedPart("took", _describe_usage(mine, one.at), _describe_usage(others, other.at))
    yield ComparedPart("ANSWER", one.answer, other.answer)
    yield ComparedPart("TOTAL", _describe_total(one), _describe_total(other))


def comparison_lines(parts: Sequence[ComparedPart], width: int) -> Iterator[str]:
    """Two columns, or on a narrow screen one run under the other."""
    for number, part in enumerate(parts):
        # Heads in capitals are sections; "answer" and "took" belong to the step above them.
        section = part.head.isupper()
        if number and section:
            yield ""
        if part.one or part.other:
            yield part.head if section else f"  {part.head}"
            yield from _in_columns(part, width) if width >= NARROW else _one_under_the_other(part, width)


def comparison_data(one: Trace, other: Trace) -> dict[str, Any]:
    """Both runs as `trace show --json` has them, and which parts of them are equal."""
    runs = [run_data(trace) | {"question": trace.question.text} for trace in (one, other)]
    steps = []
    for number, (mine, others) in enumerate(zip_longest(runs[0]["steps"], runs[1]["steps"]), start=1):
        same = {
            field: bool(mine and others and mine[field] == others[field])
            for field in ("worker", "subtask", "access", "text")
        }
        steps.append({"number": number, "same": same})
    fields = ("question", "mode", "conductor", "plan", "answer")
    return {"runs": runs, "same": {field: runs[0][field] == runs[1][field] for field in fields}, "steps": steps}


def _describe_run(trace: Trace) -> str:
    resumes = f"\nresumes {trace.resumed}" if trace.resumed else ""
    return f"{trace.run}\n{trace.mode}, {trace.conductor}{resumes}"


def _describe_step(record: StepRecord | None) -> str:
    if record is None:
        return ""
    return f"{describe_worker(record)}, {describe_access(record.step.access)}\n{record.step.subtask}"


def _describe_answer(record: StepRecord | None) -> str:
    if record is None or record.state == "done":
        return record.text if record else ""
    error = f"({record.state}: {record.error.message})" if record.error is not None else f"({record.state})"
    return f"{record.text}\n{error}".strip()


def _describe_usage(record: StepRecord | None, now: float) -> str:
    return "" if record is None else f"{format_duration(record.seconds(now))}, {usage_text(record.usage)}"


def _describe_total(trace: Trace) -> str:
    state = "partial" if trace.partial else trace.state if trace.ended else "interrupted"
    return f"{state}, {format_duration(trace.at)}, {usage_text(trace.usage)}"


def _in_columns(part: ComparedPart, width: int) -> Iterator[str]:
    room = (width - len(SAME) - 2) // 2
    for one, other in zip_longest(_wrap(part.one, room), _wrap(part.other, room), fillvalue=""):
        yield f"  {pad_text(one, room)}{SAME if one == other else DIFFERENT}{other}".rstrip()


def _one_under_the_other(part: ComparedPart, width: int) -> Iterator[str]:
    named = [("  = ", part.one)] if part.one == part.other else [("  < ", part.one), ("  > ", part.other)]
    for mark, text in named:
        yield from (f"{mark}{line}" for line in _wrap(text or "(nothing)", width - 4))


def _wrap(text: str, width: int) -> list[str]:
    """Sanitized lines of at most `width` cells; indentation stays, so that code can be compared."""
    lines: list[str] = []
    for line in sanitize(text).expandtabs(4).splitlines():
        # textwrap counts characters, so a line with wide letters gets half as many.
        letters = width // 2 if display_width(line) > len(line) else width
        lines += textwrap.wrap(line, max(letters, 8), replace_whitespace=False) or [""]
    return [line.rstrip() for line in lines]
