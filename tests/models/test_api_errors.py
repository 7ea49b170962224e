"""What servers say when they do not answer, and what of it is shown."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import (
    ApiError,
    clean_excerpt,
    error_in_body,
    error_of_response,
    parse_error_body,
    retry_after,
)
from conductor_cli.models.refusals import rejected_parameter

BODIES: dict[str, tuple[Any, str]] = {
    "openai": (
        {"error": {"message": "No money", "type": "t", "param": None, "code": "c"}},
        "No money",
    ),
    "gemini": (
        [{"error": {"code": 400, "message": "Bad request", "status": "INVALID_ARGUMENT"}}],
        "Bad request",
    ),
    "ollama": ({"error": "model 'x' not found"}, "model 'x' not found"),
    "mistral": ({"object": "error", "message": "Wrong", "type": "invalid_request_error"}, "Wrong"),
    "mistral-422": (
        {
            "message": {
                "detail": [{"loc": ["body", "stop"], "msg": "Extra inputs are not permitted"}]
            }
        },
        "['body', 'stop']: Extra inputs are not permitted",
    ),
    "fastapi": ({"detail": "Not here"}, "Not here"),
    "fastapi-422": (
        {"detail": [{"loc": ["body", "seed"], "msg": "no", "input": {"a": 1}}]},
        "['body', 'seed']: no",
    ),
}
"""Error bodies as servers send them, and their message."""


WORDS_OF_VLLM: str = (
    "This model's maximum context length is 163840 tokens. However, you requested 200000 tokens."
)


def refusal(status: int, body: Any = b"") -> ApiError:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of_response("host", status, {}, content, Secrets())


@pytest.mark.parametrize(("body", "message"), BODIES.values(), ids=BODIES)
def test_the_message_of_each_shape_of_error_body_is_found(body: Any, message: str) -> None:
    assert str(refusal(400, body)) == f"host: request refused (400): {message}"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "refused"),
        (401, "auth"),
        (402, "refused"),
        (403, "auth"),
        (404, "missing"),
        (408, "overloaded"),
        (418, "refused"),
        (429, "rate"),
        (500, "overloaded"),
        (529, "overloaded"),
        (301, "missing"),
    ],
)
def test_each_status_has_its_meaning(status: int, reason: str) -> None:
    assert refusal(status).reason == reason


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ""),
        (b"Bad Gateway", ": Bad Gateway"),
        (b"<html><head><style>p {}</style><title>502</title></head><body>", ": a web page"),
        (b"<!DOCTYPE html><script>alert(1)</script><p>Sorry", ": a web page"),
        (b"{half", ": {half"),
        (b"\xff\x1b[31mred\x00", ": \ufffd [31mred"),
        (b"[" * 100_000, ": " + "[" * 299 + "…"),
    ],
    ids=["empty", "text", "html", "doctype", "no-json", "control", "deep"],
)
def test_a_body_that_is_no_json_is_shown_by_its_first_words(body: bytes, words: str) -> None:
    assert str(refusal(502, body)) == f"host: server error (502){words}"


def test_a_refused_key_is_to_be_checked_or_named() -> None:
    error = refusal(401, {"error": "who are you"})
    assert str(error) == "host: key missing or rejected (401): who are you"
    assert "conductor keys test" in error.hint
    assert "--set key_env" in error.hint


@given(text=st.text(), secret=st.text("abcdefghij", min_size=8))
def test_foreign_words_are_short_clean_and_without_secrets(text: str, secret: str) -> None:
    shown = clean_excerpt(f"{text} {secret} {text}", Secrets(secret))
    assert len(shown) <= 300
    assert all(letter.isprintable() or letter.isspace() or ord(letter) > 127 for letter in shown)
    assert not set(shown) & set(map(chr, (*range(32), *range(127, 160), 0x202E, 0x2066)))
    assert secret not in shown


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 -0000"}, 40.0),
        ({"retry-after": "Thu Jan  1 00:01:40 1970"}, 40.0),
        ({"retry-after": "1s"}, 1.0),
        ({"retry-after": "1m30.5s"}, 90.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1.0),
        ({"retry-after-ms": "0"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_a_server_asks_for_is_read(
    headers: dict[str, str], seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert retry_after(headers, now=60.0) == seconds
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached. Please try again in 1.2s.", 1.2),
        ("Please try again in 6m0s", 360.0),
        ("Please retry after 150ms.", 0.15),
        ("Rate limit is exceeded. Try again in 17 seconds.", 17.0),
        ("Please retry after 1 minute.", 60.0),
        ("Please retry after 2 lines", None),
        ("Please try again in a moment", None),
        ("Do not try again in 1 day", None),
    ],
)
def test_a_wait_in_words_is_read(message: str, seconds: float | None) -> None:
    body = {"error": {"message": message}}
    assert refusal(429, body).retry_after == seconds
    assert error_in_body("host", body, Secrets()).retry_after == seconds


def routed(raw: object, status: int, **metadata: Any) -> dict[str, Any]:
    """An error of a provider behind OpenRouter, as that passes it on."""
    about = {"raw": raw, "provider_name": "Chutes"} | metadata
    return {
        "error": {"message": "Provider returned error", "code": status, "metadata": about},
        "user_id": "user_2x",
    }


@pytest.mark.parametrize(
    ("raw", "status", "reason", "words"),
    [
        (
            json.dumps({"error": {"message": WORDS_OF_VLLM, "type": "BadRequestError"}}),
            400,
            "length",
            WORDS_OF_VLLM,
        ),
        (
            {"error": {"message": "supports at most 1 image per prompt"}},
            400,
            "refused",
            "supports at most 1 image per prompt",
        ),
        (
            "glm is temporarily rate-limited upstream. Please retry shortly",
            429,
            "rate",
            "glm is temporarily rate-limited upstream. Please retry shortly",
        ),
        ('{"detail": "Not here"}', 404, "missing", "Not here"),
        ('{"issue": 7}', 400, "refused", '{"issue": 7}'),
        ("[1, 2]", 502, "overloaded", "[1, 2]"),
    ],
)
def test_what_a_provider_behind_a_gateway_said_is_the_reason(
    raw: object, status: int, reason: str, words: str
) -> None:
    """OpenRouter's own message is always that the provider returned an error."""
    body = routed(raw, status)
    shown = f": Provider returned error (Chutes): {words}"
    for error in (refusal(status, body), error_in_body("host", body, Secrets())):
        assert error.reason == reason
        assert error.message.endswith(shown)


