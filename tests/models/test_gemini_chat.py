"""Where Google's server of chat completions departs from OpenAI's.

What is sent, and what comes back.
"""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request, Tool, ToolCall
from tests.models.kit import (
    ASK,
    TALK,
    WEATHER,
    answering,
    asked_by,
    calls,
    events,
    failure_of,
    fine,
    text,
)
from tests.servers import SeenRequest, delta

NEW_MODEL = "gemini-3.8-flash"
OLD_MODEL = "gemini-2.5-pro"
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
UNCHECKED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}


def sent(
    *messages: Message, model: str = NEW_MODEL, options: dict[str, Any] | None = None, **fields: Any
) -> SeenRequest:
    """A request as the server saw it."""
    return asked_by(
        "gemini-chat",
        fine,
        Request(messages=messages or TALK, **fields),
        model=model,
        **(options or {}),
    )[1][0]


def test_the_key_goes_to_the_place_of_chat_completions_below_google_s_address() -> None:
    request = sent()
    assert (request.path, request.headers["authorization"]) == (
        "/openai/chat/completions",
        "Bearer sk-123456",
    )


@pytest.mark.parametrize(
    ("model", "options", "thinking"),
    [
        (NEW_MODEL, {}, {}),
        (NEW_MODEL, {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        (NEW_MODEL, {"reasoning_effort": "default"}, {}),
        (NEW_MODEL, {"reasoning_effort": "max"}, {"reasoning_effort": "high"}),
        (NEW_MODEL, {"reasoning_effort": "none"}, {"reasoning_effort": "minimal"}),
        (OLD_MODEL, {"reasoning_effort": "none"}, {"reasoning_effort": "none"}),
        (
            OLD_MODEL,
            {"thinking_budget": 99},
            {"extra_body": {"google": {"thinking_config": {"thinking_budget": 99}}}},
        ),
    ],
)
def test_google_is_told_how_much_to_think(
    model: str, options: dict[str, Any], thinking: dict[str, Any]
) -> None:
    body = sent(model=model, options=options).json
    assert {
        name: body[name] for name in ("reasoning_effort", "extra_body") if name in body
    } == thinking


def test_what_google_does_not_take_is_left_out_and_said() -> None:
    request = Request(messages=(ASK,), tools=(WEATHER,), parallel_tool_calls=False, seed=7)
    chunks, requests = asked_by("gemini-chat", fine, request, model=NEW_MODEL)
    assert not {"seed", "parallel_tool_calls"} & requests[0].json.keys()
    refused_fields = [
        chunk.note.partition(" does not accept ")[2] for chunk in chunks if chunk.note
    ]
    assert refused_fields == ["parallel_tool_calls; sent without it", "seed; sent without it"]


def test_schemas_of_tools_have_only_what_google_knows() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"city": {"$ref": "#/definitions/city"}},
        "definitions": {"city": {"type": "string"}},
    }
    tools = (Tool(name="weather", description="Says it.", parameters=schema), Tool(name="now"))
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert [tool["function"] for tool in sent(ASK, tools=tools).json["tools"]] == [
        {"name": "weather", "description": "Says it.", "parameters": parameters},
        {"name": "now"},
    ]
    far = Tool(name="far", parameters={"properties": {"a": {"$ref": "https://example.org/a.json"}}})
    error = failure_of("gemini-chat", fine, Request(messages=(ASK,), tools=(far,)))
    assert (error.reason, "'far'" in error.message) == ("refused", True)


def test_calls_go_back_with_their_signatures() -> None:
    """The server numbers no call, and says `stop` where it called tools."""
    call = {
        "id": "c1",
        "function": {"name": "weather", "arguments": "{}"},
        "type": "function",
        **SIGNED,
    }
    other = {"id": "c2", "function": {"name": "weather", "arguments": "{}"}, "type": "function"}
    script = events(delta(tool_calls=[call]), delta(tool_calls=[other]), delta(finish="stop"))
    chunks = asked_by(
        "gemini-chat", script, Request(messages=(ASK,), tools=(WEATHER,)), model=NEW_MODEL
    )[0]
    assert chunks[-1].finish == "tool"
    tool_calls = calls(chunks)
    turn = Message(
        role="assistant", content="", tool_calls=tool_calls, provider_data=chunks[-1].provider_data
    )
    results = (Message(role="tool", content="7", tool_call_id=call.id) for call in tool_calls)
    assert sent(ASK, turn, *results, tools=(WEATHER,)).json["messages"][1]["tool_calls"] == [
        call,
        other,
    ]


@pytest.mark.parametrize(("model", "mark"), [(NEW_MODEL, UNCHECKED), (OLD_MODEL, {})])
def test_a_call_of_another_model_has_the_signature_that_is_not_checked(
    model: str, mark: dict[str, Any]
) -> None:
    calls = tuple(ToolCall(id=name, name="weather", arguments="{}") for name in ("a", "b"))
    turn = Message(role="assistant", content="", tool_calls=calls)
    results = (Message(role="tool", content="7", tool_call_id=call.id) for call in calls)
    first, second = sent(ASK, turn, *results, model=model, tools=(WEATHER,)).json["messages"][1][
        "tool_calls"
    ]
    assert [
        {name: part[name] for name in part if name == "extra_content"} for part in (first, second)
    ] == [mark, {}]


def test_a_filter_is_a_refusal_and_a_call_that_cannot_be_read_is_asked_for_again() -> None:
    chunks = asked_by(
        "gemini-chat",
        events(delta("It"), delta(finish="content_filter: RECITATION")),
        model=NEW_MODEL,
    )[0]
    assert (text(chunks), chunks[-1].finish) == ("It", "refusal")
    error = failure_of(
        "gemini-chat", events(delta(finish="function_call_filter: MALFORMED_FUNCTION_CALL"))
    )
    assert (error.reason, error.retryable) == ("broken", True)
    assert "MALFORMED_FUNCTION_CALL" in error.message


@pytest.mark.parametrize(
    ("status", "message", "detail", "reason", "wait"),
    [
        (400, "API key not valid.", {"reason": "API_KEY_INVALID"}, "auth", None),
        (429, "Quota exceeded", {"retryDelay": "34.5s"}, "rate", 34.5),
    ],
)
def test_an_error_in_a_list_has_its_reason_and_wait(
    status: int, message: str, detail: dict[str, str], reason: str, wait: float | None
) -> None:
    body = [
        {
            "error": {
                "code": status,
                "message": message,
                "status": "INVALID_ARGUMENT",
                "details": [detail],
            }
        }
    ]
    error = failure_of("gemini-chat", answering(body, status))
    assert (error.reason, error.retry_after) == (reason, wait)
