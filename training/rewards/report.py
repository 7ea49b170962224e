"""The table of the arms: shares with intervals, paired differences, the verdict. Pure.

An interval has 95 % of the means of 4,000 samples, drawn with replacement twice: first the training seeds, then the
questions, which all arms and all seeds share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from training.rewards.world import HELD_OUT, SHAPES

SAMPLES: Final = 4000
GAIN: Final = 0.05
"""How much more often the planner of GRPO has to be right than those of the two arms without it."""

RESCORED: Final = "grpo"
Rows = Sequence[Mapping[str, Any]]
Measure = Callable[[Mapping[str, Any]], float]


def right(row: Mapping[str, Any]) -> float:
    """The share of the draws of luck in which an answer is right."""
    return float(row["right"])


def read(out: Path, arms: Sequence[str], seeds: int) -> dict[str, dict[int, dict[str, Any]]]:
    """The figures of each arm by training seed. The start is the same for all."""
    names = {arm: "start-0" if arm == "start" else f"{arm}-{{}}" for arm in arms}
    numbers = range(1, seeds + 1)
    return {
        arm: {seed: json.loads((out / f"{name.format(seed)}.json").read_text()) for seed in numbers}
        for arm, name in names.items()
    }


def interval(values: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """The mean over seeds and questions, and its interval."""
    random, table = np.random.default_rng(0), np.asarray(values, dtype=float)
    drawn = table[:, random.integers(table.shape[1], size=(SAMPLES, table.shape[1]))].mean(2)  # seeds × samples
    seeds = random.integers(len(table), size=(len(table), SAMPLES))
    low, high = np.quantile(np.take_along_axis(drawn, seeds, 0).mean(0), (0.025, 0.975))
    return float(table.mean()), float(low), float(high)


def cell(values: Sequence[Sequence[float]]) -> str:
    """A figure of the table: mean, interval, and the mean of each seed."""
    mean, low, high = interval(values)
    own = ", ".join(f"{sum(seed) / len(seed):.3f}" for seed in values)
    return f"{mean:.3f} ({low:.3f} to {high:.3f}); {own}"


def lines(found: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> Iterator[str]:
    """The table in Markdown, the paired differences, and the verdict."""
    arms, first = list(found), next(iter(found.values()))
    yield f"| {len(first)} training seeds: {', '.join(map(str, first))} | " + " | ".join(arms) + " |"
    yield "|---" * (len(arms) + 1) + "|"
    rows: dict[str, tuple[str, Measure, Callable[[Mapping[str, Any]], bool]]] = {
        "right": ("test", right, lambda _: True),
        **{f"right, {shape}": ("test", right, lambda row, shape=shape: row["shape"] == shape) for shape in SHAPES},
        "valid plan": ("test", lambda row: row["valid"], lambda _: True),
        "right steps": ("test", lambda row: row["right_steps"], lambda _: True),
        "right steps in chains": ("test", lambda row: row["right_steps"], lambda row: row["shape"] == "chain"),
        "a step by a marked worker": ("test", lambda row: row["marked"] > 0, lambda _: True),
        f"right, with {HELD_OUT}": (HELD_OUT, right, lambda _: True),
        f"a step by a marked worker, with {HELD_OUT}": (HELD_OUT, lambda row: row["marked"] > 0, lambda _: True),
    }
    for name, (place, measure, wanted) in rows.items():
        cells = [
            cell([[float(measure(row)) for row in seed[place] if wanted(row)] for seed in found[arm].values()])
            for arm in arms
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"
    for name, marked in (("right, where no step is by a marked worker", False), ("right, where one is", True)):
        rows_of = {
            arm: [
                row
                for seed in found[arm].values()
                for row in seed["test"]
                if row["valid"] and (row["marked"] > 0) == marked
            ]
            for arm in arms
        }
        yield (
            f"| {name} | "
            + " | ".join(
                f"{sum(map(right, own)) / len(own):.3f} of {len(own)}" if own else "-" for own in rows_of.values()
            )
            + " |"
        )
    for name in ("steps", "seconds"):
        yield (
            f"| {name} | "
            + " | ".join(", ".join(f"{seed[name]:.0f}" for seed in found[arm].values()) for arm in arms)
            + " |"
        )
    yield ""
    met = []
    for arm in arms:
        if arm != RESCORED:
            pairs = zip(found[RESCORED].values(), found[arm].values(), strict=True)
            gains = [[right(a) - right(b) for a, b in zip(new["test"], old["test"], strict=True)] for new, old in pairs]
            mean, low, _ = interval(gains)
            yield f"- {RESCORED} above {arm}: {cell(gains)}"
            met += [mean >= GAIN and low > 0] if arm != "start" else []
    chains = {
        arm: [row["right_steps"] for seed in found[arm].values() for row in seed["test"] if row["shape"] == "chain"]
        for arm in arms
    }
    kept = sum(chains[RESCORED]) / len(chains[RESCORED]) >= sum(chains["start"]) / len(chains["start"])
    yield f"- verdict: {'met' if all(met) and kept else 'MISSED'} (gains {met}; right steps in chains kept: {kept})"
