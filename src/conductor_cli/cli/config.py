"""`conductor config`: show and set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from conductor_cli.cli import options as opt
from conductor_cli.cli.output import print_done, print_json, print_line, print_notice, print_table
from conductor_cli.config.files import set_value
from conductor_cli.config.schema import Setting, describe_renamed
from conductor_cli.config.settings import (
    Settings,
    app_paths,
    find_setting,
    format_value,
    settings_json,
)
from conductor_cli.config.tables import find_pool
from conductor_cli.core.errors import ConfigError, KeyMissing, UsageError
from conductor_cli.system.terminal_tables import Column

app = typer.Typer(help="Settings: where they come from and what they are.", no_args_is_help=True)


POOLS: Final = "pools."  # What stands before the name of a pool


@app.command("show")
def show_settings_command(
    context: typer.Context,
    name: Annotated[
        str | None,
        opt.argument("SECTION.KEY", "Only the value of this setting; SECTION: those of a section."),
    ] = None,
    json: opt.Json = False,
) -> None:
    """Show every setting, its value, and where it comes from; then the files of settings."""
    settings = opt.stored_settings(context)
    if name is not None and name.startswith(POOLS):
        pool = find_pool(settings.pools, name.removeprefix(POOLS))
        if json:
            print_json({name: {"value": list(pool.workers), "from": pool.source}})
        else:
            print_line(format_value(pool.workers))
        return
    if name == POOLS.rstrip("."):
        _show_pools(settings, json=json)
        return
    section = [setting for setting in settings.values if setting.startswith(f"{name}.")]
    if section:
        _show_settings(settings, section, json=json)
        return
    if name is not None:
        _show_setting(settings, name, json=json)
        return
    _show_settings(settings, list(settings.values), json=json)
    if json:
        return
    print_line()
    print_line(f"yours:        {context.obj.config or settings.paths.user_file}")
    print_line(f"conductor's:  {settings.paths.own_file}")
    for file, _ in settings.projects:
        print_line(f"project's:    {file}")
    for notice in settings.notices:
        print_notice(notice)


def _show_pools(settings: Settings, *, json: bool) -> None:
    """Print every pool with its workers, and where it comes from."""
    if json:
        pools = {}
        for pool in settings.pools:
            pools[f"{POOLS}{pool.name}"] = {"value": list(pool.workers), "from": pool.source}
        print_json(pools)
        return
    if not settings.pools:
        print_notice("there are no pools; to make one: conductor config set pools.NAME A,B")
        return
    rows = []
    for pool in settings.pools:
        rows.append([f"{POOLS}{pool.name}", format_value(pool.workers), pool.source])
    print_table(
        (Column("POOL"), Column("WORKERS", shrink=12), Column("FROM", shrink=12, drop=1)), rows
    )


def _show_settings(settings: Settings, names: Sequence[str], *, json: bool) -> None:
    """Print settings with their values, and where these come from."""
    if json:
        values = settings_json(settings)
        if len(names) < len(settings.values):
            values = {name: values[name] for name in names}
        print_json(values)
        return
    rows = [[name, format_value(settings[name]), settings.origins[name]] for name in names]
    print_table(
        (Column("SETTING"), Column("VALUE", shrink=12), Column("FROM", shrink=12, drop=1)), rows
    )


def _show_setting(settings: Settings, name: str, *, json: bool) -> None:
    """Print one setting, whose name may be an earlier one. Raises `UsageError`."""
    item = _find_named(name)
    if json:
        print_json({name: settings_json(settings)[name]})
    else:
        print_line(format_value(settings[item.name]))


def _find_named(name: str) -> Setting:
    """Return the setting that a command line names, and say its present name if it has another.

    Raises `UsageError`.
    """
    item = find_setting(name)
    if item.name != name:
        print_notice(describe_renamed(name, item.name))
    return item


# A value may begin with a dash
@app.command("set", context_settings={"ignore_unknown_options": True})
def set_setting_command(
    context: typer.Context,
    name: Annotated[str, opt.argument("SECTION.KEY", "For example limits.steps.")],
    value: Annotated[str, opt.argument(None, "The new value; default removes the setting.")],
) -> None:
    """Change one setting in conductor's own file.

    config.toml and the environment take precedence over it.

    pools.NAME is a pool: conductor config set pools.cheap A,B; default removes it.
    """
    if name.startswith(POOLS):
        _set_pool(opt.stored_settings(context), name.removeprefix(POOLS), value)
        return
    item = _find_named(name)
    name = item.name
    paths = app_paths(os.environ)
    file = Path(value).expanduser()
    # A setting applies in every directory
    if name in ("planner.model", "planner.adapter") and file.is_file():
        value = str(file.absolute())
    try:
        setting = None if value == "default" else item.parse(value)
    except ConfigError as error:
        raise UsageError(
            error.message, hint="to restore the default: conductor config set NAME default"
        ) from None
    set_value(paths, name, setting)
    # Read back, since the user's file or a variable may override what was just written.
    after = opt.stored_settings(context)
    print_done(f"{name} = {format_value(after[name])}")
    if setting and name == "web.search":
        _tell_missing_key(after)
    if setting is not None and name.startswith("policy."):
        # No other setting needs the workers
        from conductor_cli.app.worker_selection import unmatched_selectors

        for note in unmatched_selectors(after, name):
            print_notice(note)
    if setting is not None and after[name] != setting:
        print_notice(
            f"{after.origins[name]} sets this value and takes precedence over {paths.own_file}"
        )


def _tell_missing_key(settings: Settings) -> None:
    """Say that the provider of web search has no key: no run begins without one."""
    from conductor_cli.app.web_tools import search_provider  # no other setting needs it

    try:
        search_provider(settings)
    except KeyMissing as error:
        print_notice(f"{error.message}, so no question can be asked yet: {error.hint}")


def _set_pool(settings: Settings, name: str, value: str) -> None:
    from conductor_cli.app.workers import store_pool  # no other setting needs the workers

    members = () if value == "default" else tuple(opt.split_names([value]) or ())
    store_pool(settings, name, members)
    if members:
        print_done(
            f"{POOLS}{name} = {format_value(members)}; to use it: conductor ask --pool {name} …"
        )
    else:
        print_done(f"removed the pool {name}; its workers stay")
