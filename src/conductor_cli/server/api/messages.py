"""Anthropic's Messages: how a request is read. Pure.

From platform.claude.com/docs (Messages, streaming, tool use, thinking, structured outputs), November 2026, and from
what clients send. Fields that are not read are left out and named in `ClientRequest.ignored`; what cannot be served is
refused with the name of its field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conductor_cli.core.chat import Tool, ToolChoice
from conductor_cli.core.media import attachment_tokens
from conductor_cli.core.usage import CHARS_PER_TOKEN
from conductor_cli.server.api.content import Carried
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
from conductor_cli.server.api.message_blocks import MessageReader
from conductor_cli.server.api.messages_encoder import MessagesEncoder, error_envelope
from conductor_cli.server.api.openai_tools import LONGEST_NAME, AnswerForm, read_form
from conductor_cli.server.api.request import ClientRequest, RequestError

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
