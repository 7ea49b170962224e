"""Reads the servers of tools in the files of Claude, Cursor and VS Code.

They have comments and commas too many, variables of several forms, and files of variables. A secret
that stands in such a file is not copied. What is not taken of an entry is told, with what to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.bounded_parsing import parse_json
from conductor_cli.core.errors import UsageError
from conductor_cli.core.mappings import without_none
from conductor_cli.core.terminal_text import one_line

MAX_ENV_FILE_BYTES: Final = 64 * 1024
MAX_NAME: Final = 40  # Characters of the name of a server in the settings

_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*+"?)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*+"?)|,(?=\s*+[}\]])', re.DOTALL)
"""Each begins with a text, which is left as it is.

What never ends reaches to the end of the file, so that it is looked through once.
"""

_VARIABLE: Final = re.compile(
    r"\$\{(?:(?P<kind>[A-Za-z]+):(?!-))?(?P<name>[\w.-]*|/)(?::-(?P<default>[^}]{0,1000}))?\}"
)
"""`${NAME}`, `${NAME:-default}`, `${env:NAME}`, `${input:id}` or `${workspaceFolder}`."""

_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENV_LINE: Final = re.compile(r"^[ \t]*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=", re.MULTILINE)

_URLS: Final = ("url", "serverUrl", "httpUrl")
"""What the files of different programs call the address of a server."""

_KNOWN_FIELDS: Final = frozenset(
    {*_URLS, "command", "args", "env", "envFile", "cwd", "headers", "type", "disabled"}
    | {
        "enabled",
        "name",
        "description",
        "title",
        "icon",
        "gallery",
        "version",
        "transport",
        "$schema",
    }
)
"""The fields that are taken, and those that change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpEntry:
    """One server of a file.

    `table` is what the settings have of it. `untaken` says what of its entry they do not have, and
    `remarks` what was changed on the way. `problem` says why it is no server, and then the rest is
    empty.
    """

    name: str
    table: dict[str, Any] = field(default_factory=dict)
    untaken: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    is_disabled: bool = False
    problem: str = ""


def read_mcp_file(text: str, path: Path) -> list[McpEntry]:
    """Return the servers in an `mcp.json` of Claude, Cursor or VS Code, in their order.

    `path` is where the file is: variables may name its project. Raises `UsageError`.
    """
    try:
        content = parse_json(without_comments(text))
        servers = _servers_in(content)
        folder = project_of(path)
        return [_read_server(str(name), entry, folder) for name, entry in servers.items()]
    except (ValueError, LookupError, TypeError, AttributeError):
        hint = (
            'it looks like this: {"mcpServers": {"git": {"command": "uvx", "args": '
            '["mcp-server-git"]}}}'
        )
        raise UsageError("this is not a file of MCP servers", hint=hint) from None


