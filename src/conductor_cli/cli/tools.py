"""`conductor tools`: list, add, test and rm servers of tools."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from conductor_cli.app import worker_tools as tools
from conductor_cli.app.check_results import CheckResult
from conductor_cli.app.mcp_files import read_mcp_file
from conductor_cli.app.workers import remove_tables
from conductor_cli.cli import options as opt
from conductor_cli.cli.browser import open_browser, visited_address
from conductor_cli.cli.confirmation import can_ask
from conductor_cli.cli.keys import read_secret
from conductor_cli.cli.output import (
    print_json,
    print_json_rows,
    print_notice,
    print_table,
    print_text,
)
from conductor_cli.cli.session import read_text_file
from conductor_cli.config.settings import app_paths
from conductor_cli.core.errors import KeyMissing, UsageError
from conductor_cli.core.formatting import UNKNOWN, format_count, format_duration
from conductor_cli.core.mappings import names_of
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.tools import tool_selector
from conductor_cli.state.key_store import KeyStore
from conductor_cli.system.terminal_tables import Column

app = typer.Typer(help="Add and test tools that workers may call (MCP).", no_args_is_help=True)

Name = Annotated[str, opt.argument(None, "The name of the tools.")]


@app.command("list")
def list_tools_command(context: typer.Context, json: opt.Json = False) -> None:
    """List the servers of tools in the settings; none is started."""
    rows = tools.list_tool_servers(opt.stored_settings(context))
    if json:
        print_json_rows(rows)
        return
    if not rows:
        print_notice(
            "no tools are configured: conductor tools add NAME -- COMMAND…, or conductor tools add "
            "NAME URL"
        )
        return
    cells = []
    for row in rows:
        read_by = row.recipient
        if row.objection:
            read_by += " (forbidden)"
        workers = ", ".join(row.workers) or UNKNOWN
        about = one_line(row.configured.table.about) or UNKNOWN
        cells.append([row.name, one_line(row.where), read_by, workers, about])
    columns = (
        Column("NAME"),
        Column("SERVER", shrink=16),
        Column("READ BY", drop=2),
        Column("WORKERS", drop=1),
    )
    print_table((*columns, Column("ABOUT", shrink=16)), cells)


@app.command("add")
def add_tools_command(
    context: typer.Context,
    name: Name,
    server: Annotated[
        list[str] | None, opt.argument("URL|COMMAND", "An address, or after -- a command.")
    ] = None,
    allow: Annotated[
        opt.Names, opt.option("--allow", "Call these tools without asking; '*' for all.", "A,B")
    ] = None,
    header: Annotated[
        list[str] | None,
        opt.option("--header", "Send this; a secret is kept in the keyring.", "'NAME: VALUE'"),
    ] = None,
    insecure_storage: opt.InsecureStorage = False,
    assignments: opt.SetOptions = None,
) -> None:
    """Add a server of tools, or change one that was added.

    Conductor tools add NAME -- COMMAND…, or … NAME URL.

    The secret of a --header without a value is asked for, or read from stdin; $VARIABLE in a value
    is read at each start. --set takes the other settings: about=TEXT, what they are for, for the
    planner; env=A,B for variables that a program gets; only=A,B to offer only these of its tools;
    read_only=A,B for tools that change nothing, '*' for all; trust=false not to trust the server's
    read-only hints; local=true to treat it as local in policies; seconds=S for the longest call;
    client_metadata=URL of a document that describes this client, for servers with a login that
    read one.
    """
    assigned = opt.parse_assignments(assignments, lists=("allow", "only", "read_only", "env"))
    if allow:
        opt.add_assignment(assigned, "allow", opt.split_names(allow), "--allow")
    if server:
        _assign_server(assigned, server)
    headers = _read_headers(name, header or ())
    existed = tools.add_tool_server(
        opt.stored_settings(context), name, assigned, headers, plaintext=insecure_storage
    )
    change = "changed" if existed else "added"
    print_text(f"{change} {name}; see what it offers: conductor tools test {name}")


def _assign_server(assigned: dict[str, Any], words: Sequence[str]) -> None:
    """Take the address or the command of a server into its settings."""
    first = words[0]
    if opt.is_address(first):
        if len(words) > 1:
            hint = "put options before it"
            raise UsageError(f"nothing may follow the address {first!r:.80}", hint=hint)
        opt.add_assignment(assigned, "url", first, "the address")
    elif "://" in first:
        hint = "a command goes after --"
        raise UsageError(f"{first!r:.80} is not an address of http or https", hint=hint)
    else:
        opt.add_assignment(assigned, "command", list(words), "the command")


def _read_headers(name: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the headers of `NAME: VALUE` texts; asks for a missing value. Raises `UsageError`."""
    headers: dict[str, str] = {}
    for text in texts:
        key, _, value = (part.strip() for part in text.partition(":"))
        # The values may be secrets, so they are not shown.
        if key.lower() in map(str.lower, headers):
            raise UsageError(f"the header {key!r:.40} is given twice", hint="leave one of them out")
        headers[key] = value
    for key, value in headers.items():
        if not value:
            command = f"conductor tools add {name} --header {key}"
            headers[key] = read_secret(f"value of {key}", command).strip()
    return headers


