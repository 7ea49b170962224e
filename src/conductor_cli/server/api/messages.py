"""Anthropic's Messages: how a request is read. Pure.

From platform.claude.com/docs (Messages, streaming, tool use, thinking, structured outputs), November 2026, and from
what clients send. Fields that are not read are left out and named in `ClientRequest.ignored`; what cannot be served is
refused with the name of its field.

The conversation of a request of Anthropic's Messages: system text, turns, and the blocks of their content. Pure.

Anthropic's Messages: how an answer is written, as a stream of events or whole. Pure.

Plan and steps are narrated in one thinking block before the text, if the client asks for thinking. What comes after the
text has begun is not narrated, so that an answer stays one block. `conductor` beside `usage` has the orchestration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from conductor_cli.core.chat import Attachment, Finish, Message, Tool, ToolCall, ToolChoice
from conductor_cli.core.events import Event
from conductor_cli.core.media import attachment_tokens
from conductor_cli.core.quoting import fence
from conductor_cli.core.tools import parse_arguments
from conductor_cli.core.usage import CHARS_PER_TOKEN, Usage
from conductor_cli.server.api.encoding import conductor_object, named_event
from conductor_cli.server.api.errors import TOO_LONG, anthropic_words
from conductor_cli.server.api.fields import (
    Carried,
    bytes_of_base64,
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
from conductor_cli.server.api.openai_tools import LONGEST_NAME, AnswerForm, read_form
from conductor_cli.server.api.request import ClientRequest, Outcome, RequestError

BILLING: Final = "x-anthropic-billing-header"
"""How a block of Claude Code's system text begins that differs by task and says nothing to a model."""

_DROPPED: Final = frozenset({"thinking", "redacted_thinking", "server_tool_use"})
"""Blocks of earlier replies that no worker needs: thinking, and what Anthropic's servers did."""


@dataclass
class _Content:
    """What one message holds: texts, attachments, calls, results of calls."""

    texts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)


