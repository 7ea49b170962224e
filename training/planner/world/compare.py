"""The differences of two planners that `judge` asked the same questions.

    python -m training.planner.world.compare --ours A1.jsonl A2.jsonl A3.jsonl --theirs B1.jsonl
        B2.jsonl B3.jsonl

Each side has the file of one training or of several; one file of a rival without trainings is
compared with each. Printed are the shares of right answers, their difference, its 95 % interval by
the paired questions (Newcombe's), and that by Student's t over the trainings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.errors import ConfigError
from conductor_cli.evals.significance import Interval, effective_size, newcombe_interval

T_QUANTILES: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The quantiles of Student's t at .975 for 1, 2, … degrees of freedom."""

Results = Mapping[int, bool]
"""Whether the answer to each question, by its number, is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Ours minus theirs. `by_trainings` is None where there is one training."""

    questions: int
    ours: float
    theirs: float
    paired: Interval
    by_trainings: Interval | None

    @property
    def mean(self) -> float:
        return self.ours - self.theirs


def read_results(path: Path, *, held_out: bool | None) -> tuple[str, Results]:
    """The seed of a file's questions and its results; of one part, unless `held_out` is None."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    wanted = [line for line in lines if held_out in (None, line["held_out"])]
    seeds = {line["settings"]["seed"] for line in lines}
    if len(seeds) != 1:
        raise ConfigError(f"{path} has no questions, or those of several seeds")
    return seeds.pop(), {line["number"]: line["right"] for line in wanted}


def compare(ours: Sequence[Results], theirs: Sequence[Results]) -> Difference:
    """The difference of two planners over the same questions, training by training.

    Raises `ConfigError` where the questions or the numbers of trainings differ.
    """
    if len(theirs) == 1:
        theirs = [*theirs] * len(ours)
    if len(ours) != len(theirs):
        problem = f"there are {len(ours)} trainings of ours, and {len(theirs)} of theirs"
        raise ConfigError(problem, hint="name as many files on both sides, or one of theirs")
    numbers = sorted(ours[0])
    if any(sorted(results) != numbers for results in (*ours, *theirs)) or not numbers:
        raise ConfigError("the files have different questions", hint="judge all with the same --n")
    pairs = list(zip(ours, theirs, strict=True))
    return Difference(
        questions=len(numbers),
        ours=_mean_share(ours),
        theirs=_mean_share(theirs),
        paired=_paired_interval(pairs, numbers),
        by_trainings=_interval_by_trainings(pairs),
    )


def _share(results: Results) -> float:
    return statistics.fmean(results.values())


def _mean_share(trainings: Sequence[Results]) -> float:
    return statistics.fmean(map(_share, trainings))


def _paired_interval(pairs: Sequence[tuple[Results, Results]], numbers: Sequence[int]) -> Interval:
    """The interval over questions; several trainings' answers to a question are alike."""
    counts = Counter[tuple[bool, bool]]()
    differences = list[list[int]]()
    for number in numbers:
        answers = [(mine[number], other[number]) for mine, other in pairs]
        counts.update(answers)
        differences.append([int(mine) - int(other) for mine, other in answers])
    return newcombe_interval(
        counts[True, True],
        counts[True, False],
        counts[False, True],
        counts[False, False],
        effective_size(differences),
    )


def _interval_by_trainings(pairs: Sequence[tuple[Results, Results]]) -> Interval | None:
    differences = [_share(mine) - _share(other) for mine, other in pairs]
    freedom = len(differences) - 1
    if not 0 < freedom <= len(T_QUANTILES):
        return None
    mean = statistics.fmean(differences)
    half = T_QUANTILES[freedom - 1] * statistics.stdev(differences) / sqrt(len(differences))
    return Interval(mean - half, mean + half)


def line_of(name: str, difference: Difference) -> str:
    """A difference as a line."""
    low, high = difference.paired
    line = (
        f"{name:12} {difference.questions:5} questions: {difference.ours:.3f} and "
        f"{difference.theirs:.3f}, difference {difference.mean:+.3f}, "
        f"by questions {low:+.3f} to {high:+.3f}"
    )
    if difference.by_trainings is not None:
        low, high = difference.by_trainings
        line += f", by trainings {low:+.3f} to {high:+.3f}"
    return line


def main() -> int:
    """Print the differences over all questions, over the held-out shapes, and over the others."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.world.compare")
    parser.add_argument("--ours", type=Path, nargs="+", required=True)
    parser.add_argument("--theirs", type=Path, nargs="+", required=True)
    given = parser.parse_args()
    parts = {"all": None, "held out": True, "not held out": False}
    for name, held_out in parts.items():
        ours = [read_results(path, held_out=held_out) for path in given.ours]
        theirs = [read_results(path, held_out=held_out) for path in given.theirs]
        seeds = {seed for seed, _ in (*ours, *theirs)}
        if len(seeds) > 1:
            problem = f"the files have questions of {len(seeds)} seeds"
            raise ConfigError(problem, hint="judge all with the same --seed")
        difference = compare([results for _, results in ours], [results for _, results in theirs])
        print(line_of(name, difference))
    return 0


if __name__ == "__main__":
    sys.exit(main())
