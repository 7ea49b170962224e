"""Google's Gemini API, its requests and the frames of its replies in terms of chat completions.

Pure.

From ai.google.dev/api/generate-content and ai.google.dev/gemini-api/docs (thinking, function
calling, thought signatures, structured output, file input, media resolution), November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from urllib.parse import quote

from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.core.mappings import without_keys, without_none
from conductor_cli.core.usage import token_count
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_apis.base import ChatApi, Frame, Translate, check_size, file_of
from conductor_cli.models.chat_body import IS_ERROR, PROVIDER_DATA, arguments_object, system_texts
from conductor_cli.models.chat_usage import usage_of
from conductor_cli.models.end_words import meaning_of
from conductor_cli.models.tool_schemas import simple_schema

NAME: Final = "Google's API"
KEPT_PARTS: Final = "gemini_parts"
"""The key of `provider_data` with the parts of a reply, in order. A part of a call says only that
it is one, and with which signature.
"""

OLDER: Final = re.compile(r"gemini-[12]\b")
"""Models that can leave out thinking, take calls without a signature, and no files in a result."""

UNCHECKED: Final = "skip_thought_signature_validator"
"""The signature that Google documents for a call which another model made: it is not checked."""

_MAX_BYTES: Final = 100 * 1000 * 1000  # the largest request with files in it
_MAX_PARTS: Final = 1024  # the most parts of one reply that are kept; calls are 128 at most
_MAX_SIGNATURES: Final = 4 * 1024 * 1024
"""The most characters of signatures in one reply. Real ones have some thousands in each part."""

_KEYWORDS: Final = (
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
)
"""What Google knows of JSON Schema, besides references."""

_CONFIG: Final = {
    "max_tokens": "maxOutputTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "seed": "seed",
    "stop": "stopSequences",
}
"""What this API calls the parameters of chat completions."""

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
"""What this API calls the choices of tools."""

_LEVELS: Final = {"none": "minimal", "xhigh": "high", "max": "high"}
"""Efforts that are none of the levels minimal, low, medium and high, and the nearest level."""

_RESOLUTIONS: Final = {
    "low": "MEDIA_RESOLUTION_LOW",
    "high": "MEDIA_RESOLUTION_HIGH",
    "original": "MEDIA_RESOLUTION_ULTRA_HIGH",
}
"""What this API calls how closely an image is looked at."""

_BUDGETS: Final = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24_576}
"""Tokens of thinking for each effort, as Google maps them for models without levels."""


class GeminiApi(ChatApi):
    """`POST /models/MODEL:streamGenerateContent`. A reply is a stream of whole responses.

    Each has the next parts of the text, and `GeminiReply` reads them.
    """

    renamed: Mapping[str, str] = {
        "stop_sequences": "stop",
        "thinking_level": "reasoning_effort",
        "budget_": "thinking",
        "budget": "reasoning_effort",
        # Of a model that does not think, first what nobody has set.
        "thinking": "include_thoughts",
        "thinking_": "reasoning_effort",
        "response_json_schema": "response_format",
        "response_mime_type": "response_format",
        "response_schema": "response_format",
    }
    unsupported = frozenset({"parallel_tool_calls", "logit_bias"})
    with_items = True

    def path_of(self, model: str) -> str:
        name = model if "/" in model else f"models/{model}"
        return f"/{quote(name)}:streamGenerateContent?alt=sse"

    def takes_image_detail(self, model: str) -> bool:
        """Older models take one resolution for all files of a request, not one for each image."""
        return OLDER.search(model) is None

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Thoughts are asked for unless the user wants none; models without them refuse that."""
        is_off = body.get("reasoning_effort") == "none"
        is_off = is_off or table_of(body.get("thinking")).get("type") == "disabled"
        if is_off:
            return {}
        return {"include_thoughts": True}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        check_size(messages, NAME, _MAX_BYTES)
        is_older = OLDER.search(str(body["model"])) is not None
        sent: dict[str, Any] = {"contents": _contents(messages, is_older=is_older)}
        system = system_texts(messages)
        if system:
            sent["systemInstruction"] = {"parts": [{"text": text} for text in system]}
        if "tools" in body:
            sent |= _tools(body)
        config = {key: body[name] for name, key in _CONFIG.items() if name in body}
        if "response_format" in body:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = body["response_format"]["json_schema"]["schema"]
        thinking = _thinking(body, is_older=is_older)
        if thinking:
            config["thinkingConfig"] = thinking
        return sent | ({"generationConfig": config} if config else {})

    def translator(self) -> Translate:
        return GeminiReply()


