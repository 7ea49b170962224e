"""The workers and the planner for other programs.

`conductor serve`, `conductor launch`, `conductor mcp` and `conductor acp`.

`serve` makes them a model of an HTTP server, whose keys `serve keys` keeps; `launch` starts a
coding client over a server that ends with it; `mcp` makes them tools and `acp` the agent of an
editor, over standard input and output.
"""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import typer

from conductor_cli import __version__
from conductor_cli.app.opening import find_lost_calls
from conductor_cli.cli import options as opt
from conductor_cli.cli.browser import open_browser
from conductor_cli.cli.output import (
    print_json_rows,
    print_line,
    print_notice,
    print_table,
    print_text,
)
from conductor_cli.config.settings import Settings, app_paths
from conductor_cli.config.tables import find_pool
from conductor_cli.core.errors import ConductorError, PolicyError, UsageError
from conductor_cli.core.formatting import UNKNOWN, format_money, format_time
from conductor_cli.server.acp.process import serve_editor
from conductor_cli.server.client_keys import ClientKeys, make_key
from conductor_cli.server.http.process import (
    HttpServer,
    access_rules,
    make_registry,
)
from conductor_cli.server.http.processes import (
    MAX_PROCESSES,
    ProcessGroup,
    check_processes,
    listen_for_processes,
)
from conductor_cli.server.launch import (
    CLIENTS,
    check_limits,
    check_ready,
    describe_small_context,
    find_client,
    own_server,
    run_client,
)
from conductor_cli.server.mcp.process import serve_stdio
from conductor_cli.server.options import ServerOptions
from conductor_cli.server.siblings import Siblings
from conductor_cli.system.event_loop import run_async
from conductor_cli.system.terminal_tables import Column

keys_app = typer.Typer(
    help="Add and remove the keys with which clients use the server.", no_args_is_help=True
)

Name = Annotated[str, opt.argument("NAME", "Who or what uses it: laptop, ci …")]


def _open_keys() -> ClientKeys:
    return ClientKeys(app_paths(os.environ).config)


@keys_app.command("add")
def add_client_key_command(
    context: typer.Context,
    name: Name,
    max_cost_day: Annotated[
        str | None,
        opt.option("--max-cost-day", "Maximum cost of all its requests on one day.", "USD"),
    ] = None,
    max_cost: Annotated[
        str | None, opt.option("--max-cost", "Maximum cost of one request.", "USD")
    ] = None,
    pool: Annotated[str, opt.option("--pool", "The only pool that it may use.", "NAME")] = "",
) -> None:
    """Make a key and print it. Only its hash is kept, so it cannot be shown again."""
    if pool:
        find_pool(opt.stored_settings(context).pools, pool)
    key, text = make_key(name)
    day = _read_cost("--max-cost-day", max_cost_day)
    request = _read_cost("--max-cost", max_cost)
    _open_keys().add(replace(key, max_cost_day=day, max_cost=request, pool=pool))
    # The key alone on stdout: KEY=$(conductor serve keys add NAME)
    print_line(text)
    print_notice(
        f"added the key {name}; it is shown only now, and sent as: Authorization: Bearer KEY, "
        "or x-api-key: KEY"
    )


@keys_app.command("list")
def list_client_keys_command(json: opt.Json = False) -> None:
    """List the keys with their limits. No key is shown."""
    keys = _open_keys().all()
    if json:
        print_json_rows(keys)
    elif keys:
        now = datetime.now(UTC)
        rows = []
        for key in keys:
            row = [
                key.name,
                format_time(key.since, now),
                _money(key.max_cost_day),
                _money(key.max_cost),
                key.pool or UNKNOWN,
            ]
            rows.append(row)
        columns = (
            Column("NAME", shrink=14),
            Column("ADDED", drop=1),
            "COST A DAY",
            "COST A REQUEST",
            "POOL",
        )
        print_table(columns, rows)
    else:
        print_notice(
            "no keys: the server answers programs of this machine; add one with: conductor "
            "serve keys add NAME"
        )


@keys_app.command("rm")
def remove_client_key_command(name: Name) -> None:
    """Remove a key. A server that runs refuses it from now on."""
    _open_keys().remove(name)
    print_text(f"removed the key {name}")


def _money(amount: Decimal | None) -> str:
    return UNKNOWN if amount is None else format_money(amount)


def _read_cost(option: str, text: str | None) -> Decimal | None:
    try:
        return opt.parse_cost(text)
    except UsageError as error:
        raise UsageError(error.message.replace("--max-cost", option, 1), hint=error.hint) from None


NOT_FOR_A_SERVER = ("format", "progress", "approve")  # Options that say how a person sees a run


def _server_options(context: typer.Context, options: opt.RunOptions) -> ServerOptions:
    return ServerOptions(
        flags=options.settings(),
        config=context.obj.config,
        workers=options.worker_names,
        rehearsal=options.rehearsal,
        stores_traces=not options.no_trace,
        seed=options.seed,
    )


def _tell_lost_calls(settings: Settings) -> None:
    # Who may not read the record is told so by the first run
    with suppress(ConductorError, OSError):
        if lost := find_lost_calls(settings):
            print_notice(lost)


def _tell_of_limits(server: ServerOptions) -> None:
    """Say which limit on money cannot be counted: each request that it holds for is refused."""
    try:
        run_async(check_limits(server))
    except PolicyError as error:
        print_notice(f"requests will be refused: {error.message}\n{error.hint}")
    except (ConductorError, OSError):  # what cannot be opened is told by each request
        return


