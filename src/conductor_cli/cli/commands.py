"""The commands, a row each: `app` is the tree of them."""

from __future__ import annotations

from typing import Annotated

import typer

from conductor_cli import __version__
from conductor_cli.cli import (
    ask,
    chat,
    completions,
    config,
    cost,
    doctor,
    keys,
    model,
    plan,
    pools,
    run,
    setup,
    trace,
    train,
    workers,
)
from conductor_cli.cli import eval as evaluation
from conductor_cli.cli.chat_banner import is_interactive
from conductor_cli.cli.options import Color, GlobalOptions
from conductor_cli.cli.output import print_notice
from conductor_cli.core.errors import UsageError

app = typer.Typer(
    name="conductor",
    help="Plan, run and show how a team of models answers a question.",
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 configuration or policy, 4 key, 5 conductor model, 6 limit, "
    "7 partial answer, 8 no worker reachable, 130 interrupted, 143 terminated.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("ask")(ask.ask)
app.command("chat")(chat.chat)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("eval")(evaluation.evaluate)
app.command("train")(train.train)
app.add_typer(trace.app, name="trace")
app.add_typer(workers.app, name="workers")
app.add_typer(pools.app, name="pools")
app.add_typer(keys.app, name="keys")
app.add_typer(model.app, name="model")
app.add_typer(config.app, name="config")
app.command("setup")(setup.setup)
app.command("cost")(cost.cost)
app.command("doctor")(doctor.doctor)
app.command("completions")(completions.completions)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"conductor {__version__}")
        raise typer.Exit


@app.callback()
def conductor(
    context: typer.Context,
    config_file: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Settings file to use instead of config.toml.")
    ] = None,
    color: Annotated[Color | None, typer.Option("--color", help="Colour: auto, always or never.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Log what happens inside to stderr; show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Plan, run and show how a team of models answers a question."""
    del version
    if debug and quiet:
        raise UsageError("--debug and --quiet exclude each other")
    context.obj = GlobalOptions(config=config_file, color=color.value if color else None, debug=debug, quiet=quiet)
    if context.invoked_subcommand is None:
        raise typer.Exit(_alone(context))


def _alone(context: typer.Context) -> int:
    """No command: a conversation where somebody could have one, else the help."""
    if is_interactive():
        from conductor_cli.cli.repl.loop import start_chat

        return start_chat(context.obj)
    print_notice(context.get_help())
    return UsageError("").exit_code
