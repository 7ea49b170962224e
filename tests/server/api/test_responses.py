"""Responses: what is read of a request, and what OpenAI's own SDK makes of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from conductor_cli.core.chat import Message, Tool, ToolCall
from conductor_cli.core.question import fence
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer
from conductor_cli.server.api.responses import ResponsesApi
from tests.media_files import png
from tests.server.api.samples import (
    CALLS,
    RUN,
    data_url,
    events,
    failing_sdk,
    field_of,
    outcome,
    refusal,
    written,
)

API = ResponsesApi()
ASKED: dict[str, Any] = {"model": "conductor", "input": "Hi"}
EDIT = {"type": "function", "name": "edit", "parameters": {"type": "object"}, "strict": False}
ECHO = {"type": "namespace", "name": "mcp__echo", "description": "Echoes.", "tools": [EDIT]}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def parsed(items: list[Any] | None = None, **fields: Any) -> ClientRequest:
    return API.parse({**ASKED, **({} if items is None else {"input": items}), **fields})


def stream_of(end: ServedAnswer, **fields: Any) -> list[dict[str, Any]]:
    encoder = API.encoder(parsed(stream=True, **fields), RUN, 1)
    return list(events(written(encoder, end, pieces=("Plan.\n", "Step 1.\n"))))


def item_types(items: list[Mapping[str, Any]]) -> list[str]:
    return [str(item["type"]) for item in items]


CODEX_INPUT: Final[list[dict[str, Any]]] = [
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Sandbox."}],
    },
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Edit a.py"}],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I will."}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "edit",
        "arguments": "{}",
    },
    {
        "type": "function_call",
        "id": "fc_2",
        "call_id": "c2",
        "namespace": "mcp__echo",
        "name": "edit",
        "arguments": "{}",
    },
    {"type": "function_call_output", "id": "fco_1", "call_id": "c1", "output": "done"},
    {
        "type": "function_call_output",
        "call_id": "c2",
        "output": [{"type": "input_text", "text": "also"}],
    },
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "No sandbox."}],
    },
]


def test_what_codex_sends_is_read() -> None:
    read = parsed(
        CODEX_INPUT,
        instructions="Be brief.",
        tools=[EDIT, ECHO, {"type": "web_search"}],
        tool_choice="auto",
        store=False,
        include=["reasoning.encrypted_content"],
        reasoning={"summary": "auto"},
        prompt_cache_key="s",
        client_metadata={"x": "y"},
    )
    names = {"c1": "edit", "c2": "mcp__echo__edit"}
    calls = tuple(ToolCall(id=call, name=name, arguments="{}") for call, name in names.items())
    assert read.messages == (
        Message(role="system", content="Be brief.\n\nSandbox."),
        Message(role="user", content="Edit a.py"),
        Message(role="assistant", content="I will.", tool_calls=calls),
        Message(role="tool", content="done", tool_call_id="c1"),
        Message(role="tool", content="also", tool_call_id="c2"),
        Message(role="user", content=fence("system", "No sandbox.")),
    )
    assert [(tool.name, tool.namespace) for tool in read.tools] == [
        ("edit", ""),
        ("mcp__echo__edit", "mcp__echo"),
    ]
    assert read.hosted == ()


def test_every_option_is_read() -> None:
    """Each under its field of the internal form."""
    read = parsed(
        max_output_tokens=20,
        temperature=0.5,
        seed=7,
        reasoning={"effort": "ultra", "summary": "auto"},
        stream=True,
        parallel_tool_calls=False,
        previous_response_id=f"resp_{RUN}",
        metadata={"a": "b"},
        conductor={"max_cost": "0.25"},
        text={"format": {"type": "json_object"}},
        tools=[EDIT],
        tool_choice={"type": "function", "name": "edit"},
    )
    edit = Tool(name="edit", parameters={"type": "object"})
    assert read.echo["reasoning"] == {"effort": "ultra", "summary": "auto"}
    assert (read.echo["metadata"], read.echo["tools"]) == (
        {"a": "b"},
        [EDIT | {"description": None}],
    )
    assert replace(read, echo={}) == ClientRequest(
        model="conductor",
        messages=(Message(role="user", content="Hi"),),
        max_tokens=20,
        temperature=0.5,
        seed=7,
        effort="ultra",
        stream=True,
        include_usage=True,
        parallel_tool_calls=False,
        previous=RUN,
        metadata={"a": "b"},
        max_cost=Decimal("0.25"),
        json_only=True,
        tools=(edit,),
        tool_choice=edit,
    )


def test_images_and_files_are_carried() -> None:
    image = {"type": "input_image", "image_url": data_url(png()), "detail": "high"}
    file = {"type": "input_file", "file_data": data_url(b"%PDF-1.4\n"), "filename": "a.pdf"}
    read = parsed(
        [
            {"role": "user", "content": [{"type": "input_text", "text": "What?"}, image, file]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [image]},
        ]
    )
    assert [attachment.name for attachment in read.messages[0].attachments] == [
        "image-1.png",
        "a.pdf",
    ]
    assert read.messages[2].attachments == read.messages[0].attachments[:1]
    assert [attachment.detail for attachment in read.messages[0].attachments] == ["high", None]
    assert len(read.blobs) == 2


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("input", []),
        ("input[0]", [{"type": "item_reference", "id": "x"}]),
        ("input[0].type", [{"type": "apply_magic"}]),
        ("input[0].role", [{"role": "robot", "content": "Hi"}]),
        ("input[0].content[0].type", [{"role": "user", "content": [{"type": "input_audio"}]}]),
        (
            "input[0].content[0].image_url",
            [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/"}]}],
        ),
        (
            "input[0].content[0]",
            [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}],
        ),
        ("input[0].call_id", [{"type": "function_call_output", "output": "x"}]),
        ("background", True),
        ("conversation", "conv_1"),
        ("prompt", {"id": "x"}),
        ("metadata.a", {"a": 1}),
        ("text.format.schema", {"format": {"type": "json_schema", "name": "x"}}),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(param: str, value: Any) -> None:
    """Such as work in the background of which no trace may be stored."""
    refusal(API, {**ASKED, "store": False, field_of(param): value}, param)


def test_the_id_of_a_foreign_response_is_not_found() -> None:
    error = refusal(API, {**ASKED, "previous_response_id": "x"}, "previous_response_id", 400)
    assert error.code == "previous_response_not_found"


def test_a_call_of_a_namespace_says_which() -> None:
    """Under the tool's own name, in each event, as Codex finds it."""
    call = ToolCall(id="call_one", name="mcp__echo__edit", arguments="{}")
    sent = stream_of(outcome(calls=(call,)), tools=[EDIT, ECHO])
    items = [
        event["item"] for event in sent if event.get("item", {}).get("type") == "function_call"
    ]
    assert {(item["namespace"], item["name"]) for item in items} == {("mcp__echo", "edit")}
    assert sent[-1]["response"]["output"][-1]["namespace"] == "mcp__echo"
    chosen = parsed(
        tools=[ECHO], tool_choice={"type": "function", "namespace": "mcp__echo", "name": "edit"}
    )
    assert isinstance(chosen.tool_choice, Tool)
    assert chosen.tool_choice.name == "mcp__echo__edit"


