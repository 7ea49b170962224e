"""Files and tools in Google's own form: what is sent, and what its replies mean, on real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolCall
from tests.models.kit import ASK, WEATHER, text
from tests.models.test_anthropic_tools import calls
from tests.models.test_chat_apis import events, failure, fine, replies

NEW = "gemini-3.8-flash"


def sent(*messages: Message, tools: tuple[Tool, ...] = (WEATHER,), model: str = NEW, **more: Any) -> dict[str, Any]:
    """The body of a request with these messages, as the server saw it."""
    body: dict[str, Any] = replies(fine, "gemini", model, Request(messages=messages, tools=tools, **more))[1][0].json
    return body


def part(**fields: Any) -> dict[str, Any]:
    """One frame of a reply with one part."""
    return {"candidates": [{"content": {"role": "model", "parts": [fields]}}]}


def end(reason: str = "STOP", **more: Any) -> dict[str, Any]:
    return {"candidates": [{"finishReason": reason, **more}], "usageMetadata": {"promptTokenCount": 1}}


def asked(*frames: dict[str, Any], tools: tuple[Tool, ...] = (WEATHER,)) -> list[Chunk]:
    """The chunks of a reply to a request with tools."""
    return replies(events(*frames), "gemini", NEW, Request(messages=(ASK,), tools=tools))[0]


def turn_of(chunks: list[Chunk]) -> Message:
    """A reply as the turn of a conversation that goes on."""
    found = tuple(ToolCall(id=own, name=name, arguments=given) for own, name, given in calls(chunks))
    return Message(role="assistant", content=text(chunks), tool_calls=found, provider_data=chunks[-1].provider_data)


def test_files_larger_than_a_request_are_refused_before_anything_is_sent() -> None:
    large = Attachment(name="large.png", media_type="image/png", sha256="2" * 64, size=90_000_000)
    message = Message(role="user", content="?", attachments=(large,))
    error = failure(fine, "gemini", request=Request(messages=(message,), read_attachment=lambda _: b""))
    assert error.reason == "refused"
    assert "120 MB" in error.message
    assert "100 MB at most" in error.message


def test_tools_are_declared_functions() -> None:
    """A schema is sent as one, without what the API does not know; a tool without arguments has none."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"city": {"$ref": "#/definitions/city"}}, "definitions": {"city": {"type": "string"}},
    }  # fmt: skip
    tools = (Tool(name="weather", description="Says it.", parameters=schema), Tool(name="now"))
    body = sent(ASK, tools=tools)
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert body["tools"] == [{"functionDeclarations": [
        {"name": "weather", "description": "Says it.", "parametersJsonSchema": parameters}, {"name": "now"},
    ]}]  # fmt: skip
    assert "toolConfig" not in body


def test_a_schema_that_cannot_be_sent_is_refused_by_the_name_of_its_tool() -> None:
    tool = Tool(name="far", parameters={"properties": {"a": {"$ref": "https://example.org/a.json"}}})
    error = failure(fine, "gemini", request=Request(messages=(ASK,), tools=(tool,)))
    assert error.reason == "refused"
    assert "'far'" in error.message


def test_calls_side_by_side_cannot_be_forbidden_and_that_is_said() -> None:
    request = Request(messages=(ASK,), tools=(WEATHER,), parallel_tool_calls=False)
    chunks, seen = replies(fine, "gemini", NEW, request)
    assert "parallel" not in str(seen[0].json)
    assert "does not accept parallel_tool_calls" in chunks[0].note


def test_calls_come_whole_and_go_back_with_their_signatures() -> None:
    chunks = asked(
        part(text="Let me think.", thought=True),
        part(text="I look."),
        part(functionCall={"name": "weather", "args": {"city": "Oslo"}}, thoughtSignature="c2ln"),
        part(functionCall={"id": "own", "name": "weather"}),
        end(),
    )
    (first, *_), second = calls(chunks)
    assert calls(chunks) == [(first, "weather", '{"city": "Oslo"}'), ("own", "weather", "{}")]
    assert first
    assert second[0] == "own"
    assert chunks[-1].finish == "tool"
    results = (
        Message(role="tool", content='{"celsius": 7}', tool_call_id=first),
        Message(role="tool", content="no city", tool_call_id="own", is_error=True),
    )
    body = sent(ASK, turn_of(chunks), *results, Message(role="user", content="Now?"))
    assert body["contents"][1:] == [
        {"role": "model", "parts": [
            {"text": "I look."},
            {
                "functionCall": {"id": first, "name": "weather", "args": {"city": "Oslo"}},
                "thoughtSignature": "c2ln",
            },
            {"functionCall": {"id": "own", "name": "weather", "args": {}}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"id": first, "name": "weather", "response": {"output": {"celsius": 7}}}},
            {"functionResponse": {"id": "own", "name": "weather", "response": {"error": "no city"}}},
        ]},
        {"role": "user", "parts": [{"text": "Now?"}]},
    ]  # fmt: skip


def test_the_signature_of_a_text_goes_back_too() -> None:
    call = {"functionCall": {"id": "c", "name": "weather"}}
    chunks = asked(part(text="I look."), part(text="", thoughtSignature="dGV4dA=="), part(**call), end())
    body = sent(ASK, turn_of(chunks), Message(role="tool", content="7", tool_call_id="c"), model="gemini-2.5-pro")
    assert body["contents"][1]["parts"] == [
        {"text": "I look."},
        {"text": "", "thoughtSignature": "dGV4dA=="},
        {"functionCall": {"id": "c", "name": "weather", "args": {}}},
    ]


@pytest.mark.parametrize(("model", "signed"), [(NEW, True), ("gemini-2.5-flash", False)])
def test_a_call_of_another_model_has_the_signature_that_is_not_checked(model: str, signed: bool) -> None:
    found = tuple(ToolCall(id=own, name="weather", arguments="{}") for own in ("a", "b"))
    results = (Message(role="tool", content="7", tool_call_id=call.id) for call in found)
    body = sent(ASK, Message(role="assistant", content="", tool_calls=found), *results, model=model)
    marks = ["thoughtSignature" in item for item in body["contents"][1]["parts"]]
    assert marks == [signed, False]


def test_a_name_that_the_api_does_not_allow_is_mapped_and_mapped_back() -> None:
    tool = Tool(name="2 files/read", parameters={})
    offered = sent(ASK, tools=(tool,))["tools"][0]["functionDeclarations"][0]["name"]
    assert offered != tool.name
    chunks = asked(part(functionCall={"id": "c", "name": offered, "args": {}}), end(), tools=(tool,))
    assert calls(chunks)[0][1] == tool.name
    body = sent(ASK, turn_of(chunks), Message(role="tool", content="7", tool_call_id="c"), tools=(tool,))
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == offered
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == offered


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"])
def test_a_call_that_google_cannot_read_is_asked_for_again(reason: str) -> None:
    frames = events(end(reason, finishMessage="Malformed function call: print(x)"))
    error = failure(frames, "gemini", request=Request(messages=(ASK,), tools=(WEATHER,)))
    assert (error.reason, error.retryable) == ("broken", True)
    assert reason in error.message
    assert "print(x)" in error.message


@pytest.mark.parametrize(
    "frames", [(part(functionCall={"args": {}}), end()), (part(functionCall={"name": "weather", "args": {}}),)]
)
def test_a_call_that_is_not_complete_is_a_broken_reply(frames: tuple[dict[str, Any], ...]) -> None:
    error = failure(events(*frames), "gemini", request=Request(messages=(ASK,), tools=(WEATHER,)))
    assert error.reason == "broken"
