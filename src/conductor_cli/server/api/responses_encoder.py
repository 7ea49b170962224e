"""OpenAI's Responses: how an answer is written, as typed events or whole. Pure.

The narration of plan and steps is the summary of a reasoning item. Every event has a number, from
which a stream can be read on. The response that ends a stream has all of its output, and the object
`conductor` of `server/api/encoding.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.chat import ToolCall
from conductor_cli.server.api.client_tools import call_item, tool_of
from conductor_cli.server.api.encoding import conductor_object, named_event, responses_usage
from conductor_cli.server.api.errors import TOO_LONG, error_body
from conductor_cli.server.api.openai_body_models import name_in
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer

Item = dict[str, Any]
# The name of an event and its fields, apart from its number
NamedFields = tuple[str, dict[str, Any]]

INCOMPLETE: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
"""Why an answer is not complete, by the end of its last step."""


@dataclass(frozen=True, slots=True)
class _ItemKind:
    """How one kind of item is written: its type, its list of one part, and that part's events."""

    type: str
    prefix: str
    parts: str
    part: Mapping[str, Any]
    index_field: str
    part_event: str
    text_event: str
    text_fields: Mapping[str, Any]


_REASONING: Final = _ItemKind(
    "reasoning",
    "rs",
    "summary",
    {"type": "summary_text"},
    "summary_index",
    "response.reasoning_summary_part",
    "response.reasoning_summary_text",
    {},
)
"""The narration, as the one part of a reasoning item's summary."""

_MESSAGE: Final = _ItemKind(
    "message",
    "msg",
    "content",
    {"type": "output_text", "annotations": [], "logprobs": []},
    "content_index",
    "response.content_part",
    "response.output_text",
    {"logprobs": []},
)
"""The answer, as the one part of a message."""


class _GrowingItem:
    """An item that grows by pieces of one text."""

    def __init__(self, kind: _ItemKind, run: str, index: int, number: int) -> None:
        """Begin an item at `index` of the output, which is number `number` of its kind in the run.

        So its id is the same in a stream, in a whole answer, and where it is read again.
        """
        self.kind = kind
        self._id = f"{kind.prefix}_{run}_{number}"
        self._index = index
        self._place = {"item_id": self._id, "output_index": index, kind.index_field: 0}
        self._texts: list[str] = []

    def item(self, status: str) -> Item:
        role = {"role": "assistant"} if self.kind is _MESSAGE else {}
        # A message that is done has a part, even if that is empty.
        has_part = bool(self._texts) or (self.kind is _MESSAGE and status != "in_progress")
        parts = [self._part("".join(self._texts))] if has_part else []
        return {
            "id": self._id,
            "type": self.kind.type,
            **role,
            "status": status,
            self.kind.parts: parts,
        }

    def begin(self) -> Iterator[NamedFields]:
        yield (
            "response.output_item.added",
            {"output_index": self._index, "item": self.item("in_progress")},
        )
        yield f"{self.kind.part_event}.added", {**self._place, "part": self._part("")}

    def piece(self, text: str) -> NamedFields:
        self._texts.append(text)
        fields = {**self._place, "delta": text, **self.kind.text_fields}
        return f"{self.kind.text_event}.delta", fields

    def end(self, status: str) -> Iterator[NamedFields]:
        text = "".join(self._texts)
        fields = {**self._place, "text": text, **self.kind.text_fields}
        yield f"{self.kind.text_event}.done", fields
        yield f"{self.kind.part_event}.done", {**self._place, "part": self._part(text)}
        yield "response.output_item.done", {"output_index": self._index, "item": self.item(status)}

    def _part(self, text: str) -> dict[str, Any]:
        return {**self.kind.part, "text": text}


