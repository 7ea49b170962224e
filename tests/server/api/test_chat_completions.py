"""Chat Completions: what is read of a request, and what OpenAI's own SDK makes of the answers."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from itertools import chain
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from conductor_cli.core.chat import Message, Request, Tool, ToolCall
from conductor_cli.core.errors import Failure
from conductor_cli.core.question import fence
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import error_in_body
from conductor_cli.models.chat_body import chat_fields, with_texts
from conductor_cli.server.api.body_models import require_schema
from conductor_cli.server.api.chat_completions import ChatCompletionsApi
from conductor_cli.server.api.errors import error_body, request_error, tokens_over
from conductor_cli.server.api.request import ClientRequest, RequestError
from tests.media_files import png
from tests.models.test_api_errors import TOO_LONG
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

API = ChatCompletionsApi()
ASKED: dict[str, Any] = {"model": "conductor", "messages": [{"role": "user", "content": "Hi"}]}
SCHEMA = {"type": "object", "properties": {}}
EDIT = {
    "type": "function",
    "function": {"name": "edit", "description": "Edits.", "parameters": SCHEMA},
}


def parsed(messages: list[Any] | None = None, **fields: Any) -> ClientRequest:
    return API.parse({**ASKED, **({} if messages is None else {"messages": messages}), **fields})


def stream_of(request: ClientRequest | None = None, **ends: Any) -> bytes:
    return written(
        API.encoder(request or parsed(stream=True), RUN, 1), outcome(**ends), pieces=("Plan.\n",)
    )


def test_the_simplest_request_has_only_a_question() -> None:
    assert parsed() == ClientRequest(
        model="conductor", messages=(Message(role="user", content="Hi"),)
    )


def test_system_texts_become_the_first_message_or_stay_in_their_place() -> None:
    read = parsed(
        [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "system",
                "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}],
            },
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "Now hurry."},
            {"role": "user", "content": "And?"},
        ]
    )
    assert read.messages == (
        Message(role="system", content="Be brief.\n\nBe\nkind."),
        Message(role="user", content="Hi"),
        Message(role="user", content=fence("system", "Now hurry.")),
        Message(role="user", content="And?"),
    )


def test_texts_and_images_keep_their_order() -> None:
    """An image that comes twice is sent twice, and each text and image goes where it was."""
    image, other = (
        {"type": "image_url", "image_url": {"url": data_url(png(size, 5))}} for size in (7, 9)
    )
    before, after = ({"type": "text", "text": text} for text in ("Before:", "\nAfter:"))
    read = parsed([{"role": "user", "content": [before, image, after, other, image]}])
    (message,) = read.messages
    assert message.content == "Before:\n\nAfter:"
    body = chat_fields(
        Request(
            messages=read.messages, read_attachment=lambda attachment: read.blobs[attachment.sha256]
        )
    )
    sent = with_texts(body["messages"])[0]["content"]
    assert sent == [before, image, after, other, image]


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ("low", "low"),
        ("original", "original"),
        ("auto", None),
        ("finest", None),
        (None, None),
        ([], None),
    ],
)
def test_an_image_keeps_the_detail_that_is_asked_for(asked: object, read: str | None) -> None:
    """`auto` is what a provider does by itself. The same image may be asked for otherwise, too."""
    url = data_url(png())
    image = {"type": "image_url", "image_url": {"url": url, "detail": asked}}
    high = {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
    (message,) = parsed([{"role": "user", "content": [image, high]}]).messages
    first, second = message.attachments
    assert (first.detail, second.detail) == (read, "high")
    assert first.name == second.name == "image-1.png"


def test_a_conversation_with_tools_is_kept_word_for_word() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "edit", "arguments": '{"a": 1}'}},
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** x"}},
    ]
    read = parsed(
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "also"}]},
            {"role": "assistant", "content": "", "reasoning_content": "Only thoughts."},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]
    )
    assert read.messages[1:] == (
        Message(
            role="assistant",
            content="",
            tool_calls=(
                ToolCall(id="c1", name="edit", arguments='{"a": 1}'),
                ToolCall(id="c2", name="patch", arguments='{"input": "*** x"}'),
            ),
        ),
        Message(role="tool", content="done", tool_call_id="c1"),
        Message(role="tool", content="also", tool_call_id="c2"),
        Message(role="assistant", content="No."),
    )


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", "reasoning"])
def test_thoughts_in_the_content_of_a_turn_are_left_out(kind: str) -> None:
    """Gateways before this one, such as litellm with Claude Code, send a turn of Claude's so."""
    thought = {"type": kind, kind: "Hm.", "signature": "EqQB"}
    talk = [
        {"role": "user", "content": "Warm?"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]},
        {"role": "assistant", "content": [thought]},
        {"role": "user", "content": "Sure?"},
    ]
    request = parsed(talk)
    assert [message.content for message in request.messages] == ["Warm?", "Yes.", "Sure?"]
    assert request.ignored == (f"messages[].content[].{kind}",)