class MessageReader:
    """Reads the messages of one request. What they carry is collected by `carried`."""

    def __init__(self, carried: Carried) -> None:
        self._carried = carried
        self._readers: Mapping[str, Callable[[Mapping[str, Any], str, _Content], None]] = {
            "text": self._text, "image": self._image, "document": self._document, "search_result": _search_result,
            "tool_reference": _tool_reference, "tool_use": _tool_use, "tool_result": self._tool_result,
        }  # fmt: skip

    def read(self, body: Mapping[str, Any]) -> tuple[Message, ...]:
        """The system text, if there is any, then the turns. Raises `RequestError`."""
        entries = required(body, "messages", list)
        if not entries:
            raise refused("messages", "is empty")
        system = self._system(body)
        talk: list[Message] = []
        for index, entry in enumerate(entries):
            where = f"messages[{index}]"
            message = typed(entry, dict, where)
            role = required(message, "role", str, where)
            found = self._content(message.get("content"), f"{where}.content", role)
            if role == "system" and not talk:
                system += found.texts
            else:
                talk += _messages_of_turn(role, found)
        texts = [text for text in system if text.strip()]
        return (*([Message(role="system", content="\n\n".join(texts))] if texts else []), *talk)

    def _system(self, body: Mapping[str, Any]) -> list[str]:
        system = body.get("system")
        found = self._content(system, "system", "system") if system is not None else _Content()
        return [text for text in found.texts if not text.startswith(BILLING)]

    def _content(self, content: object, where: str, role: str) -> _Content:
        if role not in _ALLOWED:
            known = "user, assistant or system"
            raise refused(f"{where.removesuffix('.content')}.role", f"{quoted(role)} is not known: it can be {known}")
        found = _Content()
        if isinstance(content, str):
            found.texts.append(content)
            return found
        if content is None:
            raise refused(where, "is missing", "missing_required_parameter")
        self._read_blocks(typed(content, list, where), where, found, _ALLOWED[role])
        return found

    def _read_blocks(self, blocks: Sequence[object], where: str, found: _Content, allowed: frozenset[str]) -> None:
        for index, entry in enumerate(blocks):
            place = f"{where}[{index}]"
            block = typed(entry, dict, place)
            kind = required(block, "type", str, place)
            is_of_server = kind.endswith("_tool_result") and "tool_use" in allowed
            if kind in allowed and kind in self._readers:
                self._readers[kind](block, place, found)
            elif not (kind in allowed or is_of_server):
                raise refused(f"{place}.type", f"{quoted(kind)} cannot be served here", "unsupported_content")

    def _text(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        if text := required(block, "text", str, where):
            found.texts.append(text)

    def _image(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        source = required(block, "source", dict, where)
        place = f"{where}.source"
        data = _base64_data(source, place)
        found.attachments.append(self._carried.image(bytes_of_base64(data, f"{place}.data"), f"{place}.data"))

    def _document(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        source = required(block, "source", dict, where)
        place, title = f"{where}.source", optional(block, "title", str, where) or ""
        kind = required(source, "type", str, place)
        if context := optional(block, "context", str, where):
            found.texts.append(context)
        if kind == "text":
            found.texts.append(fence("file", required(source, "data", str, place), name=title or "document"))
        elif kind == "content":
            inner = source.get("content")
            blocks = [{"type": "text", "text": inner}] if isinstance(inner, str) else typed(inner, list, place)
            self._read_blocks(blocks, f"{place}.content", found, frozenset({"text", "image"}))
        else:
            data = bytes_of_base64(_base64_data(source, place), f"{place}.data")
            document = self._carried.document(data, f"{place}.data", title)
            if isinstance(document, str):
                found.texts.append(document)
            else:
                found.attachments.append(document)

    def _tool_result(self, block: Mapping[str, Any], where: str, found: _Content) -> None:
        inner, content = _Content(), block.get("content")
        if isinstance(content, str):
            inner.texts.append(content)
        elif content is not None:
            self._read_blocks(typed(content, list, f"{where}.content"), f"{where}.content", inner, _IN_RESULTS)
        result = Message(
            role="tool",
            content="\n".join(inner.texts),
            attachments=tuple(dict.fromkeys(inner.attachments)),
            tool_call_id=required(block, "tool_use_id", str, where),
            is_error=bool(optional(block, "is_error", bool, where)),
        )
        found.results.append(result)


_IN_RESULTS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})

_ALLOWED: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result"}),
    "assistant": frozenset({"text", "tool_use"}) | _DROPPED,
    "system": frozenset({"text"}),
}
"""The blocks of each role."""


def _messages_of_turn(role: str, found: _Content) -> list[Message]:
    """The messages of one turn.

    A system text in the middle stays there, as a text of the user: moved to the beginning it would change what all
    later requests begin with, and with it what providers remember.
    """
    if role == "system":
        return [Message(role="user", content=fence("system", "\n\n".join(found.texts)))] if found.texts else []
    if role == "assistant":
        # The texts of one reply are one text, which other blocks interrupt.
        text = "".join(found.texts)
        return [Message(role="assistant", content=text, tool_calls=tuple(found.calls))] if text or found.calls else []
    text, attachments = "\n\n".join(found.texts), tuple(dict.fromkeys(found.attachments))
    said = [Message(role="user", content=text, attachments=attachments)] if text or attachments else []
    if not (said or found.results):
        said = [Message(role="user", content="")]
    return [*found.results, *said]


def _base64_data(source: Mapping[str, Any], where: str) -> str:
    kind = required(source, "type", str, where)
    if kind == "url":
        raise refused(f"{where}.type", "is a link, and this server fetches none: send base64", "unsupported_content")
    if kind != "base64":
        raise refused(f"{where}.type", f"{quoted(kind)} cannot be served: send base64", "unsupported_content")
    return required(source, "data", str, where)


def _search_result(block: Mapping[str, Any], where: str, found: _Content) -> None:
    parts = required(block, "content", list, where)
    texts = [required(typed(part, dict, where), "text", str, f"{where}.content") for part in parts]
    name = optional(block, "title", str, where) or "search result"
    found.texts.append(fence("source", "\n".join(texts), name=name, source=optional(block, "source", str, where) or ""))


