"""Server-sent events: every way to cut the bytes gives the same events, and memory is bounded."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import ModelError
from conductor_cli.models.http import SseParser

ENDS = st.sampled_from(["\n", "\r\n"])
LINES = st.one_of(
    st.just(""),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12),
    st.builds(
        "{}:{}".format, st.sampled_from(["data", "event", "id", "retry", "", "datum"]), st.sampled_from("äöü€𝄞 a:")
    ),
)
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=20).map(lambda lines: "".join(map("".join, lines)))


def events(stream: bytes, *cuts: int) -> list[str]:
    """The data of the events of `stream`, fed in pieces cut at these places."""
    parser = SseParser()
    places = [0, *sorted(cuts), len(stream)]
    return [event for start, end in pairwise(places) for event in parser.feed(stream[start:end])]


def plainly(text: str) -> list[str]:
    """The same by the letter of the standard, for a whole text."""
    found, data = [], ""
    for line in re.split("\r\n|\n", text.removeprefix("\ufeff"))[:-1]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            found += [data.removesuffix("\n")] if data else []
            data = ""
        elif name == "data":
            data += value + "\n"
    return found


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_every_way_to_cut_the_bytes_gives_the_events_of_the_standard(stream: str, cuts: list[int]) -> None:
    data = stream.encode()
    assert events(data, *(min(cut, len(data)) for cut in cuts)) == plainly(stream)


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark_is_no_part_of_the_first_line(cut: int) -> None:
    assert events(b"\xef\xbb\xbfdata: first\n\ndata: second\n\n", cut) == ["first", "second"]


@given(stream=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=8))
def test_garbage_gives_the_same_events_however_it_is_cut(stream: bytes, cuts: list[int]) -> None:
    assert events(stream, *(min(cut, len(stream)) for cut in cuts)) == events(stream)


@pytest.mark.parametrize(
    "pieces",
    [[b"data: " + b"x" * 60], [b"x" * 10] * 6, [b"data: 12345678\n"] * 9, [b"data: " + b"x" * 60 + b"\n\n"]],
    ids=["one-piece", "without-an-end", "many-lines", "whole"],
)
def test_a_line_or_event_beyond_the_limit_is_an_error(pieces: list[bytes]) -> None:
    parser = SseParser(limit=50)
    with pytest.raises(ModelError, match="more than 50 bytes") as error:
        [parser.feed(piece) for piece in pieces]
    assert error.value.reason == "broken"


def test_a_line_of_many_small_pieces_is_not_copied_again_and_again() -> None:
    parser = SseParser()
    buffer = parser._pending
    for _ in range(10_000):
        parser.feed(b"x")
    assert parser._pending is buffer
    assert len(buffer) == 10_000
