"""Files of MCP servers, as Claude, Cursor and VS Code have them."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.app.mcp_files import McpEntry, read_mcp_file
from conductor_cli.core.errors import UsageError
from tests.growth import assert_grows_linearly

PROGRAM = {"command": "uvx", "args": ["mcp-server-git"]}
COMMAND = {"command": ["uvx", "mcp-server-git"]}
WITH_TOKEN = {**COMMAND, "env": ["TOKEN"]}


def entry_of(text: str, path: Path = Path("/project/.vscode/mcp.json")) -> McpEntry:
    """The only server of a file."""
    (entry,) = read_mcp_file(text, path)
    return entry


def file_of(key: str = "mcpServers", **entry: Any) -> str:
    return json.dumps({key: {"git": {**PROGRAM, **entry}}})


def only(**entry: Any) -> str:
    return json.dumps({"mcpServers": {"git": entry}})


FORMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "Claude and Cursor": (file_of(), COMMAND, ""),
    "VS Code": (file_of("servers", type="stdio"), COMMAND, ""),
    "settings of VS Code": (
        json.dumps({"editor.fontSize": 12, "mcp": {"servers": {"git": PROGRAM}}}),
        COMMAND,
        "",
    ),
    "comments": (f"// mine\n/* all */ {file_of()} // end", COMMAND, ""),
    "slashes in texts": (
        '{"servers": {"git": {"command": "uvx", "args": ["http://a//b", "/* c */"]}}}',
        {"command": ["uvx", "http://a//b", "/* c */"]},
        "",
    ),
    "commas too many": (
        '{"servers": {"git": {"command": "uvx", "args": ["mcp-server-git",],},},}',
        COMMAND,
        "",
    ),
    "a byte order mark": (f"\ufeff{file_of()}", COMMAND, ""),
    "a secret": (file_of(env={"TOKEN": "s3cr3t"}), WITH_TOKEN, "the value of TOKEN: export TOKEN="),
    "its own variable": (file_of(env={"TOKEN": "${TOKEN}"}), WITH_TOKEN, ""),
    "another variable": (
        file_of(env={"TOKEN": "${GH_TOKEN}"}),
        WITH_TOKEN,
        'the value of TOKEN, which is that of GH_TOKEN: export TOKEN="$GH_TOKEN"',
    ),
    "a variable of VS Code": (
        file_of(env={"TOKEN": "${env:GH_TOKEN}"}),
        WITH_TOKEN,
        'the value of TOKEN, which is that of GH_TOKEN: export TOKEN="$GH_TOKEN"',
    ),
    "an input": (
        file_of(env={"TOKEN": "${input:gh-token}"}),
        WITH_TOKEN,
        "the value of TOKEN, which the file asks for: export TOKEN=",
    ),
    "a default": (
        file_of(env={"TOKEN": "${TOKEN:-none}"}),
        WITH_TOKEN,
        "the value that TOKEN has where it is not set: export TOKEN=",
    ),
    "the directory of the project": (
        only(command="uvx", args=["--root", "${workspaceFolder}/src"]),
        {"command": ["uvx", "--root", "/project/src"]},
        "${workspaceFolder} is /project",
    ),
    "a file of variables": (
        file_of(envFile="${workspaceFolder}/none.env"),
        COMMAND,
        "its variables in /project/none.env: there is no such file",
    ),
    "a header with a variable": (
        only(type="http", url="https://a.test/mcp", headers={"X-Key": "Bearer ${env:KEY}"}),
        {"url": "https://a.test/mcp", "headers": {"X-Key": "Bearer $KEY"}},
        "",
    ),
    "server-sent events": (
        only(type="sse", url="https://a.test/sse"),
        {"url": "https://a.test/sse"},
        "its type sse: it is asked over streamable HTTP instead",
    ),
    "other names of the address, other settings": (
        only(httpUrl="https://a.test/mcp", timeout=5, autoApprove=["x"]),
        {"url": "https://a.test/mcp"},
        "its settings timeout, autoApprove",
    ),
    "a directory": (file_of(cwd="/srv"), COMMAND, "its directory: start conductor there"),
    "fields that are null": (file_of(url=None, env=None, headers=None, cwd=None), COMMAND, ""),
    "a command that is a list": (only(command=["uvx", "mcp-server-git"]), COMMAND, ""),
}
"""Files with one server, what the settings have of it, and what is told."""


@pytest.mark.parametrize(("text", "table", "remark"), FORMS.values(), ids=FORMS)
def test_each_form_of_a_server_is_read_and_what_is_not_taken_is_told(
    text: str, table: dict[str, Any], remark: str
) -> None:
    entry = entry_of(text)
    assert (entry.problem, entry.is_disabled, entry.table) == ("", False, table)
    sentences = [*entry.remarks, *entry.untaken]
    assert bool(sentences) == bool(remark)
    assert remark in "\n".join(sentences)


def test_variables_behind_the_part_of_a_file_that_is_read_are_told(tmp_path: Path) -> None:
    variables = tmp_path / "long.env"
    variables.write_text("A=1\n" + "#" * 70_000 + "\nB=2\n")
    entry = entry_of(file_of(envFile=str(variables)))
    assert f"its variables in {variables} behind the first 64 KiB" in entry.untaken
    assert entry.table["env"] == ["A"]


@pytest.mark.parametrize("text", [file_of(disabled=True), file_of(enabled=False)])
def test_a_server_that_is_disabled_is_not_read(text: str) -> None:
    assert entry_of(text).is_disabled


def test_a_name_that_the_settings_do_not_take_is_changed_and_told() -> None:
    entry = entry_of(json.dumps({"mcpServers": {"My Server (prod)": PROGRAM}}))
    assert entry.name == "My-Server-prod"
    assert entry.remarks == ["the file calls it 'My Server (prod)'"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "it has neither a command nor an address"),
        ("uvx", "it has neither a command nor an address"),
        ({"command": 3}, "its command is neither a text nor a list of texts"),
        ({"command": "uvx", "args": "mcp"}, "its args are no list"),
        ({"command": "uvx", "env": ["A"]}, "its variables are no object"),
        ({"url": "https://a.test", "headers": "X: y"}, "its headers are no object"),
    ],
)
def test_what_is_no_server_says_why_beside_others(entry: object, problem: str) -> None:
    text = json.dumps({"mcpServers": {"bad": entry, "good": PROGRAM}})
    bad, good = read_mcp_file(text, Path("/project/mcp.json"))
    assert bad.problem == problem
    assert good.table == COMMAND


@pytest.mark.parametrize("piece", ["/* ", '\\"', "// ", "${a:-", ", "])
def test_a_file_of_what_never_ends_is_looked_through_once(piece: str) -> None:
    """It may be that of a project of somebody else."""

    def text_of(size: int) -> str:
        return only(command="x").replace("x", piece * (size // len(piece)))

    def read(text: str) -> None:
        with suppress(UsageError):
            read_mcp_file(text, Path("/project/mcp.json"))

    assert_grows_linearly(read, text_of, 50_000)


def test_a_file_of_variables_that_is_blank_is_looked_through_once(tmp_path: Path) -> None:
    def read(text: str) -> None:
        (tmp_path / ".env").write_text(f"{text}\nTOKEN=1")
        entry = entry_of(file_of(envFile=str(tmp_path / ".env")))
        assert entry.table["env"] == ["TOKEN"]

    assert_grows_linearly(read, lambda size: "\n" * size, 60_000)
