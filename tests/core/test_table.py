"""Tables fit their width: columns are dropped, cropped and wrapped."""

from __future__ import annotations

import pytest

from conductor_cli.core.terminal_text import Column, crop_text, display_width, render_table, wrap_text

COLUMNS = (
    Column("NAME"),
    Column("SIZE", right=True, drop=1),
    Column("SOURCE", drop=2),
    Column("TITLE", shrink=10),
)
ROWS = [["alpha", "12", "somewhere", "a long title that has to give way"], ["b", "3,456", "", "short"]]


def test_all_columns_without_a_limit() -> None:
    """Numbers are aligned to the right; no line ends in spaces."""
    assert render_table(COLUMNS, ROWS) == [
        "NAME    SIZE  SOURCE     TITLE",
        "alpha     12  somewhere  a long title that has to give way",
        "b      3,456             short",
    ]


def test_the_widest_column_is_cropped_before_a_column_is_dropped() -> None:
    """Only down to its least width; then columns go, the least important first."""
    assert render_table(COLUMNS, ROWS, 40)[1] == "alpha     12  somewhere  a long title t…"
    assert render_table(COLUMNS, ROWS, 33) == [
        "NAME    SIZE  TITLE",
        "alpha     12  a long title that …",
        "b      3,456  short",
        "not shown here: SOURCE",
    ]
    assert render_table(COLUMNS, ROWS, 20)[::3] == ["NAME   TITLE", "not shown here: SIZ…"]


@pytest.mark.parametrize("width", range(9, 60))
def test_columns_that_cannot_shrink_are_cropped_in_the_end(width: int) -> None:
    """A row never takes several lines; the first column, which has the name, is cropped last."""
    fixed = (Column("NAME"), Column("KIND"), Column("STATE"))
    lines = render_table(fixed, [["a-long-name", "another-long-word", "not installed, default"]], width)
    assert len(lines) == 2
    assert max(map(display_width, lines)) <= width
    assert width < 17 or lines[1].startswith("a-long-name  ")


def test_a_wrapping_column_takes_several_lines() -> None:
    """A word stays whole even if it is too long."""
    rows = [["a-name", "12", "some words, and then some more"]]
    assert render_table((Column("NAME"), Column("SIZE"), Column("NOTE", wrap=True)), rows, 38) == [
        "NAME    SIZE  NOTE",
        "a-name  12    some words, and then",
        "              some more",
    ]
    assert wrap_text("see /a/very/long/path now", 8) == ["see", "/a/very/long/path", "now"]


@pytest.mark.parametrize("width", [20, 33, 40, 59, 80])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    """Wide letters count as two cells."""
    rows = [["x", "1", "y", "世界" * 60]]
    assert max(map(display_width, render_table(COLUMNS, rows, width))) <= width


def test_cells_are_sanitized() -> None:
    """A cell cannot move the cursor or start a new line."""
    assert render_table((Column("A"),), [["x\x1b[2J\ny"]]) == ["A", "x y"]


def test_an_empty_table_has_its_head() -> None:
    """No rows are no reason to fail."""
    assert render_table(COLUMNS, [], 80) == ["NAME  SIZE  SOURCE  TITLE"]


def test_wide_letters_take_two_cells() -> None:
    """Text is cropped by cells, not by letters."""
    assert (display_width("世界a"), crop_text("世界世界", 5), crop_text("abc", 3)) == (5, "世界…", "abc")