def _tool_reference(block: Mapping[str, Any], where: str, found: _Content) -> None:
    found.texts.append(f"The tool {required(block, 'tool_name', str, where)} fits.")


def _tool_use(block: Mapping[str, Any], where: str, found: _Content) -> None:
    given = block.get("input")
    arguments = json.dumps({} if given is None else typed(given, dict, f"{where}.input"))
    call, name = required(block, "id", str, where), required(block, "name", str, where)
    found.calls.append(ToolCall(id=call, name=name, arguments=arguments))


SIGNATURE: Final = "conductor"
"""The signature of a thinking block. Clients send it back; some drop a block without one."""

_STOP_REASONS: Final[Mapping[Finish, str]] = {"length": "max_tokens", "refusal": "refusal", "tool": "tool_use"}

_ERROR_TYPES: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
    529: "overloaded_error",
}  # fmt: skip

_Block = Literal["thinking", "text"]


class MessagesEncoder:
    """Writes the answer to one request. `tokens` is an estimate of its length, until its usage is known."""

    def __init__(self, request: ClientRequest, run: str, tokens: int) -> None:
        self._shows_reasoning = request.shows_reasoning
        self._model = request.model
        self._run = run
        self._tokens = tokens
        self._index = 0
        self._open: _Block | None = None
        self._answers = False
        """Whether the narration is over: the answer has begun."""

    def begin(self) -> bytes:
        """Clients count neither this event nor pings as a sign of life, so a block is opened at once."""
        usage = {"input_tokens": self._tokens, "output_tokens": 0}
        message = self._message([], None, usage | _NOTHING_CACHED)
        started = named_event("message_start", {"type": "message_start", "message": message})
        return started + (self._start("thinking") if self._shows_reasoning else b"")

    def heartbeat(self) -> bytes:
        opened = (
            b"" if self._open else self._start("text" if self._answers or not self._shows_reasoning else "thinking")
        )
        return opened + self._piece("")

    def reasoning(self, text: str) -> bytes:
        if not text or self._answers or not self._shows_reasoning:
            return b""
        return (b"" if self._open else self._start("thinking")) + self._piece(text)

    def event(self, event: Event) -> bytes:  # noqa: ARG002 - this API has no place for it
        return b""

    def text(self, text: str) -> bytes:
        if not text:
            return b""
        self._answers = True
        opened = b"" if self._open == "text" else self._stop() + self._start("text")
        return opened + self._piece(text)

    def tool_call(self, call: ToolCall) -> bytes:
        self._answers = True
        stopped, index = self._stop(), self._index
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(_input(call))}
        self._index += 1
        return stopped + _block_start(index, block) + _block_delta(index, arguments) + _block_stop(index)

    def end(self, outcome: Outcome) -> bytes:
        # An answer without any block is asked for again by Claude Code.
        began = b"" if self._open or self._index else self._start("text")
        delta = {
            "type": "message_delta",
            "delta": {"stop_reason": _stop_reason(outcome), "stop_sequence": None},
            "usage": _messages_usage(outcome.usage.answer),
            "conductor": conductor_object(outcome),
        }
        last = named_event("message_stop", {"type": "message_stop"})
        return began + self._stop() + named_event("message_delta", delta) + last

    def failed(self, error: RequestError) -> bytes:
        """Once a block has ended, clients show the error; before that they would ask again."""
        return self._stop() + named_event("error", error_envelope(error, self._run, self._tokens))

    def whole(self, outcome: Outcome) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if self._shows_reasoning and outcome.reasoning:
            content.append({"type": "thinking", "thinking": outcome.reasoning, "signature": SIGNATURE})
        if outcome.text or not outcome.tool_calls:
            content.append({"type": "text", "text": outcome.text})
        content += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call)} for call in outcome.tool_calls
        ]
        message = self._message(content, _stop_reason(outcome), _messages_usage(outcome.usage.answer))
        return message | {"conductor": conductor_object(outcome)}

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        return error_envelope(error, self._run, self._tokens)

    def _message(self, content: list[dict[str, Any]], reason: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": f"msg_{self._run}", "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": usage,
        }  # fmt: skip

    def _start(self, kind: _Block) -> bytes:
        self._open = kind
        empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        return _block_start(self._index, {"type": kind, **empty})

    def _piece(self, text: str) -> bytes:
        return _block_delta(self._index, {"type": f"{self._open}_delta", str(self._open): text})

    def _stop(self) -> bytes:
        """End the open block, if there is one."""
        if self._open is None:
            return b""
        index, is_thinking = self._index, self._open == "thinking"
        signed = _block_delta(index, {"type": "signature_delta", "signature": SIGNATURE}) if is_thinking else b""
        self._open, self._index = None, index + 1
        return signed + _block_stop(index)


