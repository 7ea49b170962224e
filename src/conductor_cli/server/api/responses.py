"""OpenAI's Responses: how a request is read. `responses_encoder` writes the answer. Pure.

From platform.openai.com/docs/api-reference/responses, November 2026, and from what clients send.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from conductor_cli.core.chat import Message, ToolCall
from conductor_cli.core.mappings import without_keys
from conductor_cli.core.question import fence
from conductor_cli.server.api.body_faults import MISSING, fault, quoted, refused, shown_word
from conductor_cli.server.api.body_models import (
    COMPACTED_TO,
    AnswerFormat,
    AttachmentCollector,
    Body,
    BoundedList,
    Count,
    impossible,
    late_instructions,
    validate_body,
    with_system_text,
)
from conductor_cli.server.api.client_tools import arguments_of_item, custom_arguments
from conductor_cli.server.api.ignored_fields import DEFAULT_TIERS, ignored_fields
from conductor_cli.server.api.openai_body_models import (
    NOTHING_PREPARED,
    TEXT_ONLY,
    Content,
    OpenAIAsking,
    name_in,
)
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.api.responses_encoder import ECHO_OF_NOTHING, RESPONSE, ResponsesEncoder


class _MessageItem(Body):
    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class _CallItem(Body):
    """A call of a function or of a custom tool."""

    type: Literal["function_call", "custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None

    def read(self) -> ToolCall:
        """Return the call as its worker made it."""
        arguments = self.arguments or ""
        if self.type == "custom_tool_call":
            arguments = custom_arguments(self.input or "")
        name = name_in(self.namespace, self.name)
        return ToolCall(id=self.call_id, name=name, arguments=arguments)


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
        yield self.type


def _as_items(value: object) -> object:
    """Return a text by itself as the message that it is."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return value


def _with_type(item: object) -> object:
    """Return an item with its type: one without any is a message.

    References to items of responses which are kept were replaced by these items before.
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
    """Return metadata of 16 entries at most, as OpenAI has them. Raises for more."""
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
                yield f"metadata.{shown_word(name)}"
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
        elif isinstance(item, _CallItem | _ClientCallItem):
            _add_reply(talk, "", (item.read(),))
        elif isinstance(item, _OutputItem):
            talk.append(files.take(item.output).message("tool", tool_call_id=item.call_id))
        elif isinstance(item, _ClientOutputItem):
            talk.append(item.read(f"input[{number}]"))
        elif isinstance(item, _CompactionItem):
            talk.append(read_compaction(item.encrypted_content, f"input[{number}]", files))
    messages = with_system_text(system, talk)
    if not messages:
        raise refused("input", "is empty", MISSING)
    return messages


def _add_reply(talk: list[Message], text: str, calls: tuple[ToolCall, ...]) -> None:
    """Add a text and calls to the conversation. The items of one reply are one message.

    It has its text and all of its calls, whatever their order.
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
        quotation = files.quote(summary, "summary")
    else:
        quotation = fence("summary", summary)
    return Message(role="user", content=f"{COMPACTED_TO}\n{quotation}")
