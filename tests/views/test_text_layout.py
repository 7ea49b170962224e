"""Text on a screen of a given width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from conductor_cli.core.terminal_text import is_sanitized
from conductor_cli.views.text_layout import STRIDE, Screen

TEXT = st.text(st.characters() | st.sampled_from(" \n漢é👩\u200d"), max_size=300)
ENCODINGS = st.sampled_from(["utf-8", "ascii", "cp1252"])


@given(TEXT, st.integers(1, 60), ENCODINGS)
def test_no_line_is_wider_than_asked(text: str, width: int, encoding: str) -> None:
    screen = Screen(encoding=encoding)
    ends = (*screen.tail(text, width, 2), *screen.head(text, width, 2))
    for line in (screen.crop(text, width), *screen.wrap(text, width), *ends):
        assert cell_len(line) <= max(width, 2 if width == 1 else 0)
        assert is_sanitized(line)
        assert "\n" not in line
        assert line.encode(encoding).decode(encoding) == line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\n\ntwo\n", ["one", "", "two"]),
        ("a\nb\nc\nd", ["a", "b", "c", "d"]),
        ("a\nb\nc\nd\ne", ["a", "b", "c", "d … +1 line"]),
        ("\n".join("abcdefg"), ["a", "b", "c", "d … +3 lines"]),
        (
            "a\nb\nthe third line is a long one\nd",
            ["a", "b", "the third line is a", "long one … +1 line"],
        ),
        ("word " * 100, ["word word word word"] * 3 + ["word word word wor …"]),
        (" \n", []),
    ],
)
def test_block_shows_all_lines_up_to_a_third_of_the_screen(text: str, expected: list[str]) -> None:
    assert Screen(height=12).block(text, 20) == expected


@given(TEXT, st.integers(20, 60), st.integers(1, 60), ENCODINGS)
def test_block_fits_the_screen(text: str, width: int, height: int, encoding: str) -> None:
    lines = Screen(height=height, encoding=encoding).block(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert len(lines) <= max(3, height // 3)


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("short", 10, "short"),
        ("exactly ten", 11, "exactly ten"),
        ("a little too long", 10, "a little…"),
        ("漢字漢字漢字", 7, "漢字漢…"),
        ("two\nlines", 20, "two lines"),
        ("x", 0, ""),
    ],
)
def test_cropped_text_ends_in_dots(text: str, width: int, expected: str) -> None:
    assert Screen().crop(text, width) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" + "\u0301" * 9000 + "b", "a\u0301\u0301\u0301"),
        ("\u200b" * 9000 + "b", "⟨U+200B⟩⟨"),
        ("e\u0301a\u0308", "e\u0301a\u0308"),
        ("x\u200d\u200dy", "x⟨U+200D⟩"),
        ("x" * 10**6, "x" * 9),
    ],
)
def test_characters_without_width_are_limited(text: str, expected: str) -> None:
    shown = Screen(width=80).crop(text, 10)
    assert shown.rstrip("\u2026") == expected
    assert len(shown) <= 40


def test_text_is_wrapped_between_words_and_cut_at_either_end() -> None:
    screen = Screen()
    ascii_screen = Screen(encoding="ascii")
    long = "word " * 100_000
    assert (ascii_screen.crop("a little too long", 10), ascii_screen.bar) == ("a littl...", "|")
    assert screen.wrap("one two three abcdefghij k", 8) == ["one two", "three", "abcdefgh", "ij k"]
    assert screen.tail("first\n\nsecond\n\nthird line\n\n", 6, 2) == ["third", "line"]
    assert [screen.tail(text, 20, 2) for text in ("first\n\nsecond\n", " \n\n")] == [
        ["first", "second"],
        [],
    ]
    assert screen.head("first\n\nsecond\nthird", 20, 2) == ["first", "second …"]
    assert screen.head("first\n\nsecond\n\n", 20, 2) == ["first", "second"]
    assert screen.head("one two three four", 8, 2) == ["one two", "three …"]
    assert [len(screen.head(long, 20, count)) for count in (0, 3)] == [0, 3]


@pytest.mark.parametrize(
    ("encoding", "words", "expected"),
    [
        ("utf-8", False, True),
        ("utf-8", True, False),
        ("ascii", False, False),
        ("cp1252", False, False),
    ],
)
def test_marks_need_an_encoding_and_eyes(encoding: str, words: bool, expected: bool) -> None:
    assert Screen(encoding=encoding, words=words).marks is expected


def test_line_breaks_of_a_tail_do_not_move() -> None:
    words = [f"word{number}" for number in range(60)]
    text = ""
    shown = ["word0"]
    for word in words:
        text += word + " "
        lines = Screen().tail(text, 40, 2)
        assert lines[0] in (shown[0], shown[-1]) or len(lines) == 1
        shown = lines


def test_tail_reads_only_the_end_of_a_long_line() -> None:
    class Watched(str):
        __slots__ = ()
        longest = 0

        def __getitem__(self, key: slice) -> str:  # type: ignore[override] # only slices are asked for
            piece = super().__getitem__(key)
            Watched.longest = max(Watched.longest, len(piece))
            return piece

    assert Screen().tail(Watched("word " * 100_000 + "end"), 20, 2)[-1].endswith("end")
    assert Watched.longest <= 2 * STRIDE


@pytest.mark.parametrize("text", ["👩\u200d👩\u200d👧", "👍\U0001f3fd", "❤\ufe0f"])
def test_joined_characters_are_separated(text: str) -> None:
    """Every terminal then agrees on the width."""
    assert not set(Screen().line(text)) & set("\u200d\ufe0f\U0001f3fd")


def test_the_indentation_of_code_stays_in_what_is_shown_of_a_reply() -> None:
    code = "def f():\n    if x:\n\treturn 1\n"
    assert Screen().head(code, 40, 3) == ["def f():", "    if x:", "    return 1"]
    assert Screen().tail(code, 40, 2) == ["    if x:", "    return 1"]
    assert Screen().tail(" " * 50 + "end", 10, 1) == ["     end"], "half of a line at most"