@opt.with_options(omit=NOT_FOR_A_SERVER)
def mcp_command(context: typer.Context, options: opt.RunOptions) -> None:
    """Serve ask, plan, run and trace as tools to an MCP client, over standard input and output.

    A client starts this command, which its settings name as a server. The options hold for every
    call, which can only narrow them.
    """
    if sys.stdin.isatty() and not context.obj.quiet:
        print_notice(
            "waiting for an MCP client on standard input; a client whose settings name it starts it"
        )
    server = _server_options(context, options)
    with suppress(ConductorError):  # broken settings are told by each call
        _tell_lost_calls(server.settings())
    raise typer.Exit(serve_stdio(server, __version__))


@opt.with_options(omit=("format", "progress"))
def acp_command(context: typer.Context, options: opt.RunOptions) -> None:
    """Be the agent of an editor, by the Agent Client Protocol over standard input and output.

    An editor starts this command, which its settings name as an agent. It shows the plan, each step
    and the answer, and asks before a plan or a tool runs where that is wanted. The options hold for
    every session.
    """
    if sys.stdin.isatty() and not context.obj.quiet:
        print_notice(
            "waiting for an editor on standard input; "
            "one whose settings name this command starts it"
        )
    server = _server_options(context, options)
    _tell_lost_calls(server.settings())
    raise typer.Exit(serve_editor(server, __version__, approves=options.approve is not False))


app = typer.Typer(invoke_without_command=True)
app.add_typer(keys_app, name="keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenOptions:
    """The options of `conductor serve` that say where it listens, and with how many processes."""

    host: Annotated[str, opt.option("--host", "The address to listen at.", "ADDRESS")] = "127.0.0.1"
    port: Annotated[
        int | None,
        opt.option(
            "--port",
            (
                "The port to listen at; 0 for a free one. Without it 8080, or a free one if that "
                "is taken."
            ),
            "N",
            min=0,
            max=65535,
        ),
    ] = None
    processes: Annotated[
        int,
        opt.option(
            "--processes",
            "Processes that share the port, so that the server uses several cores.",
            "N",
            min=1,
            max=MAX_PROCESSES,
        ),
    ] = 1
    open_: Annotated[bool, opt.option("--open", "Show the page in the browser.")] = False


@app.callback()
@opt.with_options(omit=NOT_FOR_A_SERVER)
def serve_command(context: typer.Context, options: opt.RunOptions, listen: ListenOptions) -> None:
    """Serve the workers as one model to other programs: the APIs of OpenAI and Anthropic over HTTP.

    The models are conductor, conductor-mini, conductor-ultra and each named pool. The options hold
    for every request, which can only narrow them. With --debug each request is logged in a line,
    without its texts.
    """
    if context.invoked_subcommand is not None:
        return
    server = _server_options(context, options)
    settings = server.settings()
    check_processes(listen.processes, server)
    if listen.processes == 1:
        _tell_lost_calls(settings)
        _tell_of_limits(server)
    access = access_rules(settings, listen.host)
    sockets = listen_for_processes(listen.host, listen.port, listen.processes)
    url = _url_of(sockets[0])
    print_line(f"conductor serves at {url}")
    if not context.obj.quiet:
        _print_addresses(url, key="KEY" if access.keys() else "none")
    sys.stdout.flush()  # a program that started this one waits for the address
    if listen.open_ and not open_browser(f"{url}/"):
        print_notice(f"no browser was found: open {url}/ yourself")
    if listen.processes == 1:
        raise typer.Exit(HttpServer(lambda: make_registry(server), access, sockets[0]).run())

    def serve(opened: socket.socket, siblings: Siblings, parent: int) -> int:
        """Serve in one of the processes. Only there is the state opened."""
        if siblings.index == 0:
            _tell_lost_calls(settings)
            _tell_of_limits(server)
        options = replace(server, siblings=siblings)
        return HttpServer(lambda: make_registry(options), access, opened, parent).run()

    raise typer.Exit(ProcessGroup(sockets, print_notice).run(serve))


def _url_of(listening: socket.socket) -> str:
    address, port = listening.getsockname()[:2]
    if ":" in address:  # of IPv6
        address = f"[{address}]"
    return f"http://{address}:{port}"


def _print_addresses(url: str, *, key: str) -> None:
    """Print how each kind of client is pointed at the server."""
    print_line(
        f"  OpenAI clients:    OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}, model conductor"
    )
    print_line(
        f"  Anthropic clients: ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={key}, model conductor"
    )
    print_line(f"  the page, to ask and to look at runs: {url}/")
    print_line(f"  curl {url}/v1/models lists the models; Ctrl-C ends the server")


@opt.with_options(omit=NOT_FOR_A_SERVER)
def launch_command(
    context: typer.Context,
    options: opt.RunOptions,
    client: Annotated[str, opt.argument("CLIENT", f"One of: {', '.join(CLIENTS)}.")],
    arguments: Annotated[
        list[str] | None, opt.argument("[-- ARGS]", "Arguments for the client.")
    ] = None,
) -> None:
    """Start a coding client over a server of its own.

    The client is pointed at the server by flags and variables for this one start; its settings stay
    as they are. The exit code is that of the client.
    """
    launch, path = find_client(client)
    server = _server_options(context, options)
    tokens = run_async(check_ready(server))
    if small := describe_small_context(client, tokens):
        print_notice(small)
    with own_server(server) as (url, key):
        code = run_client(path, launch(url, key, tokens), arguments or ())
    raise typer.Exit(code)
