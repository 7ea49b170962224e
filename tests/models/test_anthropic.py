"""Anthropic's own API.

What is sent, with files and tools, and what its replies and errors mean, on real sockets.
"""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolCall
from conductor_cli.core.usage import Usage
from tests.models.kit import (
    ASK,
    WEATHER,
    asked_by,
    calls,
    events,
    failure_of,
    fine,
    refusing,
    sent_to,
    text,
    thinking,
)
from tests.servers import SeenRequest, Wire

MARK = {"cache_control": {"type": "ephemeral"}}


def test_a_key_is_sent_as_its_provider_wants_it() -> None:
    _, (request,) = asked_by("anthropic", fine)
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == (
        "sk-123456",
        "2023-06-01",
    )
    assert "authorization" not in request.headers


def test_anthropic_s_thinking_text_and_counts_are_read() -> None:
    script = events(
        {
            "type": "message_start",
            "message": {
                "usage": {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 200,
                    "cache_creation_input_tokens": 30,
                    "output_tokens": 1,
                }
            },
        },
        {"type": "ping"},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "One more."},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "EqQB"},
        },
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "redacted_thinking", "data": "x"},
        },
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "text", "text": "It is "},
        },
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "3."}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 15},
        },
        {"type": "message_stop"},
    )
    chunks, _ = asked_by("anthropic", script)
    assert (text(chunks), thinking(chunks), chunks[-1].finish) == ("It is 3.", "One more.", "stop")
    wanted = Usage(tokens_in=240, tokens_cached=200, tokens_stored=30, tokens_out=15, calls=1)
    assert chunks[-1].usage == wanted


def started(name: str) -> dict[str, Any]:
    """The event that begins a message with this id."""
    usage = {"input_tokens": 17, "output_tokens": 1}
    return {"type": "message_start", "message": {"id": name, "usage": usage}}


def said(words: str) -> dict[str, Any]:
    """The event of a block that has these words at once."""
    block = {"type": "text", "text": words}
    return {"type": "content_block_start", "index": 0, "content_block": block}


ENDED: tuple[dict[str, Any], ...] = (
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
)


def test_another_message_in_the_middle_of_one_is_a_broken_reply() -> None:
    """Gateways that ask again while they stream send both; joined, no part of it would be right."""
    script = events(started("one"), said("It "), started("two"), said("It is 3."), *ENDED)
    error = failure_of("anthropic", script)
    assert (error.reason, error.retryable) == ("broken", True)
    assert "another message" in error.message


@pytest.mark.parametrize("first", ["two", "one"])
def test_a_message_that_is_announced_twice_is_one(first: str) -> None:
    script = events(started(first), started("two"), said("It is 3."), started("two"), *ENDED)
    chunks, _ = asked_by("anthropic", script)
    assert text(chunks) == "It is 3."
    assert chunks[-1].usage == Usage(tokens_in=17, tokens_out=9, calls=1)


@pytest.mark.parametrize(
    ("last", "read", "cached"),
    [
        ({"input_tokens": 0, "output_tokens": 15}, 240, 200),
        (
            {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 15},
            240,
            200,
        ),
        # All of the input was cached, so its zero is meant
        (
            {"input_tokens": 0, "cache_read_input_tokens": 210, "output_tokens": 15},
            240,
            210,
        ),
        (
            {"input_tokens": 20, "cache_read_input_tokens": 0, "output_tokens": 15},
            50,
            0,
        ),
    ],
)
def test_zeros_at_the_end_take_no_count_of_input_away(
    last: dict[str, int], read: int, cached: int
) -> None:
    """SGLang and gateways write them although they counted the input at the beginning."""
    first = {"input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30}
    script = events(
        {"type": "message_start", "message": {"usage": {**first, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "3"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    )
    chunks, _ = asked_by("anthropic", script)
    wanted = Usage(tokens_in=read, tokens_cached=cached, tokens_stored=30, tokens_out=15, calls=1)
    assert chunks[-1].usage == wanted


def test_an_error_in_anthropic_s_stream_has_its_reason() -> None:
    frame = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert failure_of("anthropic", events(frame)).reason == "overloaded"


def test_a_model_with_a_smaller_limit_on_output_is_asked_again_with_it() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.json["max_tokens"] > 4096:
            message = (
                f"max_tokens: {request.json['max_tokens']} > 4096, which is the maximum allowed "
                "number of output tokens"
            )
            return await wire.json(
                {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
                400,
            )
        return await fine(request, wire)

    chunks, requests = asked_by("anthropic", script, model="claude-3-haiku")
    assert text(chunks) == "Yes."
    assert [request.json["max_tokens"] for request in requests] == [32_000, 4096]
    error = failure_of("anthropic", script, max_tokens=5000)
    assert "does not accept max_tokens = 5000" in error.message


def test_a_schema_that_is_refused_is_left_out() -> None:
    message = "output_config: structured outputs are not supported on this model"
    script = refusing(
        {"output_config": {"type": "invalid_request_error", "message": message}}, fine
    )
    chunks, _ = asked_by("anthropic", script, Request(messages=(ASK,), schema={"type": "object"}))
    assert text(chunks) == "Yes."
    assert "does not accept response_format; sent without it" in chunks[0].note


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "message_start", "message": 7},
        {"type": "message_delta", "delta": [], "usage": []},
        {"type": "content_block_delta", "delta": {"text": 7}},
        {"type": 7},
    ],
)
def test_frames_of_a_wrong_shape_are_a_broken_reply(frame: dict[str, Any]) -> None:
    error = failure_of("anthropic", events(frame))
    assert error.reason in ("broken", "empty_answer")


def sent(*messages: Message, tools: tuple[Tool, ...] = (WEATHER,), **fields: Any) -> dict[str, Any]:
    """The body of a request with these messages, as the server saw it."""
    options = fields.pop("options", {})
    body: dict[str, Any] = sent_to(
        "anthropic", Request(messages=messages, tools=tools, **fields), **options
    ).json
    return body


def tool_reply(*frames: dict[str, Any], tools: tuple[Tool, ...] = (WEATHER,)) -> list[Chunk]:
    """The chunks of a reply to a request with tools."""
    return asked_by("anthropic", events(*frames), Request(messages=(ASK,), tools=tools))[0]


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **piece: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": piece}


def json_delta(index: int, piece: str) -> dict[str, Any]:
    return delta(index, type="input_json_delta", partial_json=piece)


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(reason: str = "tool_use", **fields: Any) -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, **fields},
        "usage": {"output_tokens": 9},
    }


