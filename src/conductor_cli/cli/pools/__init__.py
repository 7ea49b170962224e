"""`conductor pools`: list, show, add, rm, use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import NamedPool, Settings

app = typer.Typer(help="Named sets of workers, one of which a run may choose from.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The pool's name.")]


def _settings(context: typer.Context) -> Settings:
    from conductor_cli.config import load_settings

    return load_settings(os.environ, {}, context.obj.config)


@app.command("list")
def list_(context: typer.Context, json: opt.Json = False) -> None:
    """List the pools, and those that ship with this tool."""
    from conductor_cli.cli.output import print_json, print_notice, print_table
    from conductor_cli.models.builtin_pools import shipped_pools

    settings = _settings(context)
    rest = [pool for name, pool in shipped_pools().items() if name not in {pool.name for pool in settings.pools}]
    if json:
        ours = [_data(pool, settings) for pool in settings.pools]
        theirs = [_shape(pool.name, pool.about, [worker.name for worker in pool.workers]) for pool in rest]
        print_json([*ours, *theirs])
        return
    if settings.pools:
        rows = [[pool.name, _in_use(pool.name, settings), ", ".join(pool.workers)] for pool in settings.pools]
        print_table(("NAME", "IN USE", "WORKERS"), rows)
        for pool in settings.pools:
            for worker in _data(pool, settings)["unknown"]:
                print_notice(f"{pool.where}: pool {pool.name} names {worker}, which is no worker")
    else:
        print_notice("no pools are set up: every enabled worker is on offer")
    for one in rest:
        print_notice(f"not added yet: {one.name}, {one.about}; conductor pools add {one.name}")


def _in_use(name: str, settings: Settings) -> str:
    return "yes" if settings["conductor.pool"] == name else "no"


def _data(pool: NamedPool, settings: Settings) -> dict[str, Any]:
    """A pool of the settings, for `--json`."""
    enabled = {item.worker.name: item.enabled for item in settings.workers}
    return _shape(pool.name, pool.about, pool.workers) | {
        "in_use": settings["conductor.pool"] == pool.name, "source": pool.source,
        "disabled": [name for name in pool.workers if not enabled.get(name, True)],
        "unknown": [name for name in pool.workers if name not in enabled],
    }  # fmt: skip


def _shape(name: str, about: str, workers: Sequence[str]) -> dict[str, Any]:
    return {
        "name": name, "about": about, "workers": list(workers), "in_use": False, "source": None, "disabled": [],
        "unknown": [],
    }  # fmt: skip


@app.command("show")
def show(context: typer.Context, name: Name, json: opt.Json = False) -> None:
    """Show who is in a pool; one that ships, with its sources."""
    from conductor_cli.cli.workers.picturing import show_named, show_shipped
    from conductor_cli.config.pools import find_pool
    from conductor_cli.models.builtin_pools import shipped_pools

    settings = _settings(context)
    if name not in {pool.name for pool in settings.pools} and name in shipped_pools():
        show_shipped(shipped_pools()[name], settings, json=json)
        return
    try:
        pool = find_pool(settings.pools, name)
    except ConfigError as error:
        raise UsageError(error.message, hint=error.hint) from None
    show_named(pool, settings, json=json)


@app.command("add")
def add(
    context: typer.Context,
    name: Name,
    workers: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKER", help="Who is in it, in this order; none for a pool that ships with this tool."
        ),
    ] = None,
    about: Annotated[str | None, typer.Option("--about", help="What it is for, for the list.")] = None,
    everyone: Annotated[
        bool, typer.Option("--all", help="Of a pool that ships with this tool also the workers without a key.")
    ] = False,
) -> None:
    """Make a pool of workers, or add one that ships (published)."""
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.cli.pools.supplying import supply
    from conductor_cli.config.pools import update_pool

    settings = _settings(context)
    if workers:
        _check_known(workers, settings)
        table: dict[str, Any] = {"workers": workers} | ({"about": about} if about else {})
    else:
        table = supply(name, settings, everyone=everyone) | ({"about": about} if about else {})
    try:
        update_pool(settings.paths, name, table)
    except ConfigError as error:
        raise UsageError(error.message.removeprefix(f"{settings.paths.own_file}: "), hint=error.hint) from None
    held = len(table["workers"])
    print_line(f"pool {name}: {held} worker{'s' if held > 1 else ''}; use it with: conductor ask --pool {name} …")
    listed = next(pool for pool in _settings(context).pools if pool.name == name)
    if listed.source != str(settings.paths.own_file):
        print_notice(f"{listed.source} has a pool {name}, too; what stands there wins")


def _check_known(workers: Sequence[str], settings: Settings) -> None:
    known = [item.worker.name for item in settings.workers]
    unknown = next((worker for worker in workers if worker not in known), None)
    if unknown is not None:
        hint = f"known: {', '.join(known)}" if known else "conductor workers add NAME --kind KIND"
        raise UsageError(f"no worker is named {unknown!r}", hint=hint)


@app.command("rm")
def rm(context: typer.Context, name: Name) -> None:
    """Remove a pool that was added; its workers stay."""
    from conductor_cli.app.worker_selection import POOL_GONE
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.config import app_paths
    from conductor_cli.config.pools import own_pools, stop_using_pool, update_pool

    where = app_paths(os.environ)
    if name not in own_pools(where):
        listed = {pool.name: pool.source for pool in _settings(context).pools}
        if name in listed:
            said = f"pool {name!r} stands in {listed[name]}, which conductor does not write"
            raise ConfigError(said, hint="change it there, by hand")
        raise UsageError(f"no pool is named {name!r}", hint=f"known: {', '.join(listed) or 'none'}")
    update_pool(where, name, None)
    print_line(f"removed pool {name}; its workers stay")
    if stop_using_pool(where, name):
        print_notice(POOL_GONE)


@app.command("use")
def use(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The pool's name; none for every enabled worker.")] = None,
) -> None:
    """Choose the pool that runs use where they name none."""
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.config.pools import find_pool, pool_members
    from conductor_cli.config.workers import set_value

    settings = _settings(context)
    if name is not None:
        try:
            pool_members(find_pool(settings.pools, name), settings.workers)
        except ConfigError as error:
            raise UsageError(error.message, hint=error.hint) from None
    set_value(settings.paths, "conductor.pool", name)
    print_line("every enabled worker is on offer" if name is None else f"runs use pool {name}")
    now = _settings(context)
    if now["conductor.pool"] != (name or ""):
        print_notice(f"{now.origins['conductor.pool']} says otherwise, and that wins")


@app.command("names", hidden=True)
def names(
    context: typer.Context,
    own: Annotated[bool, typer.Option("--own", help="Only those that were added.")] = False,
    known: Annotated[bool, typer.Option("--known", help="Also those that ship with this tool.")] = False,
) -> None:
    """Print the names of pools, a line each: what a shell offers for a tab."""
    from conductor_cli.cli.completions import pool_names
    from conductor_cli.cli.output import print_line

    for name in pool_names(os.environ, context.obj.config, own=own, known=known):
        print_line(name)
