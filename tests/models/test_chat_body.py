"""Tests of requests in the form of chat completions.

Files, tools, calls, results, and what a server wants back.
"""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest

from conductor_cli.core.chat import Attachment, Message, Request, ToolCall
from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import check_features
from conductor_cli.models.chat_body import PIECE, JsonBody, chat_fields, plain_messages, with_texts
from tests.models.kit import BYTES, CHART, sent_to, spoken


def content(attachment: Attachment) -> bytes:
    return BYTES[attachment.name]


def fields(*messages: Message, **request_fields: Any) -> dict[str, Any]:
    """The fields of a body with these messages, as a server of chat completions reads them."""
    body = chat_fields(Request(messages=messages, read_attachment=content, **request_fields))
    sent: dict[str, Any] = with_texts(body | {"messages": plain_messages(body["messages"], str)})
    return sent


def test_calls_and_results_go_back() -> None:
    calls = (
        ToolCall(id="a1", name="weather", arguments='{"city": "Oslo"}'),
        ToolCall(id="b2", name="now", arguments="{"),
    )
    sent = fields(
        Message(role="user", content="?"),
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content="Rain.", tool_call_id="a1"),
        Message(role="tool", content="the arguments are no JSON", tool_call_id="b2", is_error=True),
    )["messages"]
    assert sent[1]["content"] is None
    assert [tool_call["id"] for tool_call in sent[1]["tool_calls"]] == ["a1", "b2"]
    assert sent[1]["tool_calls"][0]["function"] == {
        "name": "weather",
        "arguments": '{"city": "Oslo"}',
    }
    # Many servers parse the arguments, and would refuse the whole conversation for one call's.
    assert json.loads(sent[1]["tool_calls"][1]["function"]["arguments"]) == {
        "invalid_arguments": "{"
    }
    assert sent[2] == {"role": "tool", "content": "Rain.", "tool_call_id": "a1"}
    assert sent[3] == {
        "role": "tool",
        "content": "Error: the arguments are no JSON",
        "tool_call_id": "b2",
    }


def test_a_server_gets_back_what_it_wants_and_nothing_else() -> None:
    google = {"google": {"thought_signature": "s1"}}
    provider_data = {
        "reasoning_content": "Hm.",
        "extra_content": {"a1": google},
        "blocks": ["of another API"],
    }
    call = ToolCall(id="a1", name="now", arguments="{}")
    sent = fields(
        Message(role="assistant", content="Yes.", tool_calls=(call,), provider_data=provider_data)
    )["messages"][0]
    assert sent == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "Hm.",
        "tool_calls": [
            {
                "id": "a1",
                "type": "function",
                "function": {"name": "now", "arguments": "{}"},
                "extra_content": google,
            }
        ],
    }


@pytest.mark.parametrize("size", [0, 1, 2, 3, PIECE - 1, PIECE, PIECE + 1])
def test_a_body_is_the_same_in_pieces(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    file = Attachment(name='a "file".png', media_type="image/png", sha256="3" * 64, size=size)
    messages = (Message(role="user", content="Schön?", attachments=(file, file)),)
    value = chat_fields(Request(messages=messages, read_attachment=lambda _: content[:size]))

    async def send(body: JsonBody) -> bytes:
        assert not isinstance(body.content, bytes)
        return b"".join([piece async for piece in body.content])

    body = JsonBody(value)
    for _ in range(2):  # it may have to be sent again
        sent = asyncio.run(send(body))
        assert json.loads(sent) == with_texts(value)
        assert body.headers["content-length"] == str(len(sent))


@pytest.mark.parametrize(("count", "megabytes", "most"), [(1, 20, 21), (10, 2, 5)])
def test_a_body_takes_the_memory_of_one_file(count: int, megabytes: int, most: int) -> None:
    size = megabytes * 1_000_000
    file = Attachment(name="large.png", media_type="image/png", sha256="3" * 64, size=size)
    messages = (Message(role="user", content="?", attachments=(file,) * count),)

    async def send() -> int:
        content = JsonBody(
            chat_fields(Request(messages=messages, read_attachment=lambda _: bytes(size)))
        ).content
        assert not isinstance(content, bytes)
        return sum([len(piece) async for piece in content])

    tracemalloc.start()
    try:
        assert asyncio.run(send()) > size * count * 4 // 3
        assert tracemalloc.get_traced_memory()[1] < most * 1_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_has_changed_is_an_error() -> None:
    messages = (Message(role="user", content="?", attachments=(CHART,)),)
    with pytest.raises(ModelError, match=r"chart\.png has changed: 5 bytes instead of 9") as error:
        with_texts(chat_fields(Request(messages=messages, read_attachment=lambda _: b"other")))
    assert error.value.reason == "file"


def test_a_conversation_with_calls_needs_tools() -> None:
    with pytest.raises(ModelError, match="cannot be sent tools"):
        check_features(
            "m", (), Request(messages=(Message(role="tool", content="Rain.", tool_call_id="a1"),))
        )


@pytest.mark.parametrize("api", ["chat completions", "responses", "anthropic", "gemini"])
def test_a_turn_that_says_nothing_is_left_out(api: str) -> None:
    """Anthropic, Google and Moonshot refuse one; the last message is what is asked."""
    request = Request(
        messages=(
            spoken("system", " \n"),
            spoken("user", "Warm?"),
            spoken("assistant", "\n\n"),
            spoken("user", "\u200b"),
            spoken("assistant", "Where?"),
            spoken("user", "Oslo."),
        )
    )
    sent = sent_to(api, request).json
    turns = sent.get("messages") or sent.get("input") or sent["contents"]
    assert len(turns) == 3
    assert not {"system", "instructions", "systemInstruction"} & sent.keys()
