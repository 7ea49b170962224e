"""What becomes of each field of each API: it is carried, it is refused, or the answer names it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionContentPartImageParam,
    ChatCompletionContentPartTextParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses import (
    ResponseInputFileParam,
    ResponseInputImageParam,
    ResponseInputTextParam,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

from conductor_cli.server.api.chat_completions import ChatCompletionsApi
from conductor_cli.server.api.compaction import CompactionApi
from conductor_cli.server.api.messages import MessagesApi
from conductor_cli.server.api.request import ClientApi, ClientRequest, RequestError
from conductor_cli.server.api.responses import ResponsesApi
from tests.media_files import pdf, png
from tests.server.api.samples import RUN, data_url, outcome

CARRIED: Final = "carried"
REFUSED: Final = "refused"
# Each other word is the name under which an answer tells that a field had no effect.

Row = tuple[Any, str]
"""A value of a field, and what becomes of it."""

EDIT: Final = {"type": "function", "name": "edit", "parameters": {"type": "object"}}
CHAT_EDIT: Final = {"type": "function", "function": {"name": "edit"}}
MESSAGES_EDIT: Final = {"name": "edit", "input_schema": {"type": "object"}}
MARK: Final = {"cache_control": {"type": "ephemeral"}}
BREAKPOINT: Final = {"type": "explicit"}

# What both of OpenAI's APIs have, and what clients of other servers send to them
OPENAI: Final[dict[str, Row]] = {
    "conductor": ({"max_cost": 0.5}, CARRIED),
    "frequency_penalty": (0.5, CARRIED),
    "logit_bias": ({"50": -100}, CARRIED),
    "metadata": ({"a": "b"}, "metadata"),
    "model": ("other", CARRIED),
    "moderation": ({"model": "m"}, REFUSED),
    "parallel_tool_calls": (False, CARRIED),
    "prediction": ({"type": "content"}, REFUSED),
    "presence_penalty": (0.5, CARRIED),
    "prompt_cache_key": ("k", "prompt_cache_key"),
    "prompt_cache_options": ({"ttl": "30m"}, "prompt_cache_options"),
    "prompt_cache_retention": ("24h", "prompt_cache_retention"),
    "safety_identifier": ("s", "safety_identifier"),
    "seed": (7, CARRIED),
    "service_tier": ("flex", "service_tier"),
    "stop": (["END"], CARRIED),
    "stream": (True, CARRIED),
    "temperature": (0.5, CARRIED),
    "tool_choice": ("required", CARRIED),
    "tools": ([], CARRIED),
    "top_k": (3, CARRIED),
    "top_p": (0.5, CARRIED),
    "user": ("u", "user"),
    "web_search_options": ({}, "web_search_options"),
    "an_invention": (False, "an_invention"),
}

CHAT: Final[dict[str, Row]] = OPENAI | {
    "audio": ({"voice": "v"}, REFUSED),
    "function_call": ("auto", REFUSED),
    "functions": ([{}], REFUSED),
    "logprobs": (True, REFUSED),
    "max_completion_tokens": (9, CARRIED),
    "max_tokens": (9, CARRIED),
    "messages": ([{"role": "user", "content": "Why?"}], CARRIED),
    "modalities": (["text", "image"], "modalities"),
    "n": (2, REFUSED),
    "reasoning": ({"max_tokens": 9}, "reasoning.max_tokens"),
    "reasoning_effort": ("low", CARRIED),
    "response_format": ({"type": "json_object"}, CARRIED),
    "store": (False, "store"),
    "stream_options": ({"include_usage": True}, CARRIED),
    "top_logprobs": (2, "top_logprobs"),
    "verbosity": ("low", "verbosity"),
}

LOCK: Final = Path(__file__).resolve().parents[3] / "requirements.lock"
needs_locked_sdk = pytest.mark.skipif(
    f"\nopenai=={version('openai')} " not in LOCK.read_text("utf-8"),
    reason="the openai that is installed is not the locked one",
)

RESPONSES: Final[dict[str, Row]] = OPENAI | {
    "access_programs": ({"cyber": True}, "access_programs"),
    "background": (True, CARRIED),
    "background_options": ({"completion_window": "2h"}, "background_options"),
    "context_management": ([{"type": "compaction"}], "context_management"),
    "conversation": ("conv_1", REFUSED),
    "image": ({"detail": "low"}, "image"),
    "include": (["reasoning.encrypted_content"], "include"),
    "input": ("Why?", CARRIED),
    "instructions": ("Be brief.", CARRIED),
    "max_output_tokens": (9, CARRIED),
    "max_tool_calls": (2, "max_tool_calls"),
    "metadata": ({"a": "b"}, CARRIED),
    "previous_response_id": (f"resp_{RUN}", CARRIED),
    "prompt": ({"id": "x"}, REFUSED),
    "reasoning": ({"effort": "low"}, CARRIED),
    "store": (False, CARRIED),
    "stream_options": ({"include_obfuscation": True}, "stream_options.include_obfuscation"),
    "text": ({"verbosity": "low"}, "text.verbosity"),
    "top_logprobs": (2, REFUSED),
    "truncation": ("auto", "truncation"),
}

# From platform.claude.com/docs, with the fields of its betas
MESSAGES: Final[dict[str, Row]] = {
    "betas": (["a"], "betas"),
    "cache_control": (MARK["cache_control"], "cache_control"),
    "conductor": ({"max_cost": 0.5}, CARRIED),
    "container": ("c", REFUSED),
    "context_management": ({"edits": []}, "context_management"),
    "fallbacks": ([{"model": "x"}], REFUSED),
    "inference_geo": ("us", REFUSED),
    "max_tokens": (9, CARRIED),
    "mcp_servers": ([{"type": "url", "url": "https://x.test", "name": "x"}], "mcp_servers"),
    "messages": ([{"role": "user", "content": "Why?"}], CARRIED),
    "metadata": ({"user_id": "u"}, "metadata"),
    "model": ("other", CARRIED),
    "output_config": ({"effort": "low"}, CARRIED),
    "output_format": ({"type": "json_schema", "schema": {"type": "object"}}, CARRIED),
    "service_tier": ("standard_only", "service_tier"),
    "speed": ("fast", "speed"),
    "stop_sequences": (["END"], CARRIED),
    "stream": (True, CARRIED),
    "system": ("Be brief.", CARRIED),
    "temperature": (0.5, CARRIED),
    "thinking": ({"type": "enabled", "budget_tokens": 2048}, "thinking.budget_tokens"),
    "thread": ({}, REFUSED),
    "tool_choice": ({"type": "any"}, CARRIED),
    "tools": ([], CARRIED),
    "top_k": (3, CARRIED),
    "top_p": (0.5, CARRIED),
}

ASKED: Final[dict[str, dict[str, Any]]] = {
    "chat": {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [CHAT_EDIT],
    },
    "responses": {"model": "m", "input": "Hi", "tools": [EDIT]},
    "messages": {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [MESSAGES_EDIT],
        "thinking": {"type": "enabled"},
    },
}
APIS: Final[dict[str, ClientApi]] = {
    "chat": ChatCompletionsApi(),
    "responses": ResponsesApi(),
    "messages": MessagesApi(),
}
TABLES: Final = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}


def read(api: str, **fields: Any) -> ClientRequest:
    return APIS[api].parse({**ASKED[api], **fields})


def without_words(request: ClientRequest) -> ClientRequest:
    """A request without what is only said again in its answer."""
    return replace(request, echo={}, ignored=())


def rows_of_tables() -> Iterator[Any]:
    """Each row of the tables as the parameters of a test."""
    for api, table in TABLES.items():
        for field, (value, fate) in table.items():
            yield pytest.param(api, field, value, fate, id=f"{api} {field}")


@pytest.mark.parametrize(("api", "field", "value", "fate"), [*rows_of_tables()])
def test_a_field_is_carried_or_refused_or_told(
    api: str, field: str, value: object, fate: str
) -> None:
    """One that is told changes nothing else; one that is carried is not told."""
    if fate == REFUSED:
        with pytest.raises(RequestError) as caught:
            read(api, **{field: value})
        assert str(caught.value.param).partition(".")[0] == field
        return
    before = read(api)
    after = read(api, **{field: value})
    told = set(after.ignored) - set(before.ignored)
    assert told == (set() if fate == CARRIED else {fate})
    assert (without_words(after) != without_words(before)) == (fate == CARRIED)


@pytest.mark.parametrize(
    ("table", "forms"),
    [
        (CHAT, (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)),
        (RESPONSES, (ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming)),
    ],
    ids=["chat", "responses"],
)
@needs_locked_sdk
def test_the_table_has_every_field_of_the_sdk(table: dict[str, Row], forms: Any) -> None:
    """So a lock with a new field makes this fail until somebody has decided about it.

    What no table has is told, as each field that nothing reads.
    """
    for form in forms:
        assert get_type_hints(form).keys() <= table.keys()


IMAGE: Final = {"type": "image_url", "image_url": {"url": data_url(png())}}
INPUT_IMAGE: Final = {"type": "input_image", "image_url": data_url(png())}
INPUT_FILE: Final = {
    "type": "input_file",
    "file_data": data_url(pdf("Hi"), "application/pdf"),
    "filename": "a.pdf",
}
CLAUDE_IMAGE: Final = {
    "type": "image",
    "source": {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(png()).decode(),
    },
}
DOCUMENT: Final = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "abc"},
}

# The API, a part of a content, a field that is added to it, and what becomes of it
PARTS: Final[list[tuple[str, dict[str, Any], dict[str, Any], str]]] = [
    ("chat", {"type": "text", "text": "Hi"}, {"text": "Why?"}, CARRIED),
    ("chat", {"type": "text", "text": "Hi"}, MARK, "cache_control"),
    (
        "chat",
        {"type": "text", "text": "Hi"},
        {"prompt_cache_breakpoint": BREAKPOINT},
        "prompt_cache_breakpoint",
    ),
    ("chat", IMAGE, {"image_url": {**IMAGE["image_url"], "detail": "low"}}, CARRIED),  # type: ignore[dict-item]
    ("chat", IMAGE, {"image_url": {**IMAGE["image_url"], "detail": "finest"}}, "image_url.detail"),  # type: ignore[dict-item]
    ("chat", IMAGE, {"image_url": {**IMAGE["image_url"], "format": "x"}}, "image_url.format"),  # type: ignore[dict-item]
    ("chat", IMAGE, {"prompt_cache_breakpoint": BREAKPOINT}, "prompt_cache_breakpoint"),
    ("responses", {"type": "input_text", "text": "Hi"}, {"text": "Why?"}, CARRIED),
    (
        "responses",
        {"type": "input_text", "text": "Hi"},
        {"prompt_cache_breakpoint": BREAKPOINT},
        "prompt_cache_breakpoint",
    ),
    ("responses", INPUT_IMAGE, {"detail": "original"}, CARRIED),
    ("responses", INPUT_IMAGE, {"detail": "finest"}, "detail"),
    ("responses", INPUT_IMAGE, {"file_id": "f"}, "file_id"),
    ("responses", INPUT_IMAGE, {"image_url": data_url(png(9, 9))}, CARRIED),
    ("responses", INPUT_IMAGE, {"prompt_cache_breakpoint": BREAKPOINT}, "prompt_cache_breakpoint"),
    ("responses", INPUT_FILE, {"filename": "b.pdf"}, CARRIED),
    ("responses", INPUT_FILE, {"file_data": data_url(b"text", "text/plain")}, CARRIED),
    ("responses", INPUT_FILE, {"detail": "low"}, "detail"),
    ("responses", INPUT_FILE, {"file_id": "f"}, "file_id"),
    ("responses", INPUT_FILE, {"file_url": "https://x.test"}, "file_url"),
    ("responses", INPUT_FILE, {"prompt_cache_breakpoint": BREAKPOINT}, "prompt_cache_breakpoint"),
    ("messages", {"type": "text", "text": "Hi"}, MARK, "cache_control"),
    ("messages", {"type": "text", "text": "Hi"}, {"citations": [{"type": "x"}]}, "citations"),
    ("messages", CLAUDE_IMAGE, MARK, "cache_control"),
    (
        "messages",
        CLAUDE_IMAGE,
        {"source": {**CLAUDE_IMAGE["source"], "detail": "finest"}},  # type: ignore[dict-item]
        "source.detail",
    ),
    ("messages", DOCUMENT, {"title": "a.txt"}, CARRIED),
    ("messages", DOCUMENT, {"context": "It is old."}, CARRIED),
    ("messages", DOCUMENT, {"citations": {"enabled": True}}, REFUSED),
    ("messages", DOCUMENT, MARK, "cache_control"),
]


def content_of(api: str, part: dict[str, Any]) -> ClientRequest:
    """A request whose one message has this one part."""
    message = {"role": "user", "content": [part]}
    return read(api, **{"input" if api == "responses" else "messages": [message]})


@pytest.mark.parametrize(
    ("api", "part", "added", "fate"),
    PARTS,
    ids=[f"{api} {part['type']} {' '.join(added)} {fate}" for api, part, added, fate in PARTS],
)
def test_a_field_of_a_part_is_carried_or_refused_or_told(
    api: str, part: dict[str, Any], added: dict[str, Any], fate: str
) -> None:
    if fate == REFUSED:
        with pytest.raises(RequestError, match="cannot be served"):
            content_of(api, {**part, **added})
        return
    before = content_of(api, part)
    after = content_of(api, {**part, **added})
    where = "input[].content[]." if api == "responses" else "messages[].content[]."
    told = set(after.ignored) - set(before.ignored)
    assert told == (set() if fate == CARRIED else {where + fate})
    has_changed = (after.messages, after.blobs) != (before.messages, before.blobs)
    assert has_changed == (fate == CARRIED)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        (ChatCompletionContentPartTextParam, "text"),
        (ChatCompletionContentPartImageParam, "image_url"),
        (ResponseInputTextParam, "input_text"),
        (ResponseInputImageParam, "input_image"),
        (ResponseInputFileParam, "input_file"),
    ],
)
@needs_locked_sdk
def test_the_table_has_every_field_of_a_part_of_the_sdk(form: Any, kind: str) -> None:
    known = {"type"}
    for _, part, added, _ in PARTS:
        if part["type"] == kind:
            known |= added.keys()
    assert get_type_hints(form).keys() <= known


def test_names_of_speakers_are_told_where_they_are_not_read() -> None:
    """One user needs no name. Where several users speak, each message begins with it."""
    ann, ben = ({"role": "user", "name": name, "content": "Hi"} for name in ("Ann", "Ben"))
    assert read("chat", messages=[ann]).ignored == ("messages[].name",)
    assert read("chat", messages=[ann, ben]).ignored == ()
    reply = {"role": "assistant", "name": "Cleo", "content": "Hi", "audio": {"id": "a"}}
    told = read("chat", messages=[ann, ben, reply]).ignored
    assert told == ("messages[].audio", "messages[].name")
    assert get_type_hints(ChatCompletionUserMessageParam).keys() == {"content", "name", "role"}
    known = {"audio", "content", "function_call", "name", "refusal", "role", "tool_calls"}
    assert get_type_hints(ChatCompletionAssistantMessageParam).keys() <= known


def test_of_what_this_server_said_before_only_its_reasoning_is_told() -> None:
    """Clients send an earlier answer back as they got it. The reasoning reaches no worker."""
    request = read("chat")
    reply = APIS["chat"].encoder(request, RUN, 1).whole(outcome(reasoning="Plan."))
    turn = reply["choices"][0]["message"]
    talk = [*ASKED["chat"]["messages"], turn, {"role": "user", "content": "And?"}]
    assert read("chat", messages=talk).ignored == ("messages[].reasoning_content",)
    answered = APIS["responses"].encoder(read("responses"), RUN, 1)
    answered.begin()
    items = answered.whole(outcome(reasoning="Plan."))["output"]
    assert {item["type"] for item in items} == {"reasoning", "message"}
    told = read("responses", input=[*items, {"role": "user", "content": "And?"}]).ignored
    assert told == ("input[].reasoning",)
    message = APIS["messages"].encoder(read("messages"), RUN, 1).whole(outcome(reasoning="Plan."))
    talk = [*ASKED["messages"]["messages"], {"role": "assistant", "content": message["content"]}]
    assert read("messages", messages=talk).ignored == ("messages[].content[].thinking",)


@pytest.mark.parametrize(
    ("api", "turn", "told"),
    [
        ("chat", {"content": "Hi", "reasoning_content": "Hm."}, "messages[].reasoning_content"),
        ("chat", {"content": "Hi", "reasoning": "Hm."}, "messages[].reasoning"),
        (
            "chat",
            {"content": [{"type": "thinking", "thinking": "Hm."}]},
            "messages[].content[].thinking",
        ),
        ("responses", {"type": "reasoning", "summary": []}, "input[].reasoning"),
        (
            "responses",
            {"content": [{"type": "reasoning", "reasoning": "Hm."}]},
            "input[].content[].reasoning",
        ),
        (
            "messages",
            {"content": [{"type": "redacted_thinking", "data": "EqQB"}]},
            "messages[].content[].redacted_thinking",
        ),
    ],
)
def test_reasoning_of_an_earlier_turn_is_told_in_any_form(
    api: str, turn: dict[str, Any], told: str
) -> None:
    """What a turn without reasoning says is read as before."""
    role = {} if turn.get("type") == "reasoning" else {"role": "assistant"}
    field = "input" if api == "responses" else "messages"
    talk = [{"role": "user", "content": "Hi"}, {**role, **turn}, {"role": "user", "content": "?"}]
    assert read(api, **{field: talk}).ignored == (told,)


def test_an_empty_reasoning_asks_for_nothing() -> None:
    turn = {"role": "assistant", "content": "Hi", "reasoning_content": "", "reasoning": None}
    assert read("chat", messages=[*ASKED["chat"]["messages"], turn]).ignored == ()


def test_values_that_ask_for_nothing_are_not_told() -> None:
    part: dict[str, Any] = {
        "type": "text",
        "text": "Hi",
        "annotations": [],
        "cache_control": None,
        "x": False,
    }
    message = {"role": "user", "content": [part]}
    assert read("chat", messages=[message], service_tier="auto", store=None).ignored == ()


def test_tools_of_the_provider_that_are_left_out_are_told() -> None:
    search = {"type": "web_search_preview_2025_03_11", "filters": {"allowed_domains": ["x.test"]}}
    both = read("responses", tools=[EDIT, search])
    assert both.ignored == ("tools[].filters", "tools[].web_search")
    assert read("responses", tools=[search]).ignored == ("tools[].filters",)
    assert read("responses", tools=[EDIT, search], tool_choice="none").ignored == (
        "tools[].filters",
    )
    asked = {"web_search_options": {"search_context_size": "low", "user_location": None}}
    assert read("chat", **asked, tools=[]).ignored == ("web_search_options.search_context_size",)
    claudes = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    told = read("messages", tools=[MESSAGES_EDIT, claudes]).ignored
    assert told == ("tools[].max_uses", "tools[].web_search")


def test_what_is_asked_of_a_tool_and_not_done_is_told() -> None:
    strict = {"type": "function", "function": {"name": "edit", "strict": True}}
    assert read("chat", tools=[strict]).ignored == ("tools[].strict",)
    assert read("responses", tools=[{**EDIT, "strict": True}]).ignored == ("tools[].strict",)
    late = {**MESSAGES_EDIT, "defer_loading": True, **MARK}
    assert read("messages", tools=[late]).ignored == (
        "tools[].cache_control",
        "tools[].defer_loading",
    )


def test_what_a_format_says_besides_its_schema_is_told() -> None:
    form = {"name": "x", "schema": {"type": "object"}, "strict": True, "description": "Short."}
    chat = read("chat", response_format={"type": "json_schema", "json_schema": form})
    assert chat.ignored == ("response_format.json_schema.description",)
    responses = read("responses", text={"format": {"type": "json_schema", **form}})
    assert responses.ignored == ("text.format.description",)


def test_what_another_server_did_before_is_told_as_left_out() -> None:
    """Such as the results of a search, which a worker cannot read."""
    call = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"query": "x"},
    }
    question = {"role": "user", "content": "Hi"}
    assert read("responses", input=[call, question]).ignored == ("input[].web_search_call",)
    result = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    reply = {"role": "assistant", "content": [result, {"type": "text", "text": "Yes."}]}
    told = read("messages", messages=[question, reply, question]).ignored
    assert told == ("messages[].content[].web_search_tool_result",)
    call = {"type": "mcp_tool_use", "id": "m", "name": "log", "server_name": "git", "input": {}}
    result = {"type": "mcp_tool_result", "tool_use_id": "m", "content": []}
    reply = {"role": "assistant", "content": [call, result, {"type": "text", "text": "Yes."}]}
    told = read("messages", messages=[question, reply, question]).ignored
    assert told == ("messages[].content[].mcp_tool_result", "messages[].content[].mcp_tool_use")


def test_metadata_that_is_cut_is_told() -> None:
    """OpenAI has names of 64 and values of 512 characters, and gives back no longer ones."""
    long = {"a": "x" * 513, "b": "y" * 512, "c" * 65: "z"}
    request = read("responses", metadata=long)
    kept = {"a": "x" * 512, "b": "y" * 512, "c" * 64: "z"}
    assert request.metadata == request.echo["metadata"] == kept
    assert request.ignored == ("metadata.a", f"metadata.{'c' * 60}")


def test_a_compaction_tells_what_a_summary_has_not() -> None:
    api = CompactionApi()
    request = api.parse({**ASKED["responses"], "text": {"verbosity": "low"}, "user": "u"})
    assert request.ignored == ("text", "tools", "user")
    whole = api.encoder(request, RUN, 1).whole(outcome())
    assert whole["conductor"]["ignored"] == ["text", "tools", "user"]


def test_many_names_are_cut_with_their_number() -> None:
    """A name of the client may be long, and may hold what a terminal would act on."""
    fields = {f"field_{number:02}": 1 for number in range(30)}
    told = read("chat", **fields).ignored
    assert told == (*sorted(fields)[:20], "and 10 more")
    (long,) = read("chat", **{"x" * 500 + "\n": 1}).ignored
    assert long == "x" * 60
