"""The command line of training: `python -m scripts.rehearsal.train --help`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from conductor_cli.core.errors import ConductorError, UsageError
from scripts.rehearsal.courses import NOT_OVER, course_of

if TYPE_CHECKING:
    from scripts.rehearsal.worker_table import Row

Out = Annotated[Path, typer.Option(help="directory for what is kept meanwhile and the finished file")]
Minutes = Annotated[float, typer.Option(help="how long this stage may take", min=0)]
Threads = Annotated[int, typer.Option(help="threads of torch; two jobs of one beat one job of two", min=1)]
Steps = Annotated[int | None, typer.Option(help="only so many steps, as a course of its own", min=1)]
Workers = Annotated[Path | None, typer.Option(help="where the workers' files are; those of the package without it")]
Cards = Annotated[Path | None, typer.Option(help="the workers' measured cards; those of the package without it")]
Count = Annotated[int, typer.Option(help="questions for each row", min=1)]
Seed = Annotated[int, typer.Option(help="which questions")]

OUT: Final = Path("build/rehearsal")

app = typer.Typer(
    help="Train, from nothing, the models that ship with the rehearsal.", no_args_is_help=True, add_completion=False
)


def _say(line: str) -> None:
    print(line, flush=True)


def _end(name: str, *, over: bool) -> None:
    if not over:
        _say(f"{name}: the minutes are over and the course is not; run the same command again to go on")
        raise typer.Exit(NOT_OVER)


@app.command()
def worker(
    name: Annotated[str, typer.Argument(help="letters, numbers, facts or generalist")],
    out: Out = OUT,
    minutes: Minutes = 20.0,
    threads: Threads = 1,
) -> None:
    """Train a worker for one stage; the exit code 3 says that the course is not over: run it again."""
    course = course_of(name)
    from scripts.rehearsal.teaching import stage

    _end(name, over=stage(course, out, minutes=minutes, threads=threads, say=_say))


@app.command()
def conductor(  # noqa: PLR0913, PLR0917 - a command has as many arguments as it has options
    stage: Annotated[Literal["cold", "grpo"], typer.Option(help="the cold start, or practice for reward")] = "grpo",
    out: Out = OUT,
    minutes: Minutes = 20.0,
    threads: Threads = 1,
    seed: Annotated[int, typer.Option(help="which exercises, pools and draws")] = 1,
    steps: Steps = None,
    start: Annotated[Path | None, typer.Option(help="what to practise from; the shipped cold start without it")] = None,
    workers: Workers = None,
    cards: Cards = None,
) -> None:
    """Train the conductor for one stage; the exit code 3 says that the course is not over: run it again."""
    if stage == "cold":
        from scripts.rehearsal.teaching import cold_stage

        _end("conductor", over=cold_stage(out, minutes=minutes, threads=threads, say=_say))
        return
    from scripts.rehearsal.grpo import practise
    from scripts.rehearsal.rollouts import carded

    pool = carded(workers, cards)
    over = practise(out, minutes=minutes, threads=threads, say=_say, seed=seed, steps=steps, start=start, pool=pool)
    _end("conductor", over=over)


@app.command()
def examine(
    file: Annotated[Path | None, typer.Argument(help="the conductor's file; the shipped one without it")] = None,
    count: Count = 500,
    seed: Seed = 2026,
    workers: Workers = None,
    cards: Cards = None,
) -> None:
    """Print what a conductor reaches on held-out questions, beside the bounds; exit 1 where one is missed."""
    from conductor_cli.rehearsal.conductor_model import conductor_path
    from scripts.rehearsal.evaluate import examined
    from scripts.rehearsal.rollouts import carded

    if not (file or conductor_path()).is_file():
        raise UsageError(f"there is no {file or conductor_path()}", hint="python -m scripts.rehearsal.train conductor")
    _print(examined(carded(workers, cards), file, count=count, seed=seed))


@app.command()
def table(
    directory: Annotated[Path | None, typer.Argument(help="where the files are, instead of in the package")] = None,
    count: Count = 500,
    seed: Seed = 2026,
) -> None:
    """Print what the finished workers reach on held-out questions, beside the bounds; exit 1 where one is missed."""
    from scripts.rehearsal.worker_table import missing, rows

    if gone := missing(directory):
        raise UsageError(f"there is no {gone[0]}", hint=f"python -m scripts.rehearsal.train worker {gone[0].stem}")
    _print(rows(directory, count=count, seed=seed))


def _print(rows: Sequence[Row]) -> None:
    for row in rows:
        _say(str(row))
    if not all(row.kept for row in rows):
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
