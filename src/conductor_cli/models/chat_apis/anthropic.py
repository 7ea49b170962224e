"""Anthropic's Messages API, in terms of chat completions. Pure.

From platform.claude.com/docs (Messages, streaming, adaptive thinking, structured outputs), November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from conductor_cli.models.chat_apis.base import MOST_OUTPUT, Frame, Translate
from conductor_cli.models.features import NO_FEATURES

VERSION: Final = "2023-06-01"

_EFFORTS: Final = {"minimal": "low", "default": "high"}
"""Efforts of chat completions that this API calls otherwise."""

_TOO_MUCH_OUTPUT: Final = re.compile(r"max_tokens: \d+ > (\d{1,7})\b")


class AnthropicMessages:
    """`POST /v1/messages`. A reply is a stream of typed events, which `_Translator` reads."""

    renamed: Mapping[str, str] = {
        "stop_sequences": "stop", "adaptive": "reasoning_effort", "effort": "reasoning_effort",
        "output_format": "response_format", "output_config": "response_format",
    }  # fmt: skip
    unsupported = frozenset({"seed"})
    features = NO_FEATURES

    def path(self, model: str) -> str:  # noqa: ARG002 - the body names the model
        return "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Temperature, `top_p` and a thinking budget have the same names in both APIs."""
        same = ("model", "stream", "temperature", "top_p", "thinking")
        sent = {name: body[name] for name in same if name in body}
        system = [message["content"] for message in body["messages"] if message["role"] == "system"]
        if system:
            sent["system"] = "\n\n".join(system)
        sent["messages"] = [message for message in body["messages"] if message["role"] != "system"]
        if "stop" in body:
            sent["stop_sequences"] = body["stop"]
        # The API demands a limit, and the tokens of thinking count towards it.
        budget = body.get("thinking", {}).get("budget_tokens", 0)
        sent["max_tokens"] = body.get("max_tokens", MOST_OUTPUT + budget)
        output = {}
        effort = body.get("reasoning_effort")
        if effort not in (None, "none"):
            # The model decides how long it thinks; the effort tells it how hard. Older models refuse this by name.
            sent["thinking"] = {"type": "adaptive"}
            output["effort"] = _EFFORTS.get(effort, effort)
        if "response_format" in body:
            output["format"] = {"type": "json_schema", "schema": body["response_format"]["json_schema"]["schema"]}
        return sent | ({"output_config": output} if output else {})

    def translator(self) -> Translate:
        return _Translator()

    def is_last(self, frame: Frame) -> bool:
        return frame.get("type") == "message_stop"

    def output_limit(self, message: str) -> int | None:
        """Older models allow fewer tokens than `MOST_OUTPUT`, and say how many."""
        found = _TOO_MUCH_OUTPUT.search(message)
        return int(found[1]) if found else None


class _Translator:
    """Reads the events of one reply. The counts of input come first, those of output last."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}

    def __call__(self, frame: Frame) -> Frame:
        kind = frame.get("type")
        if kind == "message":  # a whole answer: the server does not stream
            parts = frame.get("content")
            return self._frame(frame.get("usage"), frame.get("stop_reason"), parts if isinstance(parts, list) else ())
        if kind == "message_start":
            message = frame.get("message")
            return self._frame(message.get("usage") if isinstance(message, Mapping) else None)
        if kind == "message_delta":
            delta = frame.get("delta")
            return self._frame(frame.get("usage"), delta.get("stop_reason") if isinstance(delta, Mapping) else None)
        # The first piece of a block may come with its start.
        name = {"content_block_start": "content_block", "content_block_delta": "delta"}.get(str(kind), "")
        return self._frame(None, None, (frame.get(name),))

    def _frame(self, usage: object, reason: object = None, parts: Iterable[object] = ()) -> Frame:
        """A frame of chat completions, which takes the text and the thinking of content parts as they are."""
        frame: dict[str, Any] = {}
        if isinstance(usage, Mapping):
            self._usage |= {name: count for name, count in usage.items() if count is not None}
            frame["usage"] = _usage(self._usage)
        if reason == "model_context_window_exceeded":
            reason = "length"
        delta = {"content": [part for part in parts if isinstance(part, Mapping)]}
        return frame | {"choices": [{"delta": delta, "finish_reason": reason}]}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic counts input that was read from or written to its cache apart from other input."""
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    fresh, cached, stored, output = (count if isinstance(count := usage.get(name), int) else 0 for name in names)
    details = usage.get("output_tokens_details")
    return {
        "prompt_tokens": fresh + cached + stored,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "cache_creation_input_tokens": stored,
        "completion_tokens_details": {
            "reasoning_tokens": details.get("thinking_tokens") if isinstance(details, Mapping) else None
        },
    }