def test_every_event_is_one_of_the_sdk() -> None:
    sent = stream_of(outcome(calls=CALLS), tools=[EDIT], metadata={"a": "b"})
    for event in sent:
        EVENT.validate_python(event)
    numbers = [event["sequence_number"] for event in sent]
    assert numbers == sorted(numbers)


def test_a_stream_has_the_whole_grammar() -> None:
    names = [
        event["type"].removeprefix("response.") for event in stream_of(outcome(calls=CALLS[:1]))
    ]
    assert names == [
        "created",
        "in_progress",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "in_progress",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_the_last_response_has_all_items_and_the_usage() -> None:
    sent = stream_of(outcome(calls=CALLS))
    last = sent[-1]["response"]
    assert last["output"] == [
        event["item"] for event in sent if event["type"] == "response.output_item.done"
    ]
    assert item_types(last["output"]) == ["reasoning", "message", "function_call", "function_call"]
    usage = last["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (212, 522, 734)
    assert usage["input_tokens_details"]["orchestration_input_tokens"] == 5463
    assert (last["id"], last["conductor"]["run"], last["conductor"]["cost"]) == (
        f"resp_{RUN}",
        RUN,
        0.12,
    )


def test_an_answer_stays_one_message() -> None:
    encoder = API.encoder(parsed(stream=True), RUN, 1)
    stream = (
        encoder.begin() + encoder.text("He") + encoder.reasoning("Stopped.\n") + encoder.text("llo")
    )
    *_, last = events(stream + encoder.end(outcome()))
    message, reasoning = last["response"]["output"]
    assert message["content"][0]["text"] == "Hello"
    assert reasoning["summary"][0]["text"] == "Stopped.\n"


def test_an_empty_answer_is_an_empty_message() -> None:
    encoder = API.encoder(parsed(stream=True), RUN, 1)
    *_, last = events(
        encoder.begin() + encoder.reasoning("Plan.\n") + encoder.end(outcome(text=""))
    )
    assert item_types(last["response"]["output"]) == ["reasoning", "message"]


def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    last = stream_of(outcome(finish="length"))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][-1]["status"] == "incomplete"


def test_a_failure_is_told_twice() -> None:
    encoder = API.encoder(parsed(stream=True), RUN, 1)
    stream = (
        encoder.begin()
        + encoder.text("He")
        + encoder.failed(RequestError(502, "workers_failed", "both failed"))
    )
    failed, error = list(events(stream))[-2:]
    assert failed["response"]["error"] == {"code": "server_error", "message": "both failed"}
    assert failed["response"]["output"][0]["content"][0]["text"] == "He"
    assert (error["type"], error["error"]["code"], error["message"]) == (
        "error",
        "workers_failed",
        "both failed",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError(400, "context_length_exceeded", "x"), "context_length_exceeded"),
        (RequestError(429, "limit_cost", "x"), "invalid_prompt"),
        (RequestError(504, "limit_time", "x"), "invalid_prompt"),
        (RequestError(403, "policy", "x"), "invalid_prompt"),
        (RequestError(429, "busy", "x", retry_after=5), "rate_limit_exceeded"),
        (RequestError(503, "unreachable", "x", retry_after=10), "server_error"),
    ],
)
def test_a_failure_that_stays_is_not_tried_again(error: RequestError, code: str) -> None:
    encoder = API.encoder(parsed(stream=True), RUN, 1)
    failed, _ = events(encoder.failed(error))
    assert failed["response"]["error"]["code"] == code


def test_a_whole_answer_is_a_response() -> None:
    schema = {"type": "object", "properties": {}}
    form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    whole = API.encoder(parsed(text=form, tools=[EDIT], temperature=1), RUN, 1).whole(
        outcome(reasoning="Plan.\n", calls=CALLS)
    )
    read = Response.model_validate(whole)
    assert read.output_text == "Hello there."
    assert read.status == "completed"
    assert item_types(whole["output"]) == ["reasoning", "message", "function_call", "function_call"]
    assert whole["text"]["format"]["schema"] == schema


def test_an_error_after_the_status_is_a_response_that_failed() -> None:
    sdk = failing_sdk(API, RequestError(502, "workers_failed", "both workers failed"))
    response = sdk.responses.create(model="conductor", input="Why?")
    assert (response.status, response.output_text) == ("failed", "")
    assert response.error is not None
    assert (response.error.code, response.error.message) == (
        "workers_failed",
        "both workers failed",
    )
