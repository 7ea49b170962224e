"""What each of the four chat APIs is sent.

A conversation, files, tools, choices, and files of results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request, Tool, ToolCall
from tests.models.kit import ASK, CHART, PAPER, TALK, WEATHER, sent_to

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
PNG = "cG5nIGJ5dGVz"
PDF = "cGRmIGJ5dGVz"
FOR_EACH_API = pytest.mark.parametrize(
    "api", ["chat completions", "responses", "anthropic", "gemini"]
)

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "chat completions": {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "stop": ["END"],
        "messages": [{"role": message.role, "content": message.content} for message in TALK],
        "max_tokens": 99,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": False, "schema": SCHEMA},
        },
    },
    "responses": {
        "model": "m",
        "stream": True,
        "instructions": "Be short.",
        "store": False,
        "max_output_tokens": 99,
        "input": [{"role": message.role, "content": message.content} for message in TALK[1:]],
        "temperature": 0.5,
        "text": {
            "format": {"type": "json_schema", "name": "reply", "strict": False, "schema": SCHEMA}
        },
    },
    "anthropic": {
        "model": "m",
        "stream": True,
        "system": "Be short.",
        "max_tokens": 99,
        "temperature": 0.5,
        "messages": [{"role": message.role, "content": message.content} for message in TALK[1:]],
        "stop_sequences": ["END"],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be short."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Two?"}]},
            {"role": "model", "parts": [{"text": "2."}]},
            {"role": "user", "parts": [{"text": "Three?"}]},
        ],
        "generationConfig": {
            "maxOutputTokens": 99,
            "temperature": 0.5,
            "stopSequences": ["END"],
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
            "thinkingConfig": {"includeThoughts": True},
        },
    },
}


@FOR_EACH_API
def test_a_conversation_has_the_form_of_its_api(api: str) -> None:
    request = Request(messages=TALK, temperature=0.5, stop=("END",), schema=SCHEMA, max_tokens=99)
    assert sent_to(api, request).json == CONVERSATIONS[api]


FILES: dict[str, list[dict[str, Any]]] = {
    "chat completions": [
        {"type": "text", "text": "chart.png:"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "text", "text": "paper.pdf:"},
        {
            "type": "file",
            "file": {"filename": "paper.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
        },
        {"type": "text", "text": "Compare."},
    ],
    "responses": [
        {"type": "input_text", "text": "chart.png:"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_text", "text": "paper.pdf:"},
        {
            "type": "input_file",
            "filename": "paper.pdf",
            "file_data": f"data:application/pdf;base64,{PDF}",
        },
        {"type": "input_text", "text": "Compare."},
    ],
    "anthropic": [
        {"type": "text", "text": "chart.png:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "text", "text": "paper.pdf:"},
        {
            "type": "document",
            "title": "paper.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        },
        {"type": "text", "text": "Compare."},
    ],
    "gemini": [
        {"text": "chart.png:"},
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"text": "paper.pdf:"},
        {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
        {"text": "Compare."},
    ],
}


def turns(api: str, *messages: Message, **fields: Any) -> list[Any]:
    """The turns of a conversation as a server saw them."""
    body = sent_to(api, Request(messages=messages, **fields)).json
    return list(body[{"responses": "input", "gemini": "contents"}.get(api, "messages")])


@FOR_EACH_API
def test_several_files_come_each_after_its_name(api: str) -> None:
    (message,) = turns(api, Message(role="user", content="Compare.", attachments=(CHART, PAPER)))
    content = "parts" if api == "gemini" else "content"
    assert message == {"role": "user", content: FILES[api]}
    (turn,) = turns(api, Message(role="user", content="Compare.", attachments=(CHART,)))
    assert turn[content] == [FILES[api][1], FILES[api][4]]


@pytest.mark.parametrize(
    ("api", "low", "original"),
    [
        ("chat completions", "low", "original"),
        ("responses", "low", "original"),
        ("anthropic", None, None),
        ("gemini", "MEDIA_RESOLUTION_LOW", "MEDIA_RESOLUTION_ULTRA_HIGH"),
    ],
)
def test_each_image_says_how_closely_it_is_looked_at(
    api: str, low: str | None, original: str | None
) -> None:
    """Where its API has a field for it."""
    images = (replace(CHART, detail="low"), CHART, replace(CHART, detail="original"))
    (message,) = turns(api, Message(role="user", content="Compare.", attachments=images))
    parts = message["parts" if api == "gemini" else "content"][1::2]
    assert [_detail_of(part) for part in parts] == [
        low,
        "auto" if api == "responses" else None,
        original,
    ]


def _detail_of(part: Mapping[str, Any]) -> Any:
    """The detail that a part of a body asks for, in the words of its API."""
    if "mediaResolution" in part:
        return part["mediaResolution"]["level"]
    if part.get("type") == "image_url":
        return part["image_url"].get("detail")
    return part.get("detail")


ABOUT = {"name": "weather", "description": "Says the weather."}
NOTHING = {"type": "object", "properties": {}}
TOOLS: dict[str, Any] = {
    "chat completions": [
        {"type": "function", "function": {**ABOUT, "parameters": CITY}},
        {"type": "function", "function": {"name": "now", "parameters": NOTHING}},
    ],
    "responses": [
        {"type": "function", **ABOUT, "parameters": CITY, "strict": False},
        {"type": "function", "name": "now", "parameters": NOTHING, "strict": False},
    ],
    "anthropic": [{**ABOUT, "input_schema": CITY}, {"name": "now", "input_schema": NOTHING}],
    "gemini": [
        {"functionDeclarations": [{**ABOUT, "parametersJsonSchema": CITY}, {"name": "now"}]}
    ],
}
"""A schema without a type becomes an object's."""


