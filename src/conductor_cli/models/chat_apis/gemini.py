"""Google's Gemini API, in terms of chat completions. Pure.

From ai.google.dev/api/generate-content and ai.google.dev/gemini-api/docs (thinking, thought-signatures,
function-calling, structured-output, file-input-methods), November 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.usage import token_count
from conductor_cli.models.base import table_of, tables_in
from conductor_cli.models.chat_apis.base import ChatApi, Frame, Translate, check_size, file_of
from conductor_cli.models.chat_body import EXTRA, IS_ERROR, PROVIDER_DATA, arguments_object
from conductor_cli.models.tool_schemas import simple_schema

_NAME: Final = "Google's API"

_MAX_BYTES: Final = 100 * 1000 * 1000  # the largest request with files in it; it was 20 MB until January 2026
_KEYWORDS: Final = (
    "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems", "minimum",
    "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
)  # fmt: skip
"""What the API knows of JSON Schema, besides references."""

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}  # what this API calls the choices of tools
_TEXT_SIGNATURE: Final = "gemini_text_signature"  # the key of `provider_data` with the signature of a turn's text
_UNCHECKED: Final = "skip_thought_signature_validator"

_UNSIGNED: Final = re.compile(r"gemini-[12]\b")  # models that take calls without a signature
_USELESS: Final = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")
"""Why a reply ended that is to be asked for again."""

_BUDGETS: Final = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
"""Tokens of thinking for each effort, as Google maps them for the models that know no levels (Gemini 2.5)."""

_LEVELS: Final = {"none": "minimal", "xhigh": "high", "max": "high"}
"""Efforts that are none of the levels minimal, low, medium and high."""

_BUDGETED: Final = re.compile(r"gemini-2\b")

_FINISHES: Final = {
    "STOP": "stop", "MAX_TOKENS": "length", **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "ESCALATION"),
        "refusal",
    ),
}  # fmt: skip
"""What each `finishReason` means; any other is sent on as it is."""


class GeminiApi(ChatApi):
    """`POST /models/MODEL:streamGenerateContent`. A reply is a stream of responses, each with a piece of the text."""

    renamed: Mapping[str, str] = {
        "stop_sequences": "stop", "max_output_tokens": "max_tokens",
        "thinking_level": "reasoning_effort", "thinking_budget": "thinking",
        "response_json_schema": "response_format", "response_mime_type": "response_format",
    }  # fmt: skip
    unsupported = frozenset({"parallel_tool_calls"})

    def path(self, model: str) -> str:
        return f"/models/{model.removeprefix('models/')}:streamGenerateContent?alt=sse"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        check_size(body["messages"], _NAME, _MAX_BYTES)
        system = [{"text": message["content"]} for message in body["messages"] if message["role"] == "system"]
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
        sent: dict[str, Any] = {
            "contents": _contents(body["messages"], signed=_UNSIGNED.search(str(body["model"])) is None)
        }
        sent |= {"systemInstruction": {"parts": system}} if system else {}
        sent |= _tools(body) if "tools" in body else {}
        return sent | ({"generationConfig": config} if config else {})

    def translator(self) -> Translate:
        return _Reply()

    def output_limit(self, message: str) -> int | None:  # noqa: ARG002 - no limit is sent unless the user sets one
        return None


def _contents(messages: Sequence[Mapping[str, Any]], *, signed: bool) -> list[dict[str, Any]]:
    """The turns of the user and of the model. The results of all calls of one turn belong in one turn of the user."""
    contents: list[dict[str, Any]] = []
    calls: list[Mapping[str, Any]] = []
    for message in messages:
        role = message["role"]
        if role == "tool":
            if not contents or contents[-1]["role"] != "user":
                contents.append({"role": "user", "parts": []})
            content = message["content"]
            parts = content if isinstance(content, list) else [{"text": content}]
            text = "\n".join(part["text"] for part in parts if "text" in part)
            files = [_content_part(part) for part in parts if "text" not in part]
            own = message["tool_call_id"]
            name = next((call["function"]["name"] for call in calls if call["id"] == own), "")
            response = {"error" if message.get(IS_ERROR) else "output": _json_value(text)}
            result: dict[str, Any] = {"id": own, "name": name, "response": response}
            contents[-1]["parts"].append({"functionResponse": result | ({"parts": files} if files else {})})
        elif message.get("tool_calls"):
            calls = message["tool_calls"]
            contents.append({"role": "model", "parts": _calling_parts(message, signed=signed)})
        elif role != "system":
            contents.append({"role": "model" if role == "assistant" else "user", "parts": _parts(message["content"])})
    return contents


def _parts(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [_content_part(part) for part in content] if isinstance(content, list) else [{"text": content or ""}]


def _content_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if (file := file_of(part)) is None:
        return {"text": part["text"]}
    return {"inlineData": {"mimeType": file.attachment.media_type, "data": file}}


def _calling_parts(message: Mapping[str, Any], *, signed: bool) -> list[dict[str, Any]]:
    """Return the text of a turn and its calls, each with the signature that it had.

    Newer models refuse a turn whose first call has none. For one that another model made, Google documents a signature
    that is not checked.
    """
    extra = message.get(PROVIDER_DATA, {})
    parts = _parts(message["content"]) if message["content"] else []
    if signature := extra.get(_TEXT_SIGNATURE):
        parts.append({"text": "", "thoughtSignature": signature})
    signatures = {
        name: item.get("google", {}).get("thought_signature") for name, item in extra.get(EXTRA, {}).items()
    }  # fmt: skip
    if signed and not any(signatures.values()):
        signatures = {message["tool_calls"][0]["id"]: _UNCHECKED}
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = arguments_object(function["arguments"]) or {}
        part: dict[str, Any] = {"functionCall": {"id": call["id"], "name": function["name"], "args": arguments}}
        signature = signatures.get(call["id"])
        parts.append(part | ({"thoughtSignature": signature} if signature else {}))
    return parts


def _json_value(text: str) -> object:
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
            json.dumps(value, allow_nan=False)  # `NaN` and 1e999 can be read but not sent
            return value
    return text


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    declared = []
    for function in (tool["function"] for tool in body["tools"]):
        declared.append({name: function[name] for name in ("name", "description") if name in function})
        simple = simple_schema(function["parameters"], _KEYWORDS, tool=function["name"], api=_NAME)
        if function["parameters"]["properties"]:  # some models refuse an object without any; no schema means the same
            declared[-1]["parametersJsonSchema"] = simple
    sent: dict[str, Any] = {"tools": [{"functionDeclarations": declared}]}
    chosen = body.get("tool_choice", "auto")
    if isinstance(chosen, Mapping):
        config = {"mode": "ANY", "allowedFunctionNames": [chosen["function"]["name"]]}
    else:
        config = {"mode": _MODES[chosen]}
    return sent if chosen == "auto" else sent | {"toolConfig": {"functionCallingConfig": config}}


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


class _Reply:
    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, frame: Frame) -> Frame:
        translated: dict[str, Any] = {}
        if isinstance(usage := frame.get("usageMetadata"), Mapping):
            # Thoughts are counted apart from the reply, and cached input as a part of the input.
            names = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
            read, said, thought, cached = (token_count(usage.get(name)) for name in names)
            translated["usage"] = {
                "prompt_tokens": read,
                "completion_tokens": said + thought,
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": thought},
            }
        candidates = frame.get("candidates")
        first = candidates[0] if isinstance(candidates, list) and candidates else None
        if isinstance(first, Mapping):
            translated |= self._candidate(first)
        elif blocked := table_of(frame.get("promptFeedback")).get("blockReason"):
            # The question itself was refused, so there is no candidate.
            refusal = {"refusal": f"The question was blocked: {blocked}"}
            translated["choices"] = [{"delta": refusal, "finish_reason": "refusal"}]
        return translated

    def _candidate(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        parts = tables_in(table_of(candidate.get("content")).get("parts"))
        reason = str(candidate.get("finishReason") or "")
        if reason in _USELESS:
            said = candidate.get("finishMessage")
            message = f"the model's tool call cannot be read: {reason}"
            raise ModelError("broken", f"{message}: {said:.200}" if isinstance(said, str) else message)
        calls = [self._call(call, part) for part in parts if isinstance(call := part.get("functionCall"), Mapping)]
        delta = {
            "content": [
                {"thinking" if part.get("thought") is True else "text": part.get("text")}
                for part in parts
                if "functionCall" not in part
            ],
            "tool_calls": calls,
        }
        translated: dict[str, Any] = {"choices": [{"delta": delta, "finish_reason": _FINISHES.get(reason, reason)}]}
        for part in parts:
            signature = part.get("thoughtSignature")
            if "functionCall" not in part and isinstance(signature, str) and signature:
                translated[PROVIDER_DATA] = {_TEXT_SIGNATURE: signature}
        return translated

    def _call(self, call: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
        """A call, which always comes whole. Its signature has the form that Google's own chat completions give it."""
        arguments = call.get("args")
        piece = {
            "index": self._calls, "id": call.get("id"),
            "function": {"name": call.get("name"), "arguments": arguments if isinstance(arguments, Mapping) else {}},
        }  # fmt: skip
        self._calls += 1
        signature = part.get("thoughtSignature")
        signed = isinstance(signature, str) and signature
        return piece | ({EXTRA: {"google": {"thought_signature": signature}}} if signed else {})
