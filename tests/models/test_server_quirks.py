"""Servers as they are: what some refuse, where they are, and what they list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, ImageDetail, Message, Request
from conductor_cli.models.addresses import with_path
from conductor_cli.models.chat_api_model import ChatApiModel
from conductor_cli.models.discovery import ollama_address
from conductor_cli.models.structured_output import first_chat_model
from tests.models.kit import (
    BYTES,
    CHART,
    TALKED,
    WEATHER,
    in_turn,
    play,
    refusing,
    speaking,
    text,
    user_request,
)
from tests.servers import Script, SeenRequest, Wire, delta, loopback, saying, usage

YES = (delta("Yes.", finish="stop"), usage())
BODY = {"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}], "usage": {}}


def notes(chunks: list[Chunk]) -> list[str]:
    return [chunk.note.partition(" ")[2] for chunk in chunks if "accept" in chunk.note]


REFUSALS: list[tuple[int, str]] = [
    (400, "System role not supported"),
    (400, "Developer instruction is not enabled for models/gemma-3-27b-it"),
    (500, "Jinja Exception: System role not supported"),
    (400, "Unsupported value: 'messages[0].role' does not support 'system' with this model."),
    (400, "Only user, assistant and tool roles are supported, with the exception of an initial"),
    (400, "Conversation roles must alternate user/assistant/user/assistant/..."),
    (422, "this model does not support system messages"),
]


def without_system(status: int, message: str) -> Script:
    """A server whose model has no place for a system message."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.json["messages"][0]["role"] == "system":
            return await wire.json({"error": {"message": message}}, status)
        return await saying(*YES)(request, wire)

    return script


@pytest.mark.parametrize(("status", "message"), REFUSALS)
def test_a_model_without_a_system_role_reads_it_with_the_first_question(
    status: int, message: str
) -> None:
    with loopback(without_system(status, message)) as server:
        both = play(ChatApiModel("m", f"{server.url}/v1"), TALKED, TALKED)
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert notes(both[0]) == [
        "does not accept system messages; sent their text in front of the first question"
    ]
    assert not notes(both[1])
    messages = [request.json["messages"] for request in server.requests]
    assert [sent[0]["role"] for sent in messages] == ["system", "user", "user"]
    assert messages[1][0]["content"] == "Be short.\n\nTwo?"
    assert [sent["content"] for sent in messages[1][1:]] == ["2.", "Three?"]


def test_a_refusal_without_a_system_message_stays_one() -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        await wire.json({"error": {"message": "System role not supported"}}, 400)

    with loopback(script) as server, pytest.raises(Exception, match="System role"):
        play(ChatApiModel("m", f"{server.url}/v1"), user_request())
    assert len(server.requests) == 1


DETAIL_REFUSALS: list[dict[str, Any]] = [
    {
        "message": "Invalid value: 'original'. Supported values are: 'auto', 'low', and 'high'.",
        "param": "messages[0].content[0].image_url.detail",
    },
    {"message": "Invalid value", "param": "messages[0].content[0].image_url.detail"},
    {"message": "['body', 'messages', 0, 'content', 0, 'image_url', 'detail']: not permitted"},
]


def with_detail(detail: ImageDetail | None) -> Request:
    """A request whose image is to be looked at so closely."""
    image = Message(role="user", content="What?", attachments=(replace(CHART, detail=detail),))
    return Request(messages=(image,), read_attachment=lambda file: BYTES[file.name])


def taking(details: Collection[str | None], error: Mapping[str, Any]) -> Script:
    """A server that takes images with these details, and refuses any other with an error."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        if sent_detail(request) in details:
            return await saying(*YES)(request, wire)
        return await wire.json({"error": error}, 400)

    return script


def sent_detail(request: SeenRequest) -> str | None:
    """The detail that the one image of a request has."""
    detail = request.json["messages"][0]["content"][0]["image_url"].get("detail")
    return None if detail is None else str(detail)


@pytest.mark.parametrize("error", DETAIL_REFUSALS)
def test_a_detail_that_a_server_refuses_is_left_out_and_told_to_each(
    error: Mapping[str, Any],
) -> None:
    with loopback(taking({None}, error)) as server:
        low, again, none = play(
            ChatApiModel("m", f"{server.url}/v1"),
            with_detail("low"),
            with_detail("high"),
            with_detail(None),
        )
    refusal = ["does not accept image detail; sent without it"]
    assert (notes(low), notes(again), notes(none)) == (refusal, refusal, [])
    assert [sent_detail(request) for request in server.requests] == ["low", None, None, None]


def test_a_server_without_the_finest_detail_is_asked_for_the_next() -> None:
    with loopback(taking({None, "low", "high"}, DETAIL_REFUSALS[0])) as server:
        original, low = play(
            ChatApiModel("m", f"{server.url}/v1"), with_detail("original"), with_detail("low")
        )
    assert notes(original) == ["does not accept image detail original; sent as high"]
    assert not notes(low)
    assert [sent_detail(request) for request in server.requests] == ["original", "high", "low"]


def test_a_server_that_knows_no_detail_is_told_so_once() -> None:
    with loopback(taking({None}, DETAIL_REFUSALS[0])) as server:
        (chunks,) = play(ChatApiModel("m", f"{server.url}/v1"), with_detail("original"))
    assert text(chunks) == "Yes."
    assert notes(chunks) == ["does not accept image detail; sent without it"]
    assert [sent_detail(request) for request in server.requests] == ["original", "high", None]


@pytest.mark.parametrize(("api", "model"), [("anthropic", "m"), ("gemini", "gemini-2.5-pro")])
def test_an_api_without_details_of_images_is_told_to_each(api: str, model: str) -> None:
    asked = with_detail("low")
    both, _ = in_turn(api, speaking("Yes."), asked, asked, with_detail(None), model=model)
    refusal = ["does not accept image detail; sent without it"]
    assert [notes(chunks) for chunks in both] == [refusal, refusal, []]


UNSTREAMED: list[dict[str, str]] = [
    {
        "message": "Your organization must be verified to stream this model.",
        "param": "stream",
        "code": "unsupported_value",
    },
    {"message": "This model does not support streaming."},
    {"message": "Streaming is not supported for this deployment"},
    {"message": "Unsupported parameter: 'stream'"},
]


@pytest.mark.parametrize("error", UNSTREAMED, ids=lambda error: error["message"][:20])
def test_a_model_that_may_not_be_streamed_is_asked_for_a_whole_reply(error: dict[str, str]) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.json.get("stream"):
            return await wire.json({"error": error}, 400)
        return await wire.json(BODY)

    with loopback(script) as server:
        both = play(ChatApiModel("m", f"{server.url}/v1"), user_request(), user_request())
    assert [text(chunks) for chunks in both] == ["Yes.", "Yes."]
    assert notes(both[0]) == [
        "does not accept stream; sent without it",
        "does not accept stream_options; sent without it",
    ]
    assert [
        sorted(request.json.keys() & {"stream", "stream_options"}) for request in server.requests
    ] == [
        ["stream", "stream_options"],
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("base_url", "path", "whole"),
    [
        ("http://a.test/v1", "/models", "http://a.test/v1/models"),
        ("http://a.test/v1/", "/models", "http://a.test/v1/models"),
        (
            "https://a.test/openai/deployments/d?api-version=2024-10-21",
            "/chat/completions",
            "https://a.test/openai/deployments/d/chat/completions?api-version=2024-10-21",
        ),
        ("http://a.test/v1?x=1", "/models?limit=9", "http://a.test/v1/models?limit=9&x=1"),
    ],
)
def test_a_query_of_an_address_stays_behind_the_path(base_url: str, path: str, whole: str) -> None:
    assert with_path(base_url, path) == whole


def test_a_server_is_asked_with_the_query_of_its_address() -> None:
    with loopback(saying(*YES)) as server:
        play(ChatApiModel("m", f"{server.url}/openai?api-version=2024-10-21"), user_request())
    assert server.requests[0].path == "/openai/chat/completions?api-version=2024-10-21"


LISTS: list[tuple[Any, str]] = [
    ({"data": [{"id": "whisper-1"}, {"id": "gpt-x"}]}, "gpt-x"),
    ({"data": [{"id": "bge-m3"}, {"id": "bge-reranker-v2"}, {"id": "qwen"}]}, "qwen"),
    ({"data": [{"id": "BAAI/bge-large-en"}, {"id": "meta/llama"}]}, "meta/llama"),
    ({"data": [{"id": "m2", "type": "embedding"}, {"id": "m1", "type": "chat"}]}, "m1"),
    ({"data": [{"id": "text-embedding-3"}, {"id": "tts-1"}, {"id": "o"}]}, "o"),
    ({"data": [{"id": "/models/images/qwen.gguf"}]}, "/models/images/qwen.gguf"),
    ({"data": [{"id": "my-audio-chat"}]}, "my-audio-chat"),
    ({"data": [{"id": "nomic-embed-text"}]}, ""),
    ({}, ""),
]


@pytest.mark.parametrize(("listed", "model"), LISTS)
def test_the_first_model_that_answers_questions_is_asked(listed: Any, model: str) -> None:
    assert first_chat_model(listed) == model


@pytest.mark.parametrize("first", ["whisper-1", "text-embedding-3-small", "jina-rerank"])
def test_a_bare_list_of_models_is_read(first: str) -> None:
    models = [{"id": first}, {"id": "meta/llama", "type": "chat"}]

    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.path == "/v1/models":
            return await wire.json(models)
        return await saying(*YES)(request, wire)

    with loopback(script) as server:
        play(ChatApiModel("", f"{server.url}/v1"), user_request())
    assert server.requests[-1].json["model"] == "meta/llama"


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("", ""),
        ("127.0.0.1:11434", ""),
        ("0.0.0.0", ""),
        ("localhost", ""),
        (":8080", "http://127.0.0.1:8080/v1"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        ("gpu.lan", "http://gpu.lan:11434/v1"),
        ("gpu.lan:9000", "http://gpu.lan:9000/v1"),
        ("https://ollama.corp.example", "https://ollama.corp.example:443/v1"),
        ("http://gpu.lan/ollama/", "http://gpu.lan:80/ollama/v1"),
        ("[fd00::1]:9000", "http://[fd00::1]:9000/v1"),
        ("http://user:secret@gpu.lan", ""),
        ("a b", ""),
    ],
)
def test_ollama_is_where_its_variable_says(value: str, address: str) -> None:
    assert ollama_address({"OLLAMA_HOST": value}) == address


STOP_REFUSALS = [
    ("Invalid 'stop': array too long. Expected an array with maximum length 4, but got an", 4),
    ("len(stop) > 4 is not supported", 4),
    ("* generation_config.stop_sequences: the number of stop_sequences must not exceed 5.", 5),
]


@pytest.mark.parametrize(("message", "most"), STOP_REFUSALS)
def test_a_server_is_sent_as_many_stop_texts_as_it_takes(message: str, most: int) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if len(request.json.get("stop", ())) > most:
            return await wire.json({"error": {"message": message, "param": "stop"}}, 400)
        return await saying(*YES)(request, wire)

    many = user_request(stop=tuple("abcdef"), asked=frozenset({"stop"}))
    few = user_request(stop=("a", "b"), asked=frozenset({"stop"}))
    with loopback(script) as server:
        replies = play(ChatApiModel("m", f"{server.url}/v1"), many, few, many)
    told = [f"does not accept so many stop texts; sent the first {most}"]
    assert [notes(chunks) for chunks in replies] == [told, [], told]
    sent = [request.json["stop"] for request in server.requests]
    assert sent == [list("abcdef"), list("abcdef")[:most], ["a", "b"], list("abcdef")[:most]]


def test_a_server_is_sent_descriptions_as_long_as_it_takes() -> None:
    message = (
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum "
        "length 1024, but got a string with length 2000 instead."
    )

    def description(request: SeenRequest) -> str:
        return str(request.json["tools"][0]["function"]["description"])

    async def script(request: SeenRequest, wire: Wire) -> None:
        if len(description(request)) > 1024:
            error = {"message": message, "param": "tools[0].function.description"}
            return await wire.json({"error": error}, 400)
        return await saying(*YES)(request, wire)

    long = user_request(tools=(replace(WEATHER, description="d" * 2000),))
    with loopback(script) as server:
        replies = play(ChatApiModel("m", f"{server.url}/v1"), long, user_request(tools=(WEATHER,)))
    told = (
        "does not accept such long descriptions of tools; sent the first 1,024 characters of each"
    )
    assert [notes(chunks) for chunks in replies] == [[told], []]
    assert [len(description(request)) for request in server.requests] == [2000, 1024, 17]


@pytest.mark.parametrize("field", ["stop", "seed", "temperature"])
def test_what_a_client_asked_for_itself_is_told_each_time(field: str) -> None:
    value: Any = {"stop": ("a",), "seed": 7, "temperature": 0.5}[field]
    asked = user_request(**{field: value}, asked=frozenset({field}))
    own = user_request(**{field: value})
    refusal = refusing({field: {"message": f"Unsupported parameter: '{field}'"}}, saying(*YES))
    with loopback(refusal) as server:
        replies = play(ChatApiModel("m", f"{server.url}/v1"), own, asked, own, asked)
    told = [f"does not accept {field}; sent without it"]
    assert [notes(chunks) for chunks in replies] == [told, told, [], told]


CHOICE_REFUSALS = [
    "Thinking mode does not support this tool_choice",
    "The tool_choice parameter does not support being set to required or object in thinking mode",
]


@pytest.mark.parametrize("message", CHOICE_REFUSALS)
def test_a_model_that_cannot_be_made_to_call_is_asked_anyway(message: str) -> None:
    async def script(request: SeenRequest, wire: Wire) -> None:
        if request.json.get("tool_choice", "none") != "none":
            return await wire.json({"error": {"message": message}}, 400)
        return await saying(*YES)(request, wire)

    forced = user_request(tools=(WEATHER,), tool_choice="required")
    one = user_request(tools=(WEATHER,), tool_choice=WEATHER)
    none = user_request(tools=(WEATHER,), tool_choice="none")
    with loopback(script) as server:
        replies = play(ChatApiModel("m", f"{server.url}/v1"), forced, one, none)
    told = "cannot be made to call a tool in this turn; it was left to the model"
    assert [
        [chunk.note.partition(" ")[2] for chunk in chunks if chunk.note] for chunks in replies
    ] == [
        [told],
        [told],
        [],
    ]
    choices = [request.json.get("tool_choice") for request in server.requests]
    assert (choices[0], choices[1], choices[3:]) == ("required", None, [None, "none"])


@pytest.mark.parametrize(
    ("limit", "thinking", "told"),
    [
        (None, 8000, ""),
        (8001, 8000, ""),
        (8000, 4000, "at most 4,000 tokens"),
        (500, None, "no tokens"),
    ],
)
def test_claude_thinks_less_where_a_client_wants_a_short_reply(
    limit: int | None, thinking: int | None, told: str
) -> None:
    """`max_tokens` must be greater than `thinking.budget_tokens`."""
    request = user_request(max_tokens=limit)
    (chunks,), (seen,) = in_turn("anthropic", speaking("Yes."), request, thinking_budget=8000)
    assert seen.json["thinking"].get("budget_tokens") == thinking
    assert seen.json["max_tokens"] > (thinking or 0)
    said = [chunk.note for chunk in chunks if "thinks with" in chunk.note]
    assert len(said) == bool(told)
    assert all(told in note for note in said)
