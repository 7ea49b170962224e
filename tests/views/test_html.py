"""A run as HTML and as Markdown.

Everything is included, drawings are in order, and texts of workers stay text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Message
from conductor_cli.core.errors import Failure
from conductor_cli.core.events import Notice
from conductor_cli.core.plan import Plan
from conductor_cli.core.question import File, PastTurn
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import FailedAttempt, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views import html as module
from conductor_cli.views.html import html_page, markdown_html, timeline

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
FOLDER = Path(__file__).parents[1] / "traces"
RUNS = sorted(path.stem for path in FOLDER.glob("*.jsonl"))
EVIL = (
    "</pre></title></style><script>alert(1)</script>"
    "<img src=//evil.example/x onerror=alert(1)>"
    "\x1b[31m\u202e ``` \n~~~\n# head\n![x](http://evil.example/y) "
    "<iframe src='javascript:alert(1)'> \" onload=\"alert(1)"
)
MARKDOWN_TAGS = {
    "p",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "ul",
    "ol",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "em",
    "strong",
    "s",
    "code",
    "pre",
    "hr",
    "br",
}
TAGS = MARKDOWN_TAGS | {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "span",
    "div",
    "section",
    "svg",
    "g",
    "path",
    "text",
    "rect",
    "details",
    "summary",
}


class Reader(HTMLParser):
    """What a browser would make of HTML.

    Its tags, its attributes, its text, and whether they are closed in order.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()

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


def stored(name: str) -> Trace:
    return TraceStore(FOLDER).trace(name)


def poisoned() -> Trace:
    """A run in which every text is as bad as it can be."""
    trace = stored("parallel")
    error = Failure(kind="worker", message=EVIL, hint=EVIL)
    failed = FailedAttempt(
        worker=EVIL,
        attempt=1,
        started=0.5,
        ended=1.0,
        error=error,
        usage=Usage(),
        retry_in=0.5,
        substitute=EVIL,
    )
    steps = tuple(
        replace(
            record,
            worker=EVIL,
            text=EVIL,
            thinking=EVIL,
            step=replace(record.step, subtask=EVIL, worker=EVIL),
            prompt=(Message(role="user", content=EVIL),),
            failed=(failed, replace(failed, retry_in=None)),
            error=error,
            nested=Trace(
                steps=(replace(record, text=EVIL, worker=EVIL),),
                notices=(Notice(at=1.0, text=EVIL),),
            ),
        )
        for record in trace.steps
    )
    question = replace(
        trace.question,
        text=f"{EVIL}\n{EVIL}",
        files=(File(name=EVIL, text=EVIL),),
        system=EVIL,
        history=(PastTurn(question=EVIL, answer=EVIL),),
    )
    return replace(
        trace,
        run=EVIL,
        time=EVIL,
        conductor=EVIL,
        question=question,
        steps=steps,
        answer=EVIL,
        resumed=EVIL,
        notices=(Notice(at=1.0, text=EVIL, step=1),),
        plan=Plan(steps=(), reasoning=EVIL),
        error=error,
    )


@pytest.mark.parametrize(
    "trace",
    [*map(stored, RUNS), poisoned(), Trace(), Trace(at=-5.0)],
    ids=[*RUNS, "poisoned", "nothing", "before its time"],
)
def test_a_page_has_no_active_content(trace: Trace) -> None:
    """No script, no link, nothing that runs or fetches, whatever models wrote.

    All tags are closed in order.
    """
    written = html_page(trace)
    reader = Reader(written)
    assert reader.tags <= TAGS
    assert not {name for name in reader.attributes if name.startswith("on")} | (
        reader.attributes & {"src", "href", "style"}
    )
    assert written.count("<style>") == 1
    assert "url(" not in written.partition("</style>")[0]
    assert f'http-equiv="Content-Security-Policy" content="{POLICY}"' in written
    assert reader.open == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", written)


