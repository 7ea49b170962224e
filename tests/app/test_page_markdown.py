"""The text of web pages.

All that a reader sees, in what browsers make of the page, and nothing else.
"""

from __future__ import annotations

import pytest

from conductor_cli.app import documents
from conductor_cli.app.page_markdown import decode_page, to_markdown


def text_of(page: str) -> str:
    return to_markdown(page, 10**6, 10)[0]


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("<body><form><h1>Title</h1><p>WORD<table><tr><td>a</table></form><footer>f</footer>", 1),
        ("<head><title>T</title><body><p>WORD", 1),
        ("<title>T</title><p>WORD", 1),
        ("<p>WORD" * 500, 500),
        ("<ul>" + "<li>WORD" * 500, 500),
        ("<table>" + "<tr><td>WORD<td>x" * 400, 400),
        ("<dl>" + "<dt>a<dd>WORD" * 500, 500),
        ("<div>" * 400 + "WORD" + "</div>" * 400, 1),
        ("<div>" * 5000 + "WORD", 1),
        ("<ul><li>" * 300 + "WORD", 1),
        ("<table><tr><td>" * 200 + "WORD", 1),
        ("<b>" * 2000 + "WORD</b><p>WORD", 2),
        ("<p>1<b>2<i>WORD</b>3</i>WORD", 2),
        ("<select><option>WORD<option>WORD</select><textarea>WORD</textarea><input value=WORD>", 4),
    ],
)
def test_no_word_that_a_reader_sees_is_lost(page: str, count: int) -> None:
    assert text_of(page).count("WORD") == count


@pytest.mark.parametrize(
    ("style", "is_hidden"),
    [
        ("opacity:0", True),
        ("font-size: 0px; color: red", True),
        ("font-size:0.0em !important", True),
        ("opacity:0.5", False),
        ("font-size:0.8em", False),
        ("fill-opacity:0", False),
    ],
)
def test_what_a_style_makes_invisible_is_left_out(style: str, is_hidden: bool) -> None:
    text, left_out, _ = to_markdown(f'<p style="{style}">WORD</p><p>seen</p>', 1000, 10.0)
    assert ("WORD" not in text) == is_hidden
    assert left_out == ({"hidden elements": 1} if is_hidden else {})


def test_what_is_hidden_is_left_out_and_counted() -> None:
    page = """<p>seen</p><p hidden>NO</p><div style="color: red; DISPLAY : none">NO<p>NO</div>
    <i style=visibility:hidden>NO</i><dialog>NO</dialog><input type=hidden \
value=NO><template>NO</template>
    <script>NO</script><p style="x-display:none">seen"""
    text, left_out, end = to_markdown(page, 10**6, 10)
    assert text == "seen\n\nseen\n"
    assert left_out == {"hidden elements": 4, "templates": 1, "scripts": 1}
    assert end == ""


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h2>A <b>b</b> </h2>c", "## A **b**\n\nc\n"),
        (
            "a <b> b </b>c<b></b> <a href=u>d</a> <a href='#x'>e</a> <a href='javascript:f()'>g</a>",
            "a **b** c [d](u) e g\n",
        ),
        ("<ul><li>a<ol><li>b<li>c</ol><li><p>d<p>e</ul>", "- a\n  1. b\n  2. c\n- d\n\n  e\n"),
        (
            "<!doctype html><table><tr><th>A<th>B|<tr><td><p>1<p>2<td></table>",
            "| A | B\\| |\n| --- | --- |\n| 1 2 |  |\n",
        ),
        ("<blockquote>a<p>b</blockquote>c", "> a\n\n> b\n\nc\n"),
        ("<pre>a\n  <b>b</b>\n</pre>c<br>d<hr>e", "```\na\n  b\n```\n\nc\nd\n\n---\n\ne\n"),
    ],
)
def test_structure_stays_as_markdown(page: str, text: str) -> None:
    assert text_of(page) == text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("é".encode(), "é"),
        (b"\xef\xbb\xbfa", "a"),
        ("é".encode("utf-16"), "é"),
        (b"\xe9\x80", "é€"),
        (b'<meta charset="iso-8859-2">\xb1', '<meta charset="iso-8859-2">ą'),
        (b"<meta charset=gb2312>" + "镕".encode("gbk"), "<meta charset=gb2312>镕"),
        (b"<meta charset=nonsense>\xe9", None),
        (b'<meta http-equiv=Content-Type content="text/html; charset=koi8-r">\xc1', None),
    ],
)
def test_a_page_is_decoded_by_its_mark_its_declaration_or_as_browsers_do(
    content: bytes, text: str | None
) -> None:
    decoded, _ = decode_page(content)
    assert "\ufffd" not in decoded
    assert text in {None, decoded}


@pytest.mark.parametrize(
    ("content", "is_guess"),
    [
        (b"caf\xe9", True),
        (b"<meta charset=nonsense>\xe9", True),
        (b"<meta charset=latin1>\xe9", False),
        ("é".encode("utf-16"), False),
        (b"abc", False),
    ],
)
def test_a_guess_at_the_encoding_of_a_page_is_told(content: bytes, is_guess: bool) -> None:
    assert decode_page(content)[1] is is_guess


def test_a_page_is_cut_by_length_and_by_time_and_says_so() -> None:
    assert to_markdown("<p>word" * 1000, 50, 10)[2] == "length"
    assert to_markdown("WORD" + "<p>" * 100_000, 10**6, 0)[::2] == ("WORD\n", "time")


def test_a_page_of_millions_of_elements_gives_its_beginning() -> None:
    """It needs more memory than a reader is given."""
    limits = documents.DOCUMENT_LIMITS._replace(memory=256 << 20, seconds=60)
    lines = documents._read_in_child(b"WORD" + b"<p>" * 2_000_000, limits)
    values = {}
    for line in lines:
        values.update(line)
    assert values["text"] == "WORD\n"
    assert values["end"] in {"memory", "time"}
