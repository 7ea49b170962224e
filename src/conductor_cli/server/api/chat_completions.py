"""OpenAI's Chat Completions: how a request is read. Pure.

From platform.openai.com/docs/api-reference/chat, November 2026, and from what clients send. Fields that are not read
are left out and named in `ClientRequest.ignored`; what cannot be served is refused with the name of its field.

OpenAI's Chat Completions: how an answer is written, as a stream of chunks or whole. Pure.

The narration of plan and steps is `reasoning_content`, which DeepSeek introduced and most clients show. The last chunk
has the object `conductor` of `server/api/encoding.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conductor_cli.core.chat import Attachment, Finish, Message, ToolCall
from conductor_cli.core.events import Event, to_json
from conductor_cli.server.api.encoding import DONE, HEARTBEAT, chat_usage, conductor_object, data_event, json_bytes
from conductor_cli.server.api.errors import error_object
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

FINISHES: Final[dict[Finish, str]] = {"length": "length", "refusal": "content_filter"}
"""What a client is told of the end of an answer; `stop` for any other."""


class ChatEncoder:
    """Writes the answer to one request."""

    def __init__(self, request: ClientRequest, run: str, created: int) -> None:
        self._request = request
        self._head = {
            "id": f"chatcmpl-{run}", "object": "chat.completion.chunk", "created": created, "model": request.model,
        }  # fmt: skip
        # With the usage in a chunk of its own, OpenAI says in all others that it comes later.
        self._tail = {"usage": None} if request.include_usage else {}
        self._calls = 0
        self._has_text = False
        # Every token is a chunk of its own, so what is the same around each is made once.
        self._before_text, self._after_text = self._chunk({"content": ""}).split(b'"content":""', 1)

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def heartbeat(self) -> bytes:
        return HEARTBEAT

    def reasoning(self, text: str) -> bytes:
        """Nothing once the answer has begun: clients such as aider would write it into the answer's text."""
        return self._chunk({"reasoning_content": text}) if text and not self._has_text else b""

    def event(self, event: Event) -> bytes:
        """A chunk without a choice, whose `conductor.event` is as in docs/events.md."""
        if not self._request.include_events:
            return b""
        return data_event({**self._head, "choices": [], **self._tail, "conductor": {"event": to_json(event)}})

    def text(self, text: str) -> bytes:
        self._has_text = True
        return b'%b"content":%b%b' % (self._before_text, json_bytes(text), self._after_text) if text else b""

    def tool_call(self, call: ToolCall) -> bytes:
        index, self._calls = self._calls, self._calls + 1
        return self._chunk({"tool_calls": [{"index": index, **_call_object(call)}]})

    def end(self, outcome: Outcome) -> bytes:
        own = {"conductor": conductor_object(outcome)}
        if not self._request.include_usage:
            return self._chunk({}, finish_of(outcome), own) + DONE
        last = {**self._head, "choices": [], "usage": chat_usage(outcome.usage), **own}
        return self._chunk({}, finish_of(outcome)) + data_event(last) + DONE

    def failed(self, error: RequestError) -> bytes:
        return data_event({"error": error_object(error)}) + DONE

    def whole(self, outcome: Outcome) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": outcome.text or None, "refusal": None}
        if not outcome.tool_calls:
            message["content"] = outcome.text
        if outcome.reasoning:
            message["reasoning_content"] = outcome.reasoning
        if outcome.tool_calls:
            message["tool_calls"] = [_call_object(call) for call in outcome.tool_calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(outcome)}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": chat_usage(outcome.usage),
            "conductor": conductor_object(outcome),
        }

    def whole_failed(self, error: RequestError) -> dict[str, Any]:
        return {"error": error_object(error)}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, more: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data_event({**self._head, "choices": [choice], **self._tail, **(more or {})})


def finish_of(outcome: Outcome) -> str:
    """`finish_reason`."""
    return "tool_calls" if outcome.tool_calls else FINISHES.get(outcome.finish, "stop")


