"""The JSON of a body: bounded in depth and number, and whole characters only."""

from __future__ import annotations

import json

import pytest

from conductor_cli.server.api.request import RequestError
from conductor_cli.server.body import read_json


@pytest.mark.parametrize("data", [
    b"", b"{", b"[]", b"5", b'"x"', b"null", b"\xff\xfe", b'{"a": NaN}', b'{"a": -Infinity}', b"{'a': 1}",
    b'{"a": 1}{}', b'{"a": ' + b"9" * 6000 + b"}", b"[" * 100_000, b'{"a":' * 100_000,
    b'{"a": ' + b"[" * 201 + b"]" * 201 + b"}",
    b'{"a": "\x00"}', b'{"a": [' + b"{}," * 130_000 + b"{}]}", b'{"a": "' + rb"[\"" * 2_100_000 + b'"}',
])  # fmt: skip
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read_json(data)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


def test_an_error_quotes_nothing_of_the_body() -> None:
    with pytest.raises(RequestError, match="at line 1 column") as caught:
        read_json(b'{"content": secret prompt}')
    assert "secret" not in caught.value.message


def test_too_many_messages_are_refused() -> None:
    body = {"messages": [{"role": "user", "content": "x"}] * 10_000}
    assert len(read_json(json.dumps(body).encode())["messages"]) == 10_000
    body["messages"].append({})
    with pytest.raises(RequestError, match="messages has more than 10,000") as caught:
        read_json(json.dumps(body).encode())
    assert caught.value.param == "messages"


def test_half_characters_are_replaced() -> None:
    """Half of a surrogate pair becomes a question mark; whole pairs stay what they are."""
    assert read_json(rb'{"a\ud800": ["\ud83d", "\ud83d\ude00"]}') == {"a?": ["?", "😀"]}
