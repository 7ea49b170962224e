"""A run as HTML and as Markdown: everything is included, and texts of workers stay text."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import Failure
from conductor_cli.core.events import Notice
from conductor_cli.core.plan import Plan
from conductor_cli.core.question import File, Question, Turn
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import FailedAttempt, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.run import Run
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views.html import html_page
from conductor_cli.views.trace_text import markdown_document
from tests.evals.kit import conductor

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
FOLDER = Path(__file__).parents[1] / "traces"
RUNS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
EVIL = (
    "</pre></title></style><script>alert(1)</script>"
    "<img src=//evil.example/x onerror=alert(1)>"
    "\x1b[31m\u202e ``` \n~~~\n# head\n![x](http://evil.example/y) "
    "<iframe src='javascript:alert(1)'> \" onload=\"alert(1)"
)
TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "span", "pre", "div", "section", "svg",
    "g", "path", "text", "rect", "details", "summary", "table", "tr", "th", "td", "code", "br", "hr", "ul", "ol", "li",
    "em", "strong", "s", "blockquote", "h4", "h5", "h6", "thead", "tbody",
}  # fmt: skip


class SeenStep(HTMLParser):
    """What a browser would make of a page: its tags, its attributes, its text, and whether they are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def traces() -> list[Trace]:
    return [TraceStore(FOLDER).trace(run) for run in RUNS]


def poisoned() -> Trace:
    """A run in which every text is as bad as it can be."""
    trace = TraceStore(FOLDER).trace("parallel")
    error = Failure(kind="worker", message=EVIL, hint=EVIL)
    failed = FailedAttempt(
        worker=EVIL, attempt=1, started=0.5, ended=1.0, error=error, usage=Usage(), retry_in=0.5, substitute=EVIL
    )
    steps = tuple(
        replace(
            record, worker=EVIL, text=EVIL, thinking=EVIL, step=replace(record.step, subtask=EVIL, worker=EVIL),
            prompt=(Message(role="user", content=EVIL),), failed=(failed, replace(failed, retry_in=None)), error=error,
            nested=Trace(steps=(replace(record, text=EVIL, worker=EVIL),), notices=(Notice(at=1.0, text=EVIL),)),
        )
        for record in trace.steps
    )  # fmt: skip
    question = replace(
        trace.question, text=f"{EVIL}\n{EVIL}", files=(File(name=EVIL, text=EVIL),), system=EVIL,
        history=(Turn(question=EVIL, answer=EVIL),),
    )  # fmt: skip
    return replace(
        trace, run=EVIL, time=EVIL, conductor=EVIL, question=question, steps=steps, answer=EVIL, resumed=EVIL,
        notices=(Notice(at=1.0, text=EVIL, step=1),), plan=Plan(steps=(), reasoning=EVIL), error=error,
    )  # fmt: skip


@pytest.mark.parametrize(
    "trace", [*traces(), poisoned(), Trace(), Trace(at=-5.0)], ids=[*RUNS, "poisoned", "nothing", "before its time"]
)
def test_a_page_has_no_active_content(trace: Trace) -> None:
    """No script, no link, nothing that runs or fetches, whatever models wrote; all tags are closed in order."""
    written = html_page(trace)
    seen = SeenStep(written)
    assert seen.tags <= TAGS
    assert not {name for name in seen.attributes if name.startswith("on")} | (
        seen.attributes & {"src", "href", "style"}
    )
    assert written.count("<style>") == 1
    assert "url(" not in written.partition("</style>")[0]
    assert f'http-equiv="Content-Security-Policy" content="{POLICY}"' in written
    assert seen.open == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", written)


def test_a_page_has_everything() -> None:
    """Question, steps with worker, subtask, prompt and answer, and the run's answer."""
    trace = TraceStore(FOLDER).trace("parallel")
    words = SeenStep(html_page(trace)).words
    for record in trace.steps:
        for text in (record.worker, record.step.subtask, record.text):
            assert one_line(text) in one_line(words)
    assert one_line(trace.answer) in one_line(words)
    assert words.count("prompt (user)") == len(trace.steps)


def test_the_answer_and_the_responses_are_rendered() -> None:
    """As Markdown, which is what models write; an answer by a schema is data and stays as it is."""
    trace = TraceStore(FOLDER).trace("parallel")
    written = replace(trace, answer="**Bold**, and\n\n- a point")
    assert "<strong>Bold</strong>" in html_page(written)
    assert "<li>a point</li>" in html_page(written)
    data = replace(written, question=replace(trace.question, schema={"type": "object"}))
    assert "**Bold**, and" in SeenStep(html_page(data)).words


