"""A run as Markdown. Pure.

Texts that others wrote are put into a fence that is longer than any in them, or are escaped, so that nothing in them
becomes a heading, a link, an image or HTML.
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
    describe_worker,
    question_line,
)

_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@-]|(?<=:)/|(?<=www)\.)")
"""Characters that may be markup; the last two make links of addresses."""

_TICKS: Final = re.compile(r"`{3,}")


def markdown_document(trace: Trace, *, live: bool = False) -> str:
    """The whole file."""
    facts = [
        describe_setup(trace), describe_outcome(trace, live=live), describe_totals(trace, stored=True), trace.time,
        f"resumes run {trace.resumed}" if trace.resumed else "",
    ]  # fmt: skip
    lines = [f"# {_escape(question_line(trace)[:100])}", "", *(f"- {_escape(fact)}" for fact in facts if fact)]
    lines += ["", "## Question", "", *_fence(trace.question.text)]
    for file in trace.question.files:
        lines += [f"File {_escape(file.name)}:", "", *_fence(file.text)]
    lines += ["## Plan", "", "| step | worker | sees | state | took |", "|---|---|---|---|---|"]
    for record in trace.steps:
        took, sees = format_duration(record.seconds(trace.at)), describe_access(record.step.access)
        cells = (str(record.number), _escape(describe_worker(record)), sees.removeprefix("sees "), record.state, took)
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    if trace.notices:
        lines += [*(f"- {_escape(notice.text)}" for notice in trace.notices), ""]
    for record in trace.steps:
        lines += _step_lines(record, 2)
    lines += ["## Answer", "", *_fence(trace.answer or "(none)")]
    return "\n".join(lines).rstrip("\n") + "\n"


def _step_lines(record: StepRecord, depth: int) -> Iterator[str]:
    yield from (f"{'#' * depth} Step {record.number}: {_escape(describe_worker(record))}, {record.state}", "")
    yield from _fence(record.step.subtask)
    if record.error is not None:
        yield from (f"Failed: {_escape(record.error.message)}", "")
    for message in record.prompt:
        yield from (f"Prompt ({message.role}):", "", *_fence(message.content))
    for step in record.nested.steps if record.nested is not None else ():
        yield from _step_lines(step, min(depth + 1, 6))
    yield from ("Answer:", "", *_fence(record.text or "(none)"))


def _fence(text: str) -> list[str]:
    text = sanitize(text)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(text))])
    return [f"{fence}text", *text.splitlines(), fence, ""]


def _escape(text: str) -> str:
    """The text in one line without any markup."""
    return _MARKUP.sub(r"\\\1", one_line(text))
