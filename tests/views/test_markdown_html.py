"""Markdown of a model becomes HTML that looks like it and does nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.views import html as module
from conductor_cli.views.html import markdown_html

TAGS = {
    "p", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "em",
    "strong", "s", "code", "pre", "hr", "br",
}  # fmt: skip


class Reader(HTMLParser):
    """The elements of a piece of HTML, its attributes, and its text; they must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.words = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in {"br", "hr"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# One\ntwo", "<h3>One</h3>\n<p>two</p>\n"),
        ("**b** *i* ~~s~~ `c`", "<p><strong>b</strong> <em>i</em> <s>s</s> <code>c</code></p>\n"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n"),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>\n'),
        ("one\ntwo", "<p>one<br>\ntwo</p>\n"),
        ('```py onload="x"\na < b\n```', "<pre><code>a &lt; b\n</code></pre>\n"),
        ("a | b\n:- | -:\n1 | 2", None),
    ],
)
def test_the_marks_become_elements(text: str, html: str | None) -> None:
    """Headings are below those of the page, lines stay lines, and the language of code is left out."""
    found = markdown_html(text)
    if html is not None:
        assert found == html
    read = Reader(found)
    assert read.tags <= TAGS
    assert read.attributes <= {"start"}


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
    """Nothing can be clicked or loaded, and nobody is led to an address they do not see."""
    read = Reader(markdown_html(text))
    assert read.words.strip() == words
    assert read.tags == {"p"}
    assert read.attributes == set()


HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</div></body>", '"><svg onload=alert(1)>',
    "[x](http://e.example 'a\" onmouseover=\"b')", "`</code><script>`", "&lt;script&gt;alert(1)", "&#27;[31m&#x202e;x",
    "<!-- -->", "<a href='http://e.example'>x</a>", "| <b> |\n|---|\n| <script> |",
    "~~~\n</pre><script>\n~~~", "    </pre>",
    "[" * 3000, "> " * 500 + "x", "*" * 5000, "- " * 300 + "x", "\x1b]0;t\x07\u202e\x00",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markup_stays_text(text: str) -> None:
    """Whatever a model writes, only harmless elements come out, closed in order, without control characters."""
    found = markdown_html(text)
    read = Reader(found)
    assert read.tags <= TAGS
    assert read.attributes <= {"start"}
    assert read.open == []
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", found)


@given(st.lists(st.sampled_from([*HOSTILE[:12], "\n", "\n\n", "* ", "# ", "**", "a ", "1. ", "|", "\t", "![", "](x)"])))
def test_any_mixture_of_hostile_markup_is_harmless(pieces: list[str]) -> None:
    """Also where one piece ends what another one began."""
    read = Reader(markdown_html("".join(pieces)))
    assert read.tags <= TAGS
    assert read.attributes <= {"start"}
    assert read.open == []


def test_a_text_that_is_too_long_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one that the parser fails on."""
    monkeypatch.setattr(module, "LONGEST", 5)
    assert markdown_html("# <b>ng") == "<pre># &lt;b&gt;ng</pre>\n"
