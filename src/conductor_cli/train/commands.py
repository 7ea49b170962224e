"""The commands of `python -m conductor_cli.train` that train and examine the rehearsal's conductor. Wiring only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.conducting import path_of

NOT_OVER: Final = 3
"""The exit code of a stage whose minutes ended before the course did: run it again to go on."""

OUT: Final = Path("build/rehearsal")

Out = Annotated[Path, typer.Option(help="directory for checkpoints, curve and finished file")]
Minutes = Annotated[float, typer.Option(help="how long this stage may take", min=0)]
Threads = Annotated[int, typer.Option(help="threads of torch", min=1)]
Steps = Annotated[int | None, typer.Option(help="only so many steps, as a course of its own", min=1)]
Workers = Annotated[Path | None, typer.Option(help="where the workers' files are; those of the package without it")]
Cards = Annotated[Path | None, typer.Option(help="the workers' measured cards; those of the package without it")]


def _say(line: str) -> None:
    print(line, flush=True)


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
    over = _cold(out, minutes, threads) if stage == "cold" else practise(
        out, minutes, threads, seed=seed, steps=steps, start=start, workers=workers, cards=cards,
    )  # fmt: skip
    if not over:
        _say("conductor: the minutes are over and the course is not; run the same command again to go on")
        raise typer.Exit(NOT_OVER)


def _cold(out: Path, minutes: float, threads: int) -> bool:
    from conductor_cli.train.starting import cold_stage

    return cold_stage(out, minutes=minutes, threads=threads, say=_say)


def practise(  # noqa: PLR0913 - one for each option
    out: Path,
    minutes: float,
    threads: int,
    *,
    seed: int = 1,
    steps: int | None = None,
    start: Path | None = None,
    workers: Path | None = None,
    cards: Path | None = None,
) -> bool:
    """A stage of GRPO in a directory of its own for each seed and length."""
    from conductor_cli.train.practice import rehearsal
    from conductor_cli.train.practising import carded, grpo_stage

    practice = rehearsal(steps=steps, seed=seed)
    directory = out / f"grpo-{seed}-{practice.steps}"
    return grpo_stage(
        practice,
        directory,
        start=start or path_of("cold"),
        pool=carded(workers, cards),
        minutes=minutes,
        threads=threads,
        say=_say,
    )


def examine(
    file: Annotated[Path | None, typer.Argument(help="the conductor's file; the shipped one without it")] = None,
    count: Annotated[int, typer.Option(help="questions for each row", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="which questions")] = 2026,
    workers: Workers = None,
    cards: Cards = None,
) -> None:
    """Print what a conductor reaches on held-out questions, beside the bounds; exit 1 where one is missed."""
    from conductor_cli.train.examine import examined
    from conductor_cli.train.practising import carded

    if not (file or path_of()).is_file():
        raise UsageError(f"there is no {file or path_of()}", hint="python -m conductor_cli.train conductor")
    found = examined(carded(workers, cards), file, count=count, seed=seed)
    for row in found:
        _say(str(row))
    if not all(row.kept for row in found):
        raise typer.Exit(1)
