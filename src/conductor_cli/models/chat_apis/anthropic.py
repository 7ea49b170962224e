"""Anthropic's Messages API, in terms of chat completions: its requests and its events. Pure.

From platform.claude.com/docs (Messages, streaming, vision, PDF support, tool use, thinking, prompt
caching, structured outputs), November 2026. API version 2023-06-01 is sent, because 2026-10-21
refuses `temperature` and `top_p`.

Cache marks are sent only with tools: they cost 25 % of the input, and without tools nothing repeats
a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from conductor_cli.core.errors import ModelError
from conductor_cli.core.mappings import only_keys, without_keys, without_none
from conductor_cli.core.usage import token_count
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_apis.base import (
    MAX_OUTPUT,
    ChatApi,
    Frame,
    Translate,
    check_size,
    file_of,
)
from conductor_cli.models.chat_body import (
    IS_ERROR,
    PROVIDER_DATA,
    STOP_SEQUENCE,
    arguments_object,
    system_texts,
    with_kimi_ids,
)
from conductor_cli.models.tool_schemas import is_kimi, plain_id

KEPT_BLOCKS: Final = "anthropic_blocks"
"""The key of `provider_data` with the blocks of a reply, in order. A block of a tool call says only
that it is one.
"""

_TEXTS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The fields of a delta that are pieces of a block's field of the same name, by the type of the
delta.
"""

