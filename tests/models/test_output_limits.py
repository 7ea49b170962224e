"""What is asked for after a server has refused a long reply, and ids of calls as Mistral's models want them."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core.chat import Message, Request, ToolCall
from conductor_cli.core.errors import ModelError
from conductor_cli.models.api_errors import largest_output, shorter_output
from tests.models.kit import replies
from tests.servers import Script, SeenStep, Wire, delta, usage

CONTEXT = "This model's maximum context length is"
USER = Message(role="user", content="Yes?")
CALLED = (
    USER,
    Message(role="assistant", content="", tool_calls=(
        ToolCall(id="call_20261122-190000-abcdef_0_abcdef_0123456789abcdef", name="read", arguments="{}"),
        ToolCall(id="abcdef123", name="read", arguments="{}"),
    )),
    Message(role="tool", content="one", tool_call_id="call_20261122-190000-abcdef_0_abcdef_0123456789abcdef"),
    Message(role="tool", content="two", tool_call_id="abcdef123"),
)  # fmt: skip


def asked_for(script: Script, request: Request, name: str = "m", **options: Any) -> list[dict[str, Any]]:
    """The bodies of all requests until there is a reply."""
    return [seen.json for seen in replies(script, request, model=name, options=options)[1]]


def refusing(above: int, message: str) -> Script:
    """A server that refuses to write more tokens than `above`."""

    async def script(seen: SeenStep, wire: Wire) -> None:
        asked = seen.json["max_tokens"]
        if asked > above:
            return await wire.json({"error": {"message": message.format(asked=asked)}}, 400)
        await wire.head()
        return await wire.frames(delta("Yes."), delta(finish="stop"), usage(), "[DONE]")

    return script


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("max_tokens is too large: 32000. This model supports at most 16384 completion tokens, whereas you ask more.",
         16384),
        ("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than that",
         8192),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        ("The parameter `max_completion_tokens` is not valid: expected a value <= 12288, but got 32000.", 12288),
        ("Invalid value for temperature: it must be less than or equal to 2", None),
    ],
)  # fmt: skip
def test_the_limit_of_a_model_is_read_from_a_refusal(message: str, limit: int | None) -> None:
    assert largest_output(message) == limit


@pytest.mark.parametrize(
    ("message", "fewer"),
    [
        (f"{CONTEXT} 8192 tokens. However, you requested 37000 tokens (5000 in the messages, 32000 in the completion).",
         3192),
        (f"'max_tokens' is too large: 32000. {CONTEXT} 40000 tokens and your request has 24235 input tokens", 15765),
        (f"{CONTEXT} 128000 tokens. However, you requested 65535 output tokens and your prompt contains more.", 8000),
        (f"{CONTEXT} 8192 tokens. However, you requested 37000 tokens (9000 in the messages, 28000 in the completion).",
         None),
        ("input length and `max_tokens` exceed context limit: 180000 + 32000 > 200000, decrease it", 20_000),
        ("input length and `max_tokens` exceed context limit: 199759 + 32000 > 200000, decrease it", None),
        ("prompt is too long: 210000 tokens > 200000 maximum", None),
    ],
)  # fmt: skip
def test_a_reply_that_does_not_fit_beside_its_prompt_becomes_shorter(message: str, fewer: int | None) -> None:
    assert shorter_output(message, 32_000) == fewer
    assert shorter_output(message, 4096) is None


def test_a_server_with_a_small_context_is_asked_for_less_until_it_takes_it() -> None:
    said = "This model's maximum context length is 16000 tokens. However, you requested {asked} output tokens."
    bodies = asked_for(refusing(4096, said), Request(messages=(USER,), max_tokens=32_000))
    assert [body["max_tokens"] for body in bodies] == [32_000, 8000, 4096]


def test_a_limit_that_the_user_has_set_is_not_lowered_in_silence() -> None:
    said = "This model's maximum context length is 16000 tokens. However, you requested {asked} output tokens."
    with pytest.raises(ModelError) as error:
        asked_for(refusing(4096, said), Request(messages=(USER,), max_tokens=9000), max_tokens=9000)
    assert error.value.reason == "length"


@pytest.mark.parametrize("name", ["mistral-large-4", "mistralai/Devstral-Small-2507", "codestral:22b"])
def test_a_model_of_mistral_gets_ids_of_nine_letters_and_digits(name: str) -> None:
    request = Request(messages=CALLED, max_tokens=9)
    first, again = (asked_for(refusing(9, ""), request, name)[0]["messages"] for _ in range(2))
    ids = [call["id"] for call in first[1]["tool_calls"]]
    assert [len(own) for own in ids] == [9, 9]
    assert all(own.isalnum() for own in ids)
    assert ids[1] == "abcdef123"
    assert [message["tool_call_id"] for message in first[2:]] == ids
    assert first == again


def test_other_models_get_the_ids_as_they_are() -> None:
    (body,) = asked_for(refusing(9, ""), Request(messages=CALLED, max_tokens=9), "gpt-6")
    assert [message.get("tool_call_id") for message in body["messages"][2:]] == [
        CALLED[2].tool_call_id, CALLED[3].tool_call_id
    ]  # fmt: skip
