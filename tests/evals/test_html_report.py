"""The HTML report is complete, self-contained, and safe whatever workers wrote."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from conductor_cli.core.redact import Secrets
from conductor_cli.evals import html_report
from conductor_cli.evals.cases import Case
from conductor_cli.evals.html_report import MAX_CASES, MAX_TEXT, render_html
from conductor_cli.evals.outcomes import EvaluationSpec, Outcome
from conductor_cli.evals.report import system_table
from conductor_cli.evals.summary import summarize
from tests.evals.sample_outcomes import outcomes
from tests.evals.test_report import SPEC, summary

if TYPE_CHECKING:
    import pytest

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e&amp; </style>'


class Reader(HTMLParser):
    """Collects every tag with its attributes, and checks that tags are closed in order."""

    void = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else() -> None:
    """No script, link, image or address: the file alone is the report, and its policy forbids the rest."""
    text = render_html("e1", SPEC, summary())
    read = Reader(text)
    assert read.open == []
    names = {name for name, _ in read.tags}
    assert not names & {"script", "link", "img", "iframe", "a", "object"}
    assert not re.search(r"(?i)https?:|url\(|@import|\bon\w+=|src=|href=", text)
    assert ("meta", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'") in [
        (name, given.get("content")) for name, given in read.tags
    ]
    assert "prefers-color-scheme: dark" in text


def page(spec: EvaluationSpec, made: list[Outcome], asked: list[Case] | None = None) -> str:
    return render_html("e1", spec, summarize(made, spec.systems), asked or (), made)


def page_of(text: str) -> str:
    """A page in which every name, question, answer, tag and error is `text`."""
    made = [
        replace(item, answer=text, error=text if item.verdict == "failed" else "", tags=(text,))
        for item in outcomes(text, "+-!")
    ]
    spec = replace(
        SPEC, source=text, systems=(text,), workers=(text,), conductor=text, notes=(text,), time=text, hash=text
    )
    asked = [Case(id=str(number), question=text, answer=text) for number in (1, 2, 3)]
    return page(spec, made, asked)


def test_markup_in_texts_adds_no_element() -> None:
    """Names, tags, questions, answers and errors full of markup add no element and no attribute."""
    evil = page_of(EVIL)
    shape = [(name, sorted(given)) for name, given in Reader(evil).tags]
    assert shape == [(name, sorted(given)) for name, given in Reader(page_of("x")).tags]
    assert not {"\x1b", "\u202e"} & set(evil)


def test_a_key_is_redacted_before_a_text_is_cropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first half of a key at the end of a long answer would be shown."""
    secrets = Secrets()
    secrets.add("sk-planted-0123456789")
    monkeypatch.setattr(html_report, "KNOWN_SECRETS", secrets)
    answer = "x" * (MAX_TEXT - 10) + "sk-planted-0123456789"
    made = [replace(item, answer=answer) for item in outcomes("alone:one", "+")]
    text = page(SPEC, made, [Case(id="1", question="q", answer="a")])
    assert "sk-planted" not in text
    assert "[key]" in text


def plots(text: str) -> list[ET.Element]:
    """The drawings of a page, which must be well-formed."""
    return [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def dot_of(svg: ET.Element) -> float:
    """Where the mark of a bar is."""
    return next(float(line.get("x1", "0")) for line in svg.iter("line") if line.get("class") == "dot")


def test_the_plots_show_each_system_with_its_figures() -> None:
    """Each system is a mark with its figures as tooltip, and higher the more cases it got right."""
    *bars, scatter = plots(render_html("e1", SPEC, summary()))
    assert len(bars) == 3
    titles = [found.text or "" for svg in (*bars, scatter) for found in svg.iter("title")]
    assert sum("alone:one" in title for title in titles) == 2
    place = {(svg.findtext("title") or "").rpartition(": ")[0]: dot_of(svg) for svg in bars}
    assert place["alone:one"] < place["alone:two"] < place["conductor"]
    height = {
        (group.findtext("title") or "").rpartition(": ")[0]: float(circle.get("cy", "0"))
        for group in scatter.iter("g") if (circle := group.find("circle")) is not None
    }  # fmt: skip
    assert height["alone:one"] > height["alone:two"] > height["conductor"]


def test_the_verdict_is_at_the_top() -> None:
    """Before any figure, with the warning that the cases are too few."""
    text = render_html("e1", SPEC, summary())
    assert text.index("alone:two, the best single worker on these cases, did best") < text.index("<table")
    assert text.index("3 cases cannot tell these apart.") < text.index("<table")


def test_each_figure_has_its_heading_with_it() -> None:
    """A narrow page shows each row as a block, in which the headings of the columns are not above the figures."""
    text = render_html("e1", SPEC, summary())
    heads = [column.head for column in system_table(summary()).columns]
    for head in heads[1:]:
        assert text.count(f'<td data-head="{head}">') == 3


def test_costs_are_compared_in_dollars_only_if_every_price_is_known() -> None:
    """Tokens are used if a price is unknown, or if everything is free."""
    for costs, unit in ((("0.1", "0"), "US dollars"), (("0", "0"), "tokens"), (("0.1", None), "tokens")):
        made = [*outcomes("one", "+", cost=costs[0]), *outcomes("two", "+", cost=costs[1])]
        assert f"Accuracy against {unit} a question" in page(replace(SPEC, systems=("one", "two")), made)


def test_a_page_without_any_judged_case_is_well_formed() -> None:
    """A report in which everything failed is still a page."""
    text = page(replace(SPEC, systems=("moa",)), outcomes("moa", "!!"))
    assert Reader(text).open == []


def test_long_answers_and_many_cases_are_cut() -> None:
    """The page is bounded, and says what it leaves out."""
    asked = [Case(id=str(number), question="q" * (MAX_TEXT + 7), answer="w") for number in range(MAX_CASES + 3)]
    text = render_html("e1", SPEC, summary(), asked)
    assert "(7 characters more)" in text
    assert f"the first {MAX_CASES} of {MAX_CASES + 3}" in text
    assert text.count("<details>") == MAX_CASES
