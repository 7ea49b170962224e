"""Tests of reading tool calls: every way in which servers send them, and servers that send too much."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request, ToolCall
from conductor_cli.core.errors import ModelError
from conductor_cli.core.redact import Secrets
from conductor_cli.models.stream_decoder import ChatReplyDecoder
from tests.servers import delta

KEY = "sk-test-1234567890"
ASKED = Request(messages=(Message(role="user", content="What is the weather?"),))


def call(index: int | None = 0, given: str = "", name: str = "", arguments: Any = None) -> dict[str, Any]:
    """One piece of a tool call as a server sends it."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value not in ("", None)}
    place = {key: value for key, value in (("index", index), ("id", given)) if value not in ("", None)}
    return place | {"type": "function", "function": function}


def read(*frames: list[dict[str, Any]], finish: str = "tool_calls", secrets: Secrets | None = None) -> list[Chunk]:
    """The chunks of a reply whose frames have these pieces."""
    reply = ChatReplyDecoder(ASKED, secrets or Secrets())
    chunks = [chunk for pieces in frames for chunk in reply.frame(delta(tool_calls=pieces))]
    chunks += reply.frame(delta(finish=finish))
    return [*chunks, *reply.end()]


def calls_of(chunks: list[Chunk]) -> list[ToolCall]:
    """The calls that the chunks make together."""
    calls: dict[int, ToolCall] = {}
    for piece in (chunk.tool_call for chunk in chunks if chunk.tool_call):
        old = calls.get(piece.index)
        assert (old is None) == bool(piece.name and piece.id)
        before = old.arguments if old else ""
        named = old or ToolCall(id=piece.id, name=piece.name, arguments="")
        calls[piece.index] = ToolCall(id=named.id, name=named.name, arguments=before + piece.arguments)
    assert list(calls) == list(range(len(calls)))
    return list(calls.values())


TWO = [ToolCall(id="a1", name="f", arguments='{"x": 1}'), ToolCall(id="b2", name="g", arguments='{"y": 2}')]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(
            [[call(0, "a1", "f")], [call(0, arguments='{"x"')], [call(0, arguments=": 1}")],
             [call(1, "b2", "g")], [call(1, arguments='{"y": 2}')]],
            id="as OpenAI sends them",
        ),
        pytest.param(
            [[call(0, "a1", "f"), call(1, "b2", "g")], [call(1, arguments='{"y"')], [call(0, arguments='{"x": 1}')],
             [call(1, arguments=": 2}")]],
            id="side by side",
        ),
        pytest.param([[call(0, "a1", "f", '{"x": 1}')], [call(0, "b2", "g", '{"y": 2}')]], id="all numbered 0"),
        pytest.param([[call(None, "a1", "f", '{"x": 1}'), call(None, "b2", "g", '{"y": 2}')]], id="without numbers"),
        pytest.param(
            [[call(None, "a1", "f")], [call(None, arguments='{"x": 1}')], [call(None, "b2", "g", '{"y": 2}')]],
            id="pieces without numbers and ids",
        ),
        pytest.param(
            [[call(0, "a1", "f", '{"x"')], [call(0, "a1", "f", ": 1}")], [call(1, "b2", "g", '{"y": 2}')]],
            id="id and name with every piece",
        ),
        pytest.param(
            [[call(0, "a1", "f")], [call(0, "zz", arguments='{"x"')], [call(0, "yy", arguments=": 1}")],
             [call(7, "b2", "g", '{"y": 2}')]],
            id="another id with every piece, and numbers that jump",
        ),
        pytest.param([[call(0, "a1", "f", {"x": 1}), call(1, "b2", "g", {"y": 2})]], id="objects"),
        pytest.param(
            [[call(0, "a1", arguments='{"x"')], [call(0, name="f", arguments=": 1}")],
             [call(1, "b2", "g", '{"y": 2}')]],
            id="a name that comes late",
        ),
    ],
)  # fmt: skip
def test_calls_are_read_however_a_server_sends_them(frames: list[list[dict[str, Any]]]) -> None:
    chunks = read(*frames)
    assert calls_of(chunks) == TWO
    assert chunks[-1].finish == "tool"


def test_calls_without_ids_get_some() -> None:
    first, second = (calls_of(read([call(None, "", "f", "{}")], [call(None, "", "f", "{}")])) for _ in range(2))
    assert first == second
    assert len({one.id for one in first}) == 2
    assert all(len(one.id) == 9 and one.id.isalnum() for one in first)


def test_an_id_that_two_calls_have_is_given_to_the_first() -> None:
    found = calls_of(read([call(0, "a1", "f", "{}"), call(1, "a1", "g", "{}")]))
    assert [one.name for one in found] == ["f", "g"]
    assert found[0].id == "a1" != found[1].id


@pytest.mark.parametrize("said", ["stop", "tool_calls", "length", "whatever"])
def test_the_end_of_a_reply_with_calls_is_tool(said: str) -> None:
    assert read([call(0, "a1", "f", "{}")], finish=said)[-1].finish == "tool"


@pytest.mark.parametrize("arguments", ['{"path": "/ho', None])
def test_a_reply_that_is_cut_off_inside_a_call_ends_as_cut_off(arguments: str | None) -> None:
    assert read([call(0, "a1", "f", "{}")], [call(1, "b1", "g", arguments)], finish="length")[-1].finish == "length"


def test_arguments_that_are_no_json_are_carried() -> None:
    assert calls_of(read([call(0, "a1", "f", "{x: 1")]))[0].arguments == "{x: 1"


def test_secrets_are_redacted_from_calls() -> None:
    pieces = [
        call(0, f"a-{KEY}", f"f-{KEY}", '{"x": "sk-test-'),
        call(0, arguments="12345"),
        call(0, arguments='67890"}'),
    ]
    found = calls_of(read(*([piece] for piece in pieces), secrets=Secrets(KEY)))
    assert found == [ToolCall(id="a-[key]", name="f-[key]", arguments='{"x": "[key]"}')]


def test_what_is_no_tool_call_is_ignored() -> None:
    with pytest.raises(ModelError, match="without a word"):
        read([7, None, "f"], finish="stop")  # type: ignore[list-item]


def test_what_a_server_wants_back_is_kept() -> None:
    reply = ChatReplyDecoder(ASKED, Secrets())
    google = {"google": {"thought_signature": "s1"}}
    item = {"type": "reasoning.text", "index": 0}
    frames = [
        delta(reasoning_content="I ", reasoning_details=[{**item, "text": "I "}]),
        delta(reasoning_content="look.", reasoning_details=[{**item, "text": "look.", "signature": "s0"}]),
        delta(tool_calls=[call(0, "a1", "f", "{}") | {"extra_content": google}]),
        delta(finish="tool_calls"),
    ]
    chunks = [*(chunk for frame in frames for chunk in reply.frame(frame)), *reply.end()]
    assert chunks[-1].provider_data == {
        "reasoning_content": "I look.",
        "reasoning_details": [{**item, "text": "I look.", "signature": "s0"}],
        "extra_content": {"a1": google},
    }


def test_the_data_of_a_translator_is_kept() -> None:
    reply = ChatReplyDecoder(ASKED, Secrets(KEY))
    reply.frame({"provider_data": {"blocks": [1], "other": 2}})
    reply.frame(delta("Yes.", "stop") | {"provider_data": {"blocks": [1, KEY]}})
    assert list(reply.end())[-1].provider_data == {"blocks": [1, "[key]"], "other": 2}
