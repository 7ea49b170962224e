"""Tools, the choice among them, and the form of the answer, as both of OpenAI's APIs have them.

Chat Completions puts a function into an object of its own, `{"type": "function", "function": {"name": …}}`; Responses
does not. `nested` is true for the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from conductor_cli.core.chat import Tool, ToolChoice
from conductor_cli.programs.schema_check import CheckStopped, find_schema_fault
from conductor_cli.server.api.fields import optional, quoted, refused, required, typed
from conductor_cli.server.api.request import ClientRequest

LONGEST_NAME: Final = 128
"""Characters of a tool's name."""

_MODES: Final[Mapping[str, ToolChoice]] = {"auto": "auto", "none": "none", "required": "required"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTools:
    """The tools of a request and the choice among them. `left_out` names the entries that are no functions."""

    tools: tuple[Tool, ...] = ()
    choice: ToolChoice | Tool = "auto"
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """The form of the answer: JSON of this schema, JSON of any form, or any text."""

    schema: Mapping[str, Any] | None = None
    schema_field: str = ""
    """The field of the request that the schema is in."""
    json_only: bool = False


def read_tools(body: Mapping[str, Any], *, nested: bool) -> ClientTools:
    """The functions among the tools of a request. Tools of any other type are left out. Raises `RequestError`."""
    tools, left_out = dict[str, Tool](), list[str]()
    for number, entry in enumerate(optional(body, "tools", list) or []):
        where = f"tools[{number}]"
        kind = required(typed(entry, dict, where), "type", str, where)
        if kind != "function":
            left_out.append(f"{where} of type {quoted(kind)}")
            continue
        place = f"{where}.function" if nested else where
        tool = _function(required(entry, "function", dict, where) if nested else entry, place)
        if tool.name in tools:
            raise refused(f"{place}.name", f"is the name of two tools: {quoted(tool.name)}")
        tools[tool.name] = tool
    return _chosen(body, tools, tuple(left_out), nested=nested)


def _function(entry: Mapping[str, Any], where: str) -> Tool:
    name = required(entry, "name", str, where)
    if not 0 < len(name) <= LONGEST_NAME:
        raise refused(f"{where}.name", f"must have 1 to {LONGEST_NAME} characters")
    parameters = optional(entry, "parameters", dict, where) or {"type": "object", "properties": {}}
    return Tool(name=name, description=optional(entry, "description", str, where) or "", parameters=parameters)


def _chosen(
    body: Mapping[str, Any], tools: Mapping[str, Tool], left_out: tuple[str, ...], *, nested: bool
) -> ClientTools:
    """The tools with `tool_choice`: auto, none, required, one function, or some that are allowed."""
    choice = body.get("tool_choice")
    if choice is None or isinstance(choice, str):
        return _by_mode(choice or "auto", "tool_choice", tools, left_out)
    kind = required(typed(choice, dict, "tool_choice"), "type", str, "tool_choice")
    if kind == "function":
        named = _named(choice, "tool_choice", tools, nested=nested)
        return ClientTools(tools=tuple(tools.values()), choice=named, left_out=left_out)
    if kind != "allowed_tools":
        raise refused("tool_choice.type", f"{quoted(kind)} is not served: it can be function or allowed_tools")
    where = "tool_choice.allowed_tools" if nested else "tool_choice"
    allowed = required(choice, "allowed_tools", dict, "tool_choice") if nested else choice
    entries = [
        (f"{where}.tools[{number}]", typed(entry, dict, f"{where}.tools[{number}]"))
        for number, entry in enumerate(required(allowed, "tools", list, where))
    ]
    kept = [_named(entry, place, tools, nested=nested) for place, entry in entries if entry.get("type") == "function"]
    mode = optional(allowed, "mode", str, where) or "auto"
    return _by_mode(mode, f"{where}.mode", {tool.name: tool for tool in kept}, left_out)


def _by_mode(mode: str, param: str, tools: Mapping[str, Tool], left_out: tuple[str, ...]) -> ClientTools:
    choice = _MODES.get(mode)
    if choice is None:
        raise refused(param, f"{quoted(mode)} is not known: it can be auto, none or required")
    if choice == "required" and not tools:
        raise refused(param, "is required, but the request has no tool of type function")
    return ClientTools(tools=tuple(tools.values()), choice=choice, left_out=left_out)


def _named(entry: Mapping[str, Any], where: str, tools: Mapping[str, Tool], *, nested: bool) -> Tool:
    place = f"{where}.function" if nested else where
    name = required(required(entry, "function", dict, where) if nested else entry, "name", str, place)
    if name not in tools:
        raise refused(f"{place}.name", f"is no tool of this request: {quoted(name)}")
    return tools[name]


def read_form(entry: Mapping[str, Any] | None, where: str, *, nested: bool) -> AnswerForm:
    """`response_format`, or `text.format` of Responses. Raises `RequestError`."""
    kind = "text" if entry is None else required(entry, "type", str, where)
    if entry is None or kind == "text":
        return AnswerForm()
    if kind == "json_object":
        return AnswerForm(json_only=True)
    if kind != "json_schema":
        raise refused(f"{where}.type", f"{quoted(kind)} is not known: it can be text, json_object or json_schema")
    place = f"{where}.json_schema" if nested else where
    schema = required(required(entry, "json_schema", dict, where) if nested else entry, "schema", dict, place)
    return AnswerForm(schema=schema, schema_field=f"{place}.schema")


async def require_schema(request: ClientRequest) -> None:
    """Raise `RequestError` unless what a request has as a JSON Schema is one, and is checked in time."""
    if request.schema is None:
        return
    try:
        fault = await find_schema_fault(request.schema)
    except CheckStopped as stopped:
        raise refused(request.schema_field, f"cannot be checked: {stopped}", "invalid_json_schema") from None
    if fault:
        raise refused(request.schema_field, f"is not a valid JSON Schema: {fault}", "invalid_json_schema")
