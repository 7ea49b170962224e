"""The figures of each training step, stored as JSON Lines, so that a collapse shows while it happens."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from conductor_cli.models.disk import read_lines, write_atomically
from conductor_cli.train.rollouts import Outcome

DIGITS: Final = 4
"""Significant digits that are stored."""


def compute_metrics(outcomes: Sequence[Outcome], group: int) -> dict[str, Any]:
    """The figures of one step's rollouts, of which each `group` belong to one question.

    `signal` is the share of groups whose rewards differ: the others teach nothing. `routing_entropy` is in bits, over
    the routes of all steps. `fitting` is computed for each skill, over plans with as many steps as there are hops.
    """
    scored = [outcome for outcome in outcomes if outcome.reward is not None]
    valid = [outcome for outcome in scored if outcome.valid]
    groups = [outcomes[at : at + group] for at in range(0, len(outcomes), group)]
    distinct = [len({item.reward for item in items if item.reward is not None}) for items in groups]
    routes = Counter(route for outcome in valid for route in outcome.routes)
    shares = [count / routes.total() for count in routes.values()]
    fitting: dict[str, list[bool]] = {}
    for outcome in outcomes:
        for skill, fits in outcome.fitting:
            fitting.setdefault(skill, []).append(fits)
    return round_values(
        {
            "reward": mean([outcome.reward for outcome in scored if outcome.reward is not None]),
            "valid": mean([outcome.valid for outcome in outcomes]),
            "right": mean([outcome.right for outcome in scored]),
            "right_given_valid": mean([outcome.right for outcome in valid]),
            "steps": mean([outcome.steps for outcome in valid]),
            "calls": mean([outcome.calls for outcome in valid]),
            "routing_entropy": sum(share * math.log2(1 / share) for share in shares),
            "routes": dict(sorted(routes.items())),
            "fitting": {skill: mean(fitting[skill]) for skill in sorted(fitting)},
            "signal": mean([count > 1 for count in distinct]),
            "failed": len(outcomes) - len(scored),
        }
    )


def mean(values: Sequence[float]) -> float:
    """The mean, 0 for no values."""
    return sum(values) / len(values) if values else 0.0


def round_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values with numbers rounded to `DIGITS` significant digits."""

    def rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, Mapping):
            return round_values(value)
        return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value

    return {name: rounded(value) for name, value in values.items()}


class MetricsFile:
    """The file with the figures of a training. Lines after the checkpoint that a training resumes from are removed."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Keep the lines up to `step`. Raises `OSError`."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_metrics(path) if line["step"] <= step]
        write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept))

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line, which has its `step`."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(round_values(line)) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a file. A line that was cut off while it was written is left out, and a missing file is empty."""
    found = []
    for line in read_lines(path):
        with suppress(ValueError):
            found.append(json.loads(line))
    return found
