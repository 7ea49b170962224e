"""Streamed Markdown is split into blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.views.markdown_blocks import LONGEST, Block, BlockSplitter

PARTS = ["\n", "\n\n", "```", "```py\n", "~~~", "- a", "  b", "word ", "| x |", "# ", "`", "1. "]
PIECES = st.lists(st.sampled_from(PARTS), max_size=60)


def cut(*pieces: str) -> list[Block]:
    blocks = BlockSplitter()
    found = [block for piece in pieces for block in blocks.feed(piece)]
    return [*found, *blocks.close()]


@given(pieces=PIECES)
def test_no_text_is_lost(pieces: list[str]) -> None:
    """All blocks joined are the text, wherever it was cut into pieces."""
    assert "".join(block.source for block in cut(*pieces)) == "".join(pieces)


@given(pieces=PIECES)
def test_blocks_do_not_depend_on_the_pieces(pieces: list[str]) -> None:
    """A text that arrives letter by letter has the same blocks as one that arrives at once."""
    assert cut("".join(pieces)) == cut(*"".join(pieces))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\nthree", ["one\ntwo\n\n", "three"]),
        ("- a\n\n  still a\n- b\n", ["- a\n\n  still a\n- b\n"]),
        ("Code:\n```py\nx = 1\n\ny = 2\n```\nend", ["Code:\n", "```py\nx = 1\n\ny = 2\n```\n", "end"]),
        ("````\n```\n````\n", ["````\n```\n````\n"]),
        ("- a\n  ```py\n  x\n  ```\n", ["- a\n  ```py\n  x\n  ```\n"]),
    ],
)
def test_where_a_block_ends(text: str, expected: list[str]) -> None:
    """After a blank line and around a fence; never inside a list item or a fence."""
    assert [block.source for block in cut(text)] == expected


def test_code_blocks_have_their_language() -> None:
    """The block separates the code from its fence, also while the fence is open."""
    assert cut("```py\nx\n```\n") == [Block(text="x\n", language="py", opens="```py\n", closes="```\n")]
    blocks = BlockSplitter()
    blocks.feed("```py\nx")
    assert blocks.rest == Block(text="x", language="py", opens="```py\n")


def test_endless_blocks_are_split() -> None:
    """A line of a megabyte and unclosed code are split into parts of bounded size; code stays code."""
    line = cut(*["x" * 1000] * 1000)
    assert max(len(block.source) for block in line) <= LONGEST + 2000
    code = cut("```py\n", *["y = 1\n"] * 10_000)
    assert {block.language for block in code} == {"py"}
    assert [block.opens for block in code] == ["```py\n", *[""] * (len(code) - 1)]