def test_functions_of_the_old_form_get_ids() -> None:
    read = parsed(
        [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "edit", "arguments": "{}"},
            },
            {"role": "function", "name": "edit", "content": "done"},
        ]
    )
    assert read.messages[1].tool_calls[0].id == read.messages[2].tool_call_id == "call_function_1"


def test_names_are_told_where_several_users_speak() -> None:
    ann, ben = ({"role": "user", "name": name, "content": "Hi"} for name in ("Ann", "Ben"))
    assert [message.content for message in parsed([ann, ben]).messages] == ["Ann: Hi", "Ben: Hi"]
    assert [message.content for message in parsed([ann, ann]).messages] == ["Hi", "Hi"]


def test_a_file_is_attached_or_quoted() -> None:
    pdf = {
        "type": "file",
        "file": {"file_data": data_url(b"%PDF-1.4\n", "application/pdf"), "filename": "a.pdf"},
    }
    text = {
        "type": "file",
        "file": {"file_data": data_url(b"x = 1", "text/plain"), "filename": "a.py"},
    }
    (message,) = parsed([{"role": "user", "content": [pdf, text]}]).messages
    assert [attachment.name for attachment in message.attachments] == ["a.pdf"]
    assert 'name="a.py"' in message.content
    assert "\nx = 1\n" in message.content


def test_every_option_is_read() -> None:
    """Each under its field of the internal form."""
    read = parsed(
        max_tokens=10,
        max_completion_tokens=20,
        temperature=0.5,
        stop="END",
        seed=7,
        reasoning_effort="gigantic",
        stream=True,
        stream_options={"include_usage": True},
        parallel_tool_calls=False,
        store=False,
        conductor={"max_cost": 0.25},
        response_format={"type": "json_object"},
        top_k=3,
        top_p=0.9,
        verbosity="low",
        user="u",
        n=1,
    )
    assert read == ClientRequest(
        model="conductor",
        messages=(Message(role="user", content="Hi"),),
        max_tokens=20,
        temperature=0.5,
        stop=("END",),
        effort="gigantic",
        stream=True,
        include_usage=True,
        parallel_tool_calls=False,
        seed=7,
        sampling={"top_k": 3, "top_p": 0.9},
        ignored=("store", "user", "verbosity"),
        max_cost=Decimal("0.25"),
        json_only=True,
    )


def test_a_schema_is_read_and_checked() -> None:
    form: dict[str, Any] = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object"}},
    }
    assert parsed(response_format=form).schema == {"type": "object"}
    asyncio.run(require_schema(parsed(response_format=form)))
    form["json_schema"]["schema"] = {"type": "nonsense"}
    with pytest.raises(RequestError) as caught:
        asyncio.run(require_schema(parsed(response_format=form)))
    error = caught.value
    assert (error.code, error.param) == (
        "invalid_json_schema",
        "response_format.json_schema.schema",
    )


SEARCH = {"type": "web_search_preview_2025_03_11"}


@pytest.mark.parametrize(
    ("fields", "tools", "hosted"),
    [
        ({"tools": [EDIT, SEARCH, {"type": "custom", "custom": {"name": "x"}}]}, ["edit", "x"], ()),
        ({"tools": [SEARCH, {"type": "code_interpreter"}]}, [], ("web_search", "code_interpreter")),
        ({"tools": [EDIT, SEARCH], "tool_choice": SEARCH}, [], ("web_search",)),
        ({"tools": [SEARCH], "tool_choice": "required"}, [], ("web_search",)),
        ({"tools": [SEARCH], "tool_choice": "none"}, [], ()),
        ({"web_search_options": {}}, [], ("web_search",)),
        (
            {
                "tools": [EDIT, SEARCH],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [SEARCH]},
            },
            [],
            ("web_search",),
        ),
    ],
)
def test_tools_of_the_server_are_left_out_or_needed(
    fields: dict[str, Any], tools: list[str], hosted: tuple[str, ...]
) -> None:
    """They are needed where the request has nothing else to call, or asks for one."""
    read = parsed(**fields)
    assert ([tool.name for tool in read.tools], read.hosted) == (tools, hosted)
    assert read.tool_choice == fields.get("tool_choice", "auto") or read.tool_choice == "auto"


