"""The figures of an evaluation: what each is computed from, its bound, its mean and its interval.

An evaluation of one trained conductor measures each question of each evaluation seed. `Measured` holds those values by
name; several conductors are merged by putting theirs side by side. A figure is a function of means, so a difference or
a ratio has an interval like any other. Intervals hold 95 % of a bootstrap over training seeds, evaluation seeds and
questions, in which measures of the same questions are drawn together.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from conductor_cli.core.errors import UsageError
from scripts.rehearsal.worker_table import Row

DRAWS: Final = 1000
_INSIDE: Final = (2.5, 97.5)

Means = Mapping[str, Any]
"""The mean of each measure: a number, or an array with one for each draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table. `each` is the least that every training seed has to reach."""

    what: str
    of: Callable[[Means], Any]
    least: float | None = None
    most: float | None = None
    each: float | None = None


class Estimate(NamedTuple):
    """A figure with its interval, and its value for each training seed."""

    figure: Figure
    value: float
    low: float
    high: float
    seeds: tuple[float, ...]

    @property
    def passes(self) -> bool:
        lowest = self.figure.each is None or min(self.seeds) >= self.figure.each
        return self.row().passes and lowest

    @property
    def bounded(self) -> bool:
        return any(bound is not None for bound in (self.figure.least, self.figure.most, self.figure.each))

    def row(self) -> Row:
        """As a line of a printed table."""
        note = f"{self.low:.3f} to {self.high:.3f}"
        return Row(self.figure.what, self.value, least=self.figure.least, most=self.figure.most, note=note)

    def bound(self) -> str:
        """The bound in words."""
        ends = (
            ("at least", self.figure.least),
            ("at most", self.figure.most),
            ("every seed at least", self.figure.each),
        )
        return ", ".join(f"{word} {end:.2f}" for word, end in ends if end is not None)

    def cells(self) -> tuple[str, ...]:
        """As the cells of a row in Markdown."""
        result = "" if not self.bounded else "met" if self.passes else "missed"
        seeds = ", ".join(f"{value:.3f}" for value in self.seeds)
        return (
            self.figure.what,
            f"{self.value:.3f}",
            f"{self.low:.3f} to {self.high:.3f}",
            seeds,
            self.bound(),
            result,
        )


class Measured:
    """Values by measure, training seed, evaluation seed and question."""

    def __init__(self, values: Mapping[str, Sequence[Sequence[Sequence[float]]]], *, count: int) -> None:
        self.values = {name: [list(map(list, seeds)) for seeds in trained] for name, trained in values.items()}
        self.count = count

    @classmethod
    def of_one(cls, seeds: Sequence[Mapping[str, Sequence[float]]], *, count: int) -> Measured:
        """The values of one trained conductor: a mapping for each evaluation seed."""
        return cls({name: [[list(found[name]) for found in seeds]] for name in seeds[0]}, count=count)

    def estimates(self, figures: Sequence[Figure]) -> list[Estimate]:
        """Each figure whose measures there are."""
        seeds = self._by_seed()
        mean = {name: sum(one[name] for one in seeds) / len(seeds) for name in self.values}
        drawn = self._drawn()
        found = []
        for figure in figures:
            try:
                value = float(figure.of(mean))
            except KeyError:
                continue  # an evaluation of another version, or of a part
            low, high = np.percentile(np.broadcast_to(figure.of(drawn), (DRAWS,)), _INSIDE)
            own = tuple(float(figure.of(one)) for one in seeds)
            found.append(Estimate(figure, value, float(low), float(high), own))
        return found

    def _by_seed(self) -> list[dict[str, float]]:
        """The mean of each measure, for each training seed."""
        trained = len(next(iter(self.values.values())))
        return [
            {name: sum(map(_mean, seeds[number])) / len(seeds[number]) for name, seeds in self.values.items()}
            for number in range(trained)
        ]

    def _drawn(self) -> dict[str, Any]:
        """The means of each draw. Questions are drawn once for all measures of as many, so that pairs stay together."""
        random = np.random.default_rng(2026)
        one = next(iter(self.values.values()))
        trained = random.integers(len(one), size=(DRAWS, len(one)))
        evaluated = random.integers(len(one[0]), size=(DRAWS, len(one[0])))
        places = dict[tuple[int, int], Any]()

        def means(values: Sequence[float], seed: int) -> Any:  # noqa: ANN401 - an array
            key = len(values), seed
            if not values:
                return np.zeros(DRAWS)
            if key not in places:
                places[key] = np.random.default_rng(key).integers(len(values), size=(DRAWS, len(values)))
            return np.asarray(values)[places[key]].mean(axis=1)

        found = dict[str, Any]()
        for name, seeds in self.values.items():
            grid = np.array([[means(values, seed) for seed, values in enumerate(own)] for own in seeds])
            each = np.arange(DRAWS)[:, None, None]
            found[name] = grid[trained[:, :, None], evaluated[:, None, :], each].mean(axis=(1, 2))
        return found

    def to_json(self) -> str:
        """As text, which `read` reads."""
        return json.dumps({"count": self.count, "values": self.values}, separators=(",", ":"))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def read(paths: Sequence[Path]) -> Measured:
    """What several evaluations measured, side by side. Raises `UsageError` for files that do not go together."""
    try:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
        counts = {one["count"] for one in found}
        names = [name for name in found[0]["values"] if all(name in one["values"] for one in found)]
        shapes = {len(one["values"][names[0]][0]) for one in found}
        values = {name: [seeds for one in found for seeds in one["values"][name]] for name in names}
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise UsageError(
            f"no evaluation can be read: {error}", hint="evaluate FILE --out FILE.json writes one"
        ) from error
    if len(counts) > 1 or len(shapes) > 1:
        raise UsageError("the evaluations have different numbers of questions or seeds", hint="evaluate them alike")
    return Measured(values, count=counts.pop())


def markdown(estimates: Sequence[Estimate]) -> str:
    """A table."""
    head = ("figure", "mean", "95 % interval", "each training seed", "bound", "")
    rows = [head, ("---",) * len(head), *(estimate.cells() for estimate in estimates)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


BEGIN: Final = "<!-- the conductor's table -->"
END: Final = "<!-- end of the table -->"


def replaced(page: str, table: str) -> str:
    """The page with this table between the two marks. Raises `UsageError` for a page without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page has no {BEGIN} … {END}", hint="add both lines where the table belongs")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"