def declaration(function: Mapping[str, Any], schema_field: str) -> dict[str, Any]:
    """Return a tool of chat completions with the schema that Google takes, in this field.

    Some models refuse an object without properties; no schema means the same.
    """
    parameters = function["parameters"]
    simple = simple_schema(parameters, _KEYWORDS, tool=function["name"], api=NAME)
    about = without_keys(function, ("parameters",))
    return about | ({schema_field: simple} if parameters["properties"] else {})


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    functions = [tool["function"] for tool in body["tools"]]
    declared = [declaration(function, "parametersJsonSchema") for function in functions]
    sent: dict[str, Any] = {"tools": [{"functionDeclarations": declared}]}
    chosen = body.get("tool_choice", "auto")
    if chosen == "auto":
        return sent
    if isinstance(chosen, Mapping):
        config = {"mode": "ANY", "allowedFunctionNames": [chosen["function"]["name"]]}
    else:
        config = {"mode": _MODES[chosen]}
    return sent | {"toolConfig": {"functionCallingConfig": config}}


def _thinking(body: Mapping[str, Any], *, is_older: bool) -> dict[str, Any]:
    """Return how much to think: as a budget or, from Gemini 3 on, as a level."""
    config: dict[str, Any] = {}
    effort = body.get("reasoning_effort")
    if "thinking" in body:
        config["thinkingBudget"] = body["thinking"].get("budget_tokens", 0)
    elif effort not in (None, "default"):
        if is_older:
            config["thinkingBudget"] = _BUDGETS.get(effort, _BUDGETS["high"])
        else:
            config["thinkingLevel"] = _LEVELS.get(effort, effort)
    if body.get("include_thoughts"):
        config["includeThoughts"] = True
    return config


