"""How training goes: a line of figures for each step, kept as JSON Lines, so that a collapse shows while it happens."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from conductor_cli.train.rollouts import Outcome

DIGITS: Final = 4


def compute_metrics(outcomes: Sequence[Outcome], group: int) -> dict[str, Any]:
    """The figures of the rollouts of a step, of which each `group` belong to one question.

    `signal` is the share of groups whose rewards differ: only those teach anything. `routing_entropy` is in bits, over
    the specialities of the workers of all steps. `fitting` is by skill, of plans with as many steps as there are hops.
    """
    scored = [outcome.reward for outcome in outcomes if outcome.reward is not None]
    valid = [outcome for outcome in outcomes if outcome.valid and outcome.reward is not None]
    groups = [[item.reward for item in some if item.reward is not None] for some in _groups(outcomes, group)]
    routes = Counter(route for outcome in valid for route in outcome.routes)
    return round_values(
        {
            "reward": _mean(scored),
            "valid": _mean([outcome.valid for outcome in outcomes]),
            "right": _mean([outcome.right for outcome in outcomes if outcome.reward is not None]),
            "right_given_valid": _mean([outcome.right for outcome in valid]),
            "steps": _mean([outcome.steps for outcome in valid]),
            "calls": _mean([outcome.calls for outcome in valid]),
            "routing_entropy": _entropy(routes),
            "routes": dict(sorted(routes.items())),
            "fitting": _by_skill(outcomes),
            "signal": _mean([len(set(rewards)) > 1 for rewards in groups]),
            "failed": sum(outcome.reward is None for outcome in outcomes),
        }
    )


def _groups(outcomes: Sequence[Outcome], group: int) -> Iterable[Sequence[Outcome]]:
    return (outcomes[at : at + group] for at in range(0, len(outcomes), group))


def _by_skill(outcomes: Iterable[Outcome]) -> dict[str, float]:
    every: dict[str, list[bool]] = {}
    for outcome in outcomes:
        for skill, fits in outcome.fitting:
            every.setdefault(skill, []).append(fits)
    return {skill: _mean(every[skill]) for skill in sorted(every)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _entropy(counts: Mapping[str, int]) -> float:
    shares = [count / sum(counts.values()) for count in counts.values()]
    return sum(share * math.log2(1 / share) for share in shares)


def round_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with numbers to four significant digits."""
    return {
        name: round_values(value)
        if isinstance(value, Mapping)
        else float(f"{value:.{DIGITS}g}")
        if isinstance(value, float)
        else value
        for name, value in values.items()
    }


class MetricsFile:
    """The file of a training's figures. Lines behind the step that a training goes on from are taken back."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Raises `OSError`."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(path) if line["step"] <= step]
        temporary = path.with_name(f".{path.name}")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        temporary.replace(path)

    def add(self, line: Mapping[str, Any]) -> None:
        """One more line, with its `step`."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(round_values(line)) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; what was cut off while it was written is left out, as is a file that is not there."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
