"""Thinking between marks is parted from text, wherever the pieces of a stream are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import ThinkingSplitter


def split(pieces: list[str], *, inside: bool = False) -> tuple[str, str]:
    splitter = ThinkingSplitter(inside=inside)
    parts = [splitter.feed(piece) for piece in pieces] + [splitter.end()]
    return "".join(text for text, _ in parts), "".join(thinking for _, thinking in parts)


@pytest.mark.parametrize(
    ("reply", "text", "thinking"),
    [
        ("", "", ""),
        ("42", "42", ""),
        ("  42 ", "  42 ", ""),
        ("<think>sum</think>42", "42", "sum"),
        ("\n<think>\nsum\n</think>\n\n42\n", "42\n", "\nsum\n"),
        ("<think></think>42", "42", ""),
        ("<think>cut off", "", "cut off"),
        ("<think>cut </thi", "", "cut </thi"),
        ("<thin", "<thin", ""),
        ("<thinking>42", "<thinking>42", ""),
        ("say <think>x</think>", "say <think>x</think>", ""),
        ("<think>a</think>b<think>c</think>", "b<think>c</think>", "a"),
        ("<think>a<think>b</think>c", "c", "a<think>b"),
        ("</think>42", "</think>42", ""),
    ],
)
def test_thinking_at_the_start_is_parted_from_text(reply: str, text: str, thinking: str) -> None:
    assert split([reply]) == (text, thinking)


def test_a_prompt_may_have_opened_the_thinking() -> None:
    assert split(["su", "m</th", "ink>\n42"], inside=True) == ("42", "sum")


def test_text_is_not_held_back_once_it_is_certain() -> None:
    splitter = ThinkingSplitter()
    assert [
        splitter.feed(piece) for piece in ("<th", "ink>a", "b<", "c", "</think>", " d", "e<")
    ] == [
        ("", ""),
        ("", "a"),
        ("", "b"),
        ("", "<c"),
        ("", ""),
        ("d", ""),
        ("e<", ""),
    ]


_REPLIES = st.lists(
    st.sampled_from(["<think>", "</think>", "<", "/", "think>", " ", "\n", "a", "é"]), max_size=12
)


@given(_REPLIES, st.data(), st.booleans())
def test_the_cut_between_pieces_changes_nothing(
    words: list[str], data: st.DataObject, inside: bool
) -> None:
    reply = "".join(words)
    cut = data.draw(st.integers(0, len(reply)))
    whole = split([reply], inside=inside)
    assert split(list(reply), inside=inside) == whole
    assert split([reply[:cut], reply[cut:]], inside=inside) == whole