def _servers_in(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the servers of a file, or of the settings of VS Code."""
    if "mcp" in content and "mcpServers" not in content and "servers" not in content:
        content = content["mcp"]
    servers: Mapping[str, Any] = content["mcpServers" if "mcpServers" in content else "servers"]
    return servers


def without_comments(text: str) -> str:
    """Return a JSON text without comments, and without commas before a closing bracket."""
    text = _COMMENT.sub(lambda match: match[1] or " ", text.removeprefix("\ufeff"))
    return _LAST_COMMA.sub(lambda match: match[1] or "", text)


def project_of(path: Path) -> Path:
    """Return the directory of the project that a file belongs to."""
    folder = path.absolute().parent
    if folder.name in (".vscode", ".cursor", ".claude", ".roo"):
        return folder.parent
    return folder


def setting_name(name: str) -> str:
    """Return a name that the settings take, made from that of a server."""
    letters = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    return letters.strip("-._")[:MAX_NAME].strip("-._") or "server"


def _read_server(name: str, value: object, folder: Path) -> McpEntry:
    chosen = setting_name(name)
    entry: Mapping[str, Any] = {}
    if isinstance(value, Mapping):
        entry = without_none(value)
    if entry.get("disabled") or not entry.get("enabled", True):
        return McpEntry(name=chosen, is_disabled=True)
    problem = _problem_of(entry)
    if problem:
        return McpEntry(name=chosen, problem=problem)
    read = McpEntry(name=chosen)
    if chosen != name:
        read.remarks.append(f"the file calls it {one_line(name)!r:.60}")
    addresses = [str(entry[key]) for key in _URLS if key in entry]
    address = addresses[0] if addresses else ""
    if address:
        read.table["url"] = _filled(address, "its address", folder, read)
        _read_headers(entry.get("headers", {}), read)
        if entry.get("type") == "sse":
            read.untaken.append("its type sse: it is asked over streamable HTTP instead")
    else:
        command = entry["command"]
        words = [*command] if isinstance(command, list) else [command]
        words += entry.get("args", ())
        filled = [_filled(str(word), "an argument", folder, read) for word in words]
        # No shell replaces it in such a file
        read.table["command"] = [
            str(Path(word).expanduser()) if word.startswith("~/") else word for word in filled
        ]
        _read_environment(entry, folder, read)
    if entry.get("cwd"):
        read.untaken.append("its directory: start conductor there")
    others = [str(key) for key in entry if key not in _KNOWN_FIELDS]
    if others:
        read.untaken.append(f"its settings {', '.join(others)}")
    return read


def _problem_of(entry: Mapping[str, Any]) -> str:
    """Return why an entry is no server, empty where it is one."""
    if not any(key in entry for key in ("command", *_URLS)):
        return "it has neither a command nor an address"
    if not isinstance(entry.get("command", ""), str | list):
        return "its command is neither a text nor a list of texts"
    if not isinstance(entry.get("args", []), list):
        return "its args are no list"
    if not isinstance(entry.get("env", {}), Mapping):
        return "its variables are no object"
    if not isinstance(entry.get("headers", {}), Mapping):
        return "its headers are no object"
    return ""


def _filled(text: str, field: str, folder: Path, read: McpEntry) -> str:
    """Return a text of an entry with the places of the project in it.

    Other variables stay as they are written, which is told: their values may be secrets.
    """
    paths = {
        "workspaceFolder": str(folder),
        "workspaceFolderBasename": folder.name,
        "userHome": str(Path.home()),
        "pathSeparator": os.sep,
        "/": os.sep,
    }

    def fill(match: re.Match[str]) -> str:
        path = None
        if not match["kind"]:
            path = paths.get(match["name"])
        if path is None:
            # Not the default: it may be a secret.
            shown = f"${{{match['name']}}}"
            read.untaken.append(f"the value of {shown} in {field}: write it there yourself")
            return match[0]
        remark = f"{match[0]} is {path}"
        if match["name"] == "workspaceFolder" and remark not in read.remarks:
            read.remarks.append(remark)
        return path

    return _VARIABLE.sub(fill, text)


def _read_headers(headers: Mapping[str, Any], read: McpEntry) -> None:
    """Take the headers of a server, with the names of variables in the form of the settings."""

    def renamed(match: re.Match[str]) -> str:
        variable = _variable_of(match)
        if match["default"] is not None:
            read.untaken.append(f"the value that {variable} has where it is not set")
        if match["kind"] == "input":
            read.untaken.append(f"what {match[0]} asks for: export {variable}=…")
        return f"${variable}"

    if headers:
        table = {}
        for name, value in headers.items():
            table[str(name)] = _VARIABLE.sub(renamed, str(value))
        read.table["headers"] = table


def _variable_of(match: re.Match[str]) -> str:
    """Return the variable of the environment that stands for one of a file."""
    name = match["name"]
    if match["kind"] == "input" or not _VARIABLE_NAME.fullmatch(name):
        name = re.sub(r"\W", "_", name).upper()
    return name


def _read_environment(entry: Mapping[str, Any], folder: Path, read: McpEntry) -> None:
    """Take the names of the variables that a program gets, and tell where their values are not."""
    variables = dict.fromkeys(_names_in_file(entry.get("envFile"), folder, read))
    for name, value in entry.get("env", {}).items():
        variables[str(name)] = None
        problem = _untaken_value(str(name), str(value), folder)
        if problem:
            read.untaken.append(problem)
    if variables:
        read.table["env"] = list(variables)


def _untaken_value(name: str, value: str, folder: Path) -> str:
    """Return what is not taken of the value of a variable, empty where it is its own."""
    match = _VARIABLE.fullmatch(value)
    if match is None:
        if "${" not in value:
            return f"the value of {name}: export {name}=…"
        return f"the value of {name}, which is made of variables: export {name}=…"
    if match["kind"] == "input":
        return f"the value of {name}, which the file asks for: export {name}=…"
    if match["name"] == "workspaceFolder":
        return f"the value of {name}: export {name}={folder}"
    if match["name"] != name:
        source = match["name"]
        return f'the value of {name}, which is that of {source}: export {name}="${source}"'
    if match["default"]:
        return f"the value that {name} has where it is not set: export {name}=…"
    return ""


def _names_in_file(file: object, folder: Path, read: McpEntry) -> Sequence[str]:
    """Return the names of the variables in the file that an entry names for them."""
    if not file:
        return ()
    path = folder / Path(_filled(str(file), "envFile", folder, read)).expanduser()
    if not path.is_file():
        read.untaken.append(f"its variables in {path}: there is no such file")
        return ()
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_ENV_FILE_BYTES).decode("utf-8", "replace")
            if stream.read(1):
                limit = f"{MAX_ENV_FILE_BYTES >> 10} KiB"
                read.untaken.append(f"its variables in {path} behind the first {limit}")
    except OSError as error:
        read.untaken.append(f"its variables in {path}: {error.strerror}")
        return ()
    names = _unique(match[1] for match in _ENV_LINE.finditer(text))
    listed = ", ".join(names) or "none"
    read.untaken.append(f"the values in {path} ({listed}): export them before conductor starts")
    return names


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