def error_envelope(error: RequestError, run: str = "", tokens: int | None = None) -> dict[str, Any]:
    """The body of an error. `tokens` is about how long the request is, for one that is too long."""
    kind = _ERROR_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    message = anthropic_words(error.message, tokens) if error.code == TOO_LONG else error.message
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": run or None}


_NOTHING_CACHED: Final = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def _messages_usage(usage: Usage) -> dict[str, Any]:
    """What the answering step used. `input_tokens` are those that were neither read from a cache nor written to one."""
    return {
        "input_tokens": max(usage.tokens_in - usage.tokens_cached - usage.tokens_stored, 0),
        "cache_creation_input_tokens": usage.tokens_stored,
        "cache_read_input_tokens": usage.tokens_cached,
        "output_tokens": usage.tokens_out,
        "output_tokens_details": {"thinking_tokens": usage.tokens_reasoning},
    }


def _stop_reason(outcome: Outcome) -> str:
    return "tool_use" if outcome.tool_calls else _STOP_REASONS.get(outcome.finish, "end_turn")


def _input(call: ToolCall) -> dict[str, Any]:
    """The arguments as the object that this API demands. Others are shown to the client, which refuses them."""
    try:
        return parse_arguments(call)
    except ValueError:
        return {"arguments": call.arguments}


def _block_start(index: int, block: dict[str, Any]) -> bytes:
    return named_event("content_block_start", {"type": "content_block_start", "index": index, "content_block": block})


def _block_delta(index: int, delta: dict[str, Any]) -> bytes:
    return named_event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})


def _block_stop(index: int) -> bytes:
    return named_event("content_block_stop", {"type": "content_block_stop", "index": index})


_READ: Final = frozenset({
    "model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "stop_sequences", "stream",
    "thinking", "output_config", "output_format", "conductor", "metadata", "cache_control", "betas",
    "context_management",
})  # fmt: skip
"""Fields that are read, and those that change nothing here, such as marks for a provider's cache."""

_CHOICES: Final[Mapping[str, ToolChoice]] = {"auto": "auto", "any": "required", "none": "none"}

_TOKENS_PER_MESSAGE: Final = 4


