"""OpenAI's Responses.

How a request is read, and how an answer is written, as typed events or whole. Pure.

From platform.openai.com/docs/api-reference/responses, November 2026, and from what clients send.
The narration of plan and steps is the summary of a reasoning item. Every event has a number, from
which a stream can be read on. The response that ends a stream has all of its output, and the object
`conductor` of `server/api/encoding.py`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from conductor_cli.core.chat import Message, ToolCall
from conductor_cli.core.mappings import without_keys
from conductor_cli.core.question import fence
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.body_models import (
    MISSING,
    AnswerFormat,
    AttachmentCollector,
    Body,
    BoundedList,
    Count,
    fault,
    impossible,
    late_instructions,
    quoted,
    refused,
    validate_body,
    with_system_text,
)
from conductor_cli.server.api.client_tools import (
    arguments_of_item,
    call_item,
    custom_arguments,
    tool_of,
)
from conductor_cli.server.api.encoding import conductor_object, named_event, responses_usage
from conductor_cli.server.api.errors import TOO_LONG, error_body
from conductor_cli.server.api.ignored_fields import DEFAULT_TIERS, ignored_fields
from conductor_cli.server.api.openai_body_models import (
    NOTHING_PREPARED,
    TEXT_ONLY,
    Content,
    OpenAIAsking,
    name_in,
)
from conductor_cli.server.api.request import ClientRequest, RequestError, ServedAnswer

Item = dict[str, Any]
# The name of an event and its fields, apart from its number
NamedFields = tuple[str, dict[str, Any]]

INCOMPLETE: Final = {"length": "max_output_tokens", "refusal": "content_filter"}
"""Why an answer is not complete, by the end of its last step."""


@dataclass(frozen=True, slots=True)
class _ItemKind:
    """How one kind of item is written.

    Its type, its list of one part, and the events of that part.
    """

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
        """Some clients read only the first of the two events, others only the second."""
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
        """An event, unless the client has it. A piece of text counts for each of its characters.

        So a number means the same place however the text comes in pieces, and whatever else comes
        between.
        """
        self._numbered += size
        number = max(self._numbered - 1, 0)
        if size and number <= self._request.after:
            return b""
        identity = f"{RESPONSE}{self.run}:{number}"
        return named_event(kind, {"type": kind, "sequence_number": number, **fields}, identity)


# Requests


class _MessageItem(Body):
    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class _CallItem(Body):
    type: Literal["function_call", "custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None


class _ClientCallItem(Body):
    """A call of a tool that the client runs and that is no function."""

    type: Literal["local_shell_call", "shell_call", "apply_patch_call"]
    call_id: str
    action: dict[str, Any] | None = None
    operation: dict[str, Any] | None = None

    def read(self) -> ToolCall:
        """Return the call as its worker made it."""
        name = self.type.removesuffix("_call")
        arguments = arguments_of_item(self.action or self.operation or {})
        return ToolCall(id=self.call_id, name=name, arguments=arguments)


class _OutputItem(Body):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


class _ClientOutputItem(Body):
    """What a tool gave back that the client runs and that is no function."""

    type: Literal["local_shell_call_output", "shell_call_output", "apply_patch_call_output"]
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    output: Any = None

    def read(self, where: str) -> Message:
        """Return the result. Raises `RequestError` where it names no call."""
        call = self.call_id or self.id  # a local shell has only the second
        if call is None:
            raise refused(f"{where}.call_id", "is missing", MISSING)
        text = self.output
        if not isinstance(text, str):
            text = json.dumps(text, ensure_ascii=False)
        if self.type == "apply_patch_call_output" and self.status:
            text = f"{self.status}: {text}"
        failed = self.status == "failed"
        return Message(role="tool", content=text, tool_call_id=call, is_error=failed)


class _CompactionItem(Body):
    """What `POST /v1/responses/compact` made of a conversation."""

    type: Literal["compaction", "compaction_summary"]
    encrypted_content: str


class _LeftOutItem(Body):
    """An item that says how a reply came about. No worker could read it."""

    is_left_out: ClassVar[bool] = True
    type: Literal[
        "reasoning",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "computer_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
    ]

    def without_effect(self) -> Iterator[str]:
        """Nobody expects that the thoughts of one worker are sent to another."""
        if self.type != "reasoning":
            yield self.type


def _as_items(value: object) -> object:
    """Return a text by itself as the message that it is."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return value


def _with_type(item: object) -> object:
    """An item without a type is a message.

    Those that refer to items of responses which are kept were replaced by them before.
    """
    if isinstance(item, dict) and item.get("type") == "item_reference":
        raise fault(
            "is a reference to an item that this server does not have: send the item itself"
        )
    if isinstance(item, dict) and item.get("type") == "computer_call_output":
        raise fault("is a screen, and the worker would not see it", "unsupported_content")
    if isinstance(item, dict) and item.get("type") is None:
        return {**item, "type": "message"}
    return item


