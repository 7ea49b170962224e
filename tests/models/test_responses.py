"""OpenAI's Responses API.

What is sent, what its events mean, and what goes back in the next turn, on real sockets.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request, ToolCall
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Worker
from conductor_cli.core.usage import Usage
from conductor_cli.models.catalog import open_model
from conductor_cli.models.worker_options import check_options
from tests.models.kit import (
    ASK,
    WEATHER,
    answering,
    asked_by,
    calls,
    events,
    failure_of,
    fine,
    in_turn,
    sent_to,
    text,
    thinking,
)
from tests.models.test_contract import calling, next_turn
from tests.servers import SeenRequest, Wire

WITH_TOOL = Request(messages=(ASK,), tools=(WEATHER,))


def sent(
    *messages: Message, options: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    body: dict[str, Any] = sent_to(
        "responses", Request(messages=messages, **fields), **(options or {})
    ).json
    return body


def test_an_effort_asks_for_a_summary_and_for_what_goes_back() -> None:
    body = sent(ASK, tools=(WEATHER,), options={"reasoning_effort": "low"})
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]


CALLS = (
    ToolCall(id="call_a1", name="weather", arguments='{"city": "Oslo"}'),
    ToolCall(id="call_b2", name="clock", arguments="{}"),
)


def test_a_turn_goes_back_as_it_came() -> None:
    chunks, _ = asked_by("responses", calling, WITH_TOOL)
    assert thinking(chunks) == "I need the weather."
    assert calls(chunks) == CALLS
    assert chunks[-1].finish == "tool"
    items = asked_by("responses", fine, next_turn(chunks))[1][0].json["input"]
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == [
        "user",
        "reasoning",
        "message",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
    ]
    assert items[1]["encrypted_content"] == "c2ln"
    assert items[5:] == [
        {"type": "function_call_output", "call_id": "call_a1", "output": "3 degrees"},
        {"type": "function_call_output", "call_id": "call_b2", "output": "Error: no clock here"},
    ]


def test_a_turn_that_was_changed_goes_back_as_the_message_says() -> None:
    chunks, _ = asked_by("responses", calling, WITH_TOOL)
    items = asked_by("responses", fine, next_turn(chunks, "Something else."))[1][0].json["input"]
    assert items[1] == {"role": "assistant", "content": "Something else."}
    assert [item.get("type") for item in items[2:4]] == ["function_call", "function_call"]


def test_thinking_that_is_not_encrypted_does_not_go_back() -> None:
    call = {
        "type": "function_call",
        "id": "f",
        "call_id": "call_a",
        "name": "weather",
        "arguments": "{}",
    }
    provider_data = {"response_items": [{"type": "reasoning", "id": "rs", "summary": []}, call]}
    turn = Message(
        role="assistant",
        content="",
        provider_data=provider_data,
        tool_calls=(ToolCall(id="call_a", name="weather", arguments="{}"),),
    )
    assert sent(ASK, turn, tools=(WEATHER,))["input"][1:] == [call]


RESPONSE: dict[str, Any] = {
    "id": "r",
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [],
}
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 29,
}


def test_cached_and_reasoning_tokens_are_counted() -> None:
    """Cached input and reasoning are parts of the counts."""
    event = {"type": "response.output_text.delta", "output_index": 0, "delta": "Yes."}
    end = {"type": "response.completed", "response": RESPONSE | {"usage": USAGE}}
    chunks, _ = asked_by("responses", events(event, end))
    assert chunks[-1].usage == Usage(
        tokens_in=20, tokens_cached=8, tokens_out=9, tokens_reasoning=5, calls=1
    )


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "refusal")]
)
def test_an_incomplete_response_says_why(reason: str, finish: str) -> None:
    text_event = {"type": "response.output_text.delta", "output_index": 0, "delta": "It"}
    cut = RESPONSE | {"status": "incomplete", "incomplete_details": {"reason": reason}}
    chunks, _ = asked_by(
        "responses", events(text_event, {"type": "response.incomplete", "response": cut})
    )
    assert chunks[-1].finish == finish


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (
            {
                "type": "response.failed",
                "response": RESPONSE
                | {
                    "status": "failed",
                    "error": {"code": "rate_limit_exceeded", "message": "Slow down"},
                },
            },
            "rate",
        ),
        ({"type": "error", "code": "server_error", "message": "Oops", "param": None}, "overloaded"),
        ({"type": "response.failed", "response": {"status": "failed"}}, "broken"),
    ],
)
def test_a_failure_in_the_stream_is_a_model_error(frame: dict[str, Any], reason: str) -> None:
    begun = {"type": "response.output_text.delta", "output_index": 0, "delta": "It"}
    assert failure_of("responses", events(begun, frame)).reason == reason


WHOLE = [
    {
        "type": "reasoning",
        "id": "rs",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": "x",
    },
    {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Look:"}],
    },
    {
        "type": "function_call",
        "id": "f",
        "call_id": "call_a1",
        "name": "weather",
        "arguments": '{"city": "Oslo"}',
    },
]


@pytest.mark.parametrize("pieces", [("Y", "es", "es"), ("es", "Y"), ("Y",)])
def test_pieces_that_are_lost_or_come_twice_are_an_error(pieces: tuple[str, ...]) -> None:
    position = {"output_index": 0, "item_id": "i", "content_index": 0}
    item = {
        "id": "i",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Yes"}],
    }
    script = events(
        *({"type": "response.output_text.delta", **position, "delta": piece} for piece in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    )
    error = failure_of("responses", script)
    assert "not what it says in the end" in error.message
    assert error.retryable


@pytest.mark.parametrize(
    "how", ["one answer", "whole items", "whole items without the last output"]
)
def test_items_that_come_whole_are_understood(how: str) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if how == "one answer":
            await wire.json(RESPONSE | {"output": WHOLE, "usage": USAGE})
            return
        frames = [
            {"type": "response.output_item.done", "output_index": at, "item": item}
            for at, item in enumerate(WHOLE)
        ]
        output = [] if "without" in how else WHOLE
        await wire.head()
        await wire.frames(
            *frames, {"type": "response.completed", "response": RESPONSE | {"output": output}}
        )

    chunks, _ = asked_by("responses", script, WITH_TOOL)
    assert text(chunks) == "Look:"
    assert thinking(chunks) == "Hm."
    assert calls(chunks) == CALLS[:1]
    assert chunks[-1].provider_data == {"response_items": WHOLE}


def test_a_response_that_failed_has_used_what_it_says() -> None:
    response = RESPONSE | {"status": "failed", "error": {"message": "no"}, "usage": USAGE}
    position = {"output_index": 0, "item_id": "i", "content_index": 0}
    said = {"type": "response.output_text.delta", **position, "delta": "Yes"}
    error = failure_of("responses", events(said, {"type": "response.failed", "response": response}))
    assert error.usage is not None
    assert error.usage.tokens_in == USAGE["input_tokens"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_thinking_without_a_summary_is_told(*, is_whole: bool) -> None:
    """Servers of open models, such as SGLang and vLLM, send it as the content of the item."""
    thought = {"type": "reasoning_text", "text": "Hm."}
    said = {"type": "output_text", "text": "Yes"}
    items = [
        {"type": "reasoning", "id": "r", "summary": [], "content": [thought]},
        {"type": "message", "id": "m", "role": "assistant", "content": [said]},
    ]
    response = RESPONSE | {"output": items, "usage": USAGE}
    done = [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(items)
    ]
    script = answering(response)
    if not is_whole:
        script = events(*done, {"type": "response.completed", "response": response})
    chunks, _ = asked_by("responses", script)
    assert (text(chunks), thinking(chunks)) == ("Yes", "Hm.")


@pytest.mark.parametrize(
    ("words", "param", "gone"),
    [
        ("Encrypted content is not supported with this model.", "include", "include"),
        (
            "Your organization must be verified to generate reasoning summaries.",
            "reasoning.summary",
            "summary",
        ),
    ],
)
def test_what_was_asked_for_besides_is_left_out_in_silence(
    words: str, param: str, gone: str
) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if gone in (request.json | request.json.get("reasoning", {})):
            await wire.json(
                {"error": {"message": words, "type": "invalid_request_error", "param": param}}, 400
            )
        else:
            await fine(request, wire)

    replies, requests = in_turn("responses", script, WITH_TOOL, WITH_TOOL, reasoning_effort="low")
    assert len(requests) == 3
    assert [chunk.note for chunk in chain.from_iterable(replies) if chunk.note] == []


@pytest.mark.parametrize(
    ("kind", "api"),
    [("openai", "assistants"), ("anthropic", "responses"), ("litellm", "responses")],
)
def test_an_api_that_a_kind_does_not_have_is_refused(kind: str, api: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_options(Worker(name="w", kind=kind, model="m", options={"api": api}))
    assert "chat-completions, responses" in error.value.hint


def test_openai_itself_is_asked_by_this_api_and_other_addresses_are_not() -> None:
    elsewhere = {"base_url": "http://127.0.0.1:9", "key_env": "OPENAI_API_KEY"}
    for options, path in (({}, "/responses"), (elsewhere, "/chat/completions")):
        worker = Worker(name="w", kind="openai", model="m", options=options)
        model = open_model(worker, environ={"OPENAI_API_KEY": "sk-test-12345"})
        assert model._api.path == path  # type: ignore[attr-defined]