@pytest.mark.parametrize("raw", ["", None, {}, "Provider returned error"])
def test_a_provider_behind_a_gateway_that_said_nothing_adds_nothing(raw: object) -> None:
    error = refusal(400, routed(raw, 400))
    assert str(error) == "host: request refused (400): Provider returned error"


def test_a_parameter_that_a_provider_behind_a_gateway_refuses_is_found() -> None:
    raw = json.dumps({"error": {"message": "Unsupported value", "param": "temperature"}})
    reported = parse_error_body(routed(raw, 400))
    assert rejected_parameter(reported, {"temperature": 0.2, "seed": 1}, {}) == "temperature"


def test_a_key_in_what_a_provider_behind_a_gateway_said_is_not_shown() -> None:
    body = json.dumps(routed("the key sk-abcdefgh is no key", 400)).encode()
    error = error_of_response("host", 400, {}, body, Secrets("sk-abcdefgh"))
    assert "sk-abcdefgh" not in str(error)


@pytest.mark.parametrize(
    ("remaining", "reset", "least"),
    [("0", 600.0, 590.0), ("0", -600.0, None), ("3", 600.0, None)],
)
def test_the_time_at_which_requests_count_anew_is_waited_for(
    remaining: str, reset: float, least: float | None
) -> None:
    """OpenRouter's free models have it in the body, in milliseconds, and in no `Retry-After`."""
    stated = {
        "X-RateLimit-Limit": "50",
        "X-RateLimit-Remaining": remaining,
        "X-RateLimit-Reset": str(int((time.time() + reset) * 1000)),
    }
    body = routed(None, 429, headers=stated)
    for error in (refusal(429, body), error_in_body("host", body, Secrets())):
        wait = error.retry_after
        assert wait is None if least is None else wait is not None and least < wait <= reset


def test_a_reset_that_is_no_time_is_not_waited_for() -> None:
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}
    assert retry_after(headers, now=60.0) is None


