"""The HTML report is complete, self-contained, and safe whatever workers wrote; names in its drawing do not overlap."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.redact import Secrets
from conductor_cli.evals import html_report
from conductor_cli.evals.cases import Case
from conductor_cli.evals.html_report import AREA, LETTER, LINE, MAX_CASES, MAX_TEXT, Label, place_labels, render_html
from conductor_cli.evals.outcomes import CaseOutcome, EvaluationSpec
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


def page(spec: EvaluationSpec, made: list[CaseOutcome], asked: list[Case] | None = None) -> str:
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
    evil = page_of(EVIL)
    shape = [(name, sorted(given)) for name, given in Reader(evil).tags]
    assert shape == [(name, sorted(given)) for name, given in Reader(page_of("x")).tags]
    assert not {"\x1b", "\u202e"} & set(evil)


def test_a_key_is_redacted_before_a_text_is_cropped(monkeypatch: pytest.MonkeyPatch) -> None:
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
    text = render_html("e1", SPEC, summary())
    assert text.index("conductor is level with alone:two, the best single worker on these cases") < text.index("<table")
    assert text.index("3 cases cannot tell these apart.") < text.index("<table")


def test_each_figure_has_its_heading_with_it() -> None:
    text = render_html("e1", SPEC, summary())
    heads = [column.head for column in system_table(summary()).columns]
    for head in heads[1:]:
        assert text.count(f'<td data-head="{head}">') == 3


def test_costs_are_compared_in_dollars_only_if_every_price_is_known() -> None:
    for costs, unit in ((("0.1", "0"), "US dollars"), (("0", "0"), "tokens"), (("0.1", None), "tokens")):
        made = [*outcomes("one", "+", cost=costs[0]), *outcomes("two", "+", cost=costs[1])]
        assert f"Accuracy against {unit} a question" in page(replace(SPEC, systems=("one", "two")), made)


def test_a_page_without_any_judged_case_is_well_formed() -> None:
    text = page(replace(SPEC, systems=("moa",)), outcomes("moa", "!!"))
    assert Reader(text).open == []


def test_long_answers_and_many_cases_are_cut() -> None:
    asked = [Case(id=str(number), question="q" * (MAX_TEXT + 7), answer="w") for number in range(MAX_CASES + 3)]
    text = render_html("e1", SPEC, summary(), asked)
    assert "(7 characters more)" in text
    assert f"the first {MAX_CASES} of {MAX_CASES + 3}" in text
    assert text.count("<details>") == MAX_CASES


POINTS = st.lists(
    st.tuples(st.floats(44, 454), st.floats(20, 300), st.text("abc", min_size=1, max_size=18)), max_size=13
)


def spans(label: Label, name: str) -> tuple[float, float]:
    length = LETTER * len(name)
    return (label.x, label.x + length) if label.anchor == "start" else (label.x - length, label.x)


@given(POINTS)
def test_labels_do_not_overlap(points: list[tuple[float, float, str]]) -> None:
    """Thirteen systems, all of them at the same place if need be."""
    found = list(zip(place_labels(points, AREA), (name for _, _, name in points), strict=True))
    assert len(found) == len(points)
    for (one, first), (other, second) in combinations(found, 2):
        left, right = spans(one, first), spans(other, second)
        apart = left[1] <= right[0] or right[1] <= left[0]
        assert apart or abs(one.y - other.y) >= LINE - 0.001


@given(POINTS)
def test_labels_are_inside_the_drawing(points: list[tuple[float, float, str]]) -> None:
    for label, (_, _, name) in zip(place_labels(points, AREA), points, strict=True):
        left, right = spans(label, name)
        assert left >= AREA.left
        assert right <= AREA.width
        assert 0 <= label.y <= AREA.y(0)


def test_a_name_is_beside_its_point_if_there_is_room() -> None:
    right, left = place_labels([(100, 100, "one"), (460, 200, "another")], AREA)
    assert (right.anchor, right.far) == ("start", False)
    assert (left.anchor, left.far) == ("end", False)


def test_points_at_the_same_place_have_names_one_below_the_other() -> None:
    labels = place_labels([(100, 100, name) for name in ("one", "two", "three", "four", "five", "six", "seven")], AREA)
    assert len({(label.y, label.anchor) for label in labels}) == 7
    assert labels[-1].far
