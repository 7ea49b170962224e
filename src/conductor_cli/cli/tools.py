"""`conductor tools`: list, add, test and rm servers of tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from conductor_cli.app import tools
from conductor_cli.app.tools import ToolsTest
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_notice, print_table, print_text
from conductor_cli.config import app_paths
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import UNKNOWN, format_count, format_duration
from conductor_cli.core.terminal_text import Column, one_line

app = typer.Typer(help="Add and test tools that workers may call (MCP).", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of the tools.")]


@app.command("list")
def list_tools(context: typer.Context, json: opt.Json = False) -> None:
    """List the servers of tools in the settings; none is started."""
    rows = tools.list_tool_servers(opt.stored_settings(context))
    if json:
        print_json([row.data() for row in rows])
        return
    if not rows:
        print_notice("no tools are configured: conductor tools add NAME -- COMMAND…, or conductor tools add NAME URL")
        return
    cells = []
    for row in rows:
        read_by = f"{row.recipient} (forbidden)" if row.objection else row.recipient
        about = one_line(row.configured.table.about) or UNKNOWN
        cells.append([row.name, one_line(row.where), read_by, ", ".join(row.workers) or UNKNOWN, about])
    columns = (Column("NAME"), Column("SERVER", shrink=16), Column("READ BY", drop=2), Column("WORKERS", drop=1))
    print_table((*columns, Column("ABOUT", shrink=16)), cells)


@app.command("add")
def add_tools(
    context: typer.Context,
    name: Name,
    server: Annotated[
        list[str] | None, typer.Argument(metavar="URL|COMMAND", help="An address, or after -- a command.")
    ] = None,
    about: Annotated[str | None, typer.Option("--about", help="What they are for, for the conductor.")] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME", help="A variable the command gets; may be repeated.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", metavar="'NAME: VALUE'", help="A header, with $VARIABLE for a secret; may be repeated."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", help="Most seconds of one call (60).")
    ] = None,
    only: Annotated[str | None, typer.Option("--only", metavar="A,B", help="Offer only these of its tools.")] = None,
    read_only: Annotated[
        str | None, typer.Option("--read-only", metavar="A,B", help="These tools change nothing; '*' for all.")
    ] = None,
    allow: Annotated[
        str | None, typer.Option("--allow", metavar="A,B", help="Call these tools without asking; '*' for all.")
    ] = None,
    trust: Annotated[
        bool | None,
        typer.Option(
            "--trust/--no-trust", help="Believe the server which tools are read-only (yes).", show_default=False
        ),
    ] = None,
    local: Annotated[
        bool | None,
        typer.Option(
            "--local/--no-local", help="It sends nothing from this machine, for policies (no).", show_default=False
        ),
    ] = None,
) -> None:
    """Add a server of tools, or change one that was added: conductor tools add NAME -- COMMAND…, or … NAME URL."""
    given = {
        **_server(server or ()), "about": about, "env": env or None, "headers": _headers(header), "seconds": seconds,
        "only": opt.split_names(only), "read_only": opt.split_names(read_only), "allow": opt.split_names(allow),
        "trust": trust, "local": local,
    }  # fmt: skip
    existed = tools.add_tool_server(opt.stored_settings(context), name, given)
    print_text(f"{'changed' if existed else 'added'} {name}; see what it offers: conductor tools test {name}")


def _server(words: Sequence[str]) -> dict[str, Any]:
    """The words after the name as the settings have them; none where they do not change."""
    if not words:
        return {}
    if words[0].startswith(("http://", "https://")):
        if len(words) > 1:
            raise UsageError(f"nothing may follow the address {words[0]!r:.80}", hint="put options before it")
        return {"url": words[0]}
    if "://" in words[0]:
        raise UsageError(f"{words[0]!r:.80} is not an address of http or https", hint="a command goes after --")
    return {"command": list(words)}


def _headers(given: Sequence[str] | None) -> dict[str, str] | None:
    """The headers of `--header`. Raises `UsageError`."""
    headers = {}
    for text in given or ():
        name, colon, value = text.partition(":")
        if not colon or not name.strip() or not value.strip():
            raise UsageError("--header needs a name and a value", hint="--header 'Authorization: Bearer $MY_TOKEN'")
        headers[name.strip()] = value.strip()
    return headers or None


@app.command("rm")
def remove_tools(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="The name of the tools; may be repeated.")],
) -> None:
    """Remove servers of tools that were added and that no worker has."""
    tools.remove_tool_servers(app_paths(os.environ), names, lambda: opt.stored_settings(context))
    for name in names:
        print_text(f"removed {name}")


@app.command("test")
def try_tools(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Tools to test; default: all.")] = None,
    json: opt.Json = False,
) -> None:
    """Start each server and list what it offers; nothing is called."""
    results = tools.try_tool_servers(opt.stored_settings(context), names or ())
    if json:
        print_json([result.data() for result in results])
    else:
        for result in results:
            _print_result(result)
    raise typer.Exit(1 if any(result.problem for result in results) else 0)


def _print_result(result: ToolsTest) -> None:
    if result.problem:
        print_text(f"{result.name} failed: {one_line(result.problem)}")
        return
    offered = format_count(len(result.tools), "tool")
    print_text(f"{result.name} offers {offered}, in {format_duration(result.seconds)}")
    for notice in result.notices:
        print_notice(notice)
    cells = [
        [
            one_line(tool.own_name)[:64],
            _approval(tool.read_only, tool.allowed),
            one_line(tool.tool.description) or UNKNOWN,
        ]
        for tool in result.tools
    ]
    if cells:
        print_table(("TOOL", "CALLED", "WHAT IT DOES"), cells)


def _approval(read_only: bool, allowed: bool) -> str:
    return "freely: read-only" if read_only else "freely: allowed" if allowed else "if you agree"
