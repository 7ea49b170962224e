"""Google's own API: what is sent, and what its replies and errors mean, on real sockets."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest

from conductor_cli.core.chat import Attachment, Chunk, Message, Request, Tool, ToolCall
from conductor_cli.core.usage import Usage
from tests.models.kit import (
    ASK,
    CHART,
    PAPER,
    TALK,
    WEATHER,
    answering,
    asked_by,
    calls,
    events,
    failure_of,
    fine,
    in_turn,
    notes,
    sent_to,
    text,
    thinking,
    used,
)
from tests.servers import Script, SeenRequest, Wire

NEW_MODEL = "gemini-3.8-flash"
OLD_MODEL = "gemini-2.5-pro"
SHOWN_THOUGHTS = {"includeThoughts": True}


def sent(
    *messages: Message, model: str = NEW_MODEL, options: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """The body of a request with these messages, as the server saw it."""
    request = Request(messages=messages or TALK, **fields)
    body: dict[str, Any] = sent_to("gemini", request, model=model, **(options or {})).json
    return body


def part(**fields: Any) -> dict[str, Any]:
    """One response of a stream, with one part."""
    return {"candidates": [{"content": {"role": "model", "parts": [fields]}, "index": 0}]}


def end(reason: str = "STOP", **fields: Any) -> dict[str, Any]:
    """The last response of a stream."""
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 4, "totalTokenCount": 13}
    return {"candidates": [{"finishReason": reason, **fields}], "usageMetadata": counts}


def tool_reply(*frames: dict[str, Any], tools: tuple[Tool, ...] = (WEATHER,)) -> list[Chunk]:
    """The chunks of a reply to a request with tools."""
    request = Request(messages=(ASK,), tools=tools)
    return asked_by("gemini", events(*frames), request, model=NEW_MODEL)[0]


def turn_of(chunks: list[Chunk], content: str | None = None) -> Message:
    """A reply as the turn of a conversation that goes on."""
    answer = text(chunks) if content is None else content
    provider_data = chunks[-1].provider_data
    return Message(
        role="assistant", content=answer, tool_calls=calls(chunks), provider_data=provider_data
    )


def refusing_once(word: str, message: str) -> Script:
    """A server that refuses what has this word in it, and takes the rest."""

    async def script(request: SeenRequest, wire: Wire) -> None:
        if word in json.dumps(request.json):
            error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
            return await wire.json({"error": error}, 400)
        return await fine(request, wire)

    return script


def test_the_key_and_the_model_are_where_google_wants_them() -> None:
    sent_request = sent_to("gemini", Request(messages=TALK, seed=7), model=NEW_MODEL)
    assert sent_request.path == "/models/gemini-3.8-flash:streamGenerateContent?alt=sse"
    assert sent_request.headers["x-goog-api-key"] == "sk-123456"
    assert "authorization" not in sent_request.headers
    assert sent_request.json["generationConfig"] == {"seed": 7, "thinkingConfig": SHOWN_THOUGHTS}
    named = sent_to("gemini", Request(messages=TALK), model="tunedModels/a b?c")
    assert named.path == "/tunedModels/a%20b%3Fc:streamGenerateContent?alt=sse"


@pytest.mark.parametrize(
    ("model", "options", "config"),
    [
        (NEW_MODEL, {}, SHOWN_THOUGHTS),
        (NEW_MODEL, {"reasoning_effort": "default"}, SHOWN_THOUGHTS),
        (NEW_MODEL, {"reasoning_effort": "low"}, {"thinkingLevel": "low", **SHOWN_THOUGHTS}),
        (NEW_MODEL, {"reasoning_effort": "max"}, {"thinkingLevel": "high", **SHOWN_THOUGHTS}),
        (NEW_MODEL, {"reasoning_effort": "none"}, {"thinkingLevel": "minimal"}),
        (OLD_MODEL, {"reasoning_effort": "high"}, {"thinkingBudget": 24_576, **SHOWN_THOUGHTS}),
        (OLD_MODEL, {"reasoning_effort": "none"}, {"thinkingBudget": 0}),
        (OLD_MODEL, {"thinking_budget": 0}, {"thinkingBudget": 0}),
        (NEW_MODEL, {"thinking_budget": 99}, {"thinkingBudget": 99, **SHOWN_THOUGHTS}),
    ],
)
def test_google_is_told_how_much_to_think(
    model: str, options: dict[str, Any], config: dict[str, Any]
) -> None:
    assert sent(model=model, options=options)["generationConfig"]["thinkingConfig"] == config


@pytest.mark.parametrize(
    "message",
    [
        "Thinking is not enabled for models/gemma-3",
        "thinking_config is not supported.",
        (
            "Unable to submit request because Thinking_config.include_thoughts is only enabled "
            "when "
            "thinking is enabled."
        ),
        "Unable to submit request because thinking is not supported by this model.",
    ],
)
def test_a_model_that_has_no_thoughts_is_asked_without_them_and_nothing_is_said(
    message: str,
) -> None:
    """Nobody set this, so there is nothing that a user could change."""
    script = refusing_once("includeThoughts", message)
    request = Request(messages=TALK)
    (first, second), requests = in_turn("gemini", script, request, request, model="gemma-3")
    assert [text(chunks) for chunks in (first, second)] == ["Yes.", "Yes."]
    assert notes(first) + notes(second) == []
    assert ["generationConfig" in sent_request.json for sent_request in requests] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("message", "setting", "value"),
    [
        ("Thinking level is not supported for this model.", "reasoning_effort", "high"),
        ("Thinking is not enabled for models/gemma-3", "reasoning_effort", "high"),
        ("Budget 0 is invalid. This model only works in thinking mode.", "thinking_budget", 0),
        (
            "Budget 0 is invalid. This model only works in thinking mode.",
            "reasoning_effort",
            "none",
        ),
    ],
)
def test_a_refused_setting_is_named_as_the_user_has_it(
    message: str, setting: str, value: Any
) -> None:
    error = failure_of(
        "gemini", answering([{"error": {"message": message}}], 400), **{setting: value}
    )
    assert f"does not accept {setting} = {value}" in error.message


def test_a_schema_that_is_refused_is_left_out() -> None:
    message = "Function calling with a response mime type: 'application/json' is unsupported"
    script = refusing_once("responseMimeType", message)
    chunks, _ = asked_by("gemini", script, Request(messages=(ASK,), schema={"type": "object"}))
    assert text(chunks) == "Yes."
    assert "does not accept response_format; sent without it" in notes(chunks)[0]


def test_calls_side_by_side_cannot_be_forbidden_and_that_is_said() -> None:
    request = Request(messages=(ASK,), tools=(WEATHER,), parallel_tool_calls=False)
    chunks, requests = asked_by("gemini", fine, request, model=NEW_MODEL)
    assert "parallel" not in str(requests[0].json)
    assert "does not accept parallel_tool_calls" in notes(chunks)[0]


def test_files_larger_than_a_request_are_refused_before_anything_is_sent() -> None:
    large = Attachment(name="large.png", media_type="image/png", sha256="2" * 64, size=90_000_000)
    message = Message(role="user", content="?", attachments=(large,))
    request = Request(messages=(message,), read_attachment=lambda _: b"")
    error = failure_of("gemini", fine, request)
    assert error.reason == "refused"
    assert "120 MB" in error.message
    assert "100 MB at most" in error.message


@pytest.mark.parametrize("model", [NEW_MODEL, OLD_MODEL])
def test_files_of_results_stand_where_the_model_reads_them(model: str) -> None:
    """Newer models read them inside a result, older ones only in the next turn of the user."""
    calls = tuple(ToolCall(id=name, name="weather", arguments="{}") for name in ("a", "b"))
    turns = sent(
        ASK,
        Message(role="assistant", content="", tool_calls=calls),
        Message(role="tool", content="A map.", tool_call_id="a", attachments=(CHART,)),
        Message(role="tool", content="A text.", tool_call_id="b", attachments=(PAPER,)),
        model=model,
        tools=(WEATHER,),
    )["contents"][2:]
    first, second = (part["functionResponse"] for part in turns[0]["parts"])
    assert (first["response"], second["response"]) == ({"output": "A map."}, {"output": "A text."})
    assert ("parts" in first, "parts" in second) == (model == NEW_MODEL, model == NEW_MODEL)
    shown = list(chain.from_iterable(turn["parts"] for turn in turns[1:]))
    names = ["The files of the result a:", "The files of the result b:"]
    assert [part["text"] for part in shown if "text" in part] == (
        [] if model == NEW_MODEL else names
    )
    assert json.dumps(turns).count("inlineData") == 2


def test_thoughts_text_and_counts_are_read() -> None:
    """Thoughts are counted apart from the reply, and what was cached as a part of the prompt."""
    counts = {
        "promptTokenCount": 240,
        "cachedContentTokenCount": 200,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 10,
        "toolUsePromptTokenCount": 7,
        "totalTokenCount": 262,
    }
    parts = [{"text": "One more.", "thought": True}, {"text": "It is "}]
    last = {"content": {"parts": [{"text": "3."}]}, "finishReason": "STOP", "index": 0}
    chunks, _ = asked_by(
        "gemini",
        events(
            {
                "candidates": [{"content": {"role": "model", "parts": parts}}],
                "modelVersion": NEW_MODEL,
            },
            {"candidates": [last], "usageMetadata": counts, "responseId": "r"},
        ),
    )
    assert (text(chunks), thinking(chunks), chunks[-1].finish) == ("It is 3.", "One more.", "stop")
    wanted = Usage(tokens_in=247, tokens_cached=200, tokens_out=15, tokens_reasoning=10, calls=1)
    assert chunks[-1].usage == wanted


@pytest.mark.parametrize(
    ("counts", "read", "written"),
    [
        ({"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 20}, 5, 15),
        ({"promptTokenCount": 5, "thoughtsTokenCount": 8, "totalTokenCount": 13}, 5, 8),
        ({"promptTokenCount": 5, "candidatesTokenCount": 9, "thoughtsTokenCount": 4}, 5, 13),
    ],
)
def test_what_was_spent_is_never_understated(
    counts: dict[str, int], read: int, written: int
) -> None:
    """Tokens that only the total counts are output."""
    frames = events(
        part(text="It"), {"usageMetadata": counts}, {"candidates": [{"finishReason": "STOP"}]}
    )
    usage = used(asked_by("gemini", frames)[0])
    assert (usage.tokens_in, usage.tokens_out) == (read, written)


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "refusal"),
        ("RECITATION", "refusal"),
        ("LANGUAGE", "refusal"),
        ("BLOCKLIST", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("SPII", "refusal"),
        ("MODEL_ARMOR", "refusal"),
        ("OTHER", "other"),
        ("FINISH_REASON_UNSPECIFIED", "other"),
        ("NEW", "other"),
    ],
)
def test_each_reason_of_an_end_has_one_meaning(reason: str, finish: str) -> None:
    chunks, _ = asked_by("gemini", events(part(text="It"), end(reason)))
    assert (text(chunks), chunks[-1].finish) == ("It", finish)


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"]
)
def test_a_call_that_google_cannot_read_is_asked_for_again(reason: str) -> None:
    frames = events(end(reason, finishMessage="Malformed function call: print(x)"))
    error = failure_of("gemini", frames, Request(messages=(ASK,), tools=(WEATHER,)))
    assert (error.reason, error.retryable) == ("broken", True)
    assert f"{reason}: Malformed function call: print(x)" in error.message
    assert error.usage == Usage(tokens_in=9, tokens_out=4, calls=1)


def test_a_conversation_without_its_signatures_is_refused_and_not_asked_again() -> None:
    error = failure_of("gemini", events(end("MISSING_THOUGHT_SIGNATURE")))
    assert (error.reason, error.retryable) == ("refused", False)


def test_a_question_that_is_blocked_is_a_failure_that_says_why() -> None:
    frame = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 8}}
    error = failure_of("gemini", events(frame))
    assert (error.reason, error.retryable) == ("refused", False)
    assert error.message == "Google's API blocked the question: SAFETY"
    assert "another worker" in error.hint
    assert error.usage == Usage(tokens_in=8, calls=1)


def test_comments_and_split_characters_change_nothing() -> None:
    """A server may send comments to keep a connection open, and cut anywhere."""

    async def script(_: SeenRequest, wire: Wire) -> None:
        await wire.head()
        events = [part(text="Zürich 😀 "), part(text="ist schön."), end()]
        for event in events:
            await wire.send(": keep-alive\n\n")
            content = f"data: {json.dumps(event, ensure_ascii=False)}\r\n\r\n".encode()
            for byte in content:
                await wire.raw(b"1\r\n" + bytes([byte]) + b"\r\n")

    assert text(asked_by("gemini", script)[0]) == "Zürich 😀 ist schön."


def test_a_reply_that_breaks_off_is_broken() -> None:
    assert failure_of("gemini", events(part(text="It"))).reason == "broken"


@pytest.mark.parametrize(
    ("status", "code", "message", "detail", "reason", "wait"),
    [
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid.",
            {"reason": "API_KEY_INVALID"},
            "auth",
            None,
        ),
        (403, "PERMISSION_DENIED", "Your API key was reported as leaked.", {}, "auth", None),
        (404, "NOT_FOUND", "models/x is not found", {}, "missing", None),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded", {"retryDelay": "34.5s"}, "rate", 34.5),
        (503, "UNAVAILABLE", "The model is overloaded.", {}, "overloaded", None),
        (500, "INTERNAL", "An internal error has occurred.", {}, "overloaded", None),
    ],
)
def test_errors_have_their_reason_and_their_wait(
    status: int, code: str, message: str, detail: dict[str, str], reason: str, wait: float | None
) -> None:
    error = {"code": status, "message": message, "status": code, "details": [detail]}
    failure = failure_of("gemini", answering({"error": error}, status))
    assert (failure.reason, failure.retry_after) == (reason, wait)
    later = failure_of("gemini", events(part(text="It"), {"error": error}))
    assert later.reason == ("refused" if status == 400 else reason)


@pytest.mark.parametrize(
    "frame",
    [
        {"candidates": 7, "usageMetadata": 7},
        {"candidates": [{"content": {"parts": 7}}]},
        {"candidates": [{"content": {"parts": [{"text": 7, "thoughtSignature": 7}, 7]}}]},
        {"candidates": [7], "promptFeedback": [7], "usageMetadata": {"promptTokenCount": "x"}},
        {"candidates": [{"content": {"parts": [{"functionCall": 7}]}, "finishReason": 7}]},
    ],
)
def test_responses_of_a_wrong_shape_are_a_broken_reply(frame: dict[str, Any]) -> None:
    assert failure_of("gemini", events(frame, end())).reason in ("broken", "empty_answer")


def test_schemas_of_tools_have_only_what_google_knows() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"city": {"$ref": "#/definitions/city"}},
        "definitions": {"city": {"type": "string"}},
    }
    tools = (Tool(name="weather", description="Says it.", parameters=schema), Tool(name="now"))
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert sent(ASK, tools=tools)["tools"] == [
        {
            "functionDeclarations": [
                {"name": "weather", "description": "Says it.", "parametersJsonSchema": parameters},
                {"name": "now"},
            ]
        }
    ]
    far = Tool(name="far", parameters={"properties": {"a": {"$ref": "https://example.org/a.json"}}})
    error = failure_of("gemini", fine, Request(messages=(ASK,), tools=(far,)))
    assert (error.reason, "'far'" in error.message) == ("refused", True)


def test_calls_go_back_with_their_signatures_in_their_places() -> None:
    """A thought without a signature stays away; a part with one is never joined to another."""
    chunks = tool_reply(
        part(text="Let me think.", thought=True),
        part(text="I "),
        part(text="look."),
        part(text="", thoughtSignature="dGV4dA=="),
        part(functionCall={"name": "weather", "args": {"city": "Oslo"}}, thoughtSignature="c2ln"),
        part(functionCall={"id": "own", "name": "weather"}),
        end(),
    )
    first, second = calls(chunks)
    assert (first.name, json.loads(first.arguments)) == ("weather", {"city": "Oslo"})
    assert (second.id, json.loads(second.arguments)) == ("own", {})
    assert chunks[-1].finish == "tool"
    results = (
        Message(role="tool", content='{"celsius": 7}', tool_call_id=first.id),
        Message(role="tool", content="no city", tool_call_id="own", is_error=True),
    )
    now = Message(role="user", content="Now?")
    body = sent(ASK, turn_of(chunks), *results, now, tools=(WEATHER,))
    oslo = {"id": first.id, "name": "weather", "args": {"city": "Oslo"}}
    response = {"id": first.id, "name": "weather", "response": {"output": '{"celsius": 7}'}}
    failed = {"id": "own", "name": "weather", "response": {"error": "no city"}}
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {"text": "", "thoughtSignature": "dGV4dA=="},
                {"functionCall": oslo, "thoughtSignature": "c2ln"},
                {"functionCall": {"id": "own", "name": "weather", "args": {}}},
            ],
        },
        {"role": "user", "parts": [{"functionResponse": response}, {"functionResponse": failed}]},
        {"role": "user", "parts": [{"text": "Now?"}]},
    ]


def test_a_turn_that_was_changed_has_no_signature_of_what_it_was() -> None:
    call = {"functionCall": {"id": "c", "name": "weather"}}
    chunks = tool_reply(part(text="I look."), part(**call, thoughtSignature="c2ln"), end())
    result = Message(role="tool", content="7", tool_call_id="c")
    body = sent(
        ASK, turn_of(chunks, content="Other words."), result, tools=(WEATHER,), model=OLD_MODEL
    )
    assert [sorted(sent_part) for sent_part in body["contents"][1]["parts"]] == [
        ["text"],
        ["functionCall"],
    ]


@pytest.mark.parametrize(("model", "signed"), [(NEW_MODEL, True), (OLD_MODEL, False)])
def test_a_call_of_another_model_has_the_signature_that_is_not_checked(
    model: str, signed: bool
) -> None:
    calls = tuple(ToolCall(id=name, name="weather", arguments="{}") for name in ("a", "b"))
    results = (Message(role="tool", content="7", tool_call_id=call.id) for call in calls)
    turn = Message(role="assistant", content="", tool_calls=calls)
    body = sent(ASK, turn, *results, model=model, tools=(WEATHER,))
    marks = ["thoughtSignature" in item for item in body["contents"][1]["parts"]]
    assert marks == [signed, False]


def test_a_name_that_the_api_does_not_allow_is_mapped_and_mapped_back() -> None:
    tool = Tool(name="2 files/read", parameters={})
    offered = sent(ASK, tools=(tool,))["tools"][0]["functionDeclarations"][0]["name"]
    assert offered != tool.name
    call = {"id": "c", "name": offered, "args": {}}
    chunks = tool_reply(part(functionCall=call, thoughtSignature="c2ln"), end(), tools=(tool,))
    assert calls(chunks)[0].name == tool.name
    result = Message(role="tool", content="7", tool_call_id="c")
    body = sent(ASK, turn_of(chunks), result, tools=(tool,))
    assert body["contents"][1]["parts"][0]["functionCall"]["name"] == offered
    assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == offered


@pytest.mark.parametrize("size", [1025, 5])
def test_what_is_kept_of_a_reply_is_bounded(size: int) -> None:
    """Parts and signatures that nobody sees use memory all the same."""
    signature = "x" * (10 if size > 1000 else 1024 * 1024)
    frames = [part(text="a", thoughtSignature=signature) for _ in range(size)]
    error = failure_of("gemini", events(*frames, end()))
    assert (error.reason, "more than" in error.message) == ("broken", True)
