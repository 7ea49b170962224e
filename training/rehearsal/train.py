"""The command line of training: `python -m training.rehearsal.train --help`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from conductor_cli.core.errors import ConductorError, UsageError
from conductor_cli.rehearsal.players import CARDS, conductor_path, model_path
from training.rehearsal.lessons import course_of
from training.stages import MISSED, UNFINISHED, print_line

if TYPE_CHECKING:
    from training.rehearsal.figures import Figure, Measured
    from training.rehearsal.worker_table import Row

Out = Annotated[Path, typer.Option(help="directory for the state and the finished file")]
Json = Annotated[Path | None, typer.Option("--out", help="also write every value to this file, for merge")]
Minutes = Annotated[float, typer.Option(help="stop after this time", min=0)]
Threads = Annotated[int, typer.Option(help="threads of torch; prefer two jobs with one thread", min=1)]
Directory = Annotated[Path | None, typer.Argument(help="directory of the files; default: the package")]
Workers = Annotated[Path | None, typer.Option(help="directory of the workers' files; default: the package")]
Conductor = Annotated[Path | None, typer.Argument(help="the conductor's file; default: the shipped one")]
Count = Annotated[int, typer.Option(help="questions for each row", min=1)]
Seed = Annotated[int, typer.Option(help="random seed for the questions")]
Seeds = Annotated[str, typer.Option(help="random seeds for the questions, with commas between them")]
Store = Annotated[Path, typer.Option(help="where replies are remembered, so that none is asked for twice")]

OUT: Final = Path("build/rehearsal")
STORE: Final = OUT / "replies.sqlite"
SHIPPED: Final = model_path("spelling").parent

app = typer.Typer(help="Train the demo models from nothing.", no_args_is_help=True, add_completion=False)


@app.command()
def worker(
    name: Annotated[str, typer.Argument(help="a skill, checker or generalist")],
    out: Out = OUT, minutes: Minutes = 20.0, threads: Threads = 1,
) -> None:  # fmt: skip
    """Train a worker. With exit code 3 there is more to do: run it again."""
    course = course_of(name)
    from training.rehearsal.supervised import train_file

    _end(name, over=train_file(course, out, minutes=minutes, threads=threads, say=print_line))


@app.command()
def conductor(
    stage: Annotated[Literal["cold", "grpo"], typer.Option(help="supervised training, or GRPO")] = "grpo",
    out: Out = OUT, minutes: Minutes = 20.0, threads: Threads = 1,
    seed: Annotated[int, typer.Option(help="random seed for exercises, pools and plans")] = 1,
    steps: Annotated[int | None, typer.Option(help="number of GRPO steps, for a short training", min=1)] = None,
    start: Annotated[Path | None, typer.Option(help="file to start from; default: the shipped one")] = None,
    workers: Workers = None,
) -> None:  # fmt: skip
    """Train the conductor. With exit code 3 there is more to do: run it again."""
    bounds = {"minutes": minutes, "threads": threads}
    if stage == "cold":
        from training.rehearsal.plan_lessons import COURSE
        from training.rehearsal.supervised import train_file

        over = train_file(COURSE, out, **bounds, say=print_line)  # type: ignore[arg-type]
    else:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported; all models are here
        from training.rehearsal.grpo import train_seed

        given = {"seed": seed, "steps": steps, "start": start, "workers": workers}
        over = train_seed(out, **bounds, say=print_line, **given)  # type: ignore[arg-type]
    _end("conductor", over=over)


@app.command()
def evaluate(
    file: Conductor = None, count: Count = 500, seeds: Seeds = "1,2,3", workers: Workers = None,
    cold: Annotated[Path | None, typer.Option(help="file of its cold start, to compare with")] = None,
    store: Store = STORE, out: Json = None,
) -> None:  # fmt: skip
    """Evaluate a conductor and its rivals on held-out questions. Exit code 1 if a bound is missed."""
    from training.rehearsal.examination import examine
    from training.rehearsal.figures import TABLE

    for path in (file or conductor_path(), cold):
        if path is not None and not path.is_file():
            raise UsageError(f"there is no {path}", hint="python -m training.rehearsal.train conductor")
    cold = cold or Path(__file__).with_name("cold.gguf")
    measured = examine(
        workers or SHIPPED, file, cold=cold if cold.is_file() else None, count=count, seeds=_numbers(seeds),
        store=store, say=print_line,
    )  # fmt: skip
    _print_figures(measured, TABLE, out)


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="what evaluate wrote for each trained conductor")],
    into: Annotated[Path | None, typer.Option(help="page whose table is replaced; default: print it")] = None,
) -> None:
    """Print the table of several trained conductors in Markdown. Exit code 1 if a bound is missed."""
    from training.rehearsal.figures import TABLE, markdown, read, replaced

    estimates = read(files).estimates(TABLE)
    if into is None:
        print_line(markdown(estimates))
    else:
        into.write_text(replaced(into.read_text(encoding="utf-8"), markdown(estimates)), encoding="utf-8")
    if not all(estimate.passes for estimate in estimates):
        raise typer.Exit(MISSED)


@app.command()
def typed(
    file: Annotated[Path, typer.Argument(help="questions as people type them, one JSON object a line")],
    directory: Annotated[Path | None, typer.Option(help="directory of all files; default: the package")] = None,
    out: Annotated[Path | None, typer.Option(help="also write the verdict on each question, by its id")] = None,
) -> None:
    """Ask questions as people type them, each once, as a user does. Exit code 1 if a bound is missed."""
    from training.rehearsal.asked_once import ask_all, read_questions, rows_of

    questions = read_questions(file)
    verdicts = ask_all(questions, directory)
    if out is not None:
        lines = [f"{item.id}\t{verdict}\n" for item, verdict in zip(questions, verdicts, strict=True)]
        out.write_text("".join(lines), encoding="utf-8")
    _print(rows_of(questions, verdicts))


@app.command()
def final(
    phrasings: Annotated[Path, typer.Argument(help="phrasings for the last measurement, one JSON object a line")],
    file: Conductor = None, count: Count = 500, seeds: Seeds = "1,2,3", workers: Workers = None, store: Store = STORE,
    out: Json = None,
) -> None:  # fmt: skip
    """Evaluate a conductor in phrasings that nothing else uses. Exit code 1 if a bound is missed."""
    from training.rehearsal.asked_once import FINAL, read_phrasings
    from training.rehearsal.examination import examine_phrasings

    given = read_phrasings(phrasings)
    print_line(f"{sum(len(lines.splitlines()) for lines in given.lines.values())} phrasings, {given.unused} unused")
    measured = examine_phrasings(workers or SHIPPED, file, given, count=count, seeds=_numbers(seeds), store=store)
    _print_figures(measured, FINAL, out)


@app.command()
def table(directory: Directory = None, count: Count = 500, seed: Seed = 2026) -> None:
    """Evaluate the workers on held-out questions. Exit code 1 if a bound is missed."""
    from training.rehearsal.worker_table import rows

    _print(rows(_complete(directory), count=count, seed=seed))


@app.command()
def cards(directory: Directory = None, count: Count = 200, seed: Seed = 2026) -> None:
    """Measure what stands on the workers' cards, and write it beside their files, for the conductor to read."""
    from training.rehearsal.worker_table import strengths

    found = strengths(_complete(directory), count=count, seed=seed)
    place = (directory or SHIPPED) / CARDS
    lines = ",\n".join(f'  "{name}": {json.dumps(tags)}' for name, tags in found.items())
    place.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print_line(f"{place}: {', '.join(f'{name} {share}' for name, tags in found.items() for share in tags.values())}")


def _end(name: str, *, over: bool) -> None:
    if not over:
        print_line(f"{name}: the minutes are over before all steps are done; run the same command again")
        raise typer.Exit(UNFINISHED)


def _complete(directory: Path | None) -> Path:
    """The directory of the workers' files, or the shipped one. Raises `UsageError` where one is missing."""
    from training.rehearsal.worker_table import missing

    if gone := missing(directory or SHIPPED):
        raise UsageError(f"there is no {gone[0]}", hint=f"python -m training.rehearsal.train worker {gone[0].stem}")
    return directory or SHIPPED


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of a list such as 1,2,3. Raises `UsageError` for any other text."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--seeds {text}: not a list of numbers", hint="--seeds 1,2,3")
    return tuple(map(int, parts))


def _print_figures(measured: Measured, figures: Sequence[Figure], out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(measured.to_json(), encoding="utf-8")
    _print([estimate.row() for estimate in measured.estimates(figures)])


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
        print(f"error: {error.message}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