_KEPT: Final = {
    "text": ("text",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
"""The fields of the blocks that can be given back."""

_INPUT_COUNTS: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The counts of a usage that are parts of the input: read anew, read from the cache, cached now."""

_MAX_BLOCKS: Final = 10_000  # the most blocks of one reply. Real ones have some hundreds at most.
_MAX_HIDDEN: Final = 4 * 1024 * 1024
"""The most characters of signatures and hidden thinking in one reply. Real ones have some thousands
in each block.
"""


class AnthropicReply:
    """One reply. The counts of input come first, those of output last."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._blocks: list[_Block] = []
        self._open: dict[int | None, _Block] = {}
        self._calls = 0
        self._hidden = 0
        self._said = False
        self._message = ""
        self._readers: dict[str, Callable[[Frame], Frame]] = {
            "message_start": lambda frame: self._begin(table_of(frame.get("message"))),
            "content_block_start": self._start,
            "content_block_delta": self._delta,
            "content_block_stop": self._stop,
            "message_delta": lambda frame: self._end(
                table_of(frame.get("delta")), frame.get("usage")
            ),
            "message": self._whole,  # all of an answer: the server does not stream
        }

    def __call__(self, frame: Frame) -> Frame:
        read = self._readers.get(str(frame.get("type")))
        return read(frame) if read else self._frame()

    def _begin(self, message: Mapping[str, Any]) -> Frame:
        """Begin the message, which some gateways announce twice.

        Another message behind the pieces of one is an error: a gateway has asked again, and what
        came before is no part of that.
        """
        name = text_of(message.get("id"))
        if self._blocks and name != self._message:
            raise ModelError("broken", "the server began another message in the middle of one")
        self._message = name
        return self._frame(usage=message.get("usage"))

    def _start(self, event: Frame) -> Frame:
        """Begin a block.

        Its first piece may come with it, and with some servers all of its arguments.
        """
        content = table_of(event.get("content_block"))
        if len(self._blocks) >= _MAX_BLOCKS:
            raise ModelError(
                "broken", f"the server sent more than {_MAX_BLOCKS} blocks in one reply"
            )
        self._check_hidden(content.get("data"))
        block = _Block(content)
        self._blocks.append(block)
        self._open[_key(event)] = block
        if block.kind != "tool_use":
            return self._frame([content])
        block.call = self._calls
        self._calls += 1
        function = {"name": content.get("name")}
        return self._frame(
            calls=[{"index": block.call, "id": content.get("id"), "function": function}]
        )

    def _delta(self, event: Frame) -> Frame:
        block = self._open.get(_key(event))
        delta = table_of(event.get("delta"))
        kind = delta.get("type")
        if kind == "input_json_delta":
            if block is None:
                raise ModelError(
                    "broken", "the server sent arguments of a tool call that it did not begin"
                )
            # Tools that the server itself runs have arguments too.
            if block.kind == "tool_use":
                return self._arguments(block, delta.get("partial_json"))
            return self._frame()
        if block is not None and (name := _TEXTS.get(str(kind))):
            block.add(name, delta.get(name))
            self._check_hidden(delta.get("signature"))
        return self._frame([delta])

    def _check_hidden(self, piece: object) -> None:
        """Bound what is kept of a reply although nobody sees it."""
        self._hidden += len(text_of(piece))
        if self._hidden > _MAX_HIDDEN:
            raise ModelError(
                "broken", f"the server sent more than {_MAX_HIDDEN} characters of hidden thinking"
            )

    def _stop(self, event: Frame) -> Frame:
        block = self._open.pop(_key(event), None)
        if block is None or block.kind != "tool_use" or block.has_arguments:
            return self._frame()
        return self._arguments(
            block, json.dumps(table_of(block.content.get("input")), ensure_ascii=False)
        )

    def _arguments(self, block: _Block, piece: object) -> Frame:
        block.has_arguments = block.has_arguments or bool(piece)
        return self._frame(calls=[{"index": block.call, "function": {"arguments": piece}}])

    def _whole(self, answer: Frame) -> Frame:
        contents = tables_in(answer.get("content"))
        calls = list[Frame]()
        for index, content in enumerate(contents):
            event = {"index": index, "content_block": content}
            for frame in (self._start(event), self._stop(event)):
                calls += frame["choices"][0]["delta"]["tool_calls"]
        last = self._end(answer, answer.get("usage"))
        last["choices"][0]["delta"] |= {"content": contents, "tool_calls": calls}
        return last

    def _end(self, delta: Mapping[str, Any], usage: object) -> dict[str, Any]:
        """Return the reason of the end.

        A turn with tool calls must come back with its signed thinking.
        """
        reason = delta.get("stop_reason")
        parts: list[Mapping[str, Any]] = []
        if reason == "refusal" and not self._said:
            parts = [{"text": table_of(delta.get("stop_details")).get("explanation")}]
        frame = self._frame(parts, usage=usage, reason=reason)
        frame[STOP_SEQUENCE] = delta.get("stop_sequence")
        if self._calls and any(block.kind.endswith("thinking") for block in self._blocks):
            kept = [block.kept() for block in self._blocks]
            frame[PROVIDER_DATA] = {KEPT_BLOCKS: [block for block in kept if block is not None]}
        return frame

    def _frame(
        self,
        parts: Sequence[Frame] = (),
        *,
        calls: Sequence[Frame] = (),
        usage: object = None,
        reason: object = None,
    ) -> dict[str, Any]:
        frame: dict[str, Any] = {}
        if isinstance(usage, Mapping):
            counted = without_none(usage)
            if not any(token_count(counted.get(name)) for name in _INPUT_COUNTS):
                # Some servers count the input at the beginning and write zeros at the end
                counted = without_keys(counted, _INPUT_COUNTS)
            self._usage |= counted
            frame["usage"] = usage_as_chat(self._usage)
        self._said = self._said or any(part.get("text") for part in parts)
        return frame | {
            "choices": [
                {"delta": {"content": [*parts], "tool_calls": calls}, "finish_reason": reason}
            ]
        }


class _Block:
    """A block of a reply as far as it has arrived. `call` is the number of its tool call."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        self.kind = str(content.get("type"))
        self.call = 0
        self.has_arguments = False
        self._pieces = {name: [text_of(content.get(name))] for name in _KEPT.get(self.kind, ())}

    def add(self, name: str, piece: object) -> None:
        if name in self._pieces:
            self._pieces[name].append(text_of(piece))

    def kept(self) -> dict[str, Any] | None:
        """Return the block as it is given back.

        None for one that cannot be, as a text of white space alone, or empty thinking.
        """
        if self.kind == "tool_use":
            return {"type": self.kind}
        fields = {name: "".join(pieces) for name, pieces in self._pieces.items()}
        if not any(field.strip() for field in fields.values()):
            return None
        return {"type": self.kind, **fields}


def _key(event: Frame) -> int | None:
    """Return the number of an event's block.

    Servers without numbers have one block open at a time.
    """
    index = event.get("index")
    return index if isinstance(index, int) else None


def usage_as_chat(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a usage as chat completions has it.

    Anthropic counts input from or for its cache apart from the other.
    """
    fresh, cached, stored = (token_count(usage.get(name)) for name in _INPUT_COUNTS)
    output = token_count(usage.get("output_tokens"))
    thought = table_of(usage.get("output_tokens_details")).get("thinking_tokens")
    return {
        "prompt_tokens": fresh + cached + stored,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached},
        "cache_creation_input_tokens": stored,
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


VERSION: Final = "2023-06-01"

_MAX_BYTES: Final = 32 * 1024 * 1024  # the largest request that the API takes
# Efforts of chat completions that this API calls otherwise
_EFFORTS: Final = {"minimal": "low", "default": "high"}
# What this API calls the choices of tools
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicMessages(ChatApi):
    """`POST /v1/messages`. A reply is a stream of typed events, which `AnthropicReply` reads."""

    path = "/v1/messages"
    renamed: Mapping[str, str] = {
        "stop_sequences": "stop",
        "adaptive": "reasoning_effort",
        "effort": "reasoning_effort",
        "output_format": "response_format",
        "output_config": "response_format",
    }
    unsupported = frozenset({"seed", "presence_penalty", "frequency_penalty", "logit_bias"})
    budget_fits_reply = True
    ascii_keys = True
    last = ("message_stop",)

    def takes_image_detail(self, model: str) -> bool:  # noqa: ARG002 - none does
        return False

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Temperature, `top_p`, `top_k` and a thinking budget have the same names in both APIs."""
        check_size(body["messages"], "Anthropic's API", _MAX_BYTES)
        same = ("model", "stream", "temperature", "top_p", "top_k", "thinking")
        sent = only_keys(body, same)
        system = system_texts(body["messages"])
        if system:
            sent["system"] = "\n\n".join(system)
        if is_kimi(str(body["model"])):
            sent["messages"] = _turns(with_kimi_ids(body["messages"]), str)
        else:
            sent["messages"] = _turns(body["messages"], plain_id)
        if "stop" in body:
            sent["stop_sequences"] = body["stop"]
        # The API demands a limit, and the tokens of thinking count towards it.
        budget = body.get("thinking", {}).get("budget_tokens", 0)
        sent["max_tokens"] = body.get("max_tokens", MAX_OUTPUT + budget)
        output = {}
        effort = body.get("reasoning_effort")
        if effort not in (None, "none"):
            # The model decides how long it thinks; the effort tells it how hard. Older models
            # refuse this by name.
            sent["thinking"] = {"type": "adaptive"}
            output["effort"] = _EFFORTS.get(effort, effort)
        if "response_format" in body:
            output["format"] = {
                "type": "json_schema",
                "schema": body["response_format"]["json_schema"]["schema"],
            }
        if "tools" in body:
            sent |= _tools(body)
            # Without a choice of tools the model ends its work, so nothing continues this request.
            if body.get("tool_choice") != "none":
                _mark_cached(sent["messages"])
        return sent | ({"output_config": output} if output else {})

    def translator(self) -> Translate:
        return AnthropicReply()


def _turns(
    messages: Iterable[Mapping[str, Any]], call_id: Callable[[str], str]
) -> list[dict[str, Any]]:
    """Return the turns of the user and of the assistant, with ids that `call_id` makes.

    The results of all calls of one turn belong in one message of the user, before anything the user
    adds.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        content = _content(message, call_id)
        if role == "user" and turns and turns[-1]["role"] == "user":
            turns[-1]["content"] = [*_blocks(turns[-1]["content"]), *_blocks(content)]
        else:
            turns.append({"role": role, "content": content})
    return turns


def _content(
    message: Mapping[str, Any], call_id: Callable[[str], str]
) -> str | list[dict[str, Any]]:
    content = message["content"]
    if message["role"] == "tool":
        used = call_id(message["tool_call_id"])
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": used}
        if content:
            result["content"] = _blocks(content) if isinstance(content, list) else content
        if message.get(IS_ERROR):
            result["is_error"] = True
        return [result]
    if message.get("tool_calls"):
        return list(_calling_turn(message, call_id))
    if isinstance(content, list):
        return _blocks(content)
    return content or ""


def _calling_turn(
    message: Mapping[str, Any], call_id: Callable[[str], str]
) -> Iterator[dict[str, Any]]:
    """Yield a turn that has tool calls, as the API sent it if it did.

    Its signed thinking must come back in its place.
    """
    calls = []
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = arguments_object(function["arguments"]) or {}
        use = {"type": "tool_use", "id": call_id(call["id"]), "name": function["name"]}
        calls.append(use | {"input": arguments})
    left_calls = iter(calls)
    kept = message.get(PROVIDER_DATA, {}).get(KEPT_BLOCKS)
    for block in kept if kept is not None else _blocks(message["content"] or ""):
        if block["type"] != "tool_use":
            yield block
        elif (call := next(left_calls, None)) is not None:
            yield call
    yield from left_calls


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return content as a list of blocks. A block of white space alone would be refused."""
    if isinstance(content, str):
        if content.strip():
            return [{"type": "text", "text": content}]
        return []
    blocks = []
    for part in content:
        file = file_of(part)
        if file is None:  # a text, or a block already
            blocks.append(dict(part))
            continue
        media_type = file.attachment.media_type
        source = {"type": "base64", "media_type": media_type, "data": file}
        if media_type.startswith("image/"):
            blocks.append({"type": "image", "source": source})
        else:
            title = file.attachment.name
            blocks.append({"type": "document", "title": title, "source": source})
    return blocks


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    chosen = body.get("tool_choice", "auto")
    choice: dict[str, Any]
    if isinstance(chosen, Mapping):
        choice = {"type": "tool", "name": chosen["function"]["name"]}
    else:
        choice = {"type": _CHOICES[chosen]}
    if choice["type"] in ("any", "tool") and body.get("thinking", {}).get("type") == "enabled":
        hint = "leave out its thinking_budget, or set reasoning_effort instead"
        raise ModelError(
            "refused", f"{body['model']} cannot be made to call a tool while it thinks", hint=hint
        )
    if choice["type"] != "none" and body.get("parallel_tool_calls") is False:
        choice["disable_parallel_tool_use"] = True
    names = {"name": "name", "description": "description", "parameters": "input_schema"}
    tools = []
    for tool in body["tools"]:
        function = tool["function"]
        tools.append({key: function[name] for name, key in names.items() if name in function})
    offered = {"tools": tools}
    if choice == {"type": "auto"}:
        return offered
    return offered | {"tool_choice": choice}


def _mark_cached(turns: Iterable[dict[str, Any]]) -> None:
    """Have the API cache what the next turn of a tool loop begins with.

    The end of this request is what the next one continues. The end of the previous request is
    marked as well: the API looks for a cached beginning at most 20 blocks before a mark, and a turn
    may have more calls than that.
    """
    user_turns = [turn for turn in turns if turn["role"] == "user"]
    for turn in user_turns[-2:]:
        if blocks := _blocks(turn["content"]):
            turn["content"] = [*blocks[:-1], blocks[-1] | {"cache_control": {"type": "ephemeral"}}]
