"""A run, and a conversation, as Markdown: for an issue, a wiki, notes. Pure.

Whoever shows the text may load images and obey HTML, and workers may write anything. So texts stand
in fences that they cannot close, but for answers, which are Markdown: their images and HTML are
written so that they are shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from conductor_cli.core.question import PastTurn
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.html import MAX_MARKDOWN_CHARACTERS, page_facts, tree_text, usage_rows
from conductor_cli.views.run_text import (
    describe_access,
    describe_file,
    describe_notice,
    describe_outcome,
    describe_worker,
    question_line,
)

_CODE: Final = re.compile(
    r"(?ms)^ {0,3}(?P<fence>`{3,}|~{3,}).*?(?:^ {0,3}(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)"
)
"""Code in Markdown, which is shown as it is: a block in a fence, also an open one, or a span
between backticks.
"""

_ACTIVE: Final = re.compile(r"!(?=\[)|<(?=[a-zA-Z/!?])")
"""Where an image or HTML begins."""


def run_markdown(trace: Trace, *, live: bool = False) -> str:
    """Return the question, the answer, the plan, and each step with its response."""
    title = one_line(question_line(trace)[:120]) or trace.run
    parts = [f"# {harmless_markdown(title)}", one_line(describe_outcome(trace, live=live))]
    parts.append(_list(page_facts(trace)))
    parts += ["## Question", fenced(trace.question.text)]
    if trace.question.files:
        parts.append(_list(map(describe_file, trace.question.files)))
    parts += ["## Answer", _answer(trace)]
    notices = trace.all_notices()
    if notices:
        parts.append(_list(map(describe_notice, notices)))
    if trace.steps:
        parts += ["## Plan", fenced(tree_text(trace, live=live)), "## Steps"]
        is_interrupted = not (live or trace.ended)
        for record in trace.steps:
            parts += _step(record, is_interrupted=is_interrupted)
    parts += ["## Tokens and cost", "\n".join(_usage_table(trace))]
    return "\n\n".join(parts) + "\n"


def _list(texts: Iterable[str]) -> str:
    """Return texts of anybody as a list, a line each."""
    return "\n".join(f"- {harmless_markdown(one_line(text))}" for text in texts)


def conversation_markdown(turns: Sequence[PastTurn | Trace], run: str) -> str:
    """Return all questions and answers of the conversation that ends with this run.

    A turn whose run is known says where its answer is not whole.
    """
    parts = [f"# Conversation of run {run}"]
    for number, turn in enumerate(turns, 1):
        question = turn.question.text if isinstance(turn, Trace) else turn.question
        parts += [f"## Question {number}", fenced(question), f"## Answer {number}"]
        if isinstance(turn, Trace) and turn.ended and turn.outcome() != "finished":
            parts.append(f"({harmless_markdown(one_line(describe_outcome(turn)))})")
        parts.append(harmless_markdown(turn.answer) or "(none)")
    return "\n\n".join(parts) + "\n"


def harmless_markdown(text: str) -> str:
    """Return Markdown whose images and HTML are shown as text. Code stays as it is.

    What is code is decided by a parser of CommonMark, and guessed before: where the guess is wrong,
    code is written like all other text, and then in a fence.
    """
    text = sanitize(text).strip("\n")
    if not _ACTIVE.search(text):
        return text
    for harmless in (_without_code(text), _as_text(text)):
        if len(harmless) <= MAX_MARKDOWN_CHARACTERS and not _is_active(harmless):
            return harmless
    return fenced(text)


def _without_code(text: str) -> str:
    pieces = list[str]()
    end = 0
    for code in _CODE.finditer(text):
        pieces += [_as_text(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*pieces, _as_text(text[end:])])


def _as_text(text: str) -> str:
    return _ACTIVE.sub(lambda mark: "&#33;" if mark[0] == "!" else "&lt;", text)


def _is_active(text: str) -> bool:
    """Return whether a reader of this Markdown would load an image or see HTML.

    What cannot be parsed counts as active.
    """
    from markdown_it import MarkdownIt  # only exports need it

    try:
        tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    except Exception:  # noqa: BLE001 - whatever a parser fails on is not trusted
        return True
    kinds = set[str]()
    for block in tokens:
        kinds.add(block.type)
        kinds.update(token.type for token in block.children or ())
    return not kinds.isdisjoint({"image", "html_block", "html_inline"})


def fenced(text: str) -> str:
    """Return a text in a fence that is longer than any row of backticks in it."""
    text = sanitize(text).rstrip("\n")
    rows = [len(row) for row in re.findall(r"`+", text)]
    fence = "`" * max([3, *(row + 1 for row in rows)])
    return f"{fence}text\n{text}\n{fence}"


def _answer(trace: Trace) -> str:
    if not trace.answer:
        return "(none)"
    if trace.question.schema is not None:
        return fenced(trace.answer)
    return harmless_markdown(trace.answer)


def _step(record: StepRecord, *, is_interrupted: bool) -> Iterator[str]:
    worker = harmless_markdown(describe_worker(record))
    state = "interrupted" if is_interrupted and record.state == "running" else record.state
    yield f"### {record.number}. {worker}, {state}, {describe_access(record.step.access)}"
    yield fenced(record.step.subtask)
    if record.text:
        yield "Its response:"
        yield fenced(record.text)


def _usage_table(trace: Trace) -> Iterator[str]:
    yield "| | read | written | calls | cost |"
    yield "|---|---:|---:|---:|---:|"
    for row in usage_rows(trace):
        cells = [harmless_markdown(one_line(cell)).replace("|", "&#124;") for cell in row]
        yield f"| {' | '.join(cells)} |"
