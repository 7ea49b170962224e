"""Google's Gemini API, in terms of chat completions. Pure.

From ai.google.dev/api/generate-content and ai.google.dev/gemini-api/docs/thinking, November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.models.chat_apis.base import Frame, Translate
from conductor_cli.models.features import NO_FEATURES

_BUDGETS: Final = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
"""Tokens of thinking for each effort, as Google maps them for the models that know no levels (Gemini 2.5)."""

_LEVELS: Final = {"none": "minimal", "xhigh": "high", "max": "high"}
"""Efforts that are none of the levels minimal, low, medium and high."""

_BUDGETED: Final = re.compile(r"gemini-2\b")

_FINISHES: Final = {
    "STOP": "stop", "MAX_TOKENS": "length", **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"), "refusal"
    ),
}  # fmt: skip
"""What each `finishReason` means; any other is sent on as it is."""


class GeminiApi:
    """`POST /models/MODEL:streamGenerateContent`. A reply is a stream of responses, each with a piece of the text."""

    renamed: Mapping[str, str] = {
        "stop_sequences": "stop", "max_output_tokens": "max_tokens",
        "thinking_level": "reasoning_effort", "thinking_budget": "thinking",
        "response_json_schema": "response_format", "response_mime_type": "response_format",
    }  # fmt: skip
    unsupported: frozenset[str] = frozenset()
    features = NO_FEATURES

    def path(self, model: str) -> str:
        return f"/models/{model.removeprefix('models/')}:streamGenerateContent?alt=sse"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        system = [{"text": message["content"]} for message in body["messages"] if message["role"] == "system"]
        contents = [
            {"role": "model" if message["role"] == "assistant" else "user", "parts": [{"text": message["content"]}]}
            for message in body["messages"] if message["role"] != "system"
        ]  # fmt: skip
        names = {
            "max_tokens": "maxOutputTokens", "temperature": "temperature", "top_p": "topP", "seed": "seed",
            "stop": "stopSequences",
        }  # fmt: skip
        config: dict[str, Any] = {own: body[name] for name, own in names.items() if name in body}
        if "response_format" in body:
            schema = body["response_format"]["json_schema"]["schema"]
            config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
        thinking = _thinking(body)
        config |= {"thinkingConfig": thinking} if thinking else {}
        sent: dict[str, Any] = {"contents": contents}
        sent |= {"systemInstruction": {"parts": system}} if system else {}
        return sent | ({"generationConfig": config} if config else {})

    def translator(self) -> Translate:
        return _translate

    def is_last(self, frame: Frame) -> bool:  # noqa: ARG002 - the connection ends with the reply
        return False

    def output_limit(self, message: str) -> int | None:  # noqa: ARG002 - no limit is sent unless the user sets one
        return None


def _thinking(body: Mapping[str, Any]) -> dict[str, Any]:
    """How much to think: a budget or, from Gemini 3 on, a level. Thoughts come back only where they are asked for."""
    effort = body.get("reasoning_effort")
    if "thinking" in body:
        budget = body["thinking"].get("budget_tokens", 0)
        return {"thinkingBudget": budget, "includeThoughts": budget > 0}
    if effort in (None, "default"):
        return {}
    if _BUDGETED.search(str(body["model"])):
        budget = _BUDGETS.get(effort, _BUDGETS["high"])
        return {"thinkingBudget": budget, "includeThoughts": budget > 0}
    return {"thinkingLevel": _LEVELS.get(effort, effort), "includeThoughts": effort != "none"}


def _translate(frame: Frame) -> Frame:
    """One response of a stream, or a whole answer; they have the same form."""
    translated: dict[str, Any] = {}
    usage = frame.get("usageMetadata")
    if isinstance(usage, Mapping):
        translated["usage"] = _usage(usage)
    candidates, feedback = frame.get("candidates"), frame.get("promptFeedback")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    if isinstance(first, Mapping):
        content = first.get("content")
        parts = content.get("parts") if isinstance(content, Mapping) else None
        delta = (
            {"content": [_part(part) for part in parts if isinstance(part, Mapping)]} if isinstance(parts, list) else {}
        )
        reason = first.get("finishReason")
        translated["choices"] = [{"delta": delta, "finish_reason": _FINISHES.get(str(reason), reason)}]
    elif isinstance(feedback, Mapping) and (blocked := feedback.get("blockReason")):
        # The question itself was refused, so there is no candidate.
        refusal = {"refusal": f"The question was blocked: {blocked}"}
        translated["choices"] = [{"delta": refusal, "finish_reason": "refusal"}]
    return translated


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A thought has the same form as text and a mark."""
    return {"thinking" if part.get("thought") is True else "text": part.get("text")}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Thoughts are counted apart from the reply, and cached input as a part of the input."""
    names = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
    read, said, thought, cached = (count if isinstance(count := usage.get(name), int) else 0 for name in names)
    return {
        "prompt_tokens": read,
        "completion_tokens": said + thought,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
