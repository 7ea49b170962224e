"""`conductor config`: show, get, set, path.

`conductor pools`: list, show, add, rm, use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor_cli.app import workers
from conductor_cli.app.worker_selection import POOL_SETTING
from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_json, print_line, print_notice, print_table, print_text
from conductor_cli.cli.workers import print_workers
from conductor_cli.config import ConfiguredWorker, app_paths, find_setting, format_value
from conductor_cli.config.files import set_value
from conductor_cli.config.tables import NamedPool, find_pool, pool_members
from conductor_cli.core.errors import ConfigError, UsageError
from conductor_cli.core.formatting import UNKNOWN
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import Column
from conductor_cli.models.presets import as_of, shipped_pools

app = typer.Typer(help="Settings: where they come from and what they are.", no_args_is_help=True)

FILE_SETTINGS: Final = ("conductor.model", "conductor.adapter")
"""Settings that may name a file."""

Name = Annotated[str, typer.Argument(metavar="SECTION.KEY", help="For example limits.steps.")]


@app.command("show")
def show(context: typer.Context, json: opt.Json = False) -> None:
    """Show every setting, its value, and where it comes from."""
    settings = opt.stored_settings(context)
    if json:
        print_json(
            {name: {"value": dump(value), "from": settings.origins[name]} for name, value in settings.values.items()}
        )
        return
    rows = [[name, format_value(value), settings.origins[name]] for name, value in settings.values.items()]
    print_table((Column("SETTING"), Column("VALUE", shrink=12), Column("FROM", shrink=12, drop=1)), rows)


@app.command("get")
def get(context: typer.Context, name: Name) -> None:
    """Print the value of one setting."""
    item = find_setting(name)
    print_line(format_value(opt.stored_settings(context)[item.name]))


@app.command("set", context_settings={"ignore_unknown_options": True})  # a value may begin with a dash
def set_(
    context: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(help="The new value; default removes the setting.")],
) -> None:
    """Change one setting in conductor's own file. config.toml and the environment take precedence over it."""
    from conductor_cli.app.worker_selection import unmatched_selectors  # a look at a setting starts without workers

    item, paths = find_setting(name), app_paths(os.environ)
    try:
        new = None if value == "default" else item.parse(_absolute_path(name, value))
    except ConfigError as error:
        raise UsageError(error.message, hint="to restore the default: conductor config set NAME default") from None
    set_value(paths, name, new)
    # Read back, since the user's file or a variable may override what was just written.
    after = opt.stored_settings(context)
    print_line(f"{name} = {format_value(after[name])}")
    if new is not None and name.startswith("policy."):
        from conductor_cli.app.worker_selection import unmatched_selectors  # no other setting needs the workers

        for note in unmatched_selectors(after, name):
            print_notice(note)
    if new is not None and after[name] != new:
        print_notice(f"{after.origins[name]} sets this value and takes precedence over {paths.own_file}")


@app.command("path")
def path(context: typer.Context) -> None:
    """Print the files that settings come from."""
    settings = opt.stored_settings(context)
    print_line(f"yours:        {context.obj.config or settings.paths.user_file}")
    print_line(f"conductor's:  {settings.paths.own_file}")
    for file, _ in settings.projects:
        print_line(f"project's:    {file}")


def _absolute_path(name: str, value: str) -> str:
    """The whole path of an existing file, since a setting applies in every directory. Other values are unchanged."""
    file = Path(value).expanduser()
    return str(file.absolute()) if name in FILE_SETTINGS and file.is_file() else value


pools_app = typer.Typer(help="Name sets of workers and choose one of them.", no_args_is_help=True)

PoolName = Annotated[str, typer.Argument(help="The pool's name.")]


@pools_app.command("list")
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


@pools_app.command("show")
def show_pool(context: typer.Context, name: PoolName, json: opt.Json = False) -> None:
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


@pools_app.command("add")
def add_pool(
    context: typer.Context,
    name: PoolName,
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


@pools_app.command("rm")
def remove_pool(context: typer.Context, name: PoolName) -> None:
    """Remove a pool that was added and that is not in use; its workers stay."""
    workers.remove_pool(app_paths(os.environ), name, lambda: opt.stored_settings(context))
    print_line(f"removed pool {name}; its workers stay")


@pools_app.command("use")
def use_pool(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The pool's name; none for every enabled worker.")] = None,
) -> None:
    """Choose the pool that runs use by default."""
    settings = opt.stored_settings(context)
    if name is not None:
        pool_members(find_pool(settings.pools, name), settings.workers)
    set_(context, POOL_SETTING, name or "default")
