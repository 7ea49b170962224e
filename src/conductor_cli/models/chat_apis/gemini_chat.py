"""Google's server of chat completions, where it departs from OpenAI's. Pure.

From ai.google.dev/gemini-api/docs (openai, thought signatures, function calling), November 2026.
Thoughts come back in the text, and only where they are asked for, so they are not. A signature of
thinking is `extra_content` of its call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import Features, tables_in
from conductor_cli.models.chat_apis.base import ChatApi, Frame, Translate
from conductor_cli.models.chat_apis.gemini import OLDER, UNCHECKED, declaration
from conductor_cli.models.chat_body import EXTRA

_UNSIGNED: Final = {EXTRA: {"google": {"thought_signature": UNCHECKED}}}
_EFFORTS: Final = {"xhigh": "high", "max": "high"}
"""Efforts that Google does not have, and the nearest that it has."""


class GeminiChat(ChatApi):
    """`POST /chat/completions` below an address of Google's that ends with `/openai`."""

    renamed: Mapping[str, str] = {
        "thinking_level": "reasoning_effort",
        "thinking_budget": "thinking",
    }
    unsupported = frozenset({"seed", "parallel_tool_calls", "top_k", "logit_bias"})
    features: Features = frozenset({"tools", "image"})
    with_items = True

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        sent = super().body(body)
        is_older = OLDER.search(str(body["model"])) is not None
        effort = sent.pop("reasoning_effort", "default")
        if effort != "default":
            named = _EFFORTS | ({} if is_older else {"none": "minimal"})
            sent["reasoning_effort"] = named.get(effort, effort)
        if "thinking" in sent:
            config = {"thinking_budget": sent.pop("thinking").get("budget_tokens", 0)}
            sent["extra_body"] = {"google": {"thinking_config": config}}
        # Newer models refuse a turn whose first call has no signature.
        for message in [] if is_older else sent["messages"]:
            calls = message.get("tool_calls")
            if calls and not any(EXTRA in call for call in calls):
                message["tool_calls"] = [calls[0] | _UNSIGNED, *calls[1:]]
        if "tools" in sent:
            tools = []
            for tool in sent["tools"]:
                tools.append({**tool, "function": declaration(tool["function"], "parameters")})
            sent["tools"] = tools
        return sent

    def translator(self) -> Translate:
        return _read


def _read(frame: Frame) -> Frame:
    """Read reasons such as `content_filter: SAFETY`.

    A call that Google cannot read is to be asked for again.
    """
    for choice in tables_in(frame.get("choices")):
        kind, _, why = str(choice.get("finish_reason") or "").partition(":")
        if kind == "function_call_filter":
            message = f"the model's tool call cannot be read: {why.strip():.200}"
            raise ModelError("broken", message)
        if why:
            return {**frame, "choices": [{**choice, "finish_reason": kind}]}
    return frame