def test_a_choice_of_tools_narrows_them() -> None:
    other = {"type": "function", "function": {"name": "shell"}}
    named = parsed(
        tools=[EDIT, other], tool_choice={"type": "function", "function": {"name": "shell"}}
    )
    assert isinstance(named.tool_choice, Tool)
    assert named.tool_choice.name == "shell"
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [other]}}
    some = parsed(tools=[EDIT, other], tool_choice=allowed)
    assert ([tool.name for tool in some.tools], some.tool_choice) == (["shell"], "required")


def test_tools_as_clients_of_mistral_send_them_are_functions() -> None:
    read = parsed(tools=[{"function": EDIT["function"]}], tool_choice="any")
    assert [tool.name for tool in read.tools] == ["edit"]
    assert (read.tool_choice, read.ignored) == ("required", ())
    with pytest.raises(RequestError, match=r"tools\[0\]\.type is missing"):
        parsed(tools=[{"name": "edit"}])


def test_a_choice_and_calls_as_clients_of_mistral_send_them_are_read() -> None:
    """A choice may lack its type, and the arguments of a call may be an object."""
    call = {"id": "c12345678", "function": {"name": "edit", "arguments": {"a": "ß"}}}
    read = parsed(
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "Done.", "tool_call_id": "c12345678", "name": "edit"},
        ],
        tools=[{"function": EDIT["function"]}],
        tool_choice={"function": {"name": "edit"}},
    )
    assert isinstance(read.tool_choice, Tool)
    assert read.tool_choice.name == "edit"
    assert json.loads(read.messages[1].tool_calls[0].arguments) == {"a": "ß"}
    with pytest.raises(RequestError, match=r"tool_choice\.type is missing"):
        parsed(tools=[EDIT], tool_choice={"name": "edit"})


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("model", None),
        ("messages", []),
        ("messages", "Hi"),
        ("messages[0]", [1]),
        ("messages[0].role", [{"role": "robot", "content": "Hi"}]),
        ("messages[0].role", [{"role": "function", "content": "x"}]),
        ("messages[0].content", [{"role": "user"}]),
        ("messages[0].content[0].type", [{"role": "user", "content": [{"type": "input_audio"}]}]),
        ("messages[0].tool_call_id", [{"role": "tool", "content": "x"}]),
        ("messages[0].tool_calls[0].id", [{"role": "assistant", "tool_calls": [{"id": None}]}]),
        ("n", 2),
        ("logprobs", True),
        ("functions", [{}]),
        ("modalities", ["text", "audio"]),
        ("stream", "yes"),
        ("max_tokens", 0),
        ("max_completion_tokens", "many"),
        ("temperature", float("nan")),
        ("seed", 2**70),
        ("stop[0]", [1]),
        ("conductor.max_cost", {"max_cost": 0}),
        ("conductor.max_cost", {"max_cost": "NaN"}),
        ("conductor", {"max_costs": 1}),
        ("tools[0].name", [{"type": "function"}]),
        ("tools[1].function.name", [EDIT, EDIT]),
        ("tool_choice", "required"),
        ("tool_choice", "maybe"),
        ("tool_choice.type", {"type": "web_search"}),
        ("tool_choice.function.name", {"type": "function", "function": {"name": "x"}}),
        ("response_format.type", {"type": "xml"}),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(param: str, value: Any) -> None:
    error = refusal(API, {**ASKED, field_of(param): value}, param)
    assert error.message.startswith(param)


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://example.org/a.png", "invalid_image_url"),
        ("file:///etc/passwd", "invalid_image_url"),
        ("data:image/png,plain", "invalid_base64_image"),
        ("data:image/png;base64,????", "invalid_base64_image"),
        ("data:image/png;base64,", "empty_image_file"),
        (data_url(b"not an image"), "unsupported_image_media_type"),
        (data_url(png()[:40]), "invalid_image"),
    ],
)
def test_an_image_that_cannot_be_read_is_refused(url: str, code: str) -> None:
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {**ASKED, "messages": [{"role": "user", "content": [part]}]}
    assert refusal(API, body, "messages[0].content[0].image_url").code == code


