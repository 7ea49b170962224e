"""OpenAI's Responses: how a request is read. Pure.

From platform.openai.com/docs/api-reference/responses, November 2026, and from what clients send. Fields that are not
read are left out and named in `ClientRequest.ignored`; what cannot be served is refused with the name of its field.

The items of a response: its reasoning, its message, its calls, and the events that build each. Pure.

OpenAI's Responses: how an answer is written, as a stream of typed events or whole. Pure.

The narration of plan and steps is the summary of a reasoning item. Every event has a number. The response that ends a
stream has all of its output, and the object `conductor` of `server/api/encoding.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from conductor_cli.core.chat import Attachment, Message, Tool, ToolCall
from conductor_cli.core.events import Event, to_json
from conductor_cli.server.api.encoding import conductor_object, named_event, responses_usage
from conductor_cli.server.api.errors import TOO_LONG, error_object
from conductor_cli.server.api.fields import (
    Carried,
    bytes_of_base64,
    bytes_of_url,
    ignored_fields,
    number,
    optional,
    quoted,
    read_max_cost,
    read_stop,
    refused,
    required,
    typed,
    whole_number,
)
from conductor_cli.server.api.openai_tools import read_form, read_tools
from conductor_cli.server.api.request import ClientRequest, Outcome, RequestError

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


RESPONSE: Final = "resp_"
"""The id of a response is this and the id of its run."""


class ResponsesEncoder:
    """Writes the answer to one request.

    The items of a reply follow each other: reasoning, message, calls. What is told while the message is being written
    comes after it, because clients take each message item for an answer of its own.
    """

    def __init__(self, request: ClientRequest, run: str, created: int) -> None:
        self._request = request
        self._run = run
        self._created = created
        self._numbered = 0
        self._open: ReasoningItem | MessageItem | None = None
        self._held = ""
        self._output: list[Item] = []

    def begin(self) -> bytes:
        return self._response_event("response.created") + self._response_event("response.in_progress")

    def heartbeat(self) -> bytes:
        """Clients count it, while they skip comments."""
        return self._response_event("response.in_progress")

    def reasoning(self, text: str) -> bytes:
        if not text:
            return b""
        if isinstance(self._open, MessageItem):
            self._held += text
            return b""
        return self._piece(ReasoningItem, text)

    def event(self, event: Event) -> bytes:
        """An event of type `conductor.event`, whose `event` is as in docs/events.md."""
        return self._event("conductor.event", event=to_json(event)) if self._request.include_events else b""

    def text(self, text: str) -> bytes:
        return self._piece(MessageItem, text) if text else b""

    def tool_call(self, call: ToolCall) -> bytes:
        before = self._close() + self._tell_held()
        index, item_id = len(self._output), self._item_id("fc")
        item = call_item(item_id, call)
        self._output.append(item)
        place = {"item_id": item_id, "output_index": index}
        begun = item | {"arguments": "", "status": "in_progress"}
        return b"".join([
            before,
            self._event("response.output_item.added", output_index=index, item=begun),
            self._event("response.function_call_arguments.delta", **place, delta=call.arguments),
            self._event("response.function_call_arguments.done", **place, name=call.name, arguments=call.arguments),
            self._event("response.output_item.done", output_index=index, item=item),
        ])  # fmt: skip

    def end(self, outcome: Outcome) -> bytes:
        before = self._close("incomplete" if outcome.finish in INCOMPLETE else "completed") + self._tell_held()
        if not any(item["type"] != "reasoning" for item in self._output):
            # Clients wait for an item; an answer may be empty.
            before += self._begin_item(MessageItem) + self._close()
        ended = self._ended(outcome, self._output)
        return before + self._event(f"response.{ended['status']}", response=ended)

    def failed(self, error: RequestError) -> bytes:
        """Some clients read only the first of the two events, others only the second."""
        own = error_object(error)
        told = {"code": _code_of_failure(error), "message": own["message"]}
        begun = [self._open.item("incomplete")] if self._open is not None else []
        response = self._response("failed", [*self._output, *begun]) | {"error": told}
        failed = self._event("response.failed", response=response)
        return failed + self._event("error", code=own["code"], message=own["message"], param=own["param"], error=own)

    def whole(self, outcome: Outcome) -> dict[str, Any]:
        return self._ended(outcome, whole_items(outcome, self._run))

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        """A response has a place for its error, so this is one that failed, and the envelope too."""
        return self._response("failed", []) | {"error": error_object(error)}

    # The items

    def _piece(self, kind: type[ReasoningItem | MessageItem], text: str) -> bytes:
        before = b""
        if not isinstance(self._open, kind):
            before = self._close() + self._begin_item(kind)
        assert self._open is not None
        name, fields = self._open.piece(text)
        return before + self._event(name, **fields)

    def _begin_item(self, kind: type[ReasoningItem | MessageItem]) -> bytes:
        self._open = kind(self._item_id(kind.prefix), len(self._output))
        return b"".join(self._event(name, **fields) for name, fields in self._open.begin())

    def _close(self, status: str = "completed") -> bytes:
        if self._open is None:
            return b""
        item, self._open = self._open, None
        self._output.append(item.item(status))
        return b"".join(self._event(name, **fields) for name, fields in item.end(status))

    def _tell_held(self) -> bytes:
        held, self._held = self._held, ""
        return self._piece(ReasoningItem, held) + self._close() if held else b""

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._run}_{len(self._output)}"

    # The response

    def _ended(self, outcome: Outcome, output: list[Item]) -> dict[str, Any]:
        reason = None if outcome.tool_calls else INCOMPLETE.get(outcome.finish)
        response = self._response("incomplete" if reason else "completed", output)
        return response | {
            "incomplete_details": {"reason": reason} if reason else None,
            "usage": responses_usage(outcome.usage),
            "conductor": conductor_object(outcome),
        }

    def response(self, status: str) -> dict[str, Any]:
        """A response that has no output (yet)."""
        return self._response(status, [])

    def _response(self, status: str, output: list[Item]) -> dict[str, Any]:
        request = self._request
        return {
            "id": f"{RESPONSE}{self._run}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "max_output_tokens": request.max_tokens,
            "metadata": dict(request.metadata),
            "model": request.model,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls,
            "previous_response_id": f"{RESPONSE}{request.previous}" if request.previous else None,
            "reasoning": {"effort": request.effort or None, "summary": "auto"},
            "store": request.store,
            "temperature": request.temperature,
            "text": {"format": _format(request)},
            "tool_choice": _choice(request),
            "tools": [_tool(tool) for tool in request.tools],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
        }

    def _response_event(self, name: str) -> bytes:
        return self._event(name, response=self._response("in_progress", []))

    def _event(self, kind: str, /, **fields: Any) -> bytes:  # noqa: ANN401 - any JSON values
        number, self._numbered = self._numbered, self._numbered + 1
        return named_event(kind, {"type": kind, "sequence_number": number, **fields})


def _code_of_failure(error: RequestError) -> str:
    """One of the codes that OpenAI has. It decides whether Codex sends the request again: not after the first two."""
    if error.code == TOO_LONG:
        return error.code
    if (error.status < 500 and error.retry_after is None) or error.code.startswith("limit"):
        return "invalid_prompt"
    return "rate_limit_exceeded" if error.status == 429 else "server_error"


def _format(request: ClientRequest) -> dict[str, Any]:
    if request.schema is not None:
        return {"type": "json_schema", "name": "answer", "schema": dict(request.schema), "strict": True}
    return {"type": "json_object" if request.json_only else "text"}


def _choice(request: ClientRequest) -> str | dict[str, str]:
    choice = request.tool_choice
    return {"type": "function", "name": choice.name} if isinstance(choice, Tool) else choice


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function", "name": tool.name, "description": tool.description, "parameters": dict(tool.parameters),
        "strict": False,
    }  # fmt: skip


_READ: Final = frozenset({
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning",
    "max_output_tokens", "temperature", "stop", "seed", "stream", "stream_options", "previous_response_id", "store",
    "metadata", "include", "conductor", "background", "conversation", "prompt",
})  # fmt: skip

_IMPOSSIBLE: Final = {
    "background": "cannot be served: keep the connection open, or ask again with the same request",
    "conversation": "cannot be served: send the conversation as input, or previous_response_id",
    "prompt": "cannot be served: this server keeps no prompts",
    "top_logprobs": "cannot be served: the answer may come from any worker",
}
"""Fields whose effect a client would miss, and why they are refused."""

_LEFT_OUT: Final = frozenset({
    "reasoning", "web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call",
    "computer_call", "computer_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response",
})  # fmt: skip
"""Items that say how a reply came about. No worker could read them."""


class Responses:
    """`POST /v1/responses`."""

    name = "responses"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ClientRequest:  # noqa: ARG002 - none matters
        try:
            return _read_request(body)
        except RecursionError:
            raise RequestError(400, "invalid_value", "the request is nested too deeply") from None

    def encoder(self, request: ClientRequest, run: str, created: int) -> ResponsesEncoder:
        return ResponsesEncoder(request, run, created)

    def error(self, error: RequestError) -> dict[str, Any]:
        return {"error": error_object(error)}


def _read_request(body: Mapping[str, Any]) -> ClientRequest:
    for name, reason in _IMPOSSIBLE.items():
        if body.get(name):
            raise refused(name, reason, "unsupported_parameter")
    carried, instructions = Carried(), optional(body, "instructions", str) or ""
    messages = _Items(carried, instructions).read(body)
    tools = read_tools(body, nested=False)
    text, reasoning = optional(body, "text", dict) or {}, optional(body, "reasoning", dict) or {}
    form = read_form(optional(text, "format", dict, "text"), "text.format", nested=False)
    options = optional(body, "stream_options", dict) or {}
    parallel, store = optional(body, "parallel_tool_calls", bool), optional(body, "store", bool)
    effort = reasoning.get("effort")
    return ClientRequest(
        model=required(body, "model", str),
        messages=messages,
        blobs=carried.blobs,
        tools=tools.tools,
        tool_choice=tools.choice,
        parallel_tool_calls=parallel is not False,
        schema=form.schema,
        schema_field=form.schema_field,
        json_only=form.json_only,
        max_tokens=whole_number(body, "max_output_tokens", 1),
        temperature=number(body, "temperature", 0, 2),
        stop=read_stop(body),
        seed=whole_number(body, "seed", -(2**63)),
        effort=effort if isinstance(effort, str) else "",
        stream=bool(optional(body, "stream", bool)),
        include_usage=True,
        include_events=bool(optional(options, "include_events", bool, "stream_options")),
        max_cost=read_max_cost(body),
        previous=_previous(body),
        store=store is not False,
        metadata=_metadata(body),
        ignored=(*ignored_fields(body, _READ), *tools.left_out),
    )


def _previous(body: Mapping[str, Any]) -> str:
    """The run that made the response which this request continues."""
    response = optional(body, "previous_response_id", str) or ""
    if response and not response.startswith(RESPONSE):
        raise unknown_response(response)
    return response.removeprefix(RESPONSE)


def unknown_response(response: str) -> RequestError:
    """The error for the id of a response that this server does not have."""
    message = f"Previous response with id {quoted(response)} not found."
    return RequestError(404, "previous_response_not_found", message, param="previous_response_id")


def _metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """Up to 16 strings, which are given back with the response, as OpenAI does it."""
    metadata = optional(body, "metadata", dict) or {}
    if len(metadata) > 16:
        raise refused("metadata", "must have at most 16 entries")
    return {
        str(name)[:64]: typed(value, str, f"metadata.{quoted(str(name))}")[:512] for name, value in metadata.items()
    }


class _Items:
    """Reads the items of one request. All system texts become one message, the first."""

    def __init__(self, carried: Carried, instructions: str) -> None:
        self._carried = carried
        self._system = [instructions] if instructions else []
        self._talk: list[Message] = []

    def read(self, body: Mapping[str, Any]) -> tuple[Message, ...]:
        given = body.get("input")
        if isinstance(given, str):
            self._talk.append(Message(role="user", content=given))
        else:
            self._read_items(required(body, "input", list))
        if not self._talk and not self._system:
            raise refused("input", "is empty")
        system = [Message(role="system", content="\n\n".join(self._system))] if self._system else []
        return (*system, *self._talk)

    def _read_items(self, items: Sequence[object]) -> None:
        for position, entry in enumerate(items):
            where = f"input[{position}]"
            item = typed(entry, dict, where)
            kind = optional(item, "type", str, where) or "message"
            if kind == "message":
                self._message(item, where)
            elif kind == "function_call":
                arguments = optional(item, "arguments", str, where) or ""
                self._call(item, where, arguments)
            elif kind == "custom_tool_call":
                self._call(item, where, optional(item, "input", str, where) or "")
            elif kind in {"function_call_output", "custom_tool_call_output"}:
                self._output(item, where)
            elif kind == "item_reference":
                raise refused(where, "is a reference, which this server does not keep: send the item itself")
            elif kind not in _LEFT_OUT:
                known = "message, function_call, function_call_output or reasoning"
                problem = f"{quoted(kind)} cannot be served: it can be {known}"
                raise refused(f"{where}.type", problem, "unsupported_content")

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = required(item, "role", str, where)
        text, attachments = self._content(item, "content", where)
        if role == "user":
            self._talk.append(Message(role="user", content=text, attachments=attachments))
        elif role in {"system", "developer", "assistant"}:
            if attachments:
                raise refused(f"{where}.content", "can only be text in a message of this role")
            if role == "assistant":
                self._reply(Message(role="assistant", content=text))
            elif text:
                self._system.append(text)
        else:
            known = "user, assistant, system or developer"
            raise refused(f"{where}.role", f"{quoted(role)} is not known: it can be {known}")

    def _call(self, item: Mapping[str, Any], where: str, arguments: str) -> None:
        name = required(item, "name", str, where)
        call = ToolCall(id=required(item, "call_id", str, where), name=name, arguments=arguments)
        self._reply(Message(role="assistant", content="", tool_calls=(call,)))

    def _reply(self, more: Message) -> None:
        """The items of one reply are one message: its text, and all calls, whatever their order."""
        if not more.content and not more.tool_calls:
            return
        last = self._talk[-1] if self._talk else None
        if last is None or last.role != "assistant" or not (last.tool_calls or more.tool_calls):
            self._talk.append(more)
            return
        content = "\n".join(text for text in (last.content, more.content) if text)
        self._talk[-1] = replace(last, content=content, tool_calls=(*last.tool_calls, *more.tool_calls))

    def _output(self, item: Mapping[str, Any], where: str) -> None:
        text, attachments = self._content(item, "output", where)
        call = required(item, "call_id", str, where)
        self._talk.append(Message(role="tool", content=text, attachments=attachments, tool_call_id=call))

    def _content(self, item: Mapping[str, Any], name: str, where: str) -> tuple[str, tuple[Attachment, ...]]:
        """The text of an item, and what it carries."""
        content = item.get(name)
        if isinstance(content, str):
            return content, ()
        texts, attachments = list[str](), list[Attachment]()
        for index, entry in enumerate(required(item, name, list, where)):
            place = f"{where}.{name}[{index}]"
            found = self._part(typed(entry, dict, place), place)
            if isinstance(found, str):
                texts.append(found)
            else:
                attachments.append(found)
        return "\n".join(texts), tuple(dict.fromkeys(attachments))

    def _part(self, part: Mapping[str, Any], where: str) -> str | Attachment:
        kind = required(part, "type", str, where)
        if kind in {"input_text", "output_text", "text"}:
            return required(part, "text", str, where)
        if kind == "refusal":
            return required(part, "refusal", str, where)
        if kind == "input_image":
            place = f"{where}.image_url"
            return self._carried.image(bytes_of_url(_inline(part, "image_url", where), place), place)
        if kind == "input_file":
            data, place = _inline(part, "file_data", where), f"{where}.file_data"
            found = bytes_of_url(data, place) if data[:5].lower() == "data:" else bytes_of_base64(data, place)
            return self._carried.document(found, place, optional(part, "filename", str, where) or "")
        known = "input_text, input_image, input_file or output_text"
        raise refused(f"{where}.type", f"{quoted(kind)} cannot be served: it can be {known}", "unsupported_content")


def _inline(part: Mapping[str, Any], name: str, where: str) -> str:
    """The field that holds the bytes themselves. Raises `RequestError` where a part only refers to them."""
    data = optional(part, name, str, where)
    if data is None:
        raise refused(where, f"must have {name}: this server keeps no files and fetches none", "unsupported_content")
    return data
