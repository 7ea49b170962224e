"""A conversation that no model can hold: the words by which clients know that they must shorten it."""

from __future__ import annotations

import pytest

from conductor_cli.core.errors import Failure
from conductor_cli.core.redact import Secrets
from conductor_cli.models.api_errors import error_in_body
from conductor_cli.server.api.errors import error_body, request_error, tokens_over
from tests.models.test_api_errors import TOO_LONG

COUNTS: dict[str, tuple[int, int] | None] = {
    "openai": (204308, 128000), "openai-window": None, "openai-limit": (509178, 272000), "vllm": (4097, 4096),
    "vllm-prompt": (11466, 8192), "vllm-reply": (5000, 4096), "llama-server": (9412, 8192),
    "llama-cpp-python": (1418, 256), "llama-cpp-python-500": (1418, 256), "sglang": (516368, 262144),
    "sglang-total": (71897, 64000), "ollama": None, "ollama-input": None, "lm-studio": (13055, 4096),
    "lm-studio-old": (10136, 7866), "lm-studio-cut": (15028, 7424), "gemini": (1196265, 1048575),
    "anthropic": (213462, 200000), "xai": (537812, 131072), "mistral": (40000, 32768), "openrouter": (42832, 32768),
    "groq": None,
}  # fmt: skip


@pytest.mark.parametrize("server", COUNTS)
def test_the_numbers_are_those_that_the_provider_said(server: str) -> None:
    error = error_in_body("claude-haiku-4-5-20251001", TOO_LONG[server][1], Secrets())
    assert tokens_over(error.message) == COUNTS[server]


@pytest.mark.parametrize(("said", "estimate", "counts"), [
    ("the prompt has 9000 tokens, and the context of qwen2.5-128000-q4.gguf holds 4096", None, (9000, 4096)),
    ("127.0.0.1:39957: the prompt exceeds the context window of 8192 tokens", None, None),
    ("http://[::1]:39957/v1: the context length is 8192 tokens", None, None),
    ("gpu.lan:39957: the prompt has 9000 tokens, the context holds 8192", None, (9000, 8192)),
    ("request req 20261126: the context length is 8192 tokens (error 40000)", None, None),
    ("the context length is 8,192 tokens", 9000, (9000, 8192)),
    ("the context length is 8192 tokens", 8000, None),
    ("prompt is too long: 9000 tokens > 8192 maximum", 9500, (9000, 8192)),
])  # fmt: skip
def test_no_other_number_passes_for_tokens(said: str, estimate: int | None, counts: tuple[int, int] | None) -> None:
    """A local model says both; an estimate stands in where it is larger than the context."""
    assert tokens_over(said, estimate) == counts


SAID = "prompt is too long: 213462 tokens > 200000 maximum"
OPENAI = (
    "This model's maximum context length is 200000 tokens. However, your messages resulted in 213462 tokens. "
    "Please reduce the length of the messages."
)


@pytest.mark.parametrize(("path", "words"), [("/v1/chat/completions", OPENAI), ("/v1/messages", SAID)])
def test_each_api_has_its_own_sentence(path: str, words: str) -> None:
    error = request_error(Failure(kind="worker", message=f"bob: {SAID}", reason="length"))
    assert error.status == 400
    told = error_body(error, path)["error"]
    assert told["message"] == words
    assert told.get("code", "context_length_exceeded") == "context_length_exceeded"
    assert told["type"] == "invalid_request_error"


def test_words_without_numbers_are_kept() -> None:
    error = request_error(Failure(kind="worker", message="bob: it does not fit", reason="length"))
    message = error_body(error)["error"]["message"]
    assert "exceeds the context window" in message
    assert "bob: it does not fit" in message
    assert "reduce the length of the messages" in message
