"""Text on a screen of a given width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from conductor_cli.core.sanitize import is_sanitized
from conductor_cli.views.text_layout import STRIDE, Screen, folded

TEXT = st.text(st.characters() | st.sampled_from(" \n漢é👩\u200d"), max_size=300)
ENCODINGS = st.sampled_from(["utf-8", "ascii", "cp1252"])


@given(TEXT, st.integers(1, 60), ENCODINGS)
def test_whatever_is_fitted_fits(text: str, width: int, encoding: str) -> None:
    """Cropped, wrapped or only its end: no line is wider than asked, none breaks, each can be written."""
    screen = Screen(encoding=encoding)
    for line in (screen.crop(text, width), *screen.wrap(text, width), *screen.tail(text, width, 2)):
        assert cell_len(line) <= max(width, 2 if width == 1 else 0)
        assert is_sanitized(line)
        assert "\n" not in line
        assert line.encode(encoding).decode(encoding) == line


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
def test_crop(text: str, width: int, expected: str) -> None:
    """What is too long ends in three dots within the width."""
    assert Screen().crop(text, width) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" + "\u0301" * 9000 + "b", "a\u0301\u0301\u0301"), ("\u200b" * 9000 + "b", ""),
        ("e\u0301a\u0308", "e\u0301a\u0308"), ("x\u200b\ufeff\u2060\u200ey\U000e0041", "xy"), ("x" * 10**6, "x" * 9),
    ],
)  # fmt: skip
def test_what_takes_no_room_does_not_flood_a_line(text: str, expected: str) -> None:
    """Of marks on a letter three stay, of what is unseen nothing, and of a text as much as a line can need."""
    shown = Screen(width=80).crop(text, 10)
    assert shown.rstrip("\u2026") == expected
    assert len(shown) <= 40


def test_ascii_has_dots_and_bars_too() -> None:
    """Where the encoding has no glyphs, plain characters stand for them."""
    screen = Screen(encoding="ascii")
    assert (screen.crop("a little too long", 10), screen.bar) == ("a littl...", "|")


def test_wrap_breaks_between_words_and_long_words_anywhere() -> None:
    """Words stay whole where they can."""
    assert Screen().wrap("one two three abcdefghij k", 8) == ["one two", "three", "abcdefgh", "ij k"]


def test_tail_is_the_end() -> None:
    """The last lines of a text are those of its last paragraphs; empty ones count for nothing."""
    assert Screen().tail("first\n\nsecond\n\nthird line\n\n", 6, 2) == ["third", "line"]
    assert Screen().tail("first\n\nsecond\n", 20, 2) == ["first", "second"]
    assert Screen().tail(" \n\n", 20, 2) == []


def test_tail_stands_still_while_its_line_fills() -> None:
    """Line breaks that are on the screen stay where they are while words are added behind them."""
    words = [f"word{number}" for number in range(60)]
    text, shown = "", ["word0"]
    for word in words:
        text += word + " "
        lines = Screen().tail(text, 40, 2)
        assert lines[0] in (shown[0], shown[-1]) or len(lines) == 1
        shown = lines


def test_tail_of_a_long_line_looks_at_its_end_only() -> None:
    """The end of a line of any length is found without reading the whole of it."""

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
def test_what_terminals_draw_in_different_widths_is_taken_apart(text: str) -> None:
    """Joined characters are shown one by one, so that every terminal agrees on the width."""
    assert not set(Screen().line(text)) & set("\u200d\ufe0f\U0001f3fd")


@pytest.mark.parametrize(
    ("widths", "size", "expected"),
    [
        ([80] * 11, (80, 24), True), ([80] * 12, (80, 24), False), ([40] * 12, (80, 24), False),
        ([120] * 12, (120, 40), False), ([120] * 11, (120, 40), True), ([70] * 19, (120, 40), True),
        ([70] * 20, (120, 40), False), ([60] * 23, (200, 60), True), ([60] * 24, (200, 60), False),
        ([71] * 12, (200, 60), False), ([], (1, 1), False),
    ],
)  # fmt: skip
def test_what_fits_a_smaller_window_too(widths: list[int], size: tuple[int, int], expected: bool) -> None:
    """Rows fit if half the width, half the height and 70 by 24 hold them with the cursor below, broken anew."""
    assert Screen(width=size[0], height=size[1]).fits(widths) is expected


def test_lines_are_folded_as_a_terminal_does_it() -> None:
    """A line takes a row for each width of cells that it has, an empty one takes one, and no width is a fault."""
    assert folded([0, 1, 10, 11, 20, 21], 10) == 1 + 1 + 1 + 2 + 2 + 3
    assert folded([3], 0) == 3
