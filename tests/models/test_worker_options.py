"""A worker's own settings.

What may stand in them, how they go over the wire, and what becomes of a refusal.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk, Message, Request
from conductor_cli.core.errors import ConfigError
from conductor_cli.core.pool import Worker
from conductor_cli.models.worker_options import check_options
from tests.models.kit import LITELLM, answering, asked_by, failure_of, fine, text
from tests.servers import Script, delta, saying, usage

pytestmark = LITELLM

ASKED = Request(messages=(Message(role="user", content="Yes?"),))
FINE = saying(delta("Yes.", finish="stop"), usage())
ADAPTIVE = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'


def play(
    script: Script, kind: str, model: str, request: Request = ASKED, **options: Any
) -> tuple[list[Chunk], Any]:
    """The chunks of a worker's reply, and the body that the server saw first."""
    chunks, requests = asked_by(kind, script, request, model=model, **options)
    return chunks, requests[0].json


def no(words: str, **fields: Any) -> Script:
    return answering({"error": {"type": "invalid_request_error", "message": words} | fields}, 400)


@pytest.mark.parametrize(
    ("kind", "options", "sent"),
    [
        ("openai", {"reasoning_effort": "minimal"}, {"reasoning_effort": "minimal"}),
        ("deepinfra", {"temperature": 0.2, "top_p": 0.8}, {"temperature": 0.2, "top_p": 0.8}),
        ("openrouter", {"thinking_budget": 2000}, {"reasoning": {"max_tokens": 2000}}),
        ("openrouter", {"thinking_budget": 0}, {"reasoning": {"enabled": False}}),
    ],
)
def test_each_api_is_reported_in_its_own_fields(
    kind: str, options: dict[str, Any], sent: dict[str, Any]
) -> None:
    _, plain = play(FINE, kind, "m")
    _, body = play(FINE, kind, "m", **options)
    assert body == plain | sent


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (
            {"thinking_budget": 2048, "max_tokens": 4096},
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            {"thinking_budget": 0, "temperature": 0.2},
            {"thinking": {"type": "disabled"}, "temperature": 0.2},
        ),
        ({"temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}),
    ],
)
@pytest.mark.parametrize(("kind", "prefix"), [("anthropic", ""), ("litellm", "anthropic/")])
def test_anthropic_is_sent_a_budget_as_its_own_thinking(
    kind: str, prefix: str, options: dict[str, Any], sent: dict[str, Any]
) -> None:
    chunks, body = play(fine, kind, f"{prefix}claude-sonnet-4-6", **options)
    assert text(chunks) == "Yes."
    assert {name: body.get(name) for name in sent} == sent
    assert ("thinking" in body) == ("thinking" in sent)


@pytest.mark.parametrize(("kind", "prefix"), [("anthropic", ""), ("litellm", "anthropic/")])
def test_an_effort_becomes_adaptive_thinking_for_anthropic(kind: str, prefix: str) -> None:
    _, body = play(fine, kind, f"{prefix}claude-sonnet-5-5", reasoning_effort="low")
    assert (body["thinking"]["type"], body["output_config"]) == ("adaptive", {"effort": "low"})


@pytest.mark.parametrize(
    ("kind", "model", "words"),
    [("anthropic", "claude-sonnet-5-5", ADAPTIVE), ("litellm", "anthropic/claude-sonnet-5-5", "")],
)
def test_a_budget_is_refused_where_the_model_takes_only_an_effort(
    kind: str, model: str, words: str
) -> None:
    error = failure_of(
        kind, no(words) if words else fine, model=model, thinking_budget=2048, max_tokens=4096
    )
    assert (error.reason, error.retryable) == ("refused", False)
    assert "does not accept thinking_budget = 2048" in error.message
    assert "--set thinking_budget=" in error.hint


@pytest.mark.parametrize(
    ("kind", "model", "words"),
    [
        ("anthropic", "claude-sonnet-5-5", "`temperature` is deprecated for this model."),
        ("litellm", "anthropic/claude-sonnet-5-5", ""),
        ("litellm", "anthropic/claude-haiku-4-5", "`temperature` is not supported by this model."),
    ],
)
def test_a_temperature_that_a_claude_refuses_is_not_left_out(
    kind: str, model: str, words: str
) -> None:
    error = failure_of(kind, no(words), model=model, temperature=0.2)
    assert "does not accept temperature = 0.2" in error.message
    assert words in error.message
    assert "--set temperature=" in error.hint


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"temperature": 0.2}, "temperature", "Only the default (1) value is supported."),
        ({"reasoning_effort": "xhigh"}, "reasoning_effort", "Supported values are: 'low', 'high'."),
        ({"top_p": 0.5}, "top_p", "Not with this model."),
    ],
)
def test_a_setting_that_a_server_refuses_is_named_and_not_left_out(
    options: dict[str, Any], field: str, message: str
) -> None:
    error = failure_of(
        "openai", no(f"Unsupported value: '{field}'. {message}", param=field), **options
    )
    assert (
        error.message
        == f"m does not accept {field} = {options[field]}: Unsupported value: '{field}'. {message}"
    )
    assert f"--set {field}=" in error.hint
    assert (error.reason, error.retryable) == ("refused", False)


@pytest.mark.parametrize(
    ("api", "error", "setting", "value"),
    [
        (
            "anthropic",
            {"message": "adaptive thinking is not supported on this model"},
            "reasoning_effort",
            "high",
        ),
        (
            "gemini",
            {"message": "Thinking level is not supported for this model."},
            "reasoning_effort",
            "high",
        ),
        ("gemini", {"message": "Thinking budget is not supported."}, "thinking_budget", 9),
        (
            "responses",
            {
                "message": "'reasoning.effort' does not support 'minimal' with this model.",
                "param": "reasoning.effort",
            },
            "reasoning_effort",
            "minimal",
        ),
    ],
)
def test_a_setting_that_an_api_refuses_under_its_own_name_is_named_as_the_user_has_it(
    api: str, error: dict[str, str], setting: str, value: Any
) -> None:
    script = answering({"error": error}, 400)
    assert (
        f"does not accept {setting} = {value}"
        in failure_of(api, script, **{setting: value}).message
    )


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("openai", {"reasoning_effort": "hihg"}, "reasoning_effort is 'hihg'"),
        ("openai", {"top_p": 1.5}, "top_p is 1.5"),
        ("openai", {"thinking_budget": 100}, "the kind 'openai' has no thinking_budget"),
        ("gemini", {"thinking_budget": 100, "reasoning_effort": "low"}, "exclude each other"),
    ],
)
def test_what_cannot_stand_is_reported_before_any_call(
    kind: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        check_options(Worker(name="w", kind=kind, model="m", options=options))
    assert caught.value.hint
