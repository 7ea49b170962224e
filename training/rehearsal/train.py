"""The command line of training: `python -m training.rehearsal.train --help`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.rehearsal.players import CARDS, model_path
from training.rehearsal.lessons import course_of
from training.stages import MISSED, UNFINISHED, print_line

if TYPE_CHECKING:
    from training.rehearsal.worker_table import Row

Out = Annotated[Path, typer.Option(help="directory for the state and the finished file")]
Minutes = Annotated[float, typer.Option(help="stop after this time", min=0)]
Directory = Annotated[
    Path | None, typer.Argument(help="directory of the files; default: the package")
]
Workers = Annotated[
    Path | None, typer.Option(help="directory of the workers' files; default: the package")
]
Count = Annotated[int, typer.Option(help="questions for each row", min=1)]
Seed = Annotated[int, typer.Option(help="random seed for the questions")]

OUT: Final = Path("build/rehearsal")
SHIPPED: Final = model_path("spelling").parent

app = typer.Typer(
    help="Train the demo models from nothing.", no_args_is_help=True, add_completion=False
)


@app.command()
def worker(
    name: Annotated[str, typer.Argument(help="a skill, checker or generalist")],
    out: Out = OUT,
    minutes: Minutes = 20.0,
) -> None:
    """Train a worker. With exit code 3 there is more to do: run it again."""
    course = course_of(name)
    from training.rehearsal.supervised import train_file

    _end(name, over=train_file(course, out, minutes=minutes, say=print_line))


@app.command()
def orchestra(
    stage: Annotated[
        Literal["cold", "grpo"], typer.Option(help="supervised training, or GRPO")
    ] = "grpo",
    out: Out = OUT,
    minutes: Minutes = 20.0,
    seed: Annotated[int, typer.Option(help="random seed for exercises, pools and plans")] = 1,
    steps: Annotated[
        int | None, typer.Option(help="number of GRPO steps, for a short training", min=1)
    ] = None,
    start: Annotated[
        Path | None, typer.Option(help="file to start from; default: the shipped one")
    ] = None,
    workers: Workers = None,
) -> None:
    """Train the conductor. With exit code 3 there is more to do: run it again."""
    if stage == "cold":
        from training.rehearsal.plan_lessons import COURSE
        from training.rehearsal.supervised import train_file

        over = train_file(COURSE, out, minutes=minutes, say=print_line)
    else:
        # Read when transformers is imported; all models are here
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from training.rehearsal.grpo import train_seed

        over = train_seed(
            out, seed, minutes=minutes, say=print_line, steps=steps, start=start, workers=workers
        )
    _end("conductor", over=over)


@app.command()
def evaluate(
    file: Annotated[
        Path | None, typer.Argument(help="the conductor's file; default: the shipped one")
    ] = None,
    count: Count = 500,
    seed: Seed = 1,
    workers: Workers = None,
) -> None:
    """Evaluate a conductor on held-out questions. Exit code 1 if a bound is missed."""
    from training.rehearsal.examination import rows

    if file is not None and not file.is_file():
        raise UsageError(f"there is no {file}", hint="python -m training.rehearsal.train conductor")
    _print(asyncio.run(rows(workers or SHIPPED, file, count=count, seed=seed)))


@app.command()
def table(directory: Directory = None, count: Count = 500, seed: Seed = 2026) -> None:
    """Evaluate the workers on held-out questions. Exit code 1 if a bound is missed."""
    from training.rehearsal.worker_table import rows

    _print(asyncio.run(rows(_complete(directory), count=count, seed=seed)))


@app.command()
def cards(directory: Directory = None, count: Count = 200, seed: Seed = 2026) -> None:
    """Measure what stands on the workers' cards, and write it beside their files.

    The conductor reads it there.
    """
    from training.rehearsal.worker_table import strengths

    measured = asyncio.run(strengths(_complete(directory), count=count, seed=seed))
    path = (directory or SHIPPED) / CARDS
    lines = ",\n".join(f'  "{name}": {json.dumps(tags)}' for name, tags in measured.items())
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    shares: list[str] = []
    for name, tags in measured.items():
        shares += [f"{name} {share}" for share in tags.values()]
    print_line(f"{path}: {', '.join(shares)}")


def _end(name: str, *, over: bool) -> None:
    if not over:
        print_line(
            f"{name}: the minutes are over before all steps are done; run the same command again"
        )
        raise typer.Exit(UNFINISHED)


def _complete(directory: Path | None) -> Path:
    """The directory of the workers' files, or the shipped one.

    Raises `UsageError` where one is missing.
    """
    from training.rehearsal.worker_table import files_of

    if gone := next((file for file in files_of(directory or SHIPPED) if not file.is_file()), None):
        raise UsageError(
            f"there is no {gone}", hint=f"python -m training.rehearsal.train worker {gone.stem}"
        )
    return directory or SHIPPED


def _print(rows: Sequence[Row]) -> None:
    for row in rows:
        print_line(str(row))
    if not all(row.passes for row in rows):
        raise typer.Exit(MISSED)


def main() -> None:
    """Run a command. An error is printed in two lines, without a traceback."""
    try:
        app()
    except ConductorError as error:
        message = f"error: {error.message}"
        if error.hint:
            message += f"\n  {error.hint}"
        print(message, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