NO_CREDIT: list[tuple[int, dict[str, Any]]] = [
    (429, {"error": {"message": "m", "code": 429, "type": "insufficient_quota"}}),
    (
        429,
        {
            "error": {
                "message": "Your account is suspended, please check your plan and billing details",
                "type": "exceeded_current_quota_error",
            }
        },
    ),
    (
        429,
        {
            "error": {
                "code": "1113",
                "message": "Insufficient balance or no resource package. Please recharge.",
            }
        },
    ),
    (
        403,
        {
            "code": "permission-denied",
            "error": "Your team x has either used all available credits or reached its monthly "
            "spending limit.",
        },
    ),
    (
        429,
        {
            "code": "Some resource has been exhausted",
            "error": "Your team x has either used all available credits or reached its monthly "
            "spending limit.",
        },
    ),
    (
        500,
        {
            "type": "error",
            "error": {"type": "api_error", "message": "insufficient balance (1008)"},
        },
    ),
    (
        429,
        {
            "error": {
                "code": 429,
                "message": "Your prepayment credits are depleted.",
                "status": "RESOURCE_EXHAUSTED",
            }
        },
    ),
]
"""What providers say where an account has no credit.

OpenAI, Moonshot, GLM, xAI twice, MiniMax, Google.
"""


@pytest.mark.parametrize(("status", "body"), NO_CREDIT)
def test_an_account_without_credit_is_not_asked_again(status: int, body: dict[str, Any]) -> None:
    for error in (refusal(status, body), error_in_body("host", body, Secrets())):
        assert (error.reason, error.retryable) == ("refused", False)


def test_a_quota_that_fills_again_is_waited_for() -> None:
    """Google says the same of each of its limits, also of those for a minute."""
    words = "You exceeded your current quota, please check your plan and billing details."
    body = {"error": {"code": 429, "message": words, "status": "RESOURCE_EXHAUSTED"}}
    assert refusal(429, body).reason == "rate"


def test_a_model_that_openai_does_not_have_is_missing() -> None:
    """Responses says so with another status than Chat Completions."""
    words = "The requested model 'nope' does not exist."
    about = {"message": words, "type": "invalid_request_error", "param": "model"}
    error = refusal(400, {"error": {**about, "code": "model_not_found"}})
    assert error.reason == "missing"
    assert "check the worker's model" in error.hint


def test_a_wrong_key_of_xai_is_a_wrong_key() -> None:
    words = "Incorrect API key provided: xa***ey. You can obtain an API key from console.x.ai."
    error = refusal(400, {"code": "Client specified an invalid argument", "error": words})
    assert error.reason == "auth"
    assert "conductor keys test" in error.hint


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("tool_use_failed", "Failed to call a function. Please adjust your prompt."),
        ("json_validate_failed", "Failed to validate JSON. Please adjust your prompt."),
    ],
)
def test_a_reply_that_groq_cannot_read_is_asked_for_again(code: str, words: str) -> None:
    about = {"message": words, "type": "invalid_request_error", "code": code}
    body = {"error": {**about, "failed_generation": "{"}}
    for error in (refusal(400, body), error_in_body("host", body, Secrets())):
        assert (error.reason, error.retryable) == ("broken", True)


@pytest.mark.parametrize(("said", "retryable"), [("false", False), ("true", True), ("", True)])
def test_a_server_that_says_not_to_ask_again_is_not_asked_again(
    said: str, *, retryable: bool
) -> None:
    """Anthropic says it beside `retry-after: 0` where the limit of a subscription is reached."""
    headers = {"x-should-retry": said, "retry-after": "0"}
    error = error_of_response("host", 429, headers, b"", Secrets())
    assert (error.reason, error.retryable) == ("rate", retryable)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": "Unauthorized", "message": "no such token"}, "Unauthorized: no such token"),
        ({"error": "no such token", "message": "no such token"}, "no such token"),
        ({"error": True, "message": "no such token"}, "no such token"),
        ({"error": "gone", "message": {"a": 1}}, "gone"),
    ],
)
def test_words_beside_an_error_that_is_a_text_are_shown(body: dict[str, Any], words: str) -> None:
    assert refusal(418, body).message == f"host: request refused (418): {words}"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": "Model is overloaded", "error_type": "overloaded"}, "overloaded"),
        ({"error_code": "RESOURCE_EXHAUSTED", "message": "slow down"}, "rate"),
    ],
    ids=["Text Generation Inference", "Databricks"],
)
def test_the_code_of_an_error_has_many_names(body: dict[str, str], reason: str) -> None:
    assert error_in_body("host", body, Secrets()).reason == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"error": {"message": "m", "code": 429}}, "rate"),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}}, "rate"),
        ({"error": {"message": "m", "type": "overloaded_error"}}, "overloaded"),
        ({"error": {"message": "m", "type": "authentication_error"}}, "auth"),
        ({"error": {"message": "m", "code": "context_length_exceeded"}}, "length"),
        ({"error": "gone"}, "broken"),
        ({"object": "error", "message": "m", "code": 400}, "refused"),
    ],
)
def test_an_error_inside_an_answer_has_a_meaning_by_its_code(value: Any, reason: str) -> None:
    assert error_in_body("host", value, Secrets()).reason == reason