@app.command("import")
def import_tools_command(
    context: typer.Context, file: Annotated[Path, opt.argument("FILE", "For example .mcp.json.")]
) -> None:
    """Add the servers of an mcp.json of Claude, Cursor or VS Code.

    Those that exist under the same name stay.
    """
    settings = opt.stored_settings(context)
    configured = set(names_of(tools.list_tool_servers(settings)))
    entries = read_mcp_file(read_text_file(file), file)
    if not entries:
        print_notice(f"{file} names no servers")
    faults = 0
    for entry in entries:
        if entry.is_disabled:
            print_notice(f"{entry.name} is disabled in the file, and is not added")
            continue
        if entry.problem:
            faults += 1
            print_notice(f"{entry.name} is not added: {entry.problem}; correct it in the file")
            continue
        if entry.name in configured:
            print_notice(f"{entry.name} is configured already, and stays as it is")
            continue
        configured.add(entry.name)
        try:
            tools.add_tool_server(settings, entry.name, entry.table, entry.table.pop("headers", {}))
        except KeyMissing as error:
            print_notice(
                f"{entry.name} is not added, because it has a secret and {error.message}: use a "
                "variable there"
            )
            continue
        except UsageError as error:
            faults += 1
            print_notice(f"{entry.name} is not added: {error.message}; {error.hint}")
            continue
        print_text(f"added {entry.name}")
        for remark in entry.remarks:
            print_notice(f"{entry.name}: {one_line(remark)}")
        for untaken in entry.untaken:
            print_notice(f"{entry.name}: not taken from the file: {one_line(untaken)}")
    if faults:
        raise typer.Exit(2)


@app.command("rm")
def remove_tools_command(
    context: typer.Context,
    names: Annotated[list[str], opt.argument("NAME", "The name of the tools; may be repeated.")],
) -> None:
    """Remove servers of tools that were added and that no worker has."""
    remove_tables(app_paths(os.environ), "tools", names, lambda: opt.stored_settings(context))
    store = KeyStore(app_paths(os.environ).data, os.environ)
    for name in names:
        if tool_selector(name) in store.entries():
            store.remove(tool_selector(name))
        print_text(f"removed {name}")


@app.command("test")
def try_tools_command(
    context: typer.Context,
    names: Annotated[list[str] | None, opt.argument("NAME", "Tools to test; default: all.")] = None,
    json: opt.Json = False,
) -> None:
    """Start each server and list what it offers; nothing is called.

    On a terminal, log in where a server asks for it.

    The login goes on in the browser, and is kept in the keyring; conductor keys rm tool:NAME
    forgets it.
    """
    results = tools.try_tool_servers(
        opt.stored_settings(context), names or (), _log_in if can_ask() else None
    )
    if json:
        print_json([result.to_json() for result in results])
    else:
        for result in results:
            _print_server(result)
    raise typer.Exit(max((result.code for result in results), default=0))


def _print_server(result: CheckResult) -> None:
    if result.code:
        print_text(f"{result.name} failed: {one_line(result.text)}")
        print_notice(result.hint)
        return
    offered = format_count(len(result.fields["tools"]), "tool")
    print_text(f"{result.name} offers {offered}, in {format_duration(result.seconds or 0)}")
    for notice in result.fields["notices"]:
        print_notice(notice)
    rows = list[list[str]]()
    for tool in result.fields["tools"]:
        name = one_line(tool["name"])[:64]
        about = one_line(tool["description"]) or UNKNOWN
        rows.append([name, _describe_permission(tool), about])
    if rows:
        print_table(("TOOL", "CALLED", "WHAT IT DOES"), rows)


def _describe_permission(tool: Mapping[str, Any]) -> str:
    if tool["read_only"]:
        return "freely: read-only"
    if tool["allowed"]:
        return "freely: allowed"
    return "asks first"


@asynccontextmanager
async def _log_in(name: str) -> AsyncIterator[tools.Visit]:
    async with visited_address(
        "/callback", f"<!doctype html><title>{name}</title>You may close this page."
    ) as (here, visits):

        async def visit(address: str) -> Mapping[str, str]:
            # A page that was loaded twice is no answer to another login.
            while not visits.empty():
                visits.get_nowait()
            print_notice(
                f"{name} asks for a login, which goes on in the browser (Ctrl-C gives up):"
            )
            sys.stderr.write(f"{one_line(address)}\n")  # whole, so that it can be copied
            if not open_browser(address):
                port = urlsplit(here).port
                print_notice(
                    "open it yourself; from another machine, first: ssh -L "
                    f"{port}:127.0.0.1:{port} HOST"
                )
            return await visits.get()

        yield here, visit