def _contents(messages: Sequence[Mapping[str, Any]], *, is_older: bool) -> list[dict[str, Any]]:
    """Return the turns of the user and of the model.

    The results of all calls of one turn belong in one turn of the user. Older models read no
    files in a result: these follow in the next turn of the user.
    """
    turns: list[dict[str, Any]] = []
    names: dict[str, str] = {}  # the tool of each call, by the call's id
    spoken = [message for message in messages if message["role"] != "system"]
    for role, group in groupby(spoken, key=itemgetter("role")):
        if role == "tool":
            turns += _result_turns(group, names, is_older=is_older)
            continue
        for message in group:
            if message.get("tool_calls"):
                names |= {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
                parts = list(_calling_parts(message, is_older=is_older))
            else:
                parts = _parts(message["content"])
            turns.append({"role": "model" if role == "assistant" else "user", "parts": parts})
    return turns


def _result_turns(
    messages: Iterable[Mapping[str, Any]], names: Mapping[str, str], *, is_older: bool
) -> Iterator[dict[str, Any]]:
    """Yield the turn with the results of calls, and for older models the one with their files.

    `names` has the tool of each call, by the call's id.
    """
    results: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for message in messages:
        call_id = message["tool_call_id"]
        response, files = _result(message)
        result = {"id": call_id, "name": names.get(call_id, ""), "response": response}
        if files and is_older:
            shown += [{"text": f"The files of the result {call_id}:"}, *files]
        elif files:
            result["parts"] = files
        results.append({"functionResponse": result})
    yield {"role": "user", "parts": results}
    if shown:
        yield {"role": "user", "parts": shown}


def _result(message: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what a tool answered, and the files of its answer."""
    parts = _parts(message["content"])
    texts = []
    files = []
    for part in parts:
        if "text" in part:
            texts.append(part["text"])
        else:
            files.append(part)
    text = "\n".join(texts)
    return {"error" if message.get(IS_ERROR) else "output": text}, files


def _parts(content: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if not isinstance(content, list):
        return [{"text": content or ""}]
    parts: list[dict[str, Any]] = []
    for part in content:
        file = file_of(part)
        if file is None:
            parts.append({"text": part["text"]})
        else:
            inline = {"mimeType": file.attachment.media_type, "data": file}
            sent: dict[str, Any] = {"inlineData": inline}
            detail = part.get("image_url", {}).get("detail")
            if detail:
                sent["mediaResolution"] = {"level": _RESOLUTIONS[detail]}
            parts.append(sent)
    return parts


def _calling_parts(message: Mapping[str, Any], *, is_older: bool) -> Iterator[dict[str, Any]]:
    """Yield a turn with calls, as the API sent it if it did: each signature belongs in its part.

    Newer models refuse a turn whose first call has no signature.
    """
    calls: list[dict[str, Any]] = []
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = arguments_object(function["arguments"]) or {}
        about = {"id": call["id"], "name": function["name"], "args": arguments}
        calls.append({"functionCall": about})
    spoken_text = message["content"] or ""
    kept = message.get(PROVIDER_DATA, {}).get(KEPT_PARTS, [])
    texts = []
    for part in kept:
        if "functionCall" not in part and "thought" not in part:
            texts.append(part["text"])
    kept_calls = sum("functionCall" in part for part in kept)
    is_unchanged = "".join(texts) == spoken_text and len(calls) == kept_calls
    if kept and is_unchanged:
        rest = iter(calls)
        for part in kept:
            yield part | next(rest) if "functionCall" in part else part
        return
    if spoken_text:
        yield {"text": spoken_text}
    if not is_older:
        calls[0]["thoughtSignature"] = UNCHECKED
    yield from calls


class GeminiReply:
    """One reply. Counts come with each response, and those of the last one are all of them."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._parts: list[_KeptPart] = []
        self._calls = 0
        self._signed = 0  # the characters of signatures

    def __call__(self, frame: Frame) -> Frame:
        translated: dict[str, Any] = {}
        if isinstance(usage := frame.get("usageMetadata"), Mapping):
            self._usage |= without_none(usage)
            translated["usage"] = usage_as_chat(self._usage)
        candidates = tables_in(frame.get("candidates"))
        if candidates:
            return translated | self._candidate(candidates[0])
        if blocked := table_of(frame.get("promptFeedback")).get("blockReason"):
            hint = "ask in other words, or use another worker"
            raise self._error("refused", f"{NAME} blocked the question: {blocked!s:.80}", hint)
        return translated

    def _candidate(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        reason = str(candidate.get("finishReason") or "")
        if meaning_of(reason) == "failed":
            why = f"{reason}: {text_of(candidate.get('finishMessage')):.200}".removesuffix(": ")
            if reason == "MISSING_THOUGHT_SIGNATURE":
                raise self._error("refused", f"{NAME} did not take the conversation: {why}")
            raise self._error("broken", f"the model's tool call cannot be read: {why}")
        parts = tables_in(table_of(candidate.get("content")).get("parts"))
        content: list[dict[str, Any]] = []
        calls: list[dict[str, Any]] = []
        for part in parts:
            self._keep(part)
            match _kind(part):
                case "functionCall":
                    calls.append(self._call(part["functionCall"]))
                case "thought":
                    content.append({"thinking": part.get("text")})
                case _:
                    content.append({"text": part.get("text")})
        delta = {"content": content, "tool_calls": calls}
        choice = {"delta": delta, "finish_reason": reason or None}
        translated: dict[str, Any] = {"choices": [choice]}
        if reason and self._calls and self._signed:
            kept = [part.whole() for part in self._parts]
            translated[PROVIDER_DATA] = {KEPT_PARTS: list(filter(None, kept))}
        return translated

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Return a call, which always comes whole."""
        function = {"name": call.get("name"), "arguments": dict(table_of(call.get("args")))}
        self._calls += 1
        return {"index": self._calls - 1, "id": call.get("id"), "function": function}

    def _keep(self, part: Mapping[str, Any]) -> None:
        """Remember a part for the turn's way back.

        Pieces of a text without a signature are one part.
        """
        signature = text_of(part.get("thoughtSignature"))
        self._signed += len(signature)
        if self._signed > _MAX_SIGNATURES:
            message = f"the server sent more than {_MAX_SIGNATURES} characters of signatures"
            raise ModelError("broken", message)
        kind = _kind(part)
        last = self._parts[-1] if self._parts else None
        joins = last is not None and last.kind == kind and not last.signature and not signature
        if last is None or kind == "functionCall" or not joins:
            if len(self._parts) >= _MAX_PARTS:
                message = f"the server sent more than {_MAX_PARTS} parts in one reply"
                raise ModelError("broken", message)
            last = _KeptPart(kind)
            self._parts.append(last)
        last.texts.append(text_of(part.get("text")))
        last.signature = signature

    def _error(self, reason: ModelErrorReason, message: str, hint: str = "") -> ModelError:
        """Return an error that says what the reply has cost, as far as Google counted it."""
        usage = None
        if self._usage:
            usage = usage_of(usage_as_chat(self._usage))
        return ModelError(reason, message, hint=hint, usage=usage)


def _kind(part: Mapping[str, Any]) -> str:
    """Return what a part holds, by the name of the field that says so."""
    if isinstance(part.get("functionCall"), Mapping):
        return "functionCall"
    return "thought" if part.get("thought") is True else "text"


class _KeptPart:
    """A part of a reply as far as it has arrived: a text, a thought, or that there was a call."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.texts: list[str] = []
        self.signature = ""

    def whole(self) -> dict[str, Any]:
        """Return the part as it is given back; empty for a thought that is not signed."""
        signed = {"thoughtSignature": self.signature} if self.signature else {}
        if self.kind == "functionCall":
            return {"functionCall": {}} | signed
        text = {"text": "".join(self.texts)}
        if self.kind == "text":
            if text["text"] or signed:
                return text | signed
            return {}
        if signed:
            return {"thought": True} | text | signed
        return {}


def usage_as_chat(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a usage as chat completions has it.

    Google counts thoughts apart from the reply, the input of its own tools apart from the prompt,
    and cached input as a part of the prompt. What only its total counts is output, too.
    """
    names = (
        "promptTokenCount",
        "toolUsePromptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "cachedContentTokenCount",
        "totalTokenCount",
    )
    prompt, tool_use, answer_tokens, thought, cached, total = (
        token_count(usage.get(name)) for name in names
    )
    return {
        "prompt_tokens": prompt + tool_use,
        "completion_tokens": answer_tokens + thought,
        "total_tokens": total,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }
