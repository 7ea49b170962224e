"""OpenAI's Responses API, in terms of chat completions. Pure.

From platform.openai.com/docs/api-reference/responses and /docs/guides/reasoning, November 2026.
Nothing is stored at OpenAI (`store` is false), so what a model thought before it called a tool
comes encrypted and is sent back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, Final

from conductor_cli.core.mappings import only_keys
from conductor_cli.models.base import table_of, tables_in, text_of
from conductor_cli.models.chat_apis.base import ChatApi, Frame, Translate
from conductor_cli.models.chat_body import IS_ERROR, PROVIDER_DATA, system_texts
from conductor_cli.models.tool_schemas import bounded_id

ITEMS: Final = "response_items"  # the key of a turn's items in `provider_data`
_KEPT: Final = ("reasoning", "message", "function_call")  # the types of items that are sent back
_MAX_ITEMS: Final = 1024  # the most items of one reply: more than it may have tool calls
_UNFINISHED: Final = ("in_progress", "queued")
"""The statuses that some servers leave in the last event, which says by its name how it ended."""


class OpenAIResponses(ChatApi):
    """`POST /responses`. A reply is a stream of typed events, which `_Translator` reads."""

    path = "/responses"
    renamed: Mapping[str, str] = {
        "reasoning.summar": "reasoning_summary",
        "reasoning_summar": "reasoning_summary",
        "encrypted_content": "include",
        "max_output_tokens": "max_completion_tokens",
        "text.format": "response_format",
        "reasoning.effort": "reasoning_effort",
    }
    unsupported = frozenset(
        {"seed", "stop", "top_k", "presence_penalty", "frequency_penalty", "logit_bias"}
    )
    last = ("response.completed", "response.incomplete", "response.failed")

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Thinking is asked for where the user tells the model how hard to think.

        Models without it refuse both.
        """
        thinks = body.get("reasoning_effort") not in (None, "none")
        additions: dict[str, Any] = {}
        if thinks:
            additions["reasoning_summary"] = "auto"
        if thinks or "tools" in body:
            additions["include"] = ["reasoning.encrypted_content"]
        return additions

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        same = ("model", "stream", "temperature", "top_p", "parallel_tool_calls", "include")
        sent: dict[str, Any] = only_keys(body, same)
        system = system_texts(body["messages"])
        if system:
            sent["instructions"] = "\n\n".join(system)
        sent["input"] = []
        for message in body["messages"]:
            if message["role"] != "system":
                sent["input"] += _items(message)
        sent["store"] = False
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        if limit is not None:
            sent["max_output_tokens"] = limit
        reasoning = {}
        if "reasoning_effort" in body:
            reasoning["effort"] = body["reasoning_effort"]
        if "reasoning_summary" in body:
            reasoning["summary"] = body["reasoning_summary"]
        if reasoning:
            sent["reasoning"] = reasoning
        if "tools" in body:
            # Without it the API takes every schema as strict, and refuses those with optional
            # fields.
            sent["tools"] = []
            for tool in body["tools"]:
                sent["tools"].append({"type": "function", **tool["function"], "strict": False})
        choice = body.get("tool_choice")
        if isinstance(choice, Mapping):
            choice = {"type": "function", **choice["function"]}
        if choice is not None:
            sent["tool_choice"] = choice
        if "response_format" in body:
            schema = body["response_format"]["json_schema"]
            sent["text"] = {"format": {"type": "json_schema", **schema}}
        return sent

    def translator(self) -> Translate:
        return _Translator()


def _items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    match message["role"]:
        case "tool":
            return [_result_item(message)]
        case "assistant":
            return _assistant_items(message)
    content = message["content"]
    if not isinstance(content, str):
        content = _parts(content)
    return [{"role": message["role"], "content": content}]


