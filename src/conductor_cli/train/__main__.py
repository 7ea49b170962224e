"""The command line of training: `python -m conductor_cli.train --help`."""

from __future__ import annotations

import sys
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from conductor_cli.cli.options import Globals
from conductor_cli.cli.train import train
from conductor_cli.core.errors import ConductorError
from conductor_cli.train.commands import NOT_OVER, conductor, examine

app = typer.Typer(
    help="Train, from nothing, the models that ship with the rehearsal.", no_args_is_help=True, add_completion=False
)


@app.callback(invoke_without_command=True)
@wraps(train)
def preset(context: typer.Context, **options: Any) -> None:  # noqa: ANN401 - those of `conductor train`
    """Train by a preset, as `conductor train` does: this is what `accelerate launch -m` starts."""
    if context.invoked_subcommand is None:
        context.obj = Globals()
        train(context, **options)


app.command()(conductor)
app.command()(examine)


def _say(line: str) -> None:
    print(line, flush=True)


@app.command()
def worker(
    name: Annotated[str, typer.Argument(help="letters, numbers, facts or generalist")],
    out: Annotated[Path, typer.Option(help="directory for the state and the finished file")] = Path("build/rehearsal"),
    minutes: Annotated[float, typer.Option(help="how long this stage may take", min=0)] = 20.0,
    threads: Annotated[int, typer.Option(help="threads; two jobs of one beat one job of two", min=1)] = 1,
) -> None:
    """Train a worker for one stage; the exit code 3 says that the course is not over: run it again."""
    from conductor_cli.train.course import course_of

    course = course_of(name)
    from conductor_cli.train.teaching import stage

    if not stage(course, out, minutes=minutes, threads=threads, say=_say):
        _say(f"{name}: the minutes are over and the course is not; run the same command again to go on")
        raise typer.Exit(NOT_OVER)


@app.command()
def table(
    directory: Annotated[Path | None, typer.Argument(help="where the files are, instead of in the package")] = None,
    count: Annotated[int, typer.Option(help="questions for each row", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="which questions")] = 2026,
) -> None:
    """Print what the finished workers reach on held-out questions, beside the bounds; exit 1 where one is missed."""
    from conductor_cli.core.errors import UsageError
    from conductor_cli.train.table import missing, rows

    if gone := missing(directory):
        raise UsageError(f"there is no {gone[0]}", hint=f"python -m conductor_cli.train worker {gone[0].stem}")
    found = rows(directory, count=count, seed=seed)
    for row in found:
        _say(str(row))
    if not all(row.kept for row in found):
        raise typer.Exit(1)


def main() -> None:
    """Run a command; an error is said in two lines, without a traceback."""
    try:
        app()
    except ConductorError as error:
        print(f"error: {error.message}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