@pytest.mark.parametrize(
    ("body", "sent", "name"),
    [
        ({"error": {"message": "m", "param": "temperature"}}, "temperature", "temperature"),
        (
            {"error": {"message": "m", "param": "stream_options.include_usage"}},
            "stream_options",
            "stream_options",
        ),
        (
            {
                "error": {
                    "message": (
                        "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
                    )
                }
            },
            "max_tokens",
            "max_tokens",
        ),
        (
            {"error": {"message": "temperature is deprecated for this model"}},
            "temperature",
            "temperature",
        ),
        (
            {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}]},
            "seed",
            "seed",
        ),
        ({"error": {"message": "`stop` is not supported"}}, "stop", "stop"),
        ({"error": {"message": "stop asking me"}}, "stop", ""),
        ({"error": {"message": "m", "param": "temperature"}}, "seed", ""),
        ({"detail": [{"loc": ["body"], "msg": "bad", "input": {"seed": 1}}]}, "seed", ""),
    ],
)
def test_the_parameter_that_a_server_names_is_found(body: Any, sent: str, name: str) -> None:
    assert rejected_parameter(parse_error_body(body), {sent: 1, "model": "m"}, {}) == name


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Failed to parse grammar", "grammar"),
        ("Failed to initialize samplers: failed to parse grammar", "grammar"),
        ("Invalid grammar specification.", "structured_outputs"),
        ("Grammar error: Unknown format: uri", "structured_outputs"),
        ("Failed to compile ebnf grammar: EBNF parser error at line 1", "ebnf"),
        (
            (
                "Grammar-based generation (regex, ebnf) is not supported when launched with "
                "--grammar-backend none"
            ),
            "ebnf",
        ),
        ("This response_format type is unavailable now", "response_format"),
        (
            "'response_format.type' : value is not one of the allowed values ['text','json_object']",
            "response_format",
        ),
        ("This model does not support response format `json_schema`.", "response_format"),
        ("Failed to transform json schema into a grammar: bad", "response_format"),
    ],
)
def test_a_form_that_a_server_does_not_take_is_found(message: str, field: str) -> None:
    body = {"error": {"message": message, "code": 400}}
    assert (
        rejected_parameter(parse_error_body(body), {field: 1, "model": "m", "stop": ["x"]}, {})
        == field
    )
    assert rejected_parameter(parse_error_body(body), {"model": "m", "stop": ["x"]}, {}) == ""


