"""Bytes of tokens to chunks of text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.models.llama.vocabulary import TokenDecoder

TEXTS = st.text(alphabet="ab<>/é😀 \n", max_size=30)


def decoded(data: bytes, cuts: list[int], stop: tuple[str, ...], thinking: bool | None) -> tuple[str, str, bool]:
    """Text, thinking and whether it stopped, for bytes that come in these pieces."""
    reply, chunks, start = TokenDecoder(stop=stop, thinking=thinking), [], 0
    for cut in sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)}):
        chunks.append(reply.feed(data[start:cut]))
        start = cut
    chunks.append(reply.end())
    return "".join(chunk.text for chunk in chunks), "".join(chunk.thinking for chunk in chunks), reply.stopped


@given(TEXTS, st.lists(st.integers(0, 200), max_size=9), st.lists(TEXTS.filter(bool), max_size=2))
def test_the_division_of_bytes_changes_nothing(text: str, cuts: list[int], stop: list[str]) -> None:
    found, _, stopped = decoded(text.encode(), cuts, tuple(stop), None)
    ends = [text.index(mark) for mark in stop if mark in text]
    assert stopped is bool(ends)
    assert text.startswith(found)
    assert found == decoded(text.encode(), [], tuple(stop), None)[0] or stopped
    assert len(found) <= min([*ends, len(text)]) or len(ends) > 1


def test_the_first_of_two_stop_strings_to_come_ends_the_text() -> None:
    assert decoded(b"abcd", list(range(5)), ("bcde", "c"), None) == ("ab", "", True)
    assert decoded(b"abcd", [], ("d", "b"), None) == ("a", "", True)


def test_stop_strings_do_not_apply_to_thinking() -> None:
    assert decoded(b"<think>a\nb</think>\nc\nd", [8, 12], ("\n",), False) == ("c", "a\nb", True)
    assert decoded(b"a\nb</think>c", [], (), True) == ("c", "a\nb", False)
    assert decoded(b"<think>a", [], (), None) == ("<think>a", "", False)


def test_an_incomplete_character_at_the_end_is_replaced() -> None:
    assert decoded("aé".encode()[:-1], [], (), None)[0] == "a\ufffd"


def test_an_empty_stop_string_stops_nothing() -> None:
    assert decoded(b"ab", [1], ("",), None) == ("ab", "", False)