def test_failed_attempts_are_told_and_drawn() -> None:
    """Who failed, when and why, in words and as bars of their own."""
    trace = TraceStore(FOLDER).trace("substitute")
    (record,) = [record for record in trace.steps if record.worker != record.step.worker]
    page = html_page(trace)
    words = SeenStep(page).words
    assert f"attempt 1, {record.step.worker}, after " in words
    assert f", {record.worker} takes over" in words
    assert page.count('<rect class="failed"') == sum(len(record.failed) for record in trace.steps)


def test_a_rejected_plan_is_told() -> None:
    """Why it was rejected, and what the planner wrote."""
    trace = TraceStore(FOLDER).trace("rejected")
    words = one_line(SeenStep(html_page(trace)).words)
    (rejected,) = trace.rejected
    assert f"plan, attempt 1: {rejected.problem}" in words
    assert one_line(rejected.text) in words


def test_the_answer_is_on_the_page_once() -> None:
    """The step that gave it says so instead of repeating it."""
    page = html_page(TraceStore(FOLDER).trace("retry")).partition("The steps as text")[0]
    answer = one_line(TraceStore(FOLDER).trace("retry").answer)
    assert one_line(SeenStep(page).words).count(answer) == 1
    assert page.count("Its response is the answer above.") == 1


async def finish(run: Run) -> None:
    async for _ in run:
        pass


def test_the_totals_are_the_sum_of_the_rows() -> None:
    """Of the planner and of all steps, failed attempts included."""
    run = conductor().run(Question(text="What is 1 + 3?"))
    asyncio.run(finish(run))
    trace = run.trace
    assert trace.state == "finished"
    rows = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", html_page(trace))[1:]]
    *parts, total = [[int(cell.replace("-", "0").replace(",", "")) for cell in row[1:4]] for row in rows]
    assert rows[-1][0] == "total"
    assert total == [sum(column) for column in zip(*parts, strict=True)]


def test_the_page_is_readable_by_day_and_by_night() -> None:
    """It follows the reader's setting, and fits a phone."""
    page = html_page(TraceStore(FOLDER).trace("parallel"))
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport" content="width=device-width' in page


def test_a_nested_run_is_inside_its_step_on_the_page() -> None:
    """Its steps are indented below the step that it is."""
    assert "2.1 math-worker" in html_page(TraceStore(FOLDER).trace("nested"))


@pytest.mark.parametrize("trace", [*traces(), Trace()], ids=[*RUNS, "nothing"])
def test_markdown_has_everything(trace: Trace) -> None:
    """Every step has its answer, in a fence."""
    text = markdown_document(trace)
    assert len(re.findall(r"^STEP \d", text, re.MULTILINE)) == len(trace.steps)
    assert text.endswith("```\n")


def test_no_text_leaves_its_fence_in_markdown() -> None:
    """A fence is longer than any fence inside it, and text outside of fences has no markup."""
    outside, fence = [], ""
    for line in markdown_document(poisoned()).splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif (found := re.match("`{3,}", line)) is not None:
            fence = found[0]
        else:
            outside.append(line)
    assert fence == ""
    assert plain_headings("\n".join(outside))


def plain_headings(document: str) -> bool:
    """Whether a document is nothing but headings without any markup in them, as GitHub reads it."""
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False})
    return all(
        token.type in {"heading_open", "heading_close"}
        or (token.type == "inline" and {child.type for child in token.children or ()} <= {"text"})
        for token in parser.parse(document)
    )


@given(st.text("ab1 \\*_`~<>[]()!#&;+-|{}@:/.=\"'", max_size=40))
def test_no_heading_has_markup(text: str) -> None:
    """Whatever its text is, a reader sees that text."""
    trace = replace(TraceStore(FOLDER).trace("parallel"), question=Question(text=f"a{text}"))
    heading = markdown_document(trace).splitlines()[0]
    assert plain_headings(heading)
    (_, inline, _) = MarkdownIt("gfm-like", {"linkify": False}).parse(heading)
    assert "".join(child.content for child in inline.children or ()) == " ".join(f"a{text}".split())


@pytest.mark.parametrize(
    "text", ["What is 17 + 25?", "2 * 3 (or 6!) - 1", "my_file.py, 20261122-171735-82b1ba", "a > b & c"]
)
def test_a_heading_is_not_escaped_where_nothing_needs_it(text: str) -> None:
    """People read the file as it is, too."""
    trace = replace(TraceStore(FOLDER).trace("parallel"), question=Question(text=text))
    assert markdown_document(trace).splitlines()[0] == f"# {text}"


def test_exports_name_the_planned_worker_when_another_one_did_the_step() -> None:
    """A substitution must not be hidden in a file that is shared."""
    trace = TraceStore(FOLDER).trace("substitute")
    (record,) = [record for record in trace.steps if record.worker != record.step.worker]
    assert f"{record.worker} (planned: {record.step.worker})" in html_page(trace)
    assert f"{record.worker}  (instead of {record.step.worker})" in markdown_document(trace)