def test_a_page_has_all_steps_prompts_and_responses() -> None:
    trace = stored("parallel")
    words = Reader(html_page(trace)).words
    for record in trace.steps:
        for text in (record.worker, record.step.subtask, record.text):
            assert one_line(text) in one_line(words)
    assert one_line(trace.answer) in one_line(words)
    assert words.count("prompt (user)") == len(trace.steps)


def test_the_answer_and_the_responses_are_rendered() -> None:
    """As Markdown, which is what models write; an answer by a schema is data and stays as it is."""
    trace = stored("parallel")
    written = replace(trace, answer="**Bold**, and\n\n- a point")
    assert "<strong>Bold</strong>" in html_page(written)
    assert "<li>a point</li>" in html_page(written)
    structured = replace(written, question=replace(trace.question, schema={"type": "object"}))
    assert "**Bold**, and" in Reader(html_page(structured)).words


@pytest.mark.parametrize(
    ("run", "texts"),
    [
        ("substitute", ["attempt 1, math-worker, after ", ", gemini-flash takes over"]),
        ("substitute", ["gemini-flash (planned: math-worker)"]),
        ("nested", ["2.1 math-worker"]),
        (
            "rejected",
            [
                "attempt 1: step 2 names a worker that is not in the pool: 'Q'",
                "Q | 1 | Check the list.",
            ],
        ),
    ],
)
def test_what_went_otherwise_than_planned_is_told_and_drawn(run: str, texts: list[str]) -> None:
    trace = stored(run)
    page = html_page(trace)
    words = one_line(Reader(page).words)
    assert all(text in words for text in texts)
    assert page.count('<rect class="failed"') == sum(len(record.failed) for record in trace.steps)


def test_the_answer_is_on_the_page_once() -> None:
    page = html_page(stored("retry")).partition("The steps as text")[0]
    answer = one_line(stored("retry").answer)
    assert one_line(Reader(page).words).count(answer) == 1
    assert page.count("Its response is the answer above.") == 1


def test_the_totals_are_the_sum_of_the_rows() -> None:
    page = html_page(stored("parallel"))
    rows = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", page)[1:]]
    *parts, total = [
        [int(cell.replace("-", "0").replace(",", "")) for cell in row[1:4]] for row in rows
    ]
    assert rows[-1][0] == "total"
    assert total == [sum(column) for column in zip(*parts, strict=True)]


def test_no_time_is_shown_as_a_machine_writes_it() -> None:
    shown = re.sub(r"<[^>]*>", "", html_page(stored("parallel")))
    assert re.search(r"started \d{1,2} [A-Z][a-z]+ 20\d\d, \d\d:\d\d UTC", shown)
    assert not re.search(r"20\d\d-\d\d-\d\dT\d\d", shown)


