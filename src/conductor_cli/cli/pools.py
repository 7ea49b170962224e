"""`conductor pools`: list, add, rm."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from conductor_cli.app import workers
from conductor_cli.app.worker_selection import POOL_SETTING
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.workers import print_workers_table
from conductor_cli.config import ConfiguredWorker, app_paths
from conductor_cli.config.tables import NamedPool, find_pool, pool_members
from conductor_cli.core.formatting import UNKNOWN
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import Column
from conductor_cli.models.presets import as_of, shipped_pools

app = typer.Typer(help="Name sets of workers and choose one of them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The pool's name.")]


@app.command("list")
def list_pools_command(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this pool, with its workers.")] = None,
    json: opt.Json = False,
) -> None:
    """List the pools, and those that ship with this tool; or the workers of one, for a shipped one with sources."""
    settings = opt.stored_settings(context)
    own = {pool.name: pool for pool in settings.pools}
    if name is not None:
        shipped = None if name in own else shipped_pools().get(name)
        members: Sequence[ConfiguredWorker] = (
            workers.shipped_members(shipped, settings)
            if shipped is not None
            else pool_members(find_pool(settings.pools, name), settings.workers)
        )
        described = workers.describe_workers(members, settings)
        if json:
            print_json({"name": name, "workers": [row.data() for row in described]})
            return
        print_workers_table(described)
        if shipped is not None:
            print_text(f"{shipped.about}, from {shipped.source}; model ids as of {as_of()}. Not added yet.")
            for item in members:
                print_text(f"{item.worker.name}: source: {item.source}")
        return
    found = [(pool, "in use" if pool.name == settings[POOL_SETTING] else "added") for pool in settings.pools]
    for key, pool in shipped_pools().items():
        if key not in own:
            names = tuple(worker.name for worker in pool.workers)
            found.append((NamedPool(name=key, workers=names, about=pool.about), "not added yet"))
    if json:
        print_json([dump(pool) | {"state": state} for pool, state in found])
        return
    rows = [[pool.name, state, pool.about or UNKNOWN, ", ".join(pool.workers)] for pool, state in found]
    columns = (Column("NAME", shrink=14), Column("STATE", drop=1), Column("ABOUT", shrink=16, drop=2), "WORKERS")
    print_table(columns, rows)


@app.command("add")
def add_pool_command(
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
    for notice in workers.store_pool(settings, name, members or (), about=about, without_keys=everyone):
        print_notice(notice)
    print_line(f"added pool {name}; use it with: conductor ask --pool {name} …")


@app.command("rm")
def remove_pool_command(context: typer.Context, name: Name) -> None:
    """Remove a pool that was added and that is not in use; its workers stay."""
    workers.remove_tables(app_paths(os.environ), "pools", [name], lambda: opt.stored_settings(context))
    print_line(f"removed pool {name}; its workers stay")