def _call_object(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


_READ: Final = frozenset({
    "model", "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "max_tokens",
    "max_completion_tokens", "temperature", "stop", "seed", "reasoning_effort", "reasoning", "stream", "stream_options",
    "conductor", "store", "n", "logprobs", "functions", "function_call", "audio", "modalities",
})  # fmt: skip

_IMPOSSIBLE: Final = {
    "logprobs": "cannot be served: the answer may come from any worker",
    "functions": "is the old form of tools: send tools",
    "function_call": "is the old form of tool_choice: send tool_choice",
    "audio": "cannot be served: the answer is text",
}
"""Fields whose effect a client would miss, and why they are refused."""


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    name = "chat"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> ClientRequest:  # noqa: ARG002 - none matters
        try:
            return _read_body(body)
        except RecursionError:
            raise RequestError(400, "invalid_value", "the request is nested too deeply") from None

    def encoder(self, request: ClientRequest, run: str, created: int) -> ChatEncoder:
        return ChatEncoder(request, run, created)

    def error(self, error: RequestError) -> dict[str, Any]:
        return {"error": error_object(error)}


def _read_body(body: Mapping[str, Any]) -> ClientRequest:
    _refuse_impossible(body)
    carried = Carried()
    messages = _Messages(carried).read(required(body, "messages", list))
    tools = read_tools(body, nested=True)
    form = read_form(optional(body, "response_format", dict), "response_format", nested=True)
    limits = [whole_number(body, name, 1) for name in ("max_completion_tokens", "max_tokens")]
    options = optional(body, "stream_options", dict) or {}
    parallel, store = optional(body, "parallel_tool_calls", bool), optional(body, "store", bool)
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
        max_tokens=limits[0] if limits[0] is not None else limits[1],
        temperature=number(body, "temperature", 0, 2),
        stop=read_stop(body),
        seed=whole_number(body, "seed", -(2**63)),
        effort=_effort(body),
        stream=bool(optional(body, "stream", bool)),
        include_usage=bool(optional(options, "include_usage", bool, "stream_options")),
        include_events=bool(optional(options, "include_events", bool, "stream_options")),
        max_cost=read_max_cost(body),
        store=store is not False,
        ignored=(*ignored_fields(body, _READ), *tools.left_out),
    )


def _refuse_impossible(body: Mapping[str, Any]) -> None:
    if optional(body, "n", int) not in {None, 1}:
        raise refused("n", "must be 1: each request is answered once")
    for name, reason in _IMPOSSIBLE.items():
        if body.get(name):
            raise refused(name, reason, "unsupported_parameter")
    if "audio" in (optional(body, "modalities", list) or []):
        raise refused("modalities", "cannot have audio: the answer is text", "unsupported_parameter")


def _effort(body: Mapping[str, Any]) -> str:
    """Any word. It may also stand in an object `reasoning`, as in Responses."""
    reasoning = body.get("reasoning")
    effort = body.get("reasoning_effort") or (reasoning.get("effort") if isinstance(reasoning, Mapping) else None)
    return effort if isinstance(effort, str) else ""


