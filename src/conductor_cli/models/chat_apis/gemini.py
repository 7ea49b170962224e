"""Google's server of chat completions, where it departs from OpenAI's. Pure.

From ai.google.dev/gemini-api/docs (openai, thought-signatures, function-calling), November 2026. Thoughts come back in
the text, and only where they are asked for, so they are not. A signature of thinking is `extra_content` of its call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.base import tables_in
from conductor_cli.models.chat_apis.base import ChatApi, Frame, Translate
from conductor_cli.models.chat_body import EXTRA
from conductor_cli.models.tool_schemas import simple_schema

_KEYWORDS: Final = (
    "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems", "minimum",
    "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
)  # fmt: skip
"""What Google knows of JSON Schema, besides references."""

_OLDER: Final = re.compile(r"gemini-[12]\b")  # models that can leave out thinking, and take calls without a signature
_UNCHECKED: Final = {EXTRA: {"google": {"thought_signature": "skip_thought_signature_validator"}}}
_EFFORTS: Final = {"xhigh": "high", "max": "high"}  # efforts that Google does not have, and the nearest that it has


class GeminiChat(ChatApi):
    """`POST /openai/chat/completions` below the address of Google's API, for which keys are stored."""

    path = "/openai/chat/completions"
    renamed: Mapping[str, str] = {"thinking_level": "reasoning_effort", "thinking_budget": "extra_body"}
    unsupported = frozenset({"seed", "parallel_tool_calls"})

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        sent = super().body(body)
        is_older = _OLDER.search(str(body["model"])) is not None
        effort = sent.pop("reasoning_effort", "default")
        if effort != "default":
            named = _EFFORTS | ({} if is_older else {"none": "minimal"})
            sent["reasoning_effort"] = named.get(effort, effort)
        # Newer models refuse a turn whose first call has no signature. For one that another model made, Google
        # documents a signature that is not checked.
        for message in [] if is_older else sent["messages"]:
            calls = message.get("tool_calls")
            if calls and not any(EXTRA in call for call in calls):
                message["tool_calls"] = [calls[0] | _UNCHECKED, *calls[1:]]
        if "tools" in sent:
            sent["tools"] = [{**tool, "function": _function(tool["function"])} for tool in sent["tools"]]
        return sent

    def translator(self) -> Translate:
        return _read


def _function(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with the schema that Google takes. Some models refuse an object of nothing; none means the same."""
    simple = simple_schema(function["parameters"], _KEYWORDS, tool=function["name"], api="Google's API")
    about = {name: value for name, value in function.items() if name != "parameters"}
    return about | ({"parameters": simple} if function["parameters"]["properties"] else {})


def _read(frame: Frame) -> Frame:
    """Read reasons such as `content_filter: SAFETY`. A call that Google cannot read is to be asked for again."""
    for choice in tables_in(frame.get("choices")):
        kind, _, why = str(choice.get("finish_reason") or "").partition(":")
        if kind == "function_call_filter":
            raise ModelError("broken", f"the model's tool call cannot be read: {why.strip():.200}")
        if why:
            return {**frame, "choices": [{**choice, "finish_reason": kind}]}
    return frame
