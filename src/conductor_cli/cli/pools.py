"""`conductor pools`: list, show, add, rm, use."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from conductor_cli.app import workers
from conductor_cli.app.worker_selection import POOL_SETTING
from conductor_cli.cli import config
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.workers import print_workers
from conductor_cli.config import app_paths
from conductor_cli.config.pools import find_pool, pool_members
from conductor_cli.core.formatting import UNKNOWN
from conductor_cli.core.serialization import dump
from conductor_cli.models.presets import as_of, shipped_pools

app = typer.Typer(help="Name sets of workers and choose one of them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The pool's name.")]


@app.command("list")
def list_pools(context: typer.Context, json: opt.Json = False) -> None:
    """List the pools, and those that ship with this tool."""
    settings = opt.stored_settings(context)
    rows: list[dict[str, Any]] = [
        {"name": pool.name, "state": "in use" if pool.name == settings[POOL_SETTING] else "added",
         "about": pool.about, "workers": list(pool.workers), "source": pool.source}
        for pool in settings.pools
    ]  # fmt: skip
    rows += [
        {"name": name, "state": "not added yet", "about": pool.about,
         "workers": [worker.name for worker in pool.workers], "source": pool.source}
        for name, pool in shipped_pools().items() if name not in {pool.name for pool in settings.pools}
    ]  # fmt: skip
    if json:
        print_json(rows)
    else:
        cells = [[row["name"], row["state"], row["about"] or UNKNOWN, ", ".join(row["workers"])] for row in rows]
        print_table(("NAME", "STATE", "ABOUT", "WORKERS"), cells)


@app.command("show")
def show_pool(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show the workers of a pool; for one that ships, with their sources."""
    settings = opt.stored_settings(context)
    shipped = shipped_pools().get(name)
    if shipped is None or name in {pool.name for pool in settings.pools}:
        pool = find_pool(settings.pools, name)
        rows = workers.describe_workers(pool_members(pool, settings.workers), settings)
        if json:
            print_json({**dump(pool), "workers": [row.data() for row in rows]})
        else:
            print_workers(rows)
        return
    rows = workers.describe_shipped(shipped, settings)
    if json:
        print_json({**dump(shipped), "as_of": as_of(), "workers": [row.data() for row in rows]})
        return
    print_text(f"{name}: {shipped.about}. {shipped.source}; model ids as of {as_of()}. Not added yet.")
    print_workers(rows)
    for item in shipped.workers:
        replaced = f"replaces {item.replaces}; " if item.replaces else ""
        print_text(f"{item.name}: {replaced}source: {item.source}")


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