THOUGHT = (
    start(0, type="thinking", thinking="", signature=""),
    delta(0, type="thinking_delta", thinking="I need "),
    delta(0, type="thinking_delta", thinking="the weather."),
    delta(0, type="signature_delta", signature="EqQB"),
    stop(0),
    start(1, type="redacted_thinking", data="hidden"),
    stop(1),
)
TWO_CALLS = (
    start(2, type="text", text=""),
    delta(2, type="text_delta", text="Let me look."),
    stop(2),
    start(3, type="tool_use", id="toolu_1", name="weather", input={}),
    json_delta(3, ""),
    json_delta(3, '{"city": '),
    json_delta(3, '"Oslo"}'),
    stop(3),
    start(4, type="tool_use", id="toolu_2", name="weather", input={}),
    stop(4),
    end(),
    {"type": "message_stop"},
)


def test_files_larger_than_a_request_are_refused_before_anything_is_sent() -> None:
    def nothing(_: Attachment) -> bytes:
        raise AssertionError

    large = Attachment(name="large.png", media_type="image/png", sha256="2" * 64, size=26_000_000)
    request = Request(
        messages=(Message(role="user", content="?", attachments=(large,)),), read_attachment=nothing
    )
    error = failure_of("anthropic", fine, request)
    assert error.reason == "refused"
    assert "35 MB" in error.message
    assert "34 MB at most" in error.message


def test_a_call_cannot_be_forced_while_the_model_has_a_thinking_budget() -> None:
    request = Request(messages=(ASK,), tools=(WEATHER,), tool_choice="required")
    error = failure_of("anthropic", fine, request, thinking_budget=2000)
    assert error.reason == "refused"
    assert "cannot be made to call a tool while it thinks" in error.message
    body = sent(ASK, tool_choice="required", options={"reasoning_effort": "high"})
    assert (body["thinking"], body["tool_choice"]) == ({"type": "adaptive"}, {"type": "any"})


def test_a_server_that_does_not_stream_gives_the_same_calls() -> None:
    async def script(_: SeenRequest, wire: Wire) -> None:
        content = [
            {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ålesund"}},
        ]
        await wire.json(
            {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {}}
        )

    chunks, _ = asked_by("anthropic", script, Request(messages=(ASK,), tools=(WEATHER,)))
    assert calls(chunks) == (
        ToolCall(id="toolu_1", name="weather", arguments='{"city": "Ålesund"}'),
    )
    kept = [{"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}, {"type": "tool_use"}]
    assert chunks[-1].provider_data == {"anthropic_blocks": kept}


def test_thinking_that_is_empty_is_not_given_back() -> None:
    """`each thinking block must contain thinking`: gateways send such blocks, without a signature.

    One without a text that is signed is Claude's own.
    """
    empty = (start(0, type="thinking", thinking="", signature=""), stop(0))
    signed = (
        start(1, type="thinking", thinking="", signature=""),
        delta(1, type="signature_delta", signature="EqQB"),
        stop(1),
    )
    kept = tool_reply(*empty, *signed, *TWO_CALLS)[-1].provider_data["anthropic_blocks"]
    assert [block["type"] for block in kept] == ["thinking", "text", "tool_use", "tool_use"]
    assert kept[0] == {"type": "thinking", "thinking": "", "signature": "EqQB"}


def test_thinking_is_given_back_unchanged_and_results_come_in_one_message() -> None:
    turn = tool_reply(*THOUGHT, *TWO_CALLS)
    provider_data = turn[-1].provider_data
    again = Message(
        role="assistant", content=text(turn), provider_data=provider_data, tool_calls=calls(turn)
    )
    results = (
        Message(role="tool", content="7 °C", tool_call_id="toolu_1"),
        Message(role="tool", content="no city", tool_call_id="toolu_2", is_error=True),
    )
    body = sent(ASK, again, *results, Message(role="user", content="Now?"))
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Is it warm?", **MARK}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I need the weather.", "signature": "EqQB"},
                {"type": "redacted_thinking", "data": "hidden"},
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "7 °C"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "no city",
                    "is_error": True,
                },
                {"type": "text", "text": "Now?", **MARK},
            ],
        },
    ]


