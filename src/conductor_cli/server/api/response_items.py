"""The items of a response: its reasoning, its message, its calls, and the events that build each. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from conductor_cli.core.chat import ToolCall
from conductor_cli.server.api.request import Outcome

Item = dict[str, Any]
NamedFields = tuple[str, dict[str, Any]]
"""The name of an event and its fields, apart from its number."""

INCOMPLETE: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
"""Why an answer is not complete, by the end of its last step."""


class ReasoningItem:
    """The narration, as the one part of a reasoning item's summary. It grows by pieces."""

    prefix: ClassVar = "rs"

    def __init__(self, item_id: str, index: int) -> None:
        self._id = item_id
        self._place = {"item_id": item_id, "output_index": index, "summary_index": 0}
        self._index = index
        self._texts: list[str] = []

    def item(self, status: str) -> Item:
        summary = [_summary("".join(self._texts))] if self._texts else []
        return {"id": self._id, "type": "reasoning", "summary": summary, "status": status}

    def begin(self) -> Iterator[NamedFields]:
        yield "response.output_item.added", {"output_index": self._index, "item": self.item("in_progress")}
        yield "response.reasoning_summary_part.added", {**self._place, "part": _summary("")}

    def piece(self, text: str) -> NamedFields:
        self._texts.append(text)
        return "response.reasoning_summary_text.delta", {**self._place, "delta": text}

    def end(self, status: str) -> Iterator[NamedFields]:
        text = "".join(self._texts)
        yield "response.reasoning_summary_text.done", {**self._place, "text": text}
        yield "response.reasoning_summary_part.done", {**self._place, "part": _summary(text)}
        yield "response.output_item.done", {"output_index": self._index, "item": self.item(status)}


class MessageItem:
    """The answer, as the one part of a message. It grows by pieces."""

    prefix: ClassVar = "msg"

    def __init__(self, item_id: str, index: int) -> None:
        self._id = item_id
        self._place = {"item_id": item_id, "output_index": index, "content_index": 0}
        self._index = index
        self._texts: list[str] = []

    def item(self, status: str) -> Item:
        content = [] if status == "in_progress" else [_output_text("".join(self._texts))]
        return {"id": self._id, "type": "message", "role": "assistant", "status": status, "content": content}

    def begin(self) -> Iterator[NamedFields]:
        yield "response.output_item.added", {"output_index": self._index, "item": self.item("in_progress")}
        yield "response.content_part.added", {**self._place, "part": _output_text("")}

    def piece(self, text: str) -> NamedFields:
        self._texts.append(text)
        return "response.output_text.delta", {**self._place, "delta": text, "logprobs": []}

    def end(self, status: str) -> Iterator[NamedFields]:
        text = "".join(self._texts)
        yield "response.output_text.done", {**self._place, "text": text, "logprobs": []}
        yield "response.content_part.done", {**self._place, "part": _output_text(text)}
        yield "response.output_item.done", {"output_index": self._index, "item": self.item(status)}


def call_item(item_id: str, call: ToolCall) -> Item:
    """A whole call of one of the client's tools."""
    return {
        "id": item_id, "type": "function_call", "status": "completed", "call_id": call.id, "name": call.name,
        "arguments": call.arguments,
    }  # fmt: skip


def whole_items(outcome: Outcome, run: str) -> list[Item]:
    """The output of an answer that was not streamed. Without calls there is a message, even if it is empty."""
    items: list[Item] = []
    if outcome.reasoning:
        reasoning = ReasoningItem(f"rs_{run}_{len(items)}", len(items))
        reasoning.piece(outcome.reasoning)
        items.append(reasoning.item("completed"))
    if outcome.text or not outcome.tool_calls:
        message = MessageItem(f"msg_{run}_{len(items)}", len(items))
        message.piece(outcome.text)
        items.append(message.item("incomplete" if outcome.finish in INCOMPLETE else "completed"))
    return [*items, *(call_item(f"fc_{run}_{len(items) + n}", call) for n, call in enumerate(outcome.tool_calls))]


def _summary(text: str) -> dict[str, str]:
    return {"type": "summary_text", "text": text}


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
