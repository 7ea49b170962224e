"""A run as HTML and as Markdown: everything is included, and texts of workers stay text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from conductor_cli.core.chat import Message
from conductor_cli.core.question import File
from conductor_cli.core.trace import Trace
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views.html_export import html_page
from conductor_cli.views.markdown_export import markdown_document

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
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "span", "pre", "div", "svg", "g", "line", "text",
    "rect", "details", "summary",
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
        if tag not in {"meta", "line"}:
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
    steps = tuple(
        replace(
            record, worker=EVIL, text=EVIL, thinking=EVIL, step=replace(record.step, subtask=EVIL),
            prompt=(Message(role="user", content=EVIL),),
        )
        for record in trace.steps
    )  # fmt: skip
    question = replace(trace.question, text=EVIL, files=(File(name=EVIL, text=EVIL),))
    return replace(trace, run=EVIL, time=EVIL, conductor=EVIL, question=question, steps=steps, answer=EVIL)


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
            assert text in words
    assert trace.answer in words
    assert words.count("prompt (user)") == len(trace.steps)


def test_a_nested_run_is_inside_its_step_on_the_page() -> None:
    """Its steps are indented below the step that it is."""
    assert "\n    1 done      math-worker" in html_page(TraceStore(FOLDER).trace("nested"))


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
    plain = re.sub(r"\\.", "", "\n".join(outside))
    assert not re.search(r"[<>\[\]]|!\(", plain)


def test_exports_name_the_planned_worker_when_another_one_did_the_step() -> None:
    """A substitution must not be hidden in a file that is shared."""
    trace = TraceStore(FOLDER).trace("substitute")
    (record,) = [record for record in trace.steps if record.worker != record.step.worker]
    assert f"{record.worker} (planned: {record.step.worker})" in html_page(trace)
    assert f"{record.worker}  for {record.step.worker}" in markdown_document(trace)