_Item = Annotated[
    _MessageItem
    | _CallItem
    | _ClientCallItem
    | _OutputItem
    | _ClientOutputItem
    | _CompactionItem
    | _LeftOutItem,
    Field(discriminator="type"),
    BeforeValidator(_with_type),
]


def _few_texts(metadata: object) -> object:
    """Up to 16 strings, as OpenAI has them."""
    if isinstance(metadata, dict) and len(metadata) > 16:
        raise fault("must have at most 16 entries")
    return metadata


MAX_METADATA: Final = (64, 512)
"""Characters of a name and of a value that are given back with the response, as OpenAI has them."""


class _Reasoning(Body):
    effort: Any = None
    summary: Any = None

    def without_effect(self) -> Iterator[str]:
        """The summary is the narration of the run, whatever length is asked for."""
        if self.effort is not None and not isinstance(self.effort, str):
            yield "effort"
        if self.summary not in (None, "auto"):
            yield "summary"


class _Text(Body):
    format: AnswerFormat | None = None
    verbosity: Any = None

    def without_effect(self) -> Iterator[str]:
        if self.verbosity is not None:
            yield "verbosity"


def _no_logprobs(include: list[Any]) -> list[Any]:
    if "message.output_text.logprobs" in include:
        raise fault(
            "cannot have message.output_text.logprobs: the answer may come from any worker",
            "unsupported_parameter",
        )
    return include


def _generates(generate: bool | None) -> bool | None:  # noqa: FBT001 - the value of a field
    if generate is False:
        raise fault(NOTHING_PREPARED.format("false"), "unsupported_parameter")
    return generate


class ResponsesBody(OpenAIAsking):
    """The body of `POST /v1/responses`."""

    prompt: Annotated[Any, impossible("cannot be served: this server keeps no prompts")] = None
    input: Annotated[
        BoundedList[_Item],
        BeforeValidator(_as_items, json_schema_input_type=str | list[dict[str, Any]]),
    ]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: _Text | None = None
    reasoning: _Reasoning | None = None
    previous_response_id: str | None = None
    metadata: Annotated[dict[str, str], BeforeValidator(_few_texts)] | None = None
    background: bool | None = None
    conversation: Annotated[
        Any, impossible("cannot be served: send the conversation as input, or previous_response_id")
    ] = None
    top_logprobs: Annotated[
        Any, impossible("cannot be served: the answer may come from any worker")
    ] = None

    generate: Annotated[bool | None, AfterValidator(_generates)] = None
    include: Annotated[list[Any], AfterValidator(_no_logprobs)] | None = None
    max_tool_calls: Any = None
    prompt_cache_key: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    truncation: Any = None
    user: Any = None

    def without_effect(self) -> Iterator[str]:
        """Most of these are said again in the response."""
        yield from super().without_effect()
        for name in ("max_tool_calls", "prompt_cache_key", "safety_identifier", "user"):
            if getattr(self, name) is not None:
                yield name
        for name, value in (self.metadata or {}).items():
            if self.kept_metadata.get(name) != value:
                yield f"metadata.{one_line(name[:200])[:60]}"
        if self.include:
            yield "include"
        if self.service_tier not in (None, *DEFAULT_TIERS):
            yield "service_tier"
        if self.truncation not in (None, "disabled"):
            yield "truncation"

    @property
    def kept_metadata(self) -> dict[str, str]:
        """What is given back with the response. What is too long is cut, and named as ignored."""
        name_length, value_length = MAX_METADATA
        return {
            name[:name_length]: value[:value_length]
            for name, value in (self.metadata or {}).items()
        }


class ResponsesApi:
    """`POST /v1/responses`."""

    name = "responses"
    encoder = ResponsesEncoder

    def parse(self, body: Mapping[str, Any]) -> ClientRequest:
        if body.get("prompt") and "input" not in body:
            body = {**body, "input": []}  # so that the reason is told, and not what is missing
        request_body = validate_body(ResponsesBody, body)
        files = AttachmentCollector()
        previous = request_body.previous_response_id or ""
        if previous and not previous.startswith(RESPONSE):
            message = f"Previous response with id {quoted(previous)} not found."
            raise RequestError(
                400, "previous_response_not_found", message, param="previous_response_id"
            )
        if request_body.background and request_body.store is False:
            raise refused("background", "needs store: the response is read later")
        effort = request_body.reasoning.effort if request_body.reasoning is not None else None
        form = request_body.text.format if request_body.text is not None else None
        options = request_body.read_options()
        options["ignored"] = ignored_fields(request_body, body, options["ignored"])
        return ClientRequest(
            messages=_read_items(request_body, files),
            blobs=files.blobs,
            texts=files.texts,
            max_tokens=request_body.max_output_tokens,
            effort=effort if isinstance(effort, str) else "",
            include_usage=True,
            previous=previous.removeprefix(RESPONSE),
            metadata=request_body.kept_metadata,
            background=bool(request_body.background),
            store=request_body.store is not False,
            echo=_echo_of(request_body, body),
            **(form.read("text.format") if form else {}),
            **options,
        )


