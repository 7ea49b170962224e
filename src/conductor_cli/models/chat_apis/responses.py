"""OpenAI's Responses API, in terms of chat completions. Pure.

From platform.openai.com/docs/api-reference/responses and /docs/guides/reasoning, November 2026. Nothing is stored at
OpenAI (`store` is false), so what a model thought before it called a tool comes encrypted and is sent back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from conductor_cli.models.api_errors import largest_output
from conductor_cli.models.base import ALL_FEATURES
from conductor_cli.models.chat_apis.base import Frame, Translate
from conductor_cli.models.chat_body import IS_ERROR, PROVIDER_DATA

ITEMS: Final = "response_items"
"""The key of a turn's items in `provider_data`."""

_KEPT: Final = ("reasoning", "message", "function_call")
"""The types of items that are sent back."""

_MOST_ITEMS: Final = 1024
"""The most items of one reply: more than it may have tool calls."""

_FINISHES: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""What each reason of an incomplete response is called by chat completions."""

_LAST: Final = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses:
    """`POST /responses`. A reply is a stream of typed events, which `_Translator` reads."""

    renamed: Mapping[str, str] = {
        "reasoning.summar": "reasoning_summary", "reasoning_summar": "reasoning_summary",
        "encrypted_content": "include", "max_output_tokens": "max_completion_tokens", "text.format": "response_format",
        "reasoning.effort": "reasoning_effort",
    }  # fmt: skip
    unsupported = frozenset({"seed", "stop"})
    features = ALL_FEATURES

    def path(self, model: str) -> str:  # noqa: ARG002 - the body names the model
        return "/responses"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def additions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Thinking is asked for where the user tells the model how hard to think; models without it refuse both."""
        thinks = body.get("reasoning_effort") not in (None, "none")
        summary = {"reasoning_summary": "auto"} if thinks else {}
        return summary | ({"include": ["reasoning.encrypted_content"]} if thinks or "tools" in body else {})

    def body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        same = ("model", "stream", "temperature", "top_p", "parallel_tool_calls", "include")
        sent: dict[str, Any] = {name: body[name] for name in same if name in body}
        system = [message["content"] for message in body["messages"] if message["role"] == "system"]
        sent |= {"instructions": "\n\n".join(system)} if system else {}
        others = (message for message in body["messages"] if message["role"] != "system")
        sent |= {"input": [item for message in others for item in _items(message)], "store": False}
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        sent |= {} if limit is None else {"max_output_tokens": limit}
        names = {"reasoning_effort": "effort", "reasoning_summary": "summary"}
        reasoning = {own: body[name] for name, own in names.items() if name in body}
        sent |= {"reasoning": reasoning} if reasoning else {}
        if "tools" in body:
            # Without it the API takes every schema as strict, and refuses those with optional fields.
            sent["tools"] = [{"type": "function", **tool["function"], "strict": False} for tool in body["tools"]]
        choice = body.get("tool_choice")
        if choice is not None:
            sent["tool_choice"] = choice if isinstance(choice, str) else {"type": "function", **choice["function"]}
        if "response_format" in body:
            sent["text"] = {"format": {"type": "json_schema", **body["response_format"]["json_schema"]}}
        return sent

    def translator(self) -> Translate:
        return _Translator()

    def is_last(self, frame: Frame) -> bool:
        return frame.get("type") in _LAST

    def output_limit(self, message: str) -> int | None:
        return largest_output(message)


def _items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items that a message is: one for its text, one for each call."""
    role, content = message["role"], message["content"]
    if role == "tool":
        output = content if isinstance(content, str) else _parts(content)
        if message.get(IS_ERROR):
            output = f"Error: {output}" if isinstance(output, str) else [_text_part("Error:"), *output]
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": output}]
    if role != "assistant":
        return [{"role": role, "content": content if isinstance(content, str) else _parts(content)}]
    called = message.get("tool_calls", ())
    calls = [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in called]
    kept = message.get(PROVIDER_DATA, {}).get(ITEMS)
    if kept and _is_unchanged(kept, content or "", [call["call_id"] for call in calls]):
        return [item for item in kept if item.get("type") != "reasoning" or item.get("encrypted_content")]
    return [*([{"role": role, "content": content}] if content else []), *calls]


def _is_unchanged(items: list[dict[str, Any]], text: str, calls: list[str]) -> bool:
    """Whether items still say what the message says: then they are sent as they came, in their order."""
    said = "".join(part.get("text") or part.get("refusal") or "" for item in items for part in _content(item))
    return said == text and [item.get("call_id") for item in items if item.get("type") == "function_call"] == calls


def _content(item: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of a message that a model wrote."""
    content = item.get("content") if item.get("type") == "message" else None
    return (part for part in content if isinstance(part, Mapping)) if isinstance(content, list) else iter(())


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "input_text", "text": text}