def test_a_stream_begins_with_the_role_and_ends_with_done() -> None:
    stream = stream_of(calls=CALLS)
    chunks = [ChatCompletionChunk.model_validate(event, strict=True) for event in events(stream)]
    choices = [chunk.choices[0] for chunk in chunks]
    assert choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for choice in choices) == "Hello there."
    assert [getattr(choice.delta, "reasoning_content", "") for choice in choices][1] == "Plan.\n"
    calls = list(chain.from_iterable(choice.delta.tool_calls or () for choice in choices))
    assert [(call.index, call.id, call.type) for call in calls] == [
        (0, "call_one", "function"),
        (1, "call_two", "function"),
    ]
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["tool_calls"]
    assert {chunk.id for chunk in chunks} == {f"chatcmpl-{RUN}"}
    assert stream.endswith(b"data: [DONE]\n\n")
    assert b"\n\n: heartbeat\n\n" in stream


def test_reasoning_after_the_first_word_of_the_answer_is_left_out() -> None:
    encoder = API.encoder(parsed(stream=True), RUN, 1)
    assert b"Plan." in encoder.reasoning("Plan.\n")
    assert encoder.text("Hello.")
    assert encoder.reasoning("Hm, wait.") == b""


def test_usage_has_a_chunk_of_its_own_where_it_was_asked_for() -> None:
    request = parsed(stream=True, stream_options={"include_usage": True})
    *others, last = events(stream_of(request))
    assert last["choices"] == []
    assert all(other["usage"] is None for other in others)
    assert last["usage"] == {
        "prompt_tokens": 212,
        "completion_tokens": 522,
        "total_tokens": 734,
        "prompt_tokens_details": {
            "cached_tokens": 100,
            "cache_write_tokens": 12,
            "orchestration_input_tokens": 5463,
            "orchestration_input_cached_tokens": 7,
        },
        "completion_tokens_details": {"reasoning_tokens": 40, "orchestration_output_tokens": 1053},
    }


def test_the_last_chunk_says_what_the_run_used() -> None:
    for request in (
        parsed(stream=True),
        parsed(stream=True, stream_options={"include_usage": True}),
    ):
        conductor_fields = list(events(stream_of(request)))[-1]["conductor"]
        assert (
            conductor_fields["run"],
            conductor_fields["cost"],
            conductor_fields["unpriced_calls"],
        ) == (RUN, 0.12, 1)
        parts = conductor_fields["usage"]
        for name in ("calls", "input_tokens", "cached_tokens", "output_tokens"):
            assert parts["answer"][name] + parts["orchestration"][name] == parts["total"][name]
        assert [
            (step["step"], step["worker"], step["output_tokens"])
            for step in conductor_fields["steps"]
        ] == [
            (1, "bob", 1000),
            (2, "alice", 522),
        ]


def test_a_whole_answer_is_a_chat_completion() -> None:
    whole = API.encoder(parsed(), RUN, 1).whole(outcome(reasoning="Plan.\n"))
    read = ChatCompletion.model_validate(whole, strict=True)
    assert read.choices[0].message.content == "Hello there."
    assert whole["choices"][0]["message"]["reasoning_content"] == "Plan.\n"
    called = ChatCompletion.model_validate(
        API.encoder(parsed(), RUN, 1).whole(outcome(text="", calls=CALLS))
    )
    assert called.choices[0].message.content is None
    assert called.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("finish", "message"),
    [("stop", "stop"), ("length", "length"), ("refusal", "content_filter"), ("other", "stop")],
)
def test_each_end_has_its_word(finish: Any, message: str) -> None:
    whole = API.encoder(parsed(), RUN, 1).whole(outcome(finish=finish))
    assert whole["choices"][0]["finish_reason"] == message


def test_text_that_is_no_valid_unicode_does_not_break_the_stream() -> None:
    stream = API.encoder(parsed(), RUN, 1).text("a\ud83d\u2028b")
    assert stream.isascii()
    (chunk,) = events(stream)
    assert chunk["choices"][0]["delta"]["content"] == "a\ud83d\u2028b"


