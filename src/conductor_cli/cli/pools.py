"""`conductor pools`: list, show, add, rm, use."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from conductor_cli.app import pools
from conductor_cli.cli import options as opt
from conductor_cli.cli.completion_names import find_names
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.workers import format_card, format_model, format_options
from conductor_cli.config import Settings, app_paths
from conductor_cli.core.formatting import UNKNOWN, format_count
from conductor_cli.models.presets import ShippedPool, as_of

app = typer.Typer(help="Name sets of workers and choose one of them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The pool's name.")]


@app.command("list")
def list_pools(context: typer.Context, json: opt.Json = False) -> None:
    """List the pools, and those that ship with this tool."""
    rows = pools.list_pools(opt.stored_settings(context))
    if json:
        print_json([row.data() for row in rows])
        return
    configured = [row for row in rows if row.source]
    if configured:
        cells = [[row.name, "yes" if row.in_use else "no", ", ".join(row.workers)] for row in configured]
        print_table(("NAME", "IN USE", "WORKERS"), cells)
    else:
        print_notice("no pools are configured: runs use every enabled worker")
    for row in configured:
        for worker in row.unknown:
            print_notice(f"{row.where}: pool {row.name} names {worker}, but there is no such worker")
    for row in rows:
        if not row.source:
            print_notice(f"not added yet: {row.name}, {row.about}; conductor pools add {row.name}")


@app.command("show")
def show_pool(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show the workers of a pool; for one that ships, with their sources."""
    settings = opt.stored_settings(context)
    if shipped := pools.find_shipped_pool(settings, name):
        _show_shipped(shipped, settings, json=json)
        return
    pool, members = pools.pool_workers(settings, name)
    if json:
        print_json(
            {"name": name, "about": pool.about, "source": pool.source, "workers": [row.data() for row in members]}
        )
        return
    rows = [
        [row.worker.name, format_model(row.worker), "yes" if row.configured.enabled else "no", row.key,
         format_options(row.worker.public().options) or UNKNOWN]
        for row in members
    ]  # fmt: skip
    print_table(("NAME", "MODEL", "ENABLED", "KEY", "SETTINGS"), rows)


def _show_shipped(pool: ShippedPool, settings: Settings, *, json: bool) -> None:
    rows = pools.shipped_pool_workers(settings, pool)
    if json:
        workers = [row.data() for row in rows]
        data = {"name": pool.name, "about": pool.about, "source": pool.source, "as_of": as_of(), "workers": workers}
        print_json(data)
        return
    print_text(f"{pool.name}: {pool.about}. {pool.source}; model ids as of {as_of()}. Not added yet.")
    for row in rows:
        item = row.shipped
        print_text(f"\n{item.name}: {format_model(row.worker)}, {format_options(row.worker.options)}")
        print_text(f"    {f'replaces {item.replaces}' if item.replaces else 'the published model'}; key: {row.key}")
        print_text(f"    source: {item.source}")
        print_text(f"    good at: {format_card(row.worker.card)}")


@app.command("add")
def add_pool(
    context: typer.Context,
    name: Name,
    workers: Annotated[
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
    count, notices = pools.add_pool(settings, name, workers or (), about=about, without_keys=everyone)
    for notice in notices:
        print_notice(notice)
    print_line(f"pool {name}: {format_count(count, 'worker')}; use it with: conductor ask --pool {name} …")
    listed = next(pool for pool in opt.stored_settings(context).pools if pool.name == name)
    if listed.source != str(settings.paths.own_file):
        print_notice(f"{listed.source} also has a pool {name}, which takes precedence")


@app.command("rm")
def remove_pool(context: typer.Context, name: Name) -> None:
    """Remove a pool that was added; its workers stay."""
    notices = pools.remove_pool(app_paths(os.environ), name, lambda: opt.stored_settings(context))
    print_line(f"removed pool {name}; its workers stay")
    for notice in notices:
        print_notice(notice)


@app.command("use")
def use_pool(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The pool's name; none for every enabled worker.")] = None,
) -> None:
    """Choose the pool that runs use by default."""
    pools.use_pool(opt.stored_settings(context), name)
    print_line("runs use every enabled worker" if name is None else f"runs use pool {name}")
    now = opt.stored_settings(context)
    if now["conductor.pool"] != (name or ""):
        print_notice(f"{now.origins['conductor.pool']} sets another pool, which takes precedence")


@app.command("names", hidden=True)
def print_names(
    context: typer.Context,
    own: Annotated[bool, typer.Option("--own", help="Only those that were added.")] = False,
    known: Annotated[bool, typer.Option("--known", help="Also those that ship with this tool.")] = False,
) -> None:
    """Print the names of pools, one per line, for shell completion."""
    flag = "--own" if own else "--known" if known else ""
    for name in find_names("pools", flag, os.environ, context.obj.config):
        print_line(name)
