"""Messages that a strict parser refuses, and the ids that can still be read in them."""

from __future__ import annotations

import pytest

from conductor_cli.core.json_rpc import find_message_id


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
