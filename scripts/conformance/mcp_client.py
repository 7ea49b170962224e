"""conductor as a client of the MCP conformance suite; its argument is the address of a server.

It does what a run and its user do: logs in where the server asks for it, lists the tools, calls
each of them, and takes the defaults of every form.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import httpx

from conductor_cli.core.input_requests import FieldValue, InputReply, InputRequest, read_value
from conductor_cli.core.tools import OfferedTool
from conductor_cli.tools.servers import Login, ToolServer
from conductor_cli.tools.session import McpToolBox

DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""The address of the document that the suite's own server takes for a client's name."""

SCHEMA_ARGUMENT: Final = "schema"
"""The argument by which a tool of the suite wants to see the schema of its first tool."""

SAMPLES: Final[Mapping[str, Any]] = {
    "string": "text",
    "integer": 3,
    "number": 2.5,
    "boolean": True,
    "array": [],
    "object": {},
}
"""An argument of each type of JSON Schema."""


async def visit(address: str) -> Mapping[str, str]:
    """Return with what query the browser of a user who agrees comes back."""
    async with httpx.AsyncClient(follow_redirects=False, timeout=20) as browser:
        reply = await browser.get(address)
    return dict(parse_qsl(urlsplit(reply.headers["location"]).query))


async def take_defaults(request: InputRequest) -> InputReply:
    """Return the reply of a user who presses Enter at each field."""
    values: dict[str, FieldValue] = {}
    for field in request.fields:
        if field.default:
            values[field.name] = read_value(field, field.default)
    return InputReply(action="accept", values=values)


def arguments_of(tool: OfferedTool) -> dict[str, Any]:
    """Return arguments that follow the schema of a tool, as far as its types say."""
    arguments = {}
    for name, schema in tool.tool.parameters.get("properties", {}).items():
        arguments[name] = SAMPLES.get(schema.get("type", "string"), "text")
    return arguments


def scripted_calls(context: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a scenario wants, by the names of their tools."""
    return [(call["name"], call.get("arguments", {})) for call in context.get("toolCalls", ())]


async def use(url: str, context: Mapping[str, Any]) -> int:
    """List the tools of a server and call them. Returns the exit code."""
    kept: dict[str, Any] = {}
    login = Login(
        keep=kept.update, load=lambda: kept, kept={}, client_metadata=DOCUMENT, visit=visit
    )
    server = ToolServer(name="suite", url=url, seconds=20, login=login)
    box = McpToolBox({server.name: server}, redact=str)
    try:
        tools = {tool.own_name: tool for tool in await box.offered([server.name])}
        calls = scripted_calls(context)
        if not calls:
            calls = [(name, arguments_of(tool)) for name, tool in tools.items()]
        for _, arguments in calls:
            if SCHEMA_ARGUMENT in arguments:  # it is to be sent back as it was received
                arguments[SCHEMA_ARGUMENT] = next(iter(tools.values())).tool.parameters
        for name, arguments in calls:
            if name in tools:
                result = await box.call(tools[name], arguments, take_defaults)
                print(f"{name}: {result.text[:300]}")
        print(box.problem_with(server.name), *box.take_notices())
    finally:
        await box.close()
    return int(bool(box.problem_with(server.name)))


if __name__ == "__main__":
    raw_context = os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}"
    sys.exit(asyncio.run(use(sys.argv[1], json.loads(raw_context))))
