"""A run as Markdown. Pure.

Every text that others wrote stands in a fence that is longer than any in it, or is escaped: nothing in it becomes a
heading, a link, an image or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from conductor_cli.core.formatting import format_duration
from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.run_text import (
    describe_access,
    describe_outcome,
    describe_setup,
    describe_totals,
    question_line,
)

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@-]|(?<=:)/|(?<=www)\.)")
"""What may mark something up; the last ones make addresses into links."""

_TICKS: Final = re.compile(r"`{3,}")


def markdown_document(trace: Trace, *, live: bool = False) -> str:
    """The whole file."""
    parts = [
        f"# {_plain(question_line(trace)[:100])}", "", f"- {_plain(describe_setup(trace))}",
        f"- {_plain(describe_outcome(trace, live=live))}", f"- {_plain(describe_totals(trace, stored=True))}",
        f"- {_plain(trace.time)}",
    ]  # fmt: skip
    parts += [f"- resumes run {_plain(trace.resumed)}"] if trace.resumed else []
    parts += ["", "## Question", "", *_fenced(trace.question.text)]
    for file in trace.question.files:
        parts += [f"File {_plain(file.name)}:", "", *_fenced(file.text)]
    parts += ["## Plan", "", "| step | worker | sees | state | took |", "|---|---|---|---|---|"]
    parts += [_row(record, trace.at) for record in trace.steps]
    parts += [""]
    parts += [*[f"- {_plain(notice.text)}" for notice in trace.notices], ""] if trace.notices else []
    parts += [line for record in trace.steps for line in _step(record, 2)]
    parts += ["## Answer", "", *_fenced(trace.answer or "(none)")]
    return "\n".join(parts).rstrip("\n") + "\n"


def _row(record: StepRecord, now: float) -> str:
    took, sees = (
        format_duration(record.seconds(now)),
        describe_access(record.step.access).removeprefix("sees "),
    )
    return f"| {record.number} | {_plain(record.worker)} | {sees} | {record.state} | {took} |"


def _step(record: StepRecord, depth: int) -> Iterator[str]:
    yield from (f"{'#' * depth} Step {record.number}: {_plain(record.worker)}, {record.state}", "")
    yield from _fenced(record.step.subtask)
    if record.error is not None:
        yield from (f"Failed: {_plain(record.error.message)}", "")
    for message in record.prompt:
        yield from (f"Prompt ({message.role}):", "", *_fenced(message.content))
    if record.nested is not None:
        for inner in record.nested.steps:
            yield from _step(inner, min(depth + 1, 6))
    yield from ("Answer:", "", *_fenced(record.text or "(none)"))


def _fenced(text: str) -> list[str]:
    shown = sanitize(text)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(shown))])
    return [f"{fence}text", *shown.splitlines(), fence, ""]


def _plain(text: str) -> str:
    """Any text in one line, none of it markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
