"""Answers rendered as Markdown on a terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.terminal_text import is_sanitized, sanitize
from conductor_cli.views import markdown_stream
from conductor_cli.views.base import Stderr
from conductor_cli.views.markdown_stream import MAX_BLOCK_CHARACTERS, MarkdownStream, split_blocks
from conductor_cli.views.output_formats import OutputContext, open_views
from tests.traces.make import ANSWER, parallel
from tests.views.terminals import Sink, emulated, open_console, play, without_ours

ANSWERED = """# Primes
There are **46**, see `count()` and [a list](https://example.org/x):

```python
def count(n: int) -> int:
    return 46  # all of them
```
1. First
2. Second, a `vector<int>`

   with more

| digit | count |
|---|--:|
| 7 | 46 |
"""

LOOKS = [
    "# Primes",
    "There are 46, see count() and a list (https://example.org/x):",
    "def count(n: int) -> int:",
    "    return 46  # all of them",
    " 1 First",
    " 2 Second, a vector<int>",
    "   with more",
    " digit  count",
    f" {chr(0x2500) * 12}",
    " 7         46",
]


def written(*pieces: str, width: int = 80, height: int = 24, encoding: str = "utf-8") -> str:
    sink = Sink(terminal=True, encoding=encoding)
    console = open_console(Stderr(sink), color=True, width=width, height=height)
    marked = MarkdownStream(console)
    for piece in pieces:
        marked.write(piece)
        marked.draw()
    marked.close()
    return sink.getvalue()


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+", text)


@pytest.mark.parametrize("size", [3, 1000])
def test_an_answer_looks_the_same_in_pieces_of_any_size(size: int) -> None:
    pieces = [ANSWERED[start : start + size] for start in range(0, len(ANSWERED), size)]
    assert [line for line in emulated(written(*pieces), 80, 24) if line] == LOOKS


def test_styles_replace_the_marks_of_markdown() -> None:
    shown = written(ANSWERED)
    assert "\x1b[1m46\x1b[0m" in shown
    assert "\x1b[36mcount()\x1b[0m" in shown
    assert "\x1b[34mdef\x1b[0m" in shown


@pytest.mark.parametrize(
    "text",
    [
        "a <b>bold</b> vector<int> &amp; <kbd>x</kbd>",
        "[ref]: http://example.org/y\n\nsee [ref]",
        "![a picture](http://p/q.png)",
        "<div>\n\nblock\n\n</div>",
        "<script>alert(1)</script>",
        "- [ ] todo\n- [x] done",
        "Term[^1]\n\n[^1]: note",
        "    indented code",
        "> quoted\n>> deeper",
        "```\nnever closed",
        "a\nb\nc",
        "***",
        "1) one\n2) two",
        "| a | b |\n|---|---|\n| 1 |\n| 1 | 2 |",
        "# \n#",
        "[x](javascript:alert)",
        "<https://auto.link/z>",
        f"| a | b |\n|---|---|\n| 1 | /{'long/' * 40}end |",
        f"|{'|'.join('abcdefghijklmnop')}|\n|{'-|' * 16}\n|{'|'.join(map(str, range(100, 116)))}|",
        "| a | b |\n|---|---|\n| `x || y` | or | more |",
        f"1. do\n   ```\n   x{' word' * 40} end\n   ```\n2. then",
        f"> ```\n> x{' word' * 40} end\n> ```",
    ],
)
def test_no_word_is_lost(text: str) -> None:
    shown = words(" ".join(emulated(written(text), 80, 24)))
    assert [word for word in words(text.replace("&amp;", "&")) if word not in shown] == []


@given(text=st.text(st.sampled_from("ab \n`*_#>-|[]()<>!~1.\\&\t\u00e9\u7ae0\u0301"), max_size=120))
def test_no_text_causes_an_error(text: str) -> None:
    for width in (1, 20, 80):
        assert is_sanitized(without_ours(written(sanitize(text), width=width, height=5)))


def test_links_are_not_clickable() -> None:
    assert "\x1b]" not in written(
        "[click](https://example.org) <https://example.org> ![x](https://example.org)"
    )


def test_an_ascii_terminal_gets_the_marks() -> None:
    text = "- one\n\n> two\n"
    sink = Sink(terminal=True, encoding="ascii")
    view = open_views(
        "answer", "none", OutputContext(stdout=sink, stderr=Sink(), environ={"TERM": "xterm"})
    )
    *events, last = parallel()
    assert isinstance(last, ev.RunFinished)
    play(view, [*events, replace(last, answer=text)])
    assert emulated(sink.getvalue(), 80, 24)[-3:] == text.splitlines()


def test_a_long_line_of_code_is_not_wrapped() -> None:
    line = "x = " + " + ".join(["1"] * 60)
    assert re.sub(r"\x1b\[[0-9;]*m", "", written(f"```py\n{line}\n```\n")).count(line) == 1


@pytest.mark.parametrize("begin", ["1. do\n   ", "- do\n  ", "> "])
def test_code_within_a_block_keeps_its_lines(begin: str) -> None:
    line = "x = " + " + ".join(["1"] * 60)
    indent = begin.rpartition("\n")[2]
    text = f"{begin}```py\n{indent}{line}\n{indent}```\n"
    assert without_ours(written(text)).count(line) == 1


def test_a_table_is_broken_into_lines_and_not_cut_off() -> None:
    path = "/".join(["directory"] * 12)
    shown = emulated(written(f"| name | path |\n|---|---|\n| x | {path} |\n", width=40), 40, 24)
    assert "".join(line[7:].strip() for line in shown[2:]) == path


def test_a_table_too_wide_for_the_terminal_is_shown_as_it_was_written() -> None:
    rows = [f"|{'|'.join(row)}|" for row in ("abcdefghij", "-" * 10, ["value"] * 10)]
    assert "".join(emulated(written("\n".join(rows), width=60), 200, 24)) == "".join(rows)
    assert written("\n".join(rows), width=90).count("|") == 0


def test_a_row_with_more_cells_than_columns_loses_none() -> None:
    text = "| op | means |\n|---|---|\n| `a || b` | or |\n"
    assert emulated(written(text), 80, 24) == text.replace("`", "").splitlines()
    escaped = text.replace("||", "\\|\\|")
    assert emulated(written(escaped), 80, 24)[-1].split() == ["a", "||", "b", "or"]


@pytest.mark.parametrize(
    "formula",
    [
        r"\(a_1 * b_2 * c\, \{x\}\)",
        r"$$\frac{a}{b}\; x_{1} * y_{2} * z$$",
        r"$\forall\, \varepsilon > 0$",
        "\\[\n\\begin{pmatrix}\n1 & 2 \\\\\n- b\n+ c\n\\end{pmatrix}\n\\]",
        "$$\na \\\\\n- b\n$$",
    ],
)
@pytest.mark.parametrize("size", [3, 1000])
def test_a_formula_stays_as_it_was_written(formula: str, size: int) -> None:
    text = f"Thus:\n{formula}\nis *so*."
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    shown = [line for line in emulated(written(*pieces), 80, 24) if line]
    assert shown == ["Thus:", *formula.split("\n"), "is so."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It costs $5 and $6, or *$7*.", "It costs $5 and $6, or $7."),
        ("Set **$A** or **$B**.", "Set $A or $B."),
        ("`\\(` and *x* `\\)`", "\\( and x \\)"),
        ("\\[ not *closed*", "[ not closed"),
    ],
)
def test_what_is_no_formula_is_markdown(text: str, expected: str) -> None:
    assert emulated(written(text), 80, 24) == [expected]


JSON_TEXTS = [
    r'{"a": "say \"no\"", "b": "*x* and C:\\_temp", "c": [1, true]}',
    '{\n  "a": "\\"_x_ and _y_\\"",\n  "b": {\n    "c": "<x>"\n  }\n}',
    '[\n  {"a": "\\"*x*\\""}\n]',
]


@pytest.mark.parametrize("size", [3, 1000])
@pytest.mark.parametrize("text", JSON_TEXTS)
def test_json_stays_as_it_was_written(text: str, size: int) -> None:
    """An answer with a schema would be none in its form."""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert emulated(written(*pieces), 80, 24) == text.split("\n")
    around = f"Here:\n\n{text}\n\nIs *so*."
    assert emulated(written(around), 80, 24) == ["Here:", "", *text.split("\n"), "", "Is so."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": *b*}', '{"a": b}'),
        ('["*Title*"](x)', '"Title" (x)'),
        ("[1] *Title*", "[1] Title"),
        ('- {"a": "\\*"}', ' \u2022 {"a": "*"}'),
    ],
)
def test_what_is_no_json_is_markdown(text: str, expected: str) -> None:
    assert emulated(written(text), 80, 24) == [expected]


def test_a_number_that_python_does_not_read_is_shown() -> None:
    """Python refuses whole numbers of more than 4,300 digits."""
    text = f'{{"a": {"7" * 5000}}}'
    assert "".join(emulated(written(text), 80, 24)) == text


def test_the_rest_of_long_json_stays_json() -> None:
    lines = [f'  "{number}": "\\"*x*\\"",' for number in range(2000)]
    complete, rest = split_blocks("\n".join(["{", *lines]))
    fence, last = rest.split("\n")
    assert (complete.count("\n"), last) == (2000, lines[-1])
    assert fence.startswith("~~~")


@pytest.mark.parametrize("size", [1, 7, 300])
@pytest.mark.parametrize("end", ['  "e": 1\n}\n\n', '  "e": 1\n}\n  \n', "}\n\n"])
def test_what_comes_behind_long_json_is_markdown(size: int, end: str) -> None:
    """It stayed code to the end of the answer, and a fence in it was lost."""
    lines = [f'  "{number}": "\\"*x*\\"",\n' for number in range(MAX_BLOCK_CHARACTERS // 15)]
    begin = "".join(["{\n", *lines])
    tail = f"{end}Is *so*.\n\n```py\nx = 1\n\ny = 2\n```\n\nEnd **bold**."
    pieces = [begin, *(tail[start : start + size] for start in range(0, len(tail), size))]
    shown = emulated(written(*pieces), 80, 24)
    code = [line.rstrip() for line in f"{begin}{end}".split("\n")[:-1]]
    assert shown == [*code, "Is so.", "", "x = 1", "", "y = 2", "", "End bold."]


@pytest.mark.parametrize("step", [1, 50])
@pytest.mark.parametrize("fence", ["```py\n", ""])
def test_no_line_comes_into_an_endless_block_where_it_is_split(fence: str, step: int) -> None:
    """Code that is copied would have a line more than was written."""
    lines = [f"line {number} = {number}\n" for number in range(1200)]
    begun = "".join([fence, *lines[:1150]])
    pieces = ["".join(lines[start : start + step]) for start in range(1150, 1200, step)]
    shown = emulated(written(begun, *pieces, fence and "```\n", "\nEnd."), 80, 24)
    assert shown == [*(line.rstrip() for line in lines), "", "End."]


def test_text_is_shown_at_once() -> None:
    sink = Sink(terminal=True)
    marked = MarkdownStream(open_console(Stderr(sink), color=True, width=40, height=10))
    marked.write("An **early** word")
    marked.draw()
    assert emulated(sink.getvalue(), 40, 10) == ["An early word"]
    marked.close()


def test_a_long_unfinished_block_shows_its_end() -> None:
    text = "```\n" + "".join(f"line {number}\n" for number in range(40)) + "```\n"
    shown = emulated(written(*text.splitlines(keepends=True), width=40, height=10), 40, 10)
    assert shown == text.splitlines()[1:-1]


def test_floods_of_marks_are_limited() -> None:
    shown = written(*["a" + "\u0301" * 40, "\u200b" * 5000, "b"])
    assert len(re.findall("[\u0301\u200b]", shown.rpartition("a")[2])) == 30


def test_very_long_texts_are_shown_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """To render a megabyte would take half a minute, in which the command does not end."""
    monkeypatch.setattr(markdown_stream, "MAX_BLOCK_CHARACTERS", 500)
    monkeypatch.setattr(markdown_stream, "MAX_RENDERED_CHARACTERS", 1000)
    assert without_ours(written(*["word " * 200] * 10)).count("word") >= 2000
    row = "|[a](b|**c**|\n"
    assert without_ours(written(f"{row}|-|-|\n{row * 100}")).count(row.strip()) >= 100


@pytest.mark.parametrize(
    ("environ", "markdown", "expected"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "ACCESSIBLE": "1"}, True, False),
    ],
)
def test_when_an_answer_is_rendered(
    environ: dict[str, str], markdown: bool, expected: bool
) -> None:
    sink = Sink(terminal=True)
    around = OutputContext(
        stdout=sink, stderr=Sink(), environ=environ, markdown=markdown, width=80, height=24
    )
    play(open_views("answer", "none", around), parallel())
    assert ("\x1b[?25l" in sink.getvalue()) is expected
    assert emulated(sink.getvalue(), 80, 24) == ANSWER.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\nthree", ("one\ntwo\n\n", "three")),
        ("- a\n\n  still a\n- b\n", ("", "- a\n\n  still a\n- b\n")),
        ("Code:\n```py\nx = 1\n\ny = 2\n```\nend", ("Code:\n```py\nx = 1\n\ny = 2\n```\n", "end")),
        ("- a\n  ```py\n  x\n  ```\n", ("", "- a\n  ```py\n  x\n  ```\n")),
        ('{"a":\n1}\n\nend', ('{"a":\n1}\n\n', "end")),
    ],
)
def test_the_last_block_may_go_on(text: str, expected: tuple[str, str]) -> None:
    assert split_blocks(text) == expected


def test_endless_blocks_are_split() -> None:
    assert split_blocks("x" * (MAX_BLOCK_CHARACTERS + 1)) == ("x" * (MAX_BLOCK_CHARACTERS + 1), "")
    complete, rest = split_blocks("```py\n" + "y = 1\n" * MAX_BLOCK_CHARACTERS + "z")
    assert complete.count("y = 1") == MAX_BLOCK_CHARACTERS
    assert rest == "```py\nz"
