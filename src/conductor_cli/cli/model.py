"""`conductor model`: which model plans."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from conductor_cli.core.errors import UsageError

app = typer.Typer(help="The conductor model: the one that plans.", no_args_is_help=True)


@app.command("use")
def use(
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="FILE|URL|PROVIDER/MODEL", help="A GGUF file, a server's URL, or provider/model.")
    ],
) -> None:
    """Choose the model that plans, from now on."""
    from conductor_cli.cli.choosing import described, planner_of
    from conductor_cli.cli.output import remark, say
    from conductor_cli.config import load
    from conductor_cli.config.workers import set_value

    if not model.strip():
        raise UsageError("no model is named", hint="conductor model use FILE.gguf | URL | provider/model")
    path = Path(model).expanduser()
    chosen = str(path.absolute()) if path.exists() else model
    settings = load(os.environ, {"conductor.model": chosen}, context.obj.config)
    name = described(planner_of(settings))
    set_value(settings.places, "conductor.model", chosen)
    after = load(os.environ, {}, context.obj.config)
    if after["conductor.model"] == chosen:
        say(f"the conductor model is now {name}")
    else:
        say(f"written: {name}")
        remark(f"{after.origins['conductor.model']} names {after['conductor.model']}, and wins")


@app.command("path")
def path(context: typer.Context) -> None:
    """Print which model plans: a file's path, a URL, or provider/model."""
    from conductor_cli.cli.choosing import planner_of
    from conductor_cli.cli.output import say
    from conductor_cli.config import load

    settings = load(os.environ, {}, context.obj.config)
    planner = planner_of(settings)
    say(planner.model if planner.kind == "llama" else settings["conductor.model"])
