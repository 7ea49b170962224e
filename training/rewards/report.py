"""The table of the arms: shares with intervals, paired differences, the verdict. Pure.

An interval has 95 % of the means of 4,000 samples, drawn with replacement twice: first the training
seeds, then the questions, which all arms and all seeds share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from training.rewards.world import HELD_OUT, SHAPES

SAMPLES: Final = 4000
# How much more often the planner of GRPO has to be right than those of the two arms without it
GAIN: Final = 0.05
Row = Mapping[str, Any]  # what came of a question: see `arms.examine`
Figures = Mapping[int, Mapping[str, Any]]  # of an arm, by training seed
Measure = Callable[[Row], float | None]  # None where a row does not count


def right(row: Row) -> float:
    """The share of the draws of luck in which an answer is right."""
    return float(row["right"])


def of_shape(shape: str, measure: Measure = right) -> Measure:
    """The measure for questions of one shape."""
    return lambda row: measure(row) if row["shape"] == shape else None


def right_steps(row: Row) -> float:
    """Whether the steps ask for the true operations, and see what they need."""
    return float(row["right_steps"])


def marked(row: Row) -> float:
    """Whether a worker with the mark does a step."""
    return float(row["marked"] > 0)


MEASURES: Final[Mapping[str, tuple[str, Measure]]] = {
    "right": ("test", right),
    **{f"right, {shape}": ("test", of_shape(shape)) for shape in SHAPES},
    "valid plan": ("test", lambda row: float(row["valid"])),
    "right steps": ("test", right_steps),
    "right steps in chains": ("test", of_shape("chain", right_steps)),
    "a step by a marked worker": ("test", marked),
    "right, where no step is": ("test", lambda row: None if marked(row) else right(row)),
    "right, where one is": ("test", lambda row: right(row) if marked(row) else None),
    f"right, with {HELD_OUT}": (HELD_OUT, right),
    f"a step by a marked worker, with {HELD_OUT}": (HELD_OUT, marked),
}


def read(
    out: Path, arms: Sequence[str], starts: Mapping[int, int]
) -> dict[str, dict[int, dict[str, Any]]]:
    """The figures of each arm by training seed.

    `starts` has the seed of the start that belongs to each.
    """
    return {
        arm: {
            seed: json.loads((out / f"{arm}-{start if arm == 'start' else seed}.json").read_text())
            for seed, start in starts.items()
        }
        for arm in arms
    }


def interval(values: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The mean over seeds and questions, and its interval."""
    random = np.random.default_rng(0)
    table = np.asarray(values, dtype=float)
    # Seeds × samples
    drawn = table[:, random.integers(table.shape[1], size=(SAMPLES, table.shape[1]))].mean(2)
    seeds = random.integers(len(table), size=(len(table), SAMPLES))
    low, high = np.quantile(np.take_along_axis(drawn, seeds, 0).mean(0), (0.025, 0.975))
    return float(table.mean()), float(low), float(high)


def measured(figures: Figures, name: str) -> list[list[float]]:
    """One of the measures, by seed and question."""
    part, measure = MEASURES[name]
    values = [[measure(row) for row in seed[part]] for seed in figures.values()]
    return [[value for value in seed if value is not None] for seed in values]


def cell(values: Sequence[Sequence[float]]) -> str:
    """A figure of the table: mean, interval, and the mean of each seed.

    No interval where plans choose the rows.
    """
    own = ", ".join(f"{sum(seed) / len(seed):.3f}" if seed else "-" for seed in values)
    counts = [len(seed) for seed in values]
    if len({*counts, 0}) != 2:
        if not any(counts):
            return "-"
        return f"{sum(map(sum, values)) / sum(counts):.3f} of {sum(counts)}; {own}"
    mean, low, high = interval(values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f}); {own}"


def lines(figures_by_arm: Mapping[str, Figures]) -> Iterator[str]:
    """The table in Markdown, the paired gains of GRPO, and the verdict."""
    yield (
        f"| mean and interval; training seeds {', '.join(map(str, figures_by_arm['grpo']))} | "
        f"{' | '.join(figures_by_arm)} |"
    )
    yield "|---" * (len(figures_by_arm) + 1) + "|"
    for name in MEASURES:
        cells = " | ".join(cell(measured(figures, name)) for figures in figures_by_arm.values())
        yield f"| {name} | {cells} |"
    for name in ("steps", "seconds"):
        own = [
            ", ".join(f"{seed[name]:.0f}" for seed in figures.values())
            for figures in figures_by_arm.values()
        ]
        yield f"| {name} | {' | '.join(own)} |"
    yield ""
    gains = {arm: gains_over(figures_by_arm, arm) for arm in figures_by_arm if arm != "grpo"}
    for arm, gain in gains.items():
        yield f"- grpo above {arm}: {cell(gain)}"
    wins = {arm: interval(gains[arm]) for arm in ("supervised", "best-of-8")}
    met = all(mean >= GAIN and low > 0 for mean, low, _ in wins.values())
    new, old = (
        np.mean(measured(figures_by_arm[arm], "right steps in chains")) for arm in ("grpo", "start")
    )
    yield (
        f"- verdict: {'met' if met and new >= old else 'MISSED'}; right steps in chains "
        f"{new:.3f}, start {old:.3f}"
    )


def gains_over(figures: Mapping[str, Figures], arm: str) -> list[list[float]]:
    """How much more often GRPO is right than an arm, by seed and question."""
    pairs = zip(measured(figures["grpo"], "right"), measured(figures[arm], "right"), strict=True)
    return [[new - old for new, old in zip(*pair, strict=True)] for pair in pairs]
