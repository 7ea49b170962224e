"""Tables that fit the width of a terminal, and how many cells a text takes."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from conductor_cli.system.terminal_tables import (
    Column,
    crop_text,
    display_width,
    render_table,
    wrap_text,
)

COLUMNS = (
    Column("NAME"),
    Column("SIZE", right=True, drop=1),
    Column("SOURCE", drop=2),
    Column("TITLE", shrink=10),
)
ROWS = [
    ["alpha", "12", "somewhere", "a long title that has to give way"],
    ["b", "3,456", "", "short"],
]


def test_all_columns_without_a_limit() -> None:
    assert render_table(COLUMNS, ROWS) == [
        "NAME    SIZE  SOURCE     TITLE",
        "alpha     12  somewhere  a long title that has to give way",
        "b      3,456             short",
    ]


def test_the_widest_column_is_cropped_before_a_column_is_dropped() -> None:
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
    fixed = (Column("NAME"), Column("KIND"), Column("STATE"))
    lines = render_table(
        fixed, [["a-long-name", "another-long-word", "not installed, default"]], width
    )
    assert len(lines) == 2
    assert max(map(display_width, lines)) <= width
    assert width < 17 or lines[1].startswith("a-long-name  ")


def test_a_wrapping_column_takes_several_lines() -> None:
    rows = [["a-name", "12", "some words, and then some more"]]
    assert render_table((Column("NAME"), Column("SIZE"), Column("NOTE", wrap=True)), rows, 38) == [
        "NAME    SIZE  NOTE",
        "a-name  12    some words, and then",
        "              some more",
    ]
    assert wrap_text("see /a/very/long/path now", 8) == ["see", "/a/very/long/path", "now"]


@pytest.mark.parametrize("width", [20, 33, 40, 59, 80])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    rows = [["x", "1", "y", "世界" * 60]]
    assert max(map(display_width, render_table(COLUMNS, rows, width))) <= width


def test_cells_of_a_table_are_sanitized() -> None:
    assert render_table((Column("A"),), [["x\x1b[2J\ny"]]) == ["A", "x y"]


def test_wide_letters_take_two_cells() -> None:
    assert (display_width("世界a"), crop_text("世界世界", 5), crop_text("abc", 3)) == (
        5,
        "世界…",
        "abc",
    )


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("👍🏽", 2),
        ("👨‍👩‍👧", 2),
        ("a\u200bb", 2),
        ("e\u0301", 1),
        ("❤\ufe0f", 2),
        ("🇩🇪", 2),
        ("世", 2),
    ],
)
def test_a_letter_of_several_characters_is_measured_as_one(text: str, cells: int) -> None:
    assert display_width(text) == cells
    rows = [[text, "x"], ["plain", "x"]]
    lines = render_table((Column("NAME"), Column("NEXT")), rows)
    assert [display_width(line) for line in lines[1:]] == [8, 8]


def test_tables_and_trees_measure_alike() -> None:
    """Rich, which draws the tree of a run, takes each character for as wide as our tables do.

    Halves of flags and skin tones without a hand are drawn differently everywhere.
    """
    from rich.cells import cell_len

    differing = []
    for point in range(0xA0, sys.maxunicode + 1):
        character = chr(point)
        is_assigned = unicodedata.category(character) not in {"Cn", "Cs"}
        if is_assigned and display_width(character) != cell_len(character):
            differing.append(character)
    assert set(differing) == {*map(chr, range(0x1F1E6, 0x1F200)), *"🏻🏼🏽🏾🏿"}