_ECHOED: Final = (
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt_cache_key",
    "safety_identifier",
    "store",
    "temperature",
    "top_p",
    "truncation",
    "user",
    "background",
)
"""The fields that a response says again as they were sent."""

_SECRET_FIELDS: Final = frozenset({"authorization", "headers"})
"""Fields of a tool that are said to nobody again: they may hold keys."""


def _echo_of(parsed: ResponsesBody, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the response says of its request."""
    echo = dict(ECHO_OF_NOTHING)
    for name in _ECHOED:
        value = getattr(parsed, name)
        if value is not None:
            echo[name] = value
    echo["metadata"] = parsed.kept_metadata
    if parsed.reasoning is not None:
        echo["reasoning"] = {"effort": parsed.reasoning.effort, "summary": parsed.reasoning.summary}
    if parsed.text is not None:
        form = parsed.text.format
        echo["text"] = {"format": {"type": "text"}}
        if form is not None:
            echo["text"] = {"format": form.echo}
        if parsed.text.verbosity is not None:
            echo["text"]["verbosity"] = parsed.text.verbosity
    if body.get("tool_choice") is not None:
        echo["tool_choice"] = body["tool_choice"]
    echo["tools"] = [_echo_of_tool(tool) for tool in body.get("tools") or ()]
    return echo


def _echo_of_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    echo = without_keys(tool, _SECRET_FIELDS)
    if tool.get("type") == "function":
        defaults = {"description": None, "parameters": None, "strict": None}
        echo = defaults | echo
    return echo


def _read_items(parsed: ResponsesBody, files: AttachmentCollector) -> tuple[Message, ...]:
    """Return the conversation. The system texts before it become one message, the first.

    Raises `RequestError`.
    """
    system = [parsed.instructions or ""]
    talk = list[Message]()
    for number, item in enumerate(parsed.input):
        if isinstance(item, _MessageItem):
            content = files.take(item.content)
            if content.attachments and item.role != "user":
                raise refused(f"input[{number}].content", TEXT_ONLY)
            if item.role == "user":
                talk.append(content.message("user"))
            elif item.role == "assistant":
                _add_reply(talk, "\n".join(content.texts), ())
            elif talk:
                talk += late_instructions(content.texts)
            else:
                system.append("\n".join(content.texts))
        elif isinstance(item, _ClientCallItem):
            _add_reply(talk, "", (item.read(),))
        elif isinstance(item, _ClientOutputItem):
            talk.append(item.read(f"input[{number}]"))
        elif isinstance(item, _CompactionItem):
            talk.append(read_compaction(item.encrypted_content, f"input[{number}]", files))
        elif isinstance(item, _CallItem):
            arguments = item.arguments or ""
            if item.type == "custom_tool_call":
                arguments = custom_arguments(item.input or "")
            _add_reply(
                talk,
                "",
                (
                    ToolCall(
                        id=item.call_id,
                        name=name_in(item.namespace, item.name),
                        arguments=arguments,
                    ),
                ),
            )
        elif isinstance(item, _OutputItem):
            talk.append(files.take(item.output).message("tool", tool_call_id=item.call_id))
    messages = with_system_text(system, talk)
    if not messages:
        raise refused("input", "is empty", MISSING)
    return messages


def _add_reply(talk: list[Message], text: str, calls: tuple[ToolCall, ...]) -> None:
    """Add to a reply, whose items are one message.

    Its text, and all calls, whatever their order.
    """
    last = talk[-1] if talk else None
    if last is not None and last.role == "assistant" and (last.tool_calls or calls):
        content = "\n".join(filter(None, (last.content, text)))
        talk[-1] = replace(last, content=content, tool_calls=(*last.tool_calls, *calls))
    elif text or calls:
        talk.append(Message(role="assistant", content=text, tool_calls=calls))


# Compaction

COMPACTION: Final = "conductor:"
"""How the content of a compaction item begins. It is the summary itself, which is no secret."""


COMPACTION_OF_FILES: Final = "conductor-files:"
"""The same where the summary may quote files: it is a file then, too, for all rules about these."""


def write_compaction(summary: str, *, quotes_files: bool = False) -> str:
    """Return what a compaction item has as its `encrypted_content`."""
    prefix = COMPACTION_OF_FILES if quotes_files else COMPACTION
    return f"{prefix}{b64encode(summary.encode()).decode()}"


def read_compaction(content: str, where: str, files: AttachmentCollector) -> Message:
    """Return a summary as a message. Raises `RequestError` for an item of another server."""
    if not content.startswith((COMPACTION, COMPACTION_OF_FILES)):
        message = "is not of this server, so nobody here can read it: send the conversation itself"
        raise refused(f"{where}.encrypted_content", message)
    try:
        decoded = b64decode(content.partition(":")[2], validate=True)
        summary = decoded.decode()
    except ValueError:
        raise refused(f"{where}.encrypted_content", "is damaged") from None
    if content.startswith(COMPACTION_OF_FILES):
        quoted = files.quote(summary, "summary")
    else:
        quoted = fence("summary", summary)
    text = f"The conversation before this was compacted to:\n{quoted}"
    return Message(role="user", content=text)