def _result_item(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a tool, with `Error:` before it if that failed."""
    output = message["content"]
    failed = message.get(IS_ERROR)
    if not isinstance(output, str):
        output = _parts(output)
        if failed:
            output.insert(0, {"type": "input_text", "text": "Error:"})
    elif failed:
        output = f"Error: {output}"
    call_id = bounded_id(message["tool_call_id"])
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _assistant_items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a turn of the model: the items that it came in, as long as they say the same."""
    content = message["content"]
    calls = []
    for call in message.get("tool_calls", ()):
        call_id = bounded_id(call["id"])
        calls.append({"type": "function_call", "call_id": call_id, **call["function"]})
    kept = message.get(PROVIDER_DATA, {}).get(ITEMS) or []
    text = ""
    for part in chain.from_iterable(map(_content, kept)):
        text += part.get("text") or part.get("refusal") or ""
    ids = [item.get("call_id") for item in kept if item.get("type") == "function_call"]
    is_unchanged = text == (content or "") and ids == [call["call_id"] for call in calls]
    if kept and is_unchanged:
        return [item for item in kept if _is_sent_back(item)]
    if content:
        return [{"role": "assistant", "content": content}, *calls]
    return calls


def _is_sent_back(item: Mapping[str, Any]) -> bool:
    """Return whether an item is sent back; thoughts are only where they came encrypted."""
    return item.get("type") != "reasoning" or bool(item.get("encrypted_content"))


def _content(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if item.get("type") != "message":
        return []
    return tables_in(item.get("content"))


def _parts(content: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "image_url":
            image = part["image_url"]
            detail = image.get("detail", "auto")
            parts.append({"type": "input_image", "image_url": image["url"], "detail": detail})
        elif part["type"] == "file":
            parts.append({"type": "input_file", **part["file"]})
        else:
            parts.append({"type": "input_text", "text": part["text"]})
    return parts


class _Translator:
    """Reads the events of one reply.

    A server may leave out the pieces of an item and send it only when it is whole. So the items of
    which pieces have come are remembered, by their place in the output. If the pieces of a message
    are not what its item says in the end, some were lost or came twice, and the reply is an error.
    """

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._said: set[str] = set()
        self._texts: dict[str, list[str]] = {}
        self._summaries = 0

    def __call__(self, frame: Frame) -> Frame:
        kind = str(frame.get("type"))
        index = str(frame.get("output_index"))
        piece = frame.get("delta")
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                self._said.add(index)
                if isinstance(piece, str):
                    self._texts.setdefault(index, []).append(piece)
                if kind == "response.refusal.delta":
                    return _delta(refusal=piece)
                return _delta(content=piece)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._said.add(index)
                return _delta(content=[{"thinking": piece}])
            case "response.function_call_arguments.delta":
                self._said.add(index)
                return _delta(
                    tool_calls=[{"index": _number(index), "function": {"arguments": piece}}]
                )
            case "response.reasoning_summary_part.added":
                self._summaries += 1
                if self._summaries > 1:
                    return _delta(content=[{"thinking": "\n\n"}])
                return {}
            case "response.output_item.added" | "response.output_item.done":
                return self._item(index, frame.get("item"), whole=kind.endswith("done"))
            case "error":
                return {"error": {name: frame.get(name) for name in ("code", "message", "param")}}
        if kind in OpenAIResponses.last:
            return self._end(frame.get("response"), kind.removeprefix("response."))
        # An answer that is no stream is the response itself.
        if frame.get("object") == "response":
            return self._end(frame)
        return {}

    def _item(self, index: str, item: object, *, whole: bool) -> Frame:
        """Return the beginning of a call; of an item that is whole, what has not been said yet."""
        if not isinstance(item, Mapping):
            return {}
        is_call = item.get("type") == "function_call"
        if not whole:
            return _call(index, item, "") if is_call else {}
        if problem := self._keep(index, item):
            return {"error": {"message": problem}}
        if index in self._said:
            return {}
        return _call(index, item, item.get("arguments")) if is_call else _words(item)

    def _keep(self, index: str, item: Mapping[str, Any]) -> str:
        """Remember a whole item for the turn's way back, and return what is wrong with it."""
        # A server may leave the text of a message out in the end.
        last = "".join(text_of(part.get("text") or part.get("refusal")) for part in _content(item))
        if last and "".join(self._texts.get(index, [last])) != last:
            return "the pieces of the answer are not what it says in the end"
        if item.get("type") not in _KEPT:
            return ""
        if len(self._items) >= _MAX_ITEMS:
            return f"more than {_MAX_ITEMS} items in one response"
        self._items.append(dict(item))
        return ""

    def _end(self, response: object, event: str = "") -> Frame:
        """Return the last event: what is still to be said, the reason of the end, and the tokens.

        `event` is what its name says of the end; empty for an answer that is no stream.
        """
        response = table_of(response)
        counted = _counted(response.get("usage"))
        if response.get("status") == "failed" or response.get("error"):
            problem = response.get("error") or {"message": "the response failed"}
            return {"error": problem, **counted}
        output = response.get("output")
        unsaid = [] if self._items or not isinstance(output, list) else list(enumerate(output))
        frames = [self._item(str(at), item, whole=True) for at, item in unsaid]
        if broken := next((frame for frame in frames if "error" in frame), None):
            return broken
        deltas = [frame["choices"][0]["delta"] for frame in frames if frame]
        content = []
        tool_calls = []
        refusal = ""
        for delta in deltas:
            content += delta.get("content", ())
            tool_calls += delta.get("tool_calls", ())
            refusal += delta.get("refusal", "")
        joined = {"content": content, "tool_calls": tool_calls, "refusal": refusal}
        kept = {}
        if any(item["type"] != "message" for item in self._items):
            kept = {PROVIDER_DATA: {ITEMS: self._items}}
        return {
            "choices": [{"delta": joined, "finish_reason": _end_word(response, event)}],
            **counted,
            **kept,
        }


_COUNTS: Final[Mapping[str, str]] = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}
"""The counts of chat completions, and what this API calls them."""


def _counted(usage: object) -> Frame:
    """Return the part of a frame that has the tokens; nothing where none were counted."""
    if not isinstance(usage, Mapping):
        return {}
    return {"usage": {name: usage.get(key) for name, key in _COUNTS.items()}}


def _end_word(response: Mapping[str, Any], event: str) -> str:
    """Return the word by which a response ended: why it is incomplete, else its status."""
    reason = text_of(table_of(response.get("incomplete_details")).get("reason"))
    status = text_of(response.get("status"))
    if status in _UNFINISHED:
        status = event or status
    return reason or status or event or "completed"


def _call(index: str, item: Mapping[str, Any], arguments: object) -> Frame:
    """Return the frame of a call, with its arguments as far as they are known."""
    function = {"name": item.get("name"), "arguments": arguments}
    call = {"index": _number(index), "id": item.get("call_id"), "function": function}
    return _delta(tool_calls=[call])


def _words(item: Mapping[str, Any]) -> Frame:
    """Return the frame of an item that says something: a thought, a text or a refusal."""
    thoughts: list[Mapping[str, Any]] = []
    if item.get("type") == "reasoning":  # Servers of open models send all of it, and no summary
        thoughts = tables_in(item.get("summary")) or tables_in(item.get("content"))
    thinking = "\n\n".join(text_of(part.get("text")) for part in thoughts)
    content: list[dict[str, Any]] = [{"thinking": thinking}]
    refusal = ""
    for part in _content(item):
        content.append({"text": part.get("text")})
        refusal += text_of(part.get("refusal"))
    return _delta(content=content, refusal=refusal)


def _delta(**delta: object) -> Frame:
    return {"choices": [{"delta": delta}]}


def _number(index: str) -> int | None:
    if index.isascii() and index.isdigit() and len(index) < 10:
        return int(index)
    return None