def test_a_turn_of_another_model_is_built_from_its_calls() -> None:
    bad = ToolCall(id="c1", name="weather", arguments='{"city": "Os')
    other = Message(
        role="assistant",
        content=" \n",
        tool_calls=(bad,),
        provider_data={"reasoning_content": "Hm."},
    )
    body = sent(ASK, other, Message(role="tool", content="", tool_call_id="c1"))
    call = {
        "type": "tool_use",
        "id": "c1",
        "name": "weather",
        "input": {"invalid_arguments": '{"city": "Os'},
    }
    assert body["messages"][1:] == [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", **MARK}]},
    ]


def test_what_the_next_turn_repeats_is_cached() -> None:
    call = ToolCall(id="c1", name="weather", arguments="{}")
    result = Message(role="tool", content="7", tool_call_id="c1")
    turn = Message(role="assistant", content="", tool_calls=(call,))
    marked = [
        "cache_control" in str(message)
        for message in sent(ASK, turn, result, turn, result)["messages"]
    ]
    assert marked == [False, False, True, False, True]
    assert "cache_control" not in str(sent(ASK, tools=()))
    assert "cache_control" not in str(sent(ASK, turn, result, tool_choice="none"))


def test_a_name_that_the_api_does_not_allow_is_mapped_and_mapped_back() -> None:
    tool = Tool(name="files/read it", parameters={})
    body = sent(ASK, tools=(tool,), tool_choice=tool)
    offered = body["tools"][0]["name"]
    assert offered != tool.name
    assert body["tool_choice"]["name"] == offered
    chunks = tool_reply(
        start(0, type="tool_use", id="t", name=offered, input={"a": 1}),
        stop(0),
        end(),
        tools=(tool,),
    )
    assert calls(chunks) == (ToolCall(id="t", name="files/read it", arguments='{"a": 1}'),)


@pytest.mark.parametrize(
    ("frames", "finish", "message"),
    [
        ((start(0, type="text", text="I"), end("pause_turn")), "length", "I"),
        ((start(0, type="text", text="I"), end("model_context_window_exceeded")), "length", "I"),
        ((start(0, type="text", text="I"), end("tool_use")), "other", "I"),
        (
            (end("refusal", stop_details={"type": "refusal", "explanation": "It may do harm."}),),
            "refusal",
            "It may do harm.",
        ),
        (
            (start(0, type="text", text="I"), end("refusal", stop_details={"explanation": "x"})),
            "refusal",
            "I",
        ),
    ],
)
def test_other_ends_have_a_meaning_too(
    frames: tuple[dict[str, Any], ...], finish: str, message: str
) -> None:
    chunks = tool_reply(*frames)
    assert (chunks[-1].finish, text(chunks)) == (finish, message)


@pytest.mark.parametrize(
    "frames",
    [
        (start(0, type="tool_use", id="t", name="weather", input={}), json_delta(0, '{"city"')),
        (
            start(0, type="tool_use", id="t", name="weather", input={}),
            {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}},
        ),
        (json_delta(3, "{}"), end()),
        (start(0, type="tool_use", id="t", input={}), stop(0), end()),
    ],
)
def test_a_call_that_is_not_complete_is_a_broken_reply(frames: tuple[dict[str, Any], ...]) -> None:
    error = failure_of("anthropic", events(*frames), Request(messages=(ASK,), tools=(WEATHER,)))
    assert error.reason == "broken"


def test_tools_that_the_server_runs_itself_are_no_calls() -> None:
    chunks = tool_reply(
        start(0, type="server_tool_use", id="s", name="web_search", input={}),
        json_delta(0, '{"q": 1}'),
        stop(0),
        start(1, type="web_search_tool_result", tool_use_id="s", content=[]),
        stop(1),
        start(2, type="text", text="Warm."),
        stop(2),
        end("end_turn"),
    )
    assert (calls(chunks), text(chunks), chunks[-1].finish) == ((), "Warm.", "stop")