class Messages:
    """`POST /v1/messages` and `/v1/messages/count_tokens`."""

    name = "messages"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ClientRequest:  # noqa: ARG002 - none matters
        try:
            return _read_body(body)
        except RecursionError:
            raise RequestError(400, "invalid_value", "the request is nested too deeply") from None

    def encoder(self, request: ClientRequest, run: str, created: int) -> MessagesEncoder:  # noqa: ARG002 - has no time
        return MessagesEncoder(request, run, estimated_tokens(request))

    def error(self, error: RequestError) -> dict[str, Any]:
        return error_envelope(error)

    def count_tokens(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """The answer to `count_tokens`. Raises `RequestError`."""
        return {"input_tokens": estimated_tokens(self.parse(body, headers))}


def estimated_tokens(request: ClientRequest) -> int:
    """About how many tokens a request has, by its length: which worker will read it is not known yet.

    A token counts as 3.5 characters, which is rather too many tokens for English and too few for some other languages.
    """
    texts = [request.schema and str(request.schema)]
    for message in request.messages:
        texts += [message.content, *(f"{call.name}{call.arguments}" for call in message.tool_calls)]
    texts += [f"{tool.name}{tool.description}{tool.parameters}" for tool in request.tools]
    carried = sum(attachment_tokens(each) for message in request.messages for each in message.attachments)
    return (
        int(sum(len(text or "") for text in texts) / CHARS_PER_TOKEN)
        + carried
        + _TOKENS_PER_MESSAGE * len(request.messages)
    )


def _read_body(body: Mapping[str, Any]) -> ClientRequest:
    carried = Carried()
    messages = MessageReader(carried).read(body)
    tools, left_out = _read_tools(body)
    form, config = _read_form(body)
    choice = optional(body, "tool_choice", dict) or {}
    parallel = optional(choice, "disable_parallel_tool_use", bool, "tool_choice") is not True
    return ClientRequest(
        model=required(body, "model", str),
        messages=messages,
        blobs=carried.blobs,
        tools=tuple(tools.values()),
        tool_choice=_read_choice(choice, tools),
        parallel_tool_calls=parallel,
        schema=form.schema,
        schema_field=form.schema_field,
        json_only=form.json_only,
        max_tokens=whole_number(body, "max_tokens", 1),
        temperature=number(body, "temperature", 0, 2),
        stop=read_stop(body, "stop_sequences"),
        effort=_read_effort(config),
        stream=bool(optional(body, "stream", bool)),
        include_usage=True,
        max_cost=read_max_cost(body),
        shows_reasoning=_shows_thinking(body),
        ignored=(*ignored_fields(body, _READ), *left_out),
    )


def _read_effort(config: Mapping[str, Any]) -> str:
    """The effort. `high` is the default of this API, which Claude Code sends with each request: it asks for nothing."""
    effort = config.get("effort")
    return effort if isinstance(effort, str) and effort != "high" else ""


def _shows_thinking(body: Mapping[str, Any]) -> bool:
    """Whether the client asks for thinking. Others read the first block of an answer as its text."""
    thinking = optional(body, "thinking", dict) or {}
    return thinking.get("type", "disabled") != "disabled" and thinking.get("display") != "omitted"


def _read_form(body: Mapping[str, Any]) -> tuple[AnswerForm, Mapping[str, Any]]:
    """The form of the answer, and the object that it is in; `output_format` is its older place."""
    config = optional(body, "output_config", dict) or {}
    where = "output_config.format"
    entry = optional(config, "format", dict, "output_config")
    if entry is None:
        where, entry = "output_format", optional(body, "output_format", dict)
    return read_form(entry, where, nested=False), config


def _read_tools(body: Mapping[str, Any]) -> tuple[dict[str, Tool], tuple[str, ...]]:
    """The client's own tools by name. Those that Anthropic's servers run are left out, and named."""
    tools, left_out = dict[str, Tool](), list[str]()
    for index, entry in enumerate(optional(body, "tools", list) or []):
        where = f"tools[{index}]"
        tool = typed(entry, dict, where)
        kind = optional(tool, "type", str, where)
        if kind not in {None, "custom"}:
            left_out.append(f"{where} of type {quoted(kind or '')}")
            continue
        name = required(tool, "name", str, where)
        if not 0 < len(name) <= LONGEST_NAME:
            raise refused(f"{where}.name", f"must have 1 to {LONGEST_NAME} characters")
        if name in tools:
            raise refused(f"{where}.name", f"is the name of two tools: {quoted(name)}")
        tools[name] = Tool(
            name=name, description=optional(tool, "description", str, where) or "",
            parameters=required(tool, "input_schema", dict, where),
        )  # fmt: skip
    return tools, tuple(left_out)


def _read_choice(choice: Mapping[str, Any], tools: Mapping[str, Tool]) -> ToolChoice | Tool:
    kind = required(choice, "type", str, "tool_choice") if choice else "auto"
    if kind == "tool":
        name = required(choice, "name", str, "tool_choice")
        if name not in tools:
            raise refused("tool_choice.name", f"is no tool of this request: {quoted(name)}")
        return tools[name]
    if kind not in _CHOICES:
        raise refused("tool_choice.type", f"{quoted(kind)} is not known: it can be auto, any, tool or none")
    if kind == "any" and not tools:
        raise refused("tool_choice.type", "is any, but the request has no tool that its client runs")
    return _CHOICES[kind]
