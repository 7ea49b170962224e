"""OpenAI's Responses: how a request is read. Pure.

From platform.openai.com/docs/api-reference/responses, November 2026, and from what clients send. Fields that are not
read are left out and named in `ClientRequest.ignored`; what cannot be served is refused with the name of its field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from conductor_cli.core.chat import Attachment, Message, ToolCall
from conductor_cli.server.api.content import Carried, bytes_of_base64, bytes_of_url
from conductor_cli.server.api.fields import (
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
from conductor_cli.server.api.openai_errors import error_object
from conductor_cli.server.api.openai_tools import read_form, read_tools
from conductor_cli.server.api.request import ClientRequest, RequestError
from conductor_cli.server.api.responses_encoder import RESPONSE, ResponsesEncoder

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
