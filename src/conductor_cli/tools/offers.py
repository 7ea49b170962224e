"""Tools as they are offered to workers: names that every provider takes, bounded descriptions and schemas. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from conductor_cli.core.chat import Tool
from conductor_cli.core.sanitize import sanitize
from conductor_cli.core.toolbox import OfferedTool
from conductor_cli.tools.servers import ToolServer

MOST_TOOLS: Final = 100
"""Tools of one server that are offered. Providers take 128 tools in a request, and a model chooses badly among many."""
LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 2000
LARGEST_SCHEMA: Final = 20_000
"""Characters of the JSON Schema of a tool's arguments; one with a larger schema takes any object."""

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool as its server lists it. `read_only` is the server's own word."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    read_only: bool


def offer_tools(servers: Iterable[tuple[ToolServer, Iterable[ListedTool]]]) -> tuple[OfferedTool, ...]:
    """The tools of several servers, each under a name of its own.

    A name that two of them have gets the server's name before it; one that is not allowed in requests is changed.
    """
    found: dict[str, OfferedTool] = {}
    for server, tools in servers:
        for listed in tools:
            offered = _offer(server, listed)
            name = offered.tool.name
            if name in found:
                name = _fit(f"{server.name}_{listed.name}")
            if name in found:
                name = _with_digest(name, f"{server.name}/{listed.name}/{len(found)}")
            found[name] = replace(offered, tool=replace(offered.tool, name=name))
    return tuple(found.values())


def _offer(server: ToolServer, listed: ListedTool) -> OfferedTool:
    parameters = dict(listed.parameters)
    if len(json.dumps(parameters, default=str)) > LARGEST_SCHEMA:
        parameters = {"type": "object"}
    return OfferedTool(
        tool=Tool(
            name=_fit(listed.name),
            description=sanitize(listed.description)[:LONGEST_DESCRIPTION],
            parameters={"type": "object", "properties": {}} | parameters,
        ),
        server=server.name,
        own_name=listed.name,
        read_only=server.is_read_only(listed.name, hint=listed.read_only),
        allowed=server.allows(listed.name),
    )


def _fit(name: str) -> str:
    """A name of letters, digits, dashes and underscores, of a length that every provider takes."""
    fitting = _NOT_IN_NAMES.sub("_", name).strip("_") or "tool"
    return fitting if len(fitting) <= LONGEST_NAME else _with_digest(fitting, name)


def _with_digest(name: str, unique: str) -> str:
    digest = hashlib.sha256(unique.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9]}_{digest}"
