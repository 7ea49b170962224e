"""`conductor config`: show, get, set, path."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from conductor_cli.cli import options as opt
from conductor_cli.core.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from conductor_cli.config import Settings

app = typer.Typer(help="Settings: where they come from and what they are.", no_args_is_help=True)

FILES = ("conductor.model", "conductor.adapter")
"""Settings that may name a file."""

Name = Annotated[str, typer.Argument(metavar="SECTION.KEY", help="For example limits.steps.")]


def _settings(context: typer.Context) -> Settings:
    from conductor_cli.config import load_settings

    return load_settings(os.environ, {}, context.obj.config)


@app.command("show")
def show(context: typer.Context, json: opt.Json = False) -> None:
    """Show every setting, its value, and where it comes from."""
    from conductor_cli.cli.output import print_json, print_table
    from conductor_cli.config import format_value
    from conductor_cli.core.serialization import dump

    settings = _settings(context)
    if json:
        print_json(
            {name: {"value": dump(value), "from": settings.origins[name]} for name, value in settings.values.items()}
        )
        return
    print_table(
        ("SETTING", "VALUE", "FROM"),
        [[name, format_value(value), settings.origins[name]] for name, value in settings.values.items()],
    )


@app.command("get")
def get(context: typer.Context, name: Name) -> None:
    """Print one setting's value."""
    from conductor_cli.cli.output import print_line
    from conductor_cli.config import find_setting, format_value

    _known(name)
    print_line(format_value(_settings(context)[find_setting(name).name]))


@app.command("set", context_settings={"ignore_unknown_options": True})  # a value may begin with a dash
def set_(
    context: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(help="The new value; default takes the setting out again.")],
) -> None:
    """Set one setting in conductor's own file. What stands in config.toml or the environment still wins."""
    from conductor_cli.cli.output import print_line, print_notice
    from conductor_cli.config import app_paths, find_setting, format_value
    from conductor_cli.config.workers import set_value

    _known(name)
    where = app_paths(os.environ)
    try:
        new = None if value == "default" else find_setting(name).parse(_found_anywhere(context, name, value))
    except ConfigError as error:
        raise UsageError(error.message, hint="default takes the setting out again") from None
    set_value(where, name, new)
    after = _settings(context)
    print_line(f"{name} = {format_value(after[name])}")
    if new is not None and after[name] != new:
        print_notice(f"{after.origins[name]} sets it to this; it wins over what was written to {where.own_file}")


def _found_anywhere(context: typer.Context, name: str, value: str) -> str:
    """A file that is there by its whole path: the setting holds in every directory. Names of other things stay."""
    from pathlib import Path

    from conductor_cli.app.planner_resolution import open_model_store

    path = Path(value).expanduser()
    if name not in FILES or not path.is_file():
        return value
    settings = _settings(context)
    taken = [item.worker.name for item in settings.workers] if name == "conductor.model" else []
    return value if value in taken or open_model_store(settings).find(value) is not None else str(path.absolute())


def _known(name: str) -> None:
    from conductor_cli.config import find_setting

    try:
        find_setting(name)
    except ConfigError as error:
        raise UsageError(error.message, hint="conductor config show lists them all") from None


@app.command("path")
def path(context: typer.Context) -> None:
    """Print the files that settings come from."""
    from conductor_cli.cli.output import print_line

    settings = _settings(context)
    print_line(f"yours:        {context.obj.config or settings.paths.user_file}")
    print_line(f"conductor's:  {settings.paths.own_file}")
    for file, _ in settings.projects:
        print_line(f"project's:    {file}")
