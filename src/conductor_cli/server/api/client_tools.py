"""Tools that a client runs itself and that are no functions in its API.

A worker is offered each as a function, and its call goes back as the item that the client waits
for. Pure.

From platform.openai.com/docs (custom tools, shell, local shell, apply patch) and
platform.claude.com/docs (bash, text editor, memory), November 2026.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from conductor_cli.core.chat import Tool, ToolCall

CUSTOM: Final = "custom"

_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_RANGE: Final = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}


def _object(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_EDITOR_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "path": _TEXT,
    "view_range": _RANGE,
    "file_text": _TEXT,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "insert_line": _NUMBER,
    "insert_text": _TEXT,
}

RESPONSES_TOOLS: Final[Mapping[str, Tool]] = {
    "local_shell": Tool(
        name="local_shell",
        kind="local_shell",
        description="Runs a command on the user's machine and gives back what it prints.",
        parameters=_object(
            ("command",),
            command={**_TEXTS, "description": "The program and its arguments"},
            working_directory=_TEXT,
            timeout_ms=_NUMBER,
        ),
    ),
    "shell": Tool(
        name="shell",
        kind="shell",
        description="Runs shell commands on the user's machine and gives back what they print.",
        parameters=_object(
            ("commands",),
            commands={**_TEXTS, "description": "Shell commands, which may run side by side"},
            timeout_ms=_NUMBER,
            max_output_length=_NUMBER,
        ),
    ),
    "apply_patch": Tool(
        name="apply_patch",
        kind="apply_patch",
        description=(
            "Creates, changes or deletes one file of the user. The diff of create_file and "
            "update_file has the form V4A: lines that begin with a space, + or -, and @@ before "
            "the lines of each place."
        ),
        parameters=_object(
            ("type", "path"),
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=_TEXT,
            diff=_TEXT,
        ),
    ),
}
"""The tools of Responses that its client runs, by their type."""

MESSAGES_TOOLS: Final[Mapping[str, Tool]] = {
    "bash": Tool(
        name="bash",
        description="Runs a command in a shell of the user that stays open between calls.",
        parameters=_object((), command=_TEXT, restart={"type": "boolean"}),
    ),
    "text_editor": Tool(
        name="str_replace_based_edit_tool",
        description="Views, creates and edits files of the user.",
        parameters=_object(
            ("command", "path"),
            command={"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
            **_EDITOR_FIELDS,
        ),
    ),
    "memory": Tool(
        name="memory",
        description="Views and changes the files below /memories, which stay between talks.",
        parameters=_object(
            ("command",),
            command={
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
            },
            **_EDITOR_FIELDS,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""The tools of Messages that its client runs, by their kind, with the names of the API."""

CLIENT_RUN_UNSERVED: Final = frozenset(
    {"browser_toolset", "computer", "computer_toolset", "computer_use"}
)
"""Tools that a client runs and that cannot be offered as functions: their results are screens."""

_CUSTOM_PARAMETERS: Final = _object(("input",), input=_TEXT)
_ITEMS: Final[Mapping[str, tuple[str, str]]] = {
    "": ("function_call", "fc"),
    CUSTOM: ("custom_tool_call", "ctc"),
    "local_shell": ("local_shell_call", "lsh"),
    "shell": ("shell_call", "sh"),
    "apply_patch": ("apply_patch_call", "apc"),
}
"""The type of the item of a call in Responses, and how its id begins, by the kind of its tool."""


def custom_tool(name: str, description: str, form: object) -> Tool:
    """Return a custom tool, whose one argument is a free text.

    `form` is the `format` of the client: a grammar stands in the description, for the worker to
    follow.
    """
    grammar = form.get("grammar", form) if isinstance(form, Mapping) else {}
    if isinstance(grammar, Mapping) and grammar.get("definition"):
        syntax = str(grammar.get("syntax", ""))
        definition = str(grammar["definition"])
        description = f"{description}\nThe input follows this {syntax} grammar:\n{definition}"
    return Tool(
        name=name, kind=CUSTOM, description=description.strip(), parameters=_CUSTOM_PARAMETERS
    )


def input_of(call: ToolCall) -> str:
    """Return the text that a call of a custom tool has as its input."""
    text = _arguments(call).get("input")
    if isinstance(text, str):
        return text
    return call.arguments


def custom_arguments(text: str) -> str:
    """Return a custom tool's input as the arguments that its worker wrote."""
    return json.dumps({"input": text}, ensure_ascii=False)


def tool_of(call: ToolCall, tools: Iterable[Tool]) -> Tool:
    """Return the tool that a call names; a function where the request has none of that name."""
    for tool in tools:
        if tool.name == call.name:
            return tool
    return Tool(name=call.name)


def call_item(call: ToolCall, tool: Tool, run: str, number: int) -> dict[str, Any]:
    """Return the item of a call in Responses. `number` is its place among the calls of the run."""
    item_type, prefix = _ITEMS[tool.kind]
    item = {
        "id": f"{prefix}_{run}_{number}",
        "type": item_type,
        "status": "completed",
        "call_id": call.id,
    }
    return item | _fields_of_call(call, tool)


def _fields_of_call(call: ToolCall, tool: Tool) -> dict[str, Any]:
    if tool.kind == CUSTOM:
        return {"name": call.name, "input": input_of(call)}
    if not tool.kind:
        return {"name": call.name, "arguments": call.arguments}
    arguments = _arguments(call)
    if tool.kind == "local_shell":
        exec_action: dict[str, Any] = {
            "type": "exec",
            "command": _texts(arguments.get("command")),
            "env": {},
        }
        for name in ("working_directory", "timeout_ms"):
            if name in arguments:
                exec_action[name] = arguments[name]
        return {"action": exec_action}
    if tool.kind == "shell":
        action: dict[str, Any] = {"commands": _texts(arguments.get("commands"))}
        for name in ("timeout_ms", "max_output_length"):
            action[name] = arguments.get(name)
        return {"action": action}
    return {"operation": arguments}


def arguments_of_item(fields: Mapping[str, Any]) -> str:
    """Return the arguments of a call from the `action` or `operation` of its item.

    They are as its worker wrote them: without what `call_item` adds.
    """
    arguments = dict[str, Any]()
    for name, value in fields.items():
        is_added = (name, value) in (("type", "exec"), ("env", {})) or value is None
        if not is_added:
            arguments[name] = value
    return json.dumps(arguments, ensure_ascii=False)


def _arguments(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _texts(value: object) -> list[str]:
    if isinstance(value, list):
        return list(map(str, value))
    return [] if value is None else [str(value)]
