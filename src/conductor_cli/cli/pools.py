"""`conductor pools`: list, show, add, rm, use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from conductor_cli.app import workers
from conductor_cli.app.worker_selection import POOL_SETTING
from conductor_cli.cli import config
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.workers import print_workers
from conductor_cli.config import ConfiguredWorker, app_paths
from conductor_cli.config.tables import NamedPool, find_pool, pool_members
from conductor_cli.core.formatting import UNKNOWN
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import Column
from conductor_cli.models.presets import as_of, shipped_pools

app = typer.Typer(help="Name sets of workers and choose one of them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The pool's name.")]


@app.command("list")
def list_pools(context: typer.Context, json: opt.Json = False) -> None:
    """List the pools, and those that ship with this tool."""
    settings = opt.stored_settings(context)
    added = {pool.name: pool for pool in settings.pools}
    pools = [
        *settings.pools,
        *(
            NamedPool(name=name, workers=tuple(worker.name for worker in pool.workers), about=pool.about)
            for name, pool in shipped_pools().items() if name not in added
        ),
    ]  # fmt: skip
    states = ["in use" if pool.name == settings[POOL_SETTING] else "added" for pool in settings.pools]
    states += ["not added yet"] * (len(pools) - len(states))
    if json:
        print_json([dump(pool) | {"state": state} for pool, state in zip(pools, states, strict=True)])
        return
    rows = [
        [pool.name, state, pool.about or UNKNOWN, ", ".join(pool.workers)]
        for pool, state in zip(pools, states, strict=True)
    ]
    columns = (Column("NAME", shrink=14), Column("STATE", drop=1), Column("ABOUT", shrink=16, drop=2), "WORKERS")
    print_table(columns, rows)


@app.command("show")
def show_pool(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show the workers of a pool; for one that ships, with their sources."""
    settings = opt.stored_settings(context)
    shipped = None if name in {pool.name for pool in settings.pools} else shipped_pools().get(name)
    if shipped is not None:
        members: Sequence[ConfiguredWorker] = workers.shipped_members(shipped, settings)
    else:
        members = pool_members(find_pool(settings.pools, name), settings.workers)
    rows = workers.describe_workers(members, settings)
    if json:
        print_json({"name": name, "workers": [row.data() for row in rows]})
        return
    print_workers(rows)
    if shipped is not None:
        print_text(f"{shipped.about}, from {shipped.source}; model ids as of {as_of()}. Not added yet.")
        for item in members:
            print_text(f"{item.worker.name}: source: {item.source}")


@app.command("add")
def add_pool(
    context: typer.Context,
    name: Name,
    members: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKER", help="The pool's workers, in this order; none for a pool that ships with this tool."
        ),
    ] = None,
    about: Annotated[str | None, typer.Option("--about", help="What it is for, shown in the list.")] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="For a pool that ships: also add the workers without a key.")
    ] = False,
) -> None:
    """Make a pool of workers, or add one that ships (published)."""
    settings = opt.stored_settings(context)
    for notice in workers.add_pool(settings, name, members or (), about=about, without_keys=everyone):
        print_notice(notice)
    print_line(f"added pool {name}; use it with: conductor ask --pool {name} …")


@app.command("rm")
def remove_pool(context: typer.Context, name: Name) -> None:
    """Remove a pool that was added and that is not in use; its workers stay."""
    workers.remove_pool(app_paths(os.environ), name, lambda: opt.stored_settings(context))
    print_line(f"removed pool {name}; its workers stay")


@app.command("use")
def use_pool(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The pool's name; none for every enabled worker.")] = None,
) -> None:
    """Choose the pool that runs use by default."""
    settings = opt.stored_settings(context)
    if name is not None:
        pool_members(find_pool(settings.pools, name), settings.workers)
    config.set_(context, POOL_SETTING, name or "default")