@FOR_EACH_API
def test_tools_are_offered_and_what_is_the_default_is_not_said(api: str) -> None:
    body = sent_to(api, Request(messages=(ASK,), tools=(WEATHER, Tool(name="now")))).json
    assert body["tools"] == TOOLS[api]
    assert not {"tool_choice", "parallel_tool_calls", "toolConfig"} & set(body)


MODES = {"required": {"mode": "ANY"}, "none": {"mode": "NONE"}}


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("choice", ["none", "required", WEATHER], ids=["none", "required", "one"])
@FOR_EACH_API
def test_the_choice_of_tools_has_the_words_of_its_api(
    api: str, choice: Any, parallel: bool
) -> None:
    """Anthropic is told in its choice to make one call at a time, and Google cannot be told."""
    request = Request(
        messages=(ASK,), tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=parallel
    )
    body = sent_to(api, request).json
    if api == "gemini":
        only = {"mode": "ANY", "allowedFunctionNames": ["weather"]}
        mode = MODES[choice] if isinstance(choice, str) else only
        assert body["toolConfig"] == {"functionCallingConfig": mode}
    elif api == "anthropic":
        kind = {"none": "none", "required": "any"}.get(str(choice), "tool")
        sent_choice = {"type": kind} | ({"name": "weather"} if kind == "tool" else {})
        alone = {} if parallel or choice == "none" else {"disable_parallel_tool_use": True}
        assert body["tool_choice"] == sent_choice | alone
    else:
        name = {"name": "weather"}
        named_choice = {"type": "function"} | (name if api == "responses" else {"function": name})
        assert body["tool_choice"] == (choice if isinstance(choice, str) else named_choice)
        assert body.get("parallel_tool_calls", True) is parallel


TURNS_WITH_FILES: dict[str, list[dict[str, Any]]] = {
    "chat completions": [
        {"role": "tool", "content": "A map.", "tool_call_id": "c1"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "The files of the result c1:"},
                FILES["chat completions"][1],
            ],
        },
    ],
    "responses": [
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [FILES["responses"][1], {"type": "input_text", "text": "A map."}],
        }
    ],
    "anthropic": [
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "content": [FILES["anthropic"][1], {"type": "text", "text": "A map."}],
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        }
    ],
    "gemini": [
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "c1",
                        "name": "weather",
                        "response": {"output": "A map."},
                        "parts": [FILES["gemini"][1]],
                    }
                }
            ],
        }
    ],
}


@FOR_EACH_API
def test_files_of_a_result_are_inside_it_or_follow_it(api: str) -> None:
    call = Message(
        role="assistant",
        content="",
        tool_calls=(ToolCall(id="c1", name="weather", arguments="{}"),),
    )
    result = Message(role="tool", content="A map.", tool_call_id="c1", attachments=(CHART,))
    assert turns(api, ASK, call, result, tools=(WEATHER,))[2:] == TURNS_WITH_FILES[api]