WORDS: dict[str, str] = {
    "openai": "This model's maximum context length is 128000 tokens. However, your messages "
    "resulted in 204308 tokens. "
    "Please reduce the length of the messages.",
    "openai-window": (
        "Your input exceeds the context window of this model. Please adjust your input."
    ),
    "openai-limit": "Input tokens exceed the configured limit of 272000 tokens. Your messages "
    "resulted in 509178 tokens. Please "
    "reduce the length of the messages.",
    "vllm": "This model's maximum context length is 4096 tokens. However, you requested 1200 "
    "output tokens and your "
    "prompt contains at least 2897 input tokens, for a total of at least 4097 tokens. Please "
    "reduce the length "
    "of the input prompt or the number of requested output tokens.",
    "vllm-prompt": "The decoder prompt (length 11466) is longer than the maximum model length of "
    "8192. Make sure that "
    "`max_model_len` is no smaller than the number of text tokens.",
    "vllm-reply": "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's "
    "maximum context length is 4096 "
    "tokens and your request has 10 input tokens (5000 > 4096 - 10).",
    "llama-cpp-python": "This model's maximum context length is 256 tokens. However, you requested "
    "1418 tokens (218 in the messages, "
    "1200 in the completion). Please reduce the length of the messages or completion.",
    "sglang": "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
    "sglang-total": "Requested token count exceeds the model's maximum context length of 64000 "
    "tokens. You requested a total of "
    "71897 tokens: 7897 tokens from the input messages and 64000 tokens for the completion.",
    "ollama": "prompt too long; exceeded max context length by 42 tokens",
    "ollama-input": "the input length exceeds the context length",
    "lm-studio": "The number of tokens to keep from the initial prompt is greater than the context "
    "length (n_keep: 13055>= "
    "n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input.",
    "lm-studio-old": "Trying to keep the first 10136 tokens when context the overflows. However, "
    "the model is loaded with context "
    "length of only 7866 tokens, which is not enough.",
    "lm-studio-cut": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
    "gemini": (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."
    ),
    "anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "openrouter": "This endpoint's maximum context length is 32768 tokens. However, you requested "
    "about 42832 tokens (42832 of "
    "text input). Please reduce the length of either one.",
    "groq": "Please reduce the length of the messages or completion.",
    "moonshot": (
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)"
    ),
    "glm": "Prompt exceeds max length",
    "minimax": "invalid params, context window exceeds limit (2013)",
    "alibaba": "<400> InternalError.Algo.InvalidParameter: Range of input length should be "
    "[1, 129024]",
    "copilot": "prompt token count of 149302 exceeds the limit of 128000",
    "poolside": ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens."),
    "cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received "
    "4500.",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: "
    "5000 `inputs` tokens and 100 `max_new_tokens`",
    "tgi-input": "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
}
TOO_LONG: dict[str, tuple[int, Any]] = {
    **{name: (400, {"error": {"message": words}}) for name, words in WORDS.items()},
    "llama-server": (
        400,
        {
            "error": {
                "message": (
                    "request (9412 tokens) exceeds the available context size (8192 tokens), try "
                    "increasing it"
                ),
                "type": "exceed_context_size_error",
            }
        },
    ),
    "a code": (400, {"error": {"message": "m", "code": "context_length_exceeded"}}),
    "perplexity": (
        400,
        {
            "error": {
                "message": "The total length of all messages is too long.",
                "type": "too_many_prompt_tokens",
                "code": 400,
            }
        },
    ),
    "a text": (400, {"error": WORDS["ollama"]}),
    "a list": (400, [{"error": {"message": WORDS["gemini"]}}]),
    "llama-cpp-python-500": (
        500,
        {"error": {"message": ("Requested tokens (1418) exceed context window of 256")}},
    ),
}
"""What servers say to a question that is longer than their model's context."""


@pytest.mark.parametrize(("status", "body"), TOO_LONG.values(), ids=TOO_LONG)
def test_a_question_longer_than_the_context_is_recognised(status: int, body: Any) -> None:
    error = refusal(status, body)
    assert (error.reason, error.retryable, error.failure.kind) == ("length", False, "worker")
    assert "larger context" in error.hint
    assert error_in_body("host", body, Secrets()).reason == "length"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (
            429,
            {
                "error": {
                    "message": "Request too large for model `x` on tokens per minute (TPM): Limit "
                    "6000, Requested "
                    "9000, please reduce your message size and try again.",
                    "code": "rate_limit_exceeded",
                }
            },
        ),
        (
            400,
            {
                "error": {
                    "message": "max_tokens is too large: 9000. This model supports at most 4096 "
                    "completion "
                    "tokens, whereas you provided 9000.",
                    "param": "max_tokens",
                    "code": "invalid_value",
                }
            },
        ),
        (
            400,
            {
                "error": {
                    "message": "`max_tokens` must be less than or equal to `8192`, the maximum "
                    "value for "
                    "`max_tokens` is less than the `context_window` for this model"
                }
            },
        ),
        (
            400,
            {
                "error": {
                    "message": (
                        "Invalid 'user': string too long. Expected a string with maximum length 64."
                    ),
                    "code": "string_above_max_length",
                }
            },
        ),
        (403, {"error": {"message": "The free plan has a maximum context length of 8k tokens"}}),
        (400, {"error": {"message": "The question lacks context."}}),
        (400, {"error": {"message": "tools[0].function.description exceeds max length 1024"}}),
        (503, {"error": {"message": "Maximum number of requests exceeded"}}),
    ],
)
def test_what_shortening_would_not_help_is_something_else(status: int, body: Any) -> None:
    assert refusal(status, body).reason != "length"