class _Messages:
    """Reads the messages of one request. All system texts become one message, the first."""

    def __init__(self, carried: Carried) -> None:
        self._carried = carried
        self._called = ""  # the id of the newest call in the old form, which has no ids
        self._old_calls = 0

    def read(self, entries: Sequence[object]) -> tuple[Message, ...]:
        if not entries:
            raise refused("messages", "is empty")
        system, talk = list[str](), list[Message]()
        named = _tells_users_apart(entries)
        for position, entry in enumerate(entries):
            where = f"messages[{position}]"
            message = typed(entry, dict, where)
            role = required(message, "role", str, where)
            if role in {"system", "developer"}:
                system.append(self._text(message, where))
            elif role == "user":
                talk.append(self._user(message, where, named=named))
            elif role == "assistant":
                talk += self._assistant(message, where)
            elif role in {"tool", "function"}:
                talk.append(self._result(message, where, role))
            else:
                known = "system, developer, user, assistant, tool or function"
                raise refused(f"{where}.role", f"{quoted(role)} is not known: it can be {known}")
        texts = [text for text in system if text]
        return (*([Message(role="system", content="\n\n".join(texts))] if texts else []), *talk)

    def _user(self, message: Mapping[str, Any], where: str, *, named: bool) -> Message:
        text, attachments = self._content(message, where)
        name = optional(message, "name", str, where)
        return Message(role="user", content=f"{name}: {text}" if named and name else text, attachments=attachments)

    def _assistant(self, message: Mapping[str, Any], where: str) -> list[Message]:
        """The turn without the reasoning that a client sends back; nothing if it has neither a text nor a call."""
        text = self._text(message, where) if message.get("content") is not None else ""
        text = text or optional(message, "refusal", str, where) or ""
        calls = [
            _client_call(typed(entry, dict, place), place)
            for index, entry in enumerate(optional(message, "tool_calls", list, where) or [])
            for place in (f"{where}.tool_calls[{index}]",)
        ]
        if old := optional(message, "function_call", dict, where):
            self._old_calls += 1
            self._called = f"call_function_{self._old_calls}"
            calls.append(_function_call(old, self._called, f"{where}.function_call"))
        return [Message(role="assistant", content=text, tool_calls=tuple(calls))] if text or calls else []

    def _result(self, message: Mapping[str, Any], where: str, role: str) -> Message:
        text, attachments = self._content(message, where)
        if role == "tool":
            call = required(message, "tool_call_id", str, where)
        elif self._called:
            call = self._called
        else:
            raise refused(f"{where}.role", "is function, but no message before it has a function_call")
        return Message(role="tool", content=text, attachments=attachments, tool_call_id=call)

    def _text(self, message: Mapping[str, Any], where: str) -> str:
        text, attachments = self._content(message, where)
        if attachments:
            raise refused(f"{where}.content", "can only be text in a message of this role")
        return text

    def _content(self, message: Mapping[str, Any], where: str) -> tuple[str, tuple[Attachment, ...]]:
        """The text of a message, and what it carries."""
        content = message.get("content")
        if isinstance(content, str):
            return content, ()
        parts = required(message, "content", list, where)
        texts, attachments = list[str](), list[Attachment]()
        for index, entry in enumerate(parts):
            place = f"{where}.content[{index}]"
            found = self._part(typed(entry, dict, place), place)
            if isinstance(found, str):
                texts.append(found)
            else:
                attachments.append(found)
        return "\n".join(texts), tuple(dict.fromkeys(attachments))

    def _part(self, part: Mapping[str, Any], where: str) -> str | Attachment:
        kind = required(part, "type", str, where)
        if kind in {"text", "refusal"}:
            return required(part, kind, str, where)
        if kind == "image_url":
            image = part.get("image_url")
            place = f"{where}.image_url"
            url = image if isinstance(image, str) else required(typed(image, dict, place), "url", str, place)
            return self._carried.image(bytes_of_url(url, place), place)
        if kind == "file":
            return self._file(required(part, "file", dict, where), f"{where}.file")
        known = "text, image_url or file"
        raise refused(f"{where}.type", f"{quoted(kind)} cannot be served: it can be {known}", "unsupported_content")

    def _file(self, file: Mapping[str, Any], where: str) -> str | Attachment:
        data = optional(file, "file_data", str, where)
        if data is None:
            raise refused(where, "must have file_data: this server keeps no files", "unsupported_content")
        place = f"{where}.file_data"
        found = bytes_of_url(data, place) if data[:5].lower() == "data:" else bytes_of_base64(data, place)
        return self._carried.document(found, place, optional(file, "filename", str, where) or "")


def _client_call(entry: Mapping[str, Any], where: str) -> ToolCall:
    call = required(entry, "id", str, where)
    kind = optional(entry, "type", str, where) or "function"
    if kind == "custom":
        custom = required(entry, "custom", dict, where)
        return ToolCall(id=call, name=required(custom, "name", str, where), arguments=str(custom.get("input") or ""))
    return _function_call(required(entry, "function", dict, where), call, f"{where}.function")


def _function_call(function: Mapping[str, Any], call: str, where: str) -> ToolCall:
    arguments = optional(function, "arguments", str, where) or ""
    return ToolCall(id=call, name=required(function, "name", str, where), arguments=arguments)


def _tells_users_apart(entries: Sequence[object]) -> bool:
    """Whether several users speak: then the name of each belongs to what a worker reads."""
    users = (entry for entry in entries if isinstance(entry, Mapping) and entry.get("role") == "user")
    return len({str(user.get("name")) for user in users}) > 1
