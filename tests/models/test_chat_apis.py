"""Anthropic's own API: what is sent, and what their replies and errors mean, on real sockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import MAX_COUNTED
from conductor_cli.models.chat_apis import CHAT_APIS
from conductor_cli.models.stream_decoder import usage_of
from tests.models.kit import TALK, answering, asked_by, refusing, speaking, text, thinking, used
from tests.servers import Script, SeenStep, Wire

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def play(script: Script, kind: str, model: str = "m", request: Request | None = None, **options: Any) -> list[Chunk]:
    return replies(script, kind, model, request, **options)[0]


def replies(
    script: Script, kind: str, model: str = "m", request: Request | None = None, **options: Any
) -> tuple[list[Chunk], list[SeenStep]]:
    """The chunks of a reply, and what the server saw."""
    return asked_by(kind, script, request or Request(messages=TALK), model, **options)


def failure(script: Script, kind: str, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        play(script, kind, **options)
    return caught.value


fine = speaking("3.")


def events(*values: dict[str, Any]) -> Script:
    """Server-sent events as Anthropic writes them, and Google without their names."""

    async def script(_: SeenStep, wire: Wire) -> None:
        await wire.head()
        for value in values:
            name = f"event: {value['type']}\n" if "type" in value else ""
            await wire.send(f"{name}data: {json.dumps(value)}\n\n")

    return script


def test_a_key_is_sent_as_its_provider_wants_it() -> None:
    _, (seen,) = replies(fine, "anthropic")
    assert (seen.method, seen.path) == ("POST", "/v1/messages")
    assert (seen.headers["x-api-key"], seen.headers["anthropic-version"]) == ("sk-123456", "2023-06-01")
    assert "authorization" not in seen.headers


def test_anthropic_s_thinking_text_and_counts_are_read() -> None:
    chunks = play(
        events(
            {"type": "message_start", "message": {"usage": {
                "input_tokens": 10, "cache_read_input_tokens": 200, "cache_creation_input_tokens": 30,
                "output_tokens": 1,
            }}},
            {"type": "ping"},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "One more."}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQB"}},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "x"}},
            {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "It is "}},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "3."}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
            {"type": "message_stop"},
        ),
        "anthropic",
    )  # fmt: skip
    assert (text(chunks), thinking(chunks), chunks[-1].finish) == ("It is 3.", "One more.", "stop")
    usage = used(chunks)
    assert (usage.tokens_in, usage.tokens_cached, usage.tokens_stored, usage.tokens_out) == (240, 200, 30, 15)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
        ({"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}, "broken"),
    ],
)
def test_an_error_in_anthropic_s_stream_has_its_reason(frame: dict[str, Any], reason: str) -> None:
    assert failure(events(frame), "anthropic").reason == reason


def test_a_model_with_a_smaller_limit_on_output_is_asked_again_with_it() -> None:
    async def script(seen: SeenStep, wire: Wire) -> None:
        if seen.json["max_tokens"] > 4096:
            said = f"max_tokens: {seen.json['max_tokens']} > 4096, which is the maximum allowed number of output tokens"
            return await wire.json({"type": "error", "error": {"type": "invalid_request_error", "message": said}}, 400)
        return await fine(seen, wire)

    chunks, seen = replies(script, "anthropic", "claude-3-haiku")
    assert text(chunks) == "3."
    assert [one.json["max_tokens"] for one in seen] == [32_000, 4096]
    error = failure(script, "anthropic", max_tokens=5000)
    assert "does not accept max_tokens = 5000" in error.message


def test_a_setting_that_is_refused_under_the_api_s_own_name_is_named_as_the_user_has_it() -> None:
    error = {"message": "adaptive thinking is not supported on this model", "status": "INVALID_ARGUMENT"}
    caught = failure(answering({"error": error}, 400), "anthropic", reasoning_effort="high")
    assert "does not accept reasoning_effort = high" in caught.message


def test_a_schema_that_is_refused_is_left_out() -> None:
    said = "output_config: structured outputs are not supported on this model"
    script = refusing({"output_config": {"type": "invalid_request_error", "message": said}}, fine)
    chunks, _ = replies(script, "anthropic", request=Request(messages=TALK, schema=SCHEMA))
    assert text(chunks) == "3."
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
    error = failure(events(frame), "anthropic")
    assert error.reason in ("broken", "empty_answer")


STRANGE: list[Any] = [
    10**18, 10**30, 10**400, 1e30, float("inf"), float("nan"), float("-inf"), -1, -(10**18), -1e30, True, None, "12",
    [12], {"a": 1},
]  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CHAT_APIS if name != "gemini"])
@pytest.mark.parametrize("value", STRANGE, ids=lambda value: f"{value!r:.12}")
def test_whatever_a_server_counts_is_bounded(name: str, value: object) -> None:
    names = {
        "chat-completions": ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_cache_hit_tokens"),
        "responses": ("input_tokens", "output_tokens"),
        "anthropic": ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"),
    }[name]
    for strange in (*[(each,) for each in names], names):
        counts = dict.fromkeys(names, 5) | dict.fromkeys(strange, value)
        frames: dict[str, dict[str, Any]] = {
            "chat-completions": {"usage": counts},
            "responses": {"object": "response", "usage": counts},
            "anthropic": {"type": "message_delta", "usage": counts},
        }
        usage = usage_of(CHAT_APIS[name].translator()(frames[name])["usage"])
        parts = (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.tokens_stored, usage.tokens_reasoning)
        assert 0 <= min(parts) <= max(parts) <= 4 * MAX_COUNTED
