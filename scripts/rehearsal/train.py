"""The command line of training: `python -m scripts.rehearsal.train --help`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from conductor_cli.core.errors import ConductorError, UsageError
from scripts.rehearsal.courses import UNFINISHED, course_of

if TYPE_CHECKING:
    from scripts.rehearsal.figures import Measured
    from scripts.rehearsal.worker_table import Row

Out = Annotated[Path, typer.Option(help="directory for the state and the finished file")]
Minutes = Annotated[float, typer.Option(help="stop after this time", min=0)]
Threads = Annotated[int, typer.Option(help="threads of torch; prefer two jobs with one thread", min=1)]
Steps = Annotated[int | None, typer.Option(help="number of GRPO steps, for a short training", min=1)]
Workers = Annotated[Path | None, typer.Option(help="directory of the workers' files; default: the package")]
Count = Annotated[int, typer.Option(help="questions for each row", min=1)]
Seed = Annotated[int, typer.Option(help="random seed for the questions")]
Seeds = Annotated[str, typer.Option(help="random seeds for the questions, with commas between them")]

OUT: Final = Path("build/rehearsal")
STORE: Final = OUT / "replies.sqlite"

app = typer.Typer(help="Train the demo models from nothing.", no_args_is_help=True, add_completion=False)


def _say(line: str) -> None:
    print(line, flush=True)


def _end(name: str, *, over: bool) -> None:
    if not over:
        _say(f"{name}: the minutes are over before all steps are done; run the same command again")
        raise typer.Exit(UNFINISHED)


@app.command()
def worker(
    name: Annotated[str, typer.Argument(help="a skill, checker or generalist")],
    out: Out = OUT,
    minutes: Minutes = 20.0,
    threads: Threads = 1,
) -> None:
    """Train a worker. With exit code 3 there is more to do: run it again."""
    course = course_of(name)
    from scripts.rehearsal.teaching import train_worker

    _end(name, over=train_worker(course, out, minutes=minutes, threads=threads, say=_say))


@app.command()
def conductor(  # noqa: PLR0913, PLR0917 - a command has as many arguments as it has options
    stage: Annotated[Literal["cold", "grpo"], typer.Option(help="supervised training, or GRPO")] = "grpo",
    out: Out = OUT,
    minutes: Minutes = 20.0,
    threads: Threads = 1,
    seed: Annotated[int, typer.Option(help="random seed for exercises, pools and plans")] = 1,
    steps: Steps = None,
    start: Annotated[Path | None, typer.Option(help="file to start from; default: the shipped one")] = None,
    workers: Workers = None,
) -> None:
    """Train the conductor. With exit code 3 there is more to do: run it again."""
    if stage == "cold":
        from scripts.rehearsal.teaching import train_sft_conductor

        _end("conductor", over=train_sft_conductor(out, minutes=minutes, threads=threads, say=_say))
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when transformers is imported; every model is on this machine
    from scripts.rehearsal.grpo import train_seed

    over = train_seed(
        out, minutes=minutes, threads=threads, say=_say, seed=seed, steps=steps, start=start, workers=workers
    )
    _end("conductor", over=over)


@app.command()
def evaluate(  # noqa: PLR0913, PLR0917 - a command has as many arguments as it has options
    file: Annotated[Path | None, typer.Argument(help="the conductor's file; default: the shipped one")] = None,
    count: Count = 500,
    seeds: Seeds = "1,2,3",
    workers: Workers = None,
    cold: Annotated[Path | None, typer.Option(help="file of its cold start, to compare with")] = None,
    store: Annotated[Path, typer.Option(help="where replies are remembered, so that none is asked for twice")] = STORE,
    out: Annotated[Path | None, typer.Option(help="also write every value to this file, for merge")] = None,
) -> None:
    """Evaluate a conductor and its rivals on held-out questions. Exit code 1 if a bound is missed."""
    from conductor_cli.rehearsal.players import conductor_path, model_path
    from scripts.rehearsal.bounds import TABLE
    from scripts.rehearsal.examine import examine

    for path in (file or conductor_path(), cold):
        if path is not None and not path.is_file():
            raise UsageError(f"there is no {path}", hint="python -m scripts.rehearsal.train conductor")
    if cold is None:
        shipped = Path(__file__).with_name("cold.gguf")
        cold = shipped if shipped.is_file() else None
    directory = workers or model_path("spelling").parent
    measured = examine(
        directory, file, cold=cold, count=count, seeds=numbers(seeds, "--seeds"), store=store, say=_say
    )  # fmt: skip
    _write(measured, out)
    _print([estimate.row() for estimate in measured.estimates(TABLE)])


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="what evaluate wrote for each trained conductor")],
    into: Annotated[Path | None, typer.Option(help="page whose table is replaced; default: print it")] = None,
) -> None:
    """Print the table of several trained conductors in Markdown. Exit code 1 if a bound is missed."""
    from scripts.rehearsal.bounds import TABLE
    from scripts.rehearsal.figures import markdown, read, replaced

    estimates = read(files).estimates(TABLE)
    if into is None:
        _say(markdown(estimates))
    else:
        into.write_text(replaced(into.read_text(encoding="utf-8"), markdown(estimates)), encoding="utf-8")
    if not all(estimate.passes for estimate in estimates):
        raise typer.Exit(1)


@app.command()
def typed(
    file: Annotated[Path, typer.Argument(help="questions as people type them, one JSON object a line")],
    directory: Annotated[Path | None, typer.Option(help="directory of all files; default: the package")] = None,
    out: Annotated[Path | None, typer.Option(help="also write the verdict on each question, by its id")] = None,
) -> None:
    """Ask questions as people type them, each once, as a user does. Exit code 1 if a bound is missed."""
    from scripts.rehearsal.typed_questions import ask_all, read_questions, rows_of

    questions = read_questions(file)
    verdicts = ask_all(questions, directory)
    if out is not None:
        lines = [f"{item.id}\t{verdict}\n" for item, verdict in zip(questions, verdicts, strict=True)]
        out.write_text("".join(lines), encoding="utf-8")
    _print(rows_of(questions, verdicts))


@app.command()
def final(  # noqa: PLR0913, PLR0917 - a command has as many arguments as it has options
    phrasings: Annotated[Path, typer.Argument(help="phrasings for the last measurement, one JSON object a line")],
    file: Annotated[Path | None, typer.Argument(help="the conductor's file; default: the shipped one")] = None,
    count: Count = 500,
    seeds: Seeds = "1,2,3",
    workers: Workers = None,
    store: Annotated[Path, typer.Option(help="where replies are remembered, so that none is asked for twice")] = STORE,
    out: Annotated[Path | None, typer.Option(help="also write every value to this file, for merge")] = None,
) -> None:
    """Evaluate a conductor in phrasings that nothing else uses. Exit code 1 if a bound is missed."""
    from conductor_cli.rehearsal.players import model_path
    from scripts.rehearsal.examine import examine_phrasings
    from scripts.rehearsal.final_phrasings import FINAL, read_phrasings

    found = read_phrasings(phrasings)
    lines = sum(len(lines.splitlines()) for lines in found.lines.values())
    _say(f"{lines} phrasings of {len(found.lines)} operations; lines that are none: {found.unused}")
    measured = examine_phrasings(
        workers or model_path("spelling").parent, file, found, count=count, seeds=numbers(seeds, "--seeds"), store=store
    )
    _write(measured, out)
    _print([estimate.row() for estimate in measured.estimates(FINAL)])


def _write(measured: Measured, out: Path | None) -> None:
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(measured.to_json(), encoding="utf-8")


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The numbers of a list such as 1,2,3. Raises `UsageError` for any other text."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"{option} {text}: not a list of numbers", hint=f"{option} 1,2,3")
    return tuple(map(int, parts))


@app.command()
def table(
    directory: Annotated[Path | None, typer.Argument(help="directory of the files; default: the package")] = None,
    count: Count = 500,
    seed: Seed = 2026,
) -> None:
    """Evaluate the workers on held-out questions. Exit code 1 if a bound is missed."""
    from scripts.rehearsal.worker_table import missing, rows

    if gone := missing(directory):
        raise UsageError(f"there is no {gone[0]}", hint=f"python -m scripts.rehearsal.train worker {gone[0].stem}")
    _print(rows(directory, count=count, seed=seed))


@app.command()
def cards(
    directory: Annotated[Path | None, typer.Argument(help="directory of the files; default: the package")] = None,
    count: Count = 200,
    seed: Seed = 2026,
) -> None:
    """Measure what stands on the workers' cards, and write it beside their files, for the conductor to read."""
    from conductor_cli.rehearsal.players import CARDS, model_path
    from scripts.rehearsal.worker_table import missing, strengths

    if gone := missing(directory):
        raise UsageError(f"there is no {gone[0]}", hint=f"python -m scripts.rehearsal.train worker {gone[0].stem}")
    found = strengths(directory, count=count, seed=seed)
    place = (directory or model_path("spelling").parent) / CARDS
    lines = ",\n".join(f'  "{name}": {json.dumps(tags)}' for name, tags in found.items())
    place.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    _say(f"{place}: {', '.join(f'{name} {share}' for name, tags in found.items() for share in tags.values())}")


def _print(rows: Sequence[Row]) -> None:
    for row in rows:
        _say(str(row))
    if not all(row.passes for row in rows):
        raise typer.Exit(1)


def main() -> None:
    """Run a command. An error is printed in two lines, without a traceback."""
    try:
        app()
    except ConductorError as error:
        print(f"error: {error.message}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
