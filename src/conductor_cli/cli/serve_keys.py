"""`conductor serve keys`: add, list, rm."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.config import app_paths
from conductor_cli.config.pools import find_pool
from conductor_cli.core.errors import UsageError
from conductor_cli.core.formatting import UNKNOWN, format_money, format_time
from conductor_cli.core.table import Column
from conductor_cli.server.client_keys import ClientKeys, make_key

app = typer.Typer(help="Add and remove the keys with which clients use the server.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who or what uses it: laptop, ci …")]


def _open_keys() -> ClientKeys:
    return ClientKeys(app_paths(os.environ).config)


@app.command("add")
def add_key(
    context: typer.Context,
    name: Name,
    max_cost_day: Annotated[
        str | None, typer.Option("--max-cost-day", metavar="USD", help="Maximum cost of all its requests on one day.")
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", metavar="USD", help="Maximum cost of one request.")
    ] = None,
    pool: Annotated[str, typer.Option("--pool", metavar="NAME", help="The only pool that it may use.")] = "",
) -> None:
    """Make a key and print it. Only its hash is kept, so it cannot be shown again."""
    if pool:
        find_pool(opt.stored_settings(context).pools, pool)
    key, text = make_key(name)
    day, each = _read_cost("--max-cost-day", max_cost_day), _read_cost("--max-cost", max_cost)
    _open_keys().add(replace(key, max_cost_day=day, max_cost=each, pool=pool))
    # The key alone on stdout: KEY=$(conductor serve keys add NAME)
    print_line(text)
    print_notice(
        f"added the key {name}; it is shown only now, and sent as: Authorization: Bearer KEY, or x-api-key: KEY"
    )


@app.command("list")
def list_keys(json: opt.Json = False) -> None:
    """List the keys with their limits. No key is shown."""
    keys = _open_keys().all()
    if json:
        print_json([key.data() for key in keys])
    elif keys:
        now = datetime.now(UTC)
        rows = [
            [key.name, format_time(key.since, now), _money(key.max_cost_day), _money(key.max_cost), key.pool or UNKNOWN]
            for key in keys
        ]
        columns = (Column("NAME", shrink=14), Column("ADDED", drop=1), "COST A DAY", "COST A REQUEST", "POOL")
        print_table(columns, rows)
    else:
        print_notice(
            "no keys: the server answers programs of this machine; add one with: conductor serve keys add NAME"
        )


@app.command("rm")
def remove_key(name: Name) -> None:
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