# Markdown of a model becomes HTML that looks like it and does nothing


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# One\ntwo", "<h3>One</h3>\n<p>two</p>\n"),
        ("**b** *i* ~~s~~ `c`", "<p><strong>b</strong> <em>i</em> <s>s</s> <code>c</code></p>\n"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>\n'),
        ("one\ntwo", "<p>one<br>\ntwo</p>\n"),
        ('```py onload="x"\na < b\n```', "<pre><code>a &lt; b\n</code></pre>\n"),
        (
            "|a|\n|-:|",
            '<table>\n<thead>\n<tr>\n<th class="right">a</th>\n</tr>\n</thead>\n</table>\n',
        ),
        (r"\(a_1\, b_2\) *c*", "<p>\\(a_1\\, b_2\\) <em>c</em></p>\n"),
        ("so\n$$\na\n- b\n$$", "<p>so</p>\n<p>$$<br>\na<br>\n- b<br>\n$$</p>\n"),
        ("|a|\n|-|\n|b|c|", "<p>|a|<br>\n|-|<br>\n|b|c|</p>\n"),
        (
            '["\\"*b*\\""]\n\nc',
            "<pre><code>[&quot;\\&quot;*b*\\&quot;&quot;]\n</code></pre>\n<p>c</p>\n",
        ),
    ],
)
def test_the_marks_become_elements(text: str, html: str) -> None:
    """Headings are below those of the page, lines stay lines, the language of code is left out."""
    assert markdown_html(text) == html


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[good](http://evil.example/x)", "good (http://evil.example/x)"),
        ("[click](javascript:alert(1))", "[click](javascript:alert(1))"),
        ("<http://evil.example/y>", "http://evil.example/y"),
        ("![seen](http://evil.example/z.png)", "!seen (http://evil.example/z.png)"),
        ("[a]\n\n[a]: http://evil.example", "[a]\n[a]: http://evil.example"),
    ],
)
def test_a_link_is_text_with_its_address(text: str, words: str) -> None:
    read = Reader(markdown_html(text))
    assert read.words.strip() == words
    assert read.tags == {"p"}
    assert read.attributes == set()


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</div></body>",
    '"><svg onload=alert(1)>',
    "[x](http://e.example 'a\" onmouseover=\"b')",
    "`</code><script>`",
    "&lt;script&gt;alert(1)",
    "&#27;[31m&#x202e;x",
    "<!-- -->",
    "<a href='http://e.example'>x</a>",
    "| <b> |\n|---|\n| <script> |",
    "~~~\n</pre><script>\n~~~",
    "    </pre>",
    "[" * 3000,
    "> " * 500 + "x",
    "*" * 5000,
    "- " * 300 + "x",
    "\x1b]0;t\x07\u202e\x00",
]


def require_harmless(text: str) -> None:
    page = markdown_html(text)
    read = Reader(page)
    assert read.tags <= MARKDOWN_TAGS
    assert read.attributes <= {"start", "class"}
    assert read.open == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", page)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markup_stays_text(text: str) -> None:
    require_harmless(text)


@given(
    st.lists(
        st.sampled_from(
            [*HOSTILE[:12], "\n", "\n\n", "* ", "# ", "**", "a ", "1. ", "|", "\t", "![", "](x)"]
        )
    )
)
def test_any_mixture_of_hostile_markup_is_harmless(pieces: list[str]) -> None:
    require_harmless("".join(pieces))


def test_a_text_that_is_too_long_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MARKDOWN_CHARACTERS", 5)
    assert markdown_html("# <b>ng") == "<pre># &lt;b&gt;ng</pre>\n"


@pytest.mark.parametrize("run", RUNS)
def test_every_bar_is_on_the_axis(run: str) -> None:
    trace = stored(run)
    drawn = timeline(trace)
    for row in drawn.rows:
        for bar in row.bars:
            assert 0 <= bar.start <= bar.start + bar.length <= 100.001
    assert len(drawn.rows) >= sum(record.started is not None for record in trace.steps)
    assert len(drawn.ticks) == 3
    assert timeline(Trace(at=-5.0)) == ((), ("0.0 s", "0.0 s", "0.0 s"))


def test_a_failed_attempt_is_a_bar_of_its_own() -> None:
    trace = stored("retry")
    record = next(record for record in trace.steps if record.failed and record.state == "done")
    (row,) = [row for row in timeline(trace).rows if row.label.startswith(f"{record.number} ")]
    kinds = [bar.kind for bar in row.bars]
    assert kinds.count("failed") == len(record.failed)
    assert kinds[-1] == "done"
    assert "waited" in kinds
    ends = [bar.start + bar.length for bar in row.bars]
    assert all(later.start >= end - 1 for end, later in zip(ends, row.bars[1:], strict=False))


def test_nested_steps_are_numbered_below_their_own() -> None:
    drawn = timeline(stored("nested"))
    labels = [row.label.split()[0] for row in drawn.rows]
    nested = [label for label in labels if "." in label]
    assert nested
    outer = {row.label.split()[0]: row.bars[0].start for row in drawn.rows if row.bars}
    assert all(outer[label] >= outer[label.partition(".")[0]] for label in nested if label in outer)
