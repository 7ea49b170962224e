"""`make rewards`: train the arms of three seeds for equal time, and print their table.

It can be run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from conductor_cli.system.disk import write_atomically
from training.rewards.report import lines, read
from training.stages import DONE, Stage, Workspace, add_options, print_line, run_training

OUT: Final = Path("build/rewards")
ARMS: Final = ("start", "supervised", "best-of-8", "grpo")
SECONDS: Final = (300, 100)  # of the processor: a start, and each other arm
PRETRAINED_SECONDS: Final = (1200, 600)
PRETRAINED_QUESTIONS: Final = ("100", "600")  # of a validation, of the test


def plan(
    out: Path,
    starts: Mapping[int, int],
    seconds: tuple[float, float],
    minutes: float,
    options: tuple[str, ...] = (),
) -> Iterator[Stage]:
    """All stages below `out`.

    The supervised starts, and the other arms of each seed from its start.
    """
    arms: list[tuple[str, int, tuple[str, ...]]] = [
        ("start", start, ()) for start in dict.fromkeys(starts.values())
    ]
    for seed, start in starts.items():
        arms += [(arm, seed, (f"start-{start}.json",)) for arm in ARMS[1:]]
    for arm, seed, needs in arms:
        yield Stage(
            name=f"{arm}-{seed}",
            makes=f"{arm}-{seed}.json",
            needs=needs,
            command=(
                sys.executable,
                "-m",
                "training.rewards.arms",
                arm,
                "--seed",
                str(seed),
                "--out",
                str(out),
                "--start",
                str(starts.get(seed, seed)),
                "--seconds",
                *map(str, seconds),
                "--minutes",
                f"{minutes:g}",
                *options,
            ),
        )


def main() -> int:
    """Continue. Returns 0 if all is done, 1 if a stage failed."""
    parser = argparse.ArgumentParser(
        prog="make rewards", description=(__doc__ or "").splitlines()[0]
    )
    add_options(parser)
    parser.add_argument(
        "--trial",
        action="store_true",
        help="the whole way with one seed in a minute; means nothing",
    )
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="train SmolLM2-135M in place of a model from nothing",
    )
    given = parser.parse_args()
    name = str(OUT)
    seconds = SECONDS
    seeds = range(1, 4)
    options: tuple[str, ...] = ()
    if given.pretrained:
        name += "-smollm2"
        seconds = PRETRAINED_SECONDS
        options += ("--pretrained", "--questions", *PRETRAINED_QUESTIONS)
    if given.trial:
        name += "-trial"
        seconds = (5, 5)
        seeds = range(1, 2)
        options += ("--questions", "8", "8")
    out = given.out or Path(name)
    starts = {seed: seed for seed in seeds}
    if given.pretrained:
        # A start of the pretrained planner takes a third of an hour: its seeds have one together.
        starts = dict.fromkeys(seeds, 0)

    def finish() -> int:
        table = "\n".join(lines(read(out, ARMS, starts)))
        write_atomically(out / "table.md", table + "\n")
        print_line(table)
        return DONE

    stages = plan(out, starts, seconds, given.minutes, options)
    return run_training(Workspace(out, tuple(stages)), given, finish)


if __name__ == "__main__":
    sys.exit(main())