def _parts(content: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        if part["type"] == "image_url":
            parts.append({"type": "input_image", "image_url": part["image_url"]["url"], "detail": "auto"})
        elif part["type"] == "file":
            parts.append({"type": "input_file", **part["file"]})
        else:
            parts.append(_text_part(part["text"]))
    return parts


def _thought(text: object, _place: str) -> dict[str, Any]:
    return {"content": [{"thinking": text}]}


_PIECES: Final[Mapping[str, Callable[[object, str], dict[str, Any]]]] = {
    "response.output_text.delta": lambda text, _: {"content": text},
    "response.refusal.delta": lambda text, _: {"refusal": text},
    "response.reasoning_summary_text.delta": _thought,
    "response.reasoning_text.delta": _thought,
    "response.function_call_arguments.delta": lambda text, place: {
        "tool_calls": [{"index": _number(place), "function": {"arguments": text}}]
    },
}
"""The events with a piece of an item, and what each adds to a reply: from the piece and the place of its item."""

_OF_MESSAGES: Final = ("response.output_text.delta", "response.refusal.delta")
"""Those with a piece of what is said to the user."""


class _Translator:
    """Reads the events of one reply.

    A server may leave out the pieces of an item and send it only when it is whole. So the items of which pieces have
    come are remembered, by their place in the output. If the pieces of a message are not what its item says in the end,
    some were lost or came twice, and the reply is an error.
    """

    def __init__(self) -> None:
        self._items: list[dict[str, Any]] = []
        self._said: set[str] = set()
        self._texts: dict[str, list[str]] = {}
        self._summaries = 0

    def __call__(self, frame: Frame) -> Frame:
        kind, place = str(frame.get("type")), str(frame.get("output_index"))
        if piece := _PIECES.get(kind):
            self._said.add(place)
            if kind in _OF_MESSAGES and isinstance(text := frame.get("delta"), str):
                self._texts.setdefault(place, []).append(text)
            return _delta(**piece(frame.get("delta"), place))
        if kind == "response.reasoning_summary_part.added":
            self._summaries += 1
            return _delta(**_thought("\n\n", place)) if self._summaries > 1 else {}
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._item(place, frame.get("item"), whole=kind.endswith("done"))
        if kind == "error":
            return {"error": {name: frame.get(name) for name in ("code", "message", "param")}}
        if kind in _LAST or frame.get("object") == "response":
            # An answer that is no stream is the response itself.
            return self._end(frame.get("response") if kind in _LAST else frame)
        return {}

    def _item(self, place: str, item: object, *, whole: bool) -> Frame:
        """A call begins with its item; of an item that is whole, what has not been said yet."""
        if not isinstance(item, Mapping):
            return {}
        kind, said = item.get("type"), place in self._said
        if whole and kind == "message" and place in self._texts and not self._is_complete(place, item):
            return {"error": {"message": "the pieces of the answer are not what it says in the end"}}
        if whole and kind in _KEPT:
            if len(self._items) >= _MOST_ITEMS:
                return {"error": {"message": f"more than {_MOST_ITEMS} items in one response"}}
            self._items.append(dict(item))
        if kind == "function_call" and (not said or not whole):
            function = {"name": item.get("name"), "arguments": item.get("arguments") if whole else ""}
            return _delta(tool_calls=[{"index": _number(place), "id": item.get("call_id"), "function": function}])
        return _delta(content=_texts(item), refusal=_refusal(item)) if whole and not said else {}

    def _is_complete(self, place: str, item: Mapping[str, Any]) -> bool:
        """Whether the pieces of a message make its text. A server may leave the text out in the end."""
        texts = [part.get("text") or part.get("refusal") for part in _content(item)]
        whole = "".join(text for text in texts if isinstance(text, str))
        return not whole or "".join(self._texts[place]) == whole

    def _end(self, response: object) -> Frame:
        """The last event: what is still to be said, the reason of the end, and the tokens."""
        response = response if isinstance(response, Mapping) else {}
        if response.get("status") == "failed" or response.get("error"):
            return {"error": response.get("error") or {"message": "the response failed"}}
        output = response.get("output")
        unsaid = [] if self._items or not isinstance(output, list) else list(enumerate(output))
        deltas = [self._item(str(at), item, whole=True) for at, item in unsaid]
        if problem := next((delta for delta in deltas if "error" in delta), None):
            return problem
        details = response.get("incomplete_details")
        reason = str(details.get("reason")) if isinstance(details, Mapping) else ""
        finish = _FINISHES.get(reason, reason) or "stop"
        usage = response.get("usage")
        counted = {"usage": _usage(usage)} if isinstance(usage, Mapping) else {}
        kept = {PROVIDER_DATA: {ITEMS: self._items}} if any(item["type"] != "message" for item in self._items) else {}
        return {**_joined(deltas, finish), **counted, **kept}


def _delta(**delta: object) -> Frame:
    return {"choices": [{"delta": delta}]}


def _joined(frames: Iterable[Frame], finish: str) -> Frame:
    """One frame of several, which ends the reply."""
    deltas = [frame["choices"][0]["delta"] for frame in frames if frame]
    joined: dict[str, Any] = {
        "content": [part for delta in deltas for part in delta.get("content", ())],
        "tool_calls": [call for delta in deltas for call in delta.get("tool_calls", ())],
        "refusal": "".join(delta.get("refusal", "") for delta in deltas),
    }
    return {"choices": [{"delta": joined, "finish_reason": finish}]}


def _texts(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a whole item says, and what it thought, as parts of a content."""
    summary = item.get("summary") if item.get("type") == "reasoning" else None
    thoughts = [part.get("text") for part in summary if isinstance(part, Mapping)] if isinstance(summary, list) else []
    thinking = "\n\n".join(text for text in thoughts if isinstance(text, str))
    return [*([{"thinking": thinking}] if thinking else []), *({"text": part.get("text")} for part in _content(item))]


def _refusal(item: Mapping[str, Any]) -> str:
    return "".join(text for part in _content(item) if isinstance(text := part.get("refusal"), str))


def _number(place: str) -> int | None:
    """The place of an item as the index of a call."""
    return int(place) if place.isascii() and place.isdigit() and len(place) < 10 else None


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }
