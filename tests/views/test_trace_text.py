"""Stored runs as pages: the calls of tools and the attached files, in text, Markdown and HTML."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Message, ToolCall
from conductor_cli.core.terminal_text import is_sanitized, sanitize
from conductor_cli.core.trace import Trace
from conductor_cli.views.html import html_page
from conductor_cli.views.run_text import message_text
from conductor_cli.views.text_layout import Screen
from conductor_cli.views.trace_text import WIDE_SCREEN, page_text, step_lines, trace_lines
from tests.traces.make import CHART, hostile, tools
from tests.views.terminals import trace_of


def trace_text(trace: Trace, *, prompts: bool = False, screen: Screen = WIDE_SCREEN) -> str:
    return page_text(trace_lines(trace, prompts=prompts, screen=screen))


def step_text(trace: Trace, number: int) -> str:
    return page_text(step_lines(trace, number))


def test_a_stored_run_shows_its_calls_in_the_tree() -> None:
    lines = trace_text(trace_of(tools()), screen=Screen(width=80)).splitlines()
    at = next(n for n, line in enumerate(lines) if "web.fetch" in line)
    assert lines[at].startswith('   ├─ web.fetch {"url": "https://example.org/rename"')
    assert lines[at].endswith("✗ 4.3 s")
    assert lines[at + 1].endswith("the address does not answer")


def test_one_step_shows_its_calls_whole() -> None:
    page = step_text(trace_of(tools()), 1)
    assert 'TOOL CALL files.list (attempt 1, reply 1)\n{"path": "."}\nRESULT (no result)\n' in page
    assert (
        "RESULT (0.2 s)\n# Notes\n\nA schema survives a rename if nothing else refers to its "
        "name.\n"
    ) in page
    assert "ERROR (4.3 s)\nthe address does not answer\n" in page


@pytest.mark.parametrize("page", [trace_text, html_page])
def test_attached_files_are_named_with_type_and_size(page: object) -> None:
    assert callable(page)
    shown = page(trace_of(tools()))
    for words in (
        "chart.png (PNG image, 264 kB)",
        "paper.pdf (PDF document, 1.20 MB)",
        "notes.md (72 characters)",
    ):
        assert words in shown


def test_a_prompt_names_its_attachments_and_calls() -> None:
    call = ToolCall(id="x", name="read_file", arguments='{"path":\n "a"}')
    message = Message(role="user", content="Look.", attachments=(CHART,))
    events = [
        replace(event, prompt=(message,)) if isinstance(event, ev.StepStarted) else event
        for event in tools()
    ]
    trace = trace_of(events)
    line = "[attached: chart.png (PNG image, 264 kB)]"
    assert f"PROMPT (user)\n{line}\nLook.\n" in step_text(trace, 1)
    for page in (trace_text(trace, prompts=True), html_page(trace)):
        assert line in page
    asks = Message(role="assistant", content="", tool_calls=(call,))
    assert message_text(asks) == '[calls read_file {"path": "a"}]'


def test_the_pages_of_a_hostile_tool_are_safe() -> None:
    trace = trace_of(hostile())
    assert is_sanitized(html_page(trace))
    assert "owned" not in sanitize(step_text(trace, 1))


def test_the_page_folds_each_call() -> None:
    events = [
        replace(event, text="<script>alert(1)</script>")
        if isinstance(event, ev.ToolReturned)
        else event
        for event in tools()
    ]
    page = html_page(trace_of(events))
    assert "<script" not in page
    assert page.count('<details class="tool">') == 4
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "files.list {&#34;path&#34;: &#34;.&#34;}, no result</summary>" in page
