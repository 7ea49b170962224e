"""The HTML report: whole, alone, and safe whatever workers wrote."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from conductor_cli.evals.html_report import CASES, LONGEST, Asked, page
from conductor_cli.evals.plots import accuracy, against_cost
from conductor_cli.evals.summary import summarize
from conductor_cli.evals.table import Heading
from tests.evals.made import outcomes
from tests.evals.test_table import HEADING, summary

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e&amp; </style>'


class Reader(HTMLParser):
    """Every tag with its attributes, and that each is closed where it was opened."""

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
    """No script, no link, no image, no address: the file alone is the report, and its policy forbids the rest."""
    text = page(HEADING, summary())
    read = Reader(text)
    assert read.open == []
    names = {name for name, _ in read.tags}
    assert not names & {"script", "link", "img", "iframe", "a", "object"}
    assert not re.search(r"(?i)https?:|url\(|@import|\bon\w+=|src=|href=", text)
    assert ("meta", "default-src 'none'; style-src 'unsafe-inline'") in [
        (name, given.get("content")) for name, given in read.tags
    ]
    assert "prefers-color-scheme: dark" in text


def test_whatever_was_written_stays_text() -> None:
    """Names, tags, questions, answers and errors full of markup add no element and no attribute."""
    made = [
        replace(item, answer=EVIL, error=EVIL if item.verdict == "failed" else "", tags=(EVIL,))
        for item in outcomes(EVIL, "+-!")
    ]
    plain = [replace(item, answer="x", error="", tags=("x",)) for item in outcomes("x", "+-!")]
    asked = [Asked(id=str(number), question=EVIL, wanted=EVIL) for number in (1, 2, 3)]
    dull = [Asked(id=str(number), question="x", wanted="x") for number in (1, 2, 3)]
    evil_page = page(
        Heading(source=EVIL, cases=3, workers=(EVIL,), conductor=EVIL, remarks=(EVIL,), id=EVIL, time=EVIL),
        summarize(made, systems=[EVIL], fixed=[EVIL], singles=[EVIL]), asked, made,
    )  # fmt: skip
    dull_page = page(
        Heading(source="x", cases=3, workers=("x",), conductor="x", remarks=("x",), id="x", time="x"),
        summarize(plain, systems=["x"], fixed=["x"], singles=["x"]), dull, plain,
    )  # fmt: skip
    shape = [(name, sorted(given)) for name, given in Reader(evil_page).tags]
    assert shape == [(name, sorted(given)) for name, given in Reader(dull_page).tags]
    assert not {"\x1b", "\u202e"} & set(evil_page)


def test_the_plots_are_drawings_of_the_figures() -> None:
    """Each system is a mark with its figures as title, higher where more was right; the frontier is a line."""
    made = summary()
    for drawing in (accuracy(made), against_cost(made)):
        svg = ET.fromstring(drawing)  # the drawing is well-formed
        titles = [found.text or "" for found in svg.iter("title")]
        assert sum("alone:one" in title for title in titles) == 1
    svg = ET.fromstring(against_cost(made))
    height = {
        (group.findtext("title") or "").partition(":")[2].split(" ")[0].rpartition(":")[0]: float(circle.get("cy", "0"))
        for group in svg.iter("g") if (circle := group.find("circle")) is not None
    }  # fmt: skip
    assert height["one"] > height["two"] > height["auto"]
    assert any(line.get("class") == "frontier" for line in svg.iter("line"))


def test_systems_at_one_point_share_a_label() -> None:
    """Two that cost and reach the same are both named; one elsewhere has its own number."""
    made = [*outcomes("one", "+-"), *outcomes("two", "+-"), *outcomes("three", "++", tokens=90)]
    svg = ET.fromstring(against_cost(summarize(made, systems=["one", "two", "three"])))
    assert [text.text for text in svg.iter("text") if text.get("class") == "value"] == ["1, 2", "3"]


def test_nothing_to_draw_is_no_fault() -> None:
    """A summary in which everything failed still makes a page."""
    text = page(HEADING, summarize(outcomes("moa", "!!"), systems=["moa"]))
    assert Reader(text).open == []


def test_a_long_answer_and_many_cases_are_cut_and_said() -> None:
    """The page has an end, and says what it leaves out."""
    asked = [Asked(id=str(number), question="q" * (LONGEST + 7), wanted="w") for number in range(CASES + 3)]
    text = page(HEADING, summary(), asked)
    assert "(7 characters more)" in text
    assert f"the first {CASES} of {CASES + 3}" in text
    assert text.count("<details>") == CASES