def test_the_sdk_shows_errors() -> None:
    """Before the stream as a status, in its middle as an error, after a status in the envelope.

    Each with our words.
    """
    ask: Any = failing_sdk(
        API, RequestError(502, "workers_failed", "both workers failed")
    ).chat.completions.create
    with pytest.raises(openai.BadRequestError, match="n must be 1") as refused:
        ask(**ASKED, n=2)
    assert (refused.value.param, refused.value.type) == ("n", "invalid_request_error")
    with pytest.raises(openai.APIError, match="both workers failed"):
        list(ask(**ASKED, stream=True))
    answer = ask(**ASKED)
    assert not answer.choices
    assert answer.error["message"] == "both workers failed"


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (RequestError(400, "upstream_key", "the key was refused"), " (invalid_request_error)"),
        (RequestError(429, "limit_cost", "the limit is reached"), " (invalid_request_error)"),
        (RequestError(429, "busy", "too many wait", retry_after=5), ""),
        (RequestError(502, "workers_failed", "both"), ""),
    ],
)
def test_an_error_inside_a_stream_says_whether_to_repeat_where_litellm_reads_it(
    error: RequestError, word: str
) -> None:
    (frames,) = events(API.encoder(parsed(stream=True), RUN, 1).failed(error))
    assert frames["error"]["message"] == error.message + word


COUNTS: dict[str, tuple[int, int] | None] = {
    "openai": (204308, 128000),
    "openai-window": None,
    "openai-limit": (509178, 272000),
    "vllm": (4097, 4096),
    "vllm-prompt": (11466, 8192),
    "vllm-reply": (5000, 4096),
    "llama-server": (9412, 8192),
    "llama-cpp-python": (1418, 256),
    "llama-cpp-python-500": (1418, 256),
    "sglang": (516368, 262144),
    "sglang-total": (71897, 64000),
    "ollama": None,
    "ollama-input": None,
    "lm-studio": (13055, 4096),
    "lm-studio-old": (10136, 7866),
    "lm-studio-cut": (15028, 7424),
    "gemini": (1196265, 1048575),
    "anthropic": (213462, 200000),
    "xai": (537812, 131072),
    "mistral": (40000, 32768),
    "openrouter": (42832, 32768),
    "groq": None,
}


@pytest.mark.parametrize("server", COUNTS)
def test_the_numbers_are_those_that_the_provider_said(server: str) -> None:
    error = error_in_body("claude-haiku-4-5-20251001", TOO_LONG[server][1], Secrets())
    assert tokens_over(error.message) == COUNTS[server]


@pytest.mark.parametrize(
    ("message", "estimate", "counts"),
    [
        (
            "the prompt has 9000 tokens, and the context of qwen2.5-128000-q4.gguf holds 4096",
            None,
            (9000, 4096),
        ),
        ("127.0.0.1:39957: the prompt exceeds the context window of 8192 tokens", None, None),
        ("http://[::1]:39957/v1: the context length is 8192 tokens", None, None),
        ("gpu.lan:39957: the prompt has 9000 tokens, the context holds 8192", None, (9000, 8192)),
        ("request req 20261126: the context length is 8192 tokens (error 40000)", None, None),
        ("the context length is 8,192 tokens", 9000, (9000, 8192)),
        ("the context length is 8192 tokens", 8000, None),
        ("prompt is too long: 9000 tokens > 8192 maximum", 9500, (9000, 8192)),
    ],
)
def test_no_other_number_passes_for_tokens(
    message: str, estimate: int | None, counts: tuple[int, int] | None
) -> None:
    """A local model says both; an estimate stands in where it is larger than the context."""
    assert tokens_over(message, estimate) == counts


PROVIDER_MESSAGE = "prompt is too long: 213462 tokens > 200000 maximum"
OPENAI = (
    "This model's maximum context length is 200000 tokens. However, your messages resulted in "
    "213462 tokens. "
    "Please reduce the length of the messages."
)


@pytest.mark.parametrize(
    ("path", "words"), [("/v1/chat/completions", OPENAI), ("/v1/messages", PROVIDER_MESSAGE)]
)
def test_each_api_has_its_own_sentence(path: str, words: str) -> None:
    error = request_error(
        Failure(kind="worker", message=f"bob: {PROVIDER_MESSAGE}", reason="length")
    )
    assert error.status == 400
    body = error_body(error, path)["error"]
    assert body["message"] == words
    assert body.get("code", "context_length_exceeded") == "context_length_exceeded"
    assert body["type"] == "invalid_request_error"


def test_words_without_numbers_are_kept() -> None:
    error = request_error(Failure(kind="worker", message="bob: it does not fit", reason="length"))
    message = error_body(error)["error"]["message"]
    assert "exceeds the context window" in message
    assert "bob: it does not fit" in message
    assert "reduce the length of the messages" in message
