"""Servers of tools in the files: `[tools.NAME]` tables, and changes to those in the tool's own file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from conductor_cli.config.files import AppPaths, Source
from conductor_cli.config.tables import Table, changed_table, tables_of, update_table
from conductor_cli.config.workers import KEY_VARIABLE

VARIABLE: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
"""A variable in the value of a header."""

_SECRET_HEADER: Final = re.compile(r"(?i).*(auth|token|key|secret|password|cookie|credential)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTable:
    """What a table of a server holds; see `tools.servers.ToolServer`.

    `env` are names of variables, and a header's value holds a variable as `$NAME`: no secret is in a file.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    about: str = ""
    env: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 60.0
    only: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    trust: bool = True
    allow: tuple[str, ...] = ()
    local: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTools:
    """A server of tools in the files. `source` is the last file that configures it."""

    name: str
    table: ToolTable
    source: str


def tool_servers_of(sources: Sequence[Source]) -> tuple[ConfiguredTools, ...]:
    """The servers of all files, later files over earlier ones by name. Raises `ConfigError` with file and line."""
    return tuple(_parse_server(table) for table in tables_of(sources, "tools"))


def update_tool_server(paths: AppPaths, name: str, changes: Mapping[str, Any]) -> None:
    """Put a server into the tool's own file. Raises `ConfigError` before anything is written."""
    _parse_server(changed_table(paths, "tools", name, changes))
    update_table(paths, "tools", name, changes)


def _parse_server(table: Table) -> ConfiguredTools:
    table.refuse_unknown("", tuple(ToolTable.__dataclass_fields__), table.values)
    found = table.read(ToolTable, table.values)
    if bool(found.command) == bool(found.url):
        hint = 'for example: command = ["uvx", "mcp-server-git"], or url = "https://example.com/mcp"'
        raise table.error("", f"the tools {table.name!r} need a command or a url, and not both", hint)
    if found.url:
        _check_url(table, found.url)
    if not 0 < found.seconds < math.inf:
        raise table.error("seconds", f"seconds is {found.seconds:g}; expected a number above 0")
    for name in found.env:
        if not KEY_VARIABLE.fullmatch(name):
            hint = "env names the variables that the program is given; their values stay where they are"
            raise table.error("env", f"env: {name!r:.60} is not the name of a variable", hint)
    for name, value in found.headers.items():
        if _SECRET_HEADER.match(name) and not VARIABLE.search(value):
            hint = f'name a variable: headers = {{ {name} = "Bearer $MY_TOKEN" }}'
            raise table.error("headers", f"headers: {name}: secrets do not belong in a file", hint)
    return ConfiguredTools(name=table.name, table=found, source=table.file_of(""))


def _check_url(table: Table, url: str) -> None:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        fits = False
    if not fits:
        raise table.error("url", f"url is {url!r:.80}; expected an address", 'url = "https://example.com/mcp"')
    if parts.username or parts.password:
        raise table.error("url", "url: a password does not belong in a file", "use headers with a variable")