_TEXT_OF_CALL: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""The field of a call whose text comes in events of its own, by the type of its item."""

ECHO_OF_NOTHING: Final[Mapping[str, Any]] = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}
"""What a response says of a request that says nothing of it itself."""

RESPONSE: Final = "resp_"  # The id of a response is this and the id of its run


class ResponsesEncoder:
    """Writes the answer to one request.

    The items of a reply follow each other: reasoning, message, calls. What is told while the
    message is being written comes after it, because clients take each message item for an answer of
    its own.
    """

    def __init__(self, request: ClientRequest, run: str, created: int) -> None:
        self._request = request
        self.run = run
        self.created = created
        self._numbered = 0
        self._open: _GrowingItem | None = None
        self._held = ""
        self._output: list[Item] = []
        # From what is kept of the request, so that a stream that is read again has the same events
        effort = (request.echo or ECHO_OF_NOTHING)["reasoning"]["effort"]
        self._shows_reasoning = effort != "none"
        self._begun = {_REASONING.prefix: 0, _MESSAGE.prefix: 0}
        self._calls = 0

    def begin(self) -> bytes:
        begun = self.response("in_progress")
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def heartbeat(self) -> bytes:
        """Clients count it, while they skip comments."""
        return self._event("response.in_progress", size=0, response=self.response("in_progress"))

    def reasoning(self, text: str) -> bytes:
        if not text or not self._shows_reasoning:
            return b""
        if self._open is not None and self._open.kind is _MESSAGE:
            self._held += text
            return b""
        return self._piece(_REASONING, text)

    def text(self, text: str) -> bytes:
        if text:
            return self._piece(_MESSAGE, text)
        return b""

    def tool_call(self, call: ToolCall) -> bytes:
        before = self._close() + self._tell_held()
        index = len(self._output)
        tool = tool_of(call, self._request.tools)
        item = call_item(call, tool, self.run, self._calls)
        self._calls += 1
        if tool.namespace:
            item["name"] = call.name.removeprefix(name_in(tool.namespace, ""))
            item["namespace"] = tool.namespace
        self._output.append(item)
        begun = {**item, "status": "in_progress"}
        field = _TEXT_OF_CALL.get(item["type"])
        if field is not None:
            begun[field] = ""
        # The numbers of events are those of the order in which they are made
        events = [before]
        events.append(self._event("response.output_item.added", output_index=index, item=begun))
        if field is not None:
            events += self._text_of_call(item, field, index)
        events.append(self._event("response.output_item.done", output_index=index, item=item))
        return b"".join(events)

    def _text_of_call(self, item: Item, field: str, index: int) -> list[bytes]:
        """Return the events of the text that a call has in one field."""
        position: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        event = f"response.{item['type']}_{field}"
        text = {field: item[field]}
        if field == "arguments":
            text["name"] = item["name"]
        return [
            self._event(f"{event}.delta", **position, delta=item[field]),
            self._event(f"{event}.done", **position, **text),
        ]

    def end(self, answer: ServedAnswer) -> bytes:
        status = "incomplete" if answer.finish in INCOMPLETE else "completed"
        before = self._close(status) + self._tell_held()
        if not any(item["type"] != "reasoning" for item in self._output):
            # Clients wait for an item; an answer may be empty.
            before += self._begin_item(_MESSAGE) + self._close()
        ended = self._ended(answer)
        return before + self._event(f"response.{ended['status']}", response=ended)

    def failed(self, error: RequestError) -> bytes:
        """Return two events: some clients read only the first of them, others only the second."""
        envelope = error_body(error)["error"]
        failed = self._event("response.failed", response=self.failed_response(error))
        return failed + self._event(
            "error",
            code=envelope["code"],
            message=envelope["message"],
            param=envelope["param"],
            error=envelope,
        )

    def failed_response(self, error: RequestError) -> dict[str, Any]:
        """Return the response that an error has ended, with what it had by then."""
        # One of the codes that OpenAI has, which says whether Codex sends the request again: not
        # after the first two.
        if error.code == TOO_LONG:
            code = error.code
        elif error.is_final:
            code = "invalid_prompt"
        else:
            code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        reported = {"code": code, "message": error_body(error)["error"]["message"]}
        begun = [self._open.item("incomplete")] if self._open is not None else []
        return self.response("failed", [*self._output, *begun]) | {"error": reported}

    def whole(self, answer: ServedAnswer) -> dict[str, Any]:
        """Return the same as a stream would have had."""
        self.reasoning(answer.reasoning)
        self.text(answer.text)
        for call in answer.tool_calls:
            self.tool_call(call)
        self.end(answer)
        return self._ended(answer)

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        """Return a response that failed, which has a place for its error, and the envelope too."""
        return self.response("failed") | error_body(error)

    # The items

    def _piece(self, kind: _ItemKind, text: str) -> bytes:
        before = b""
        if self._open is None or self._open.kind is not kind:
            before = self._close() + self._begin_item(kind)
        assert self._open is not None
        already_sent = min(max(self._request.after + 1 - self._numbered, 0), len(text))
        name, fields = self._open.piece(text)
        return before + self._event(name, size=len(text), **fields | {"delta": text[already_sent:]})

    def _begin_item(self, kind: _ItemKind) -> bytes:
        number = self._begun[kind.prefix]
        self._begun[kind.prefix] += 1
        self._open = _GrowingItem(kind, self.run, len(self._output), number)
        return b"".join(self._event(name, **fields) for name, fields in self._open.begin())

    def _close(self, status: str = "completed") -> bytes:
        if self._open is None:
            return b""
        item = self._open
        self._open = None
        self._output.append(item.item(status))
        return b"".join(self._event(name, **fields) for name, fields in item.end(status))

    def _tell_held(self) -> bytes:
        held = self._held
        self._held = ""
        if held:
            return self._piece(_REASONING, held) + self._close()
        return b""

    # The response

    def _ended(self, answer: ServedAnswer) -> dict[str, Any]:
        reason = None
        if not answer.tool_calls:
            reason = INCOMPLETE.get(answer.finish)
        if reason:
            response = self.response("incomplete", self._output)
            response["incomplete_details"] = {"reason": reason}
        else:
            response = self.response("completed", self._output)
            response["completed_at"] = self.created + int(answer.seconds)
        return {
            **response,
            "usage": responses_usage(answer.usage),
            "conductor": conductor_object(answer, self._request.ignored),
        }

    def response(self, status: str, output: Sequence[Item] = ()) -> dict[str, Any]:
        """Return a response with its output, if it has any (yet)."""
        request = self._request
        return {
            "id": f"{RESPONSE}{self.run}",
            "object": "response",
            "created_at": self.created,
            "completed_at": None,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": request.model,
            "output": [*output],
            "usage": None,
            **(request.echo or ECHO_OF_NOTHING),
        }

    # Any JSON values
    def _event(self, kind: str, /, size: int = 1, **fields: Any) -> bytes:  # noqa: ANN401
        """Return an event, unless the client has it. A piece of text counts for each character.

        So a number means the same place however the text comes in pieces, and whatever else comes
        between.
        """
        self._numbered += size
        number = max(self._numbered - 1, 0)
        if size and number <= self._request.after:
            return b""
        identity = f"{RESPONSE}{self.run}:{number}"
        return named_event(kind, {"type": kind, "sequence_number": number, **fields}, identity)
