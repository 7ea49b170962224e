"""Messages that a strict parser refuses, and the ids that can still be read in them."""

from __future__ import annotations

import pytest

from conductor_cli.core.json_rpc import WholeLetters, find_message_id, without_half_letters


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("7", 7),
        ("-7", -7),
        ('"a"', "a"),
        ("1.5", None),
        ("1e3", None),
        ("1234567890123456789", None),
    ],
)
def test_the_id_of_a_message_is_read_whole_or_not(written: str, found: int | str | None) -> None:
    """The beginning of an id may be that of another request."""
    for line in (
        f'{{"id": {written}, "method": "x", "params": [1]}}',
        f'{{"x": [], "id": {written}}}',
    ):
        assert find_message_id(line.encode(), line.encode()) == found


@pytest.mark.parametrize(
    ("written", "whole"),
    [
        (
            rb'"a\ud83d b \ud83d\ude00 \\ud83d \\\ude00"',
            rb'"a\ufffd b \ud83d\ude00 \\ud83d \\\ufffd"',
        ),
        (rb"x\ud83d", rb"x\ufffd"),
        (b"\\" * 9_001, b"\\" * 9_001),
    ],
    ids=["text", "end", "backslashes"],
)
def test_half_a_letter_is_found_however_a_message_is_cut(written: bytes, whole: bytes) -> None:
    assert without_half_letters(written) == whole
    for size in (1, 2, 3, 5, 7, 4_000):
        letters = WholeLetters()
        pieces = [written[start : start + size] for start in range(0, len(written), size)]
        assert b"".join([*map(letters.feed, pieces), letters.end()]) == whole
