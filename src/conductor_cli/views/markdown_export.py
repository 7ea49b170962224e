"""A run as Markdown. Pure.

Texts that others wrote are put into a fence that is longer than any in them, or are escaped, so that nothing in them
becomes a heading, a link, an image or HTML.
"""

from __future__ import annotations

import re
from typing import Final

from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.trace import Trace
from conductor_cli.views.run_text import describe_file, question_line
from conductor_cli.views.trace_text import page_text, trace_lines

_MARKUP: Final = re.compile(
    r"""
    \\(?=[!-/:-@\[-`{-~])        # a backslash that would escape something
    | [`\[\]<~]                  # code, links, HTML, text that is struck out
    | &(?=\#?\w+;)               # a character by its name or number
    | (?<![^\W_])_ | _(?![^\W_])  # emphasis, which never begins or ends inside a word
    | (?<![ ])\* | \*(?![ ])     # emphasis, which a star between spaces is not
    | \#(?=\#*\ *$)              # the closing mark of a heading
    | @(?=\w) | (?<=:)/ | (?<=www)\.  # names and addresses that become links
    """,
    re.VERBOSE,
)
"""Characters that are markup where they stand in a heading."""

_TICKS: Final = re.compile(r"`{3,}")


def markdown_document(trace: Trace, *, live: bool = False) -> str:
    """The whole file: the answer, then the page of `trace show` with prompts, and the attached files."""
    sections = [("Answer", trace.answer or "(none)")]
    sections.append(("Run", page_text(trace_lines(trace, live=live, prompts=True, answers=True))))
    sections += [(f"File {describe_file(file)}", file.text) for file in trace.question.files]
    lines = [f"# {_escape(question_line(trace)[:100])}", ""]
    for title, text in sections:
        lines += [f"## {_escape(title)}", "", *_fence(text)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _fence(text: str) -> list[str]:
    text = sanitize(text)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(text))])
    return [f"{fence}text", *text.splitlines(), fence, ""]


def _escape(text: str) -> str:
    """The text in one line without any markup."""
    return _MARKUP.sub(r"\\\g<0>", one_line(text))
