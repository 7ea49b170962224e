"""Anthropic's Messages API, in terms of chat completions. Pure.

From platform.claude.com/docs (Messages, streaming, vision, PDF support, tool use, thinking, prompt caching, structured
outputs), November 2026. API version 2023-06-01 is sent, because 2026-10-21 refuses `temperature` and `top_p`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.models.chat_apis.anthropic_reply import KEPT_BLOCKS, AnthropicReply
from conductor_cli.models.chat_apis.base import MOST_OUTPUT, Frame, Translate
from conductor_cli.models.chat_apis.parts import check_size, file_of
from conductor_cli.models.chat_body import IS_ERROR, PROVIDER_DATA, arguments_object
from conductor_cli.models.features import ALL_FEATURES

VERSION: Final = "2023-06-01"

_NAME: Final = "Anthropic's API"

_MOST_BYTES: Final = 32 * 1024 * 1024
"""The largest request that the API takes."""

_EFFORTS: Final = {"minimal": "low", "default": "high"}
"""Efforts of chat completions that this API calls otherwise."""

_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
"""What this API calls the choices of tools."""

_TOO_MUCH_OUTPUT: Final = re.compile(r"max_tokens: \d+ > (\d{1,7})\b")


class AnthropicMessages:
    """`POST /v1/messages`. A reply is a stream of typed events, which `AnthropicReply` reads."""

    renamed: Mapping[str, str] = {
        "stop_sequences": "stop", "adaptive": "reasoning_effort", "effort": "reasoning_effort",
        "output_format": "response_format", "output_config": "response_format",
    }  # fmt: skip
    unsupported = frozenset({"seed"})
    features = ALL_FEATURES

    def path(self, model: str) -> str:  # noqa: ARG002 - the body names the model
        return "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - nothing
        return {}

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Temperature, `top_p` and a thinking budget have the same names in both APIs."""
        check_size(body["messages"], _NAME, _MOST_BYTES)
        same = ("model", "stream", "temperature", "top_p", "thinking")
        sent = {name: body[name] for name in same if name in body}
        system = [message["content"] for message in body["messages"] if message["role"] == "system"]
        if system:
            sent["system"] = "\n\n".join(system)
        sent["messages"] = _turns(body["messages"])
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
        if "tools" in body:
            sent |= _tools(body)
            # Without a choice of tools the model ends its work, so nothing continues this request.
            if body.get("tool_choice") != "none":
                _mark_cached(sent["messages"])
        return sent | ({"output_config": output} if output else {})

    def translator(self) -> Translate:
        return AnthropicReply()

    def is_last(self, frame: Frame) -> bool:
        return frame.get("type") == "message_stop"

    def output_limit(self, message: str) -> int | None:
        """Older models allow fewer tokens than `MOST_OUTPUT`, and say how many."""
        found = _TOO_MUCH_OUTPUT.search(message)
        return int(found[1]) if found else None


def _turns(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turns of the user and of the assistant, by turns.

    The results of all calls of one turn belong in one message of the user, before anything the user adds.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        content = _content(message)
        if role == "user" and turns and turns[-1]["role"] == "user":
            turns[-1]["content"] = [*_blocks(turns[-1]["content"]), *_blocks(content)]
        else:
            turns.append({"role": role, "content": content})
    return turns


def _content(message: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    """The content of one message; a text alone stays a text."""
    content = message["content"]
    if message["role"] == "tool":
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
        result |= {"content": _blocks(content) if isinstance(content, list) else content} if content else {}
        return [result | ({"is_error": True} if message.get(IS_ERROR) else {})]
    if message.get("tool_calls"):
        return list(_calling_turn(message))
    return _blocks(content) if isinstance(content, list) else content or ""


def _calling_turn(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A turn that has tool calls, as the API sent it if it did: its signed thinking must come back in its place."""
    calls = ({"type": "tool_use"} | _call(call) for call in message["tool_calls"])
    kept = message.get(PROVIDER_DATA, {}).get(KEPT_BLOCKS)
    for block in kept if kept is not None else _blocks(message["content"] or ""):
        if block["type"] != "tool_use":
            yield block
        elif (call := next(calls, None)) is not None:
            yield call
    yield from calls


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {"id": call["id"], "name": function["name"], "input": arguments_object(function["arguments"]) or {}}


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Content as a list of blocks. A block of white space alone would be refused."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [_block(part) for part in content]


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    """One part of a content: a text, an image or a document. What is a block already stays as it is."""
    file, name = file_of(part)
    if file is None:
        return dict(part)
    media_type = file.attachment.media_type
    source = {"type": "base64", "media_type": media_type, "data": replace(file, prefix="")}
    if media_type.startswith("image/"):
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": name}


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """The tools and what is to be done with them. Only what the model chooses itself fits a thinking budget."""
    chosen = body.get("tool_choice", "auto")
    named = {"type": "tool", "name": chosen["function"]["name"]} if isinstance(chosen, Mapping) else {}
    choice: dict[str, Any] = named or {"type": _CHOICES[chosen]}
    if choice["type"] in ("any", "tool") and body.get("thinking", {}).get("type") == "enabled":
        hint = "leave out its thinking_budget, or set reasoning_effort instead"
        raise ModelError("refused", f"{body['model']} cannot be made to call a tool while it thinks", hint=hint)
    if choice["type"] != "none" and body.get("parallel_tool_calls") is False:
        choice["disable_parallel_tool_use"] = True
    offered = {"tools": [_offer(tool["function"]) for tool in body["tools"]]}
    return offered if choice == {"type": "auto"} else offered | {"tool_choice": choice}


def _offer(function: Mapping[str, Any]) -> dict[str, Any]:
    about = {"description": function["description"]} if "description" in function else {}
    return {"name": function["name"], **about, "input_schema": function["parameters"]}


def _mark_cached(turns: Iterable[dict[str, Any]]) -> None:
    """Have the API cache what the next turn of a tool loop begins with.

    The end of this request is what the next one continues. The end of the previous request is marked as well: the API
    looks for a cached beginning at most 20 blocks before a mark, and a turn may have more calls than that.
    """
    for turn in [turn for turn in turns if turn["role"] == "user"][-2:]:
        if blocks := _blocks(turn["content"]):
            turn["content"] = [*blocks[:-1], blocks[-1] | {"cache_control": {"type": "ephemeral"}}]
