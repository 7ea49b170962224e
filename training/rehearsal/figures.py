"""The conductor's table: what each figure is computed from, its bound, its mean and its interval.

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
from training.rehearsal.operations import STEPS
from training.rehearsal.worker_table import Row

DRAWS: Final = 1000
_INSIDE: Final = (2.5, 97.5)

Means = Mapping[str, Any]  # the mean of each measure: a number, or an array with one for each draw


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
            ("at least", self.figure.least), ("at most", self.figure.most), ("every seed at least", self.figure.each),
        )  # fmt: skip
        return ", ".join(f"{word} {end:.2f}" for word, end in ends if end is not None)

    def cells(self) -> tuple[str, ...]:
        """As the cells of a row in Markdown."""
        result = "" if not self.bounded else "met" if self.passes else "missed"
        seeds = ", ".join(f"{value:.3f}" for value in self.seeds)
        return (
            self.figure.what, f"{self.value:.3f}", f"{self.low:.3f} to {self.high:.3f}", seeds, self.bound(), result,
        )  # fmt: skip


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
            {
                name: sum(sum(own) / max(len(own), 1) for own in seeds[number]) / len(seeds[number])
                for name, seeds in self.values.items()
            }
            for number in range(trained)
        ]

    def _drawn(self) -> dict[str, Any]:
        """The means of each draw. Questions are drawn once for all measures of as many, so that pairs stay together."""
        random = np.random.default_rng(2026)
        one = next(iter(self.values.values()))
        trained = random.integers(len(one), size=(DRAWS, len(one)))
        evaluated = random.integers(len(one[0]), size=(DRAWS, len(one[0])))
        places = dict[tuple[int, int], Any]()

        def means(values: Sequence[float], seed: int) -> Any:
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


SMALLEST: Final = 0.001  # what a ratio divides by at least


def _ratio(one: Any, other: Any) -> Any:
    return one / np.maximum(other, SMALLEST)


def _loss(means: Means, system: str) -> Any:
    return means[f"before {system}"] - means[f"after {system}"]


def _plain(what: str, measure: str = "") -> Figure:
    return Figure(what=what, of=lambda means: means[measure or what])


def _above(what: str, rival: str) -> Figure:
    return Figure(what=f"the conductor above {what}", of=lambda means: means["conductor"] - means[rival], least=0.15)


def _shares(what: str, pools: str, least: float | None = None, measure: str = "") -> Figure:
    return Figure(
        what=f"{what}: share of best routing", of=lambda m: _ratio(m[measure or pools], m[f"{pools}, oracle"]),
        least=least,
    )  # fmt: skip


MAIN: Final = (
    Figure(what="held-out phrasings", of=lambda m: m["conductor"], least=0.80, each=0.76),
    *(_plain(f"  {shape}", f"shape {shape}") for shape in STEPS), _plain("  valid plans", "valid"),
    _plain("  split right, word for word", "split"), _plain("  shape right", "shape"),
    Figure(what="  shape right, where it is no chain", of=lambda m: m["shape, no chain"], least=0.80),
    _plain("  every step to one of the best", "routed"),
    _plain("  wrong, though all of that is right", "wrong, plan right"), _plain("known phrasings", "known"),
    _plain("held-out phrasings, plans checked as in the demo", "plans checked"),
    Figure(what="best routing (oracle)", of=lambda m: m["oracle"], least=0.93),
)  # fmt: skip

RIVALS: Final = (
    _plain("cold start alone", "cold"), _plain("cold start's split, keyword router", "cold, keyword"),
    _plain("cold start's split, router learned on single steps", "cold, step router"),
    _plain("conductor's split, keyword router", "keyword"), _plain("conductor's steps, a forced chain", "chain"),
    _plain("learned router over question embeddings", "router"),
    _plain("one step at a time (as ReAct), by the cold start", "turns cold"),
    _plain("one step at a time (as ReAct), by the conductor", "turns conductor"), _plain("best worker by card"),
    _plain("reflection, by the best worker by card", "reflection"), _plain("reflection, mean of the workers"),
    _plain("reflection, the best worker of each question in hindsight", "reflection, best in hindsight"),
    _plain("Mixture-of-Agents"), _plain("majority vote"), _plain("verifier-weighted vote"),
    _plain("any worker of the pool is right about the whole question", "anybody"),
    _plain("ceiling without division: any of the nine ways above is right", "ceiling"),
    _above("a forced chain", "chain"), _above("the cold start's split with a keyword router", "cold, keyword"),
    _above("a learned router", "router"),
)  # fmt: skip

COSTS: Final = (
    _plain("worker calls a question", "calls"),
    _plain("tokens a question, all models", "tokens"),
    _plain("Mixture-of-Agents: worker calls a question", "Mixture-of-Agents calls"),
    _plain("Mixture-of-Agents: tokens a question", "Mixture-of-Agents tokens"),
    Figure(
        what="tokens of all models, share of Mixture-of-Agents",
        of=lambda m: _ratio(m["tokens"], m["Mixture-of-Agents tokens"]), most=0.70,
    ),
    Figure(
        what="calls with the conductor's own, share of Mixture-of-Agents",
        of=lambda m: _ratio(m["calls"] + 1, m["Mixture-of-Agents calls"]), most=0.60,
    ),
    Figure(
        what="worker calls alone, share of Mixture-of-Agents",
        of=lambda m: _ratio(m["calls"], m["Mixture-of-Agents calls"]),
    ),
    _plain("one step at a time, conductor: all calls a question", "turns conductor calls"),
    _plain("one step at a time, conductor: tokens a question", "turns conductor tokens"),
)  # fmt: skip

OTHER_QUESTIONS: Final = (
    _plain("questions with a check, one round", "one round"),
    Figure(what="gained by a second round", of=lambda m: m["two rounds"] - m["one round"], least=0.05),
    _plain("  plans that check", "checks"), _plain("  the check says NO to wrong answers", "NO to wrong"),
    _plain("  the check says NO to right answers", "NO to right"),
    _plain("  right after a NO, first round", "right before NO"),
    _plain("  right after a NO, second round", "right after NO"), _plain("unseen pools"),
    _shares("unseen pools", "unseen pools", 0.90),
    _shares("unseen pools, plans checked as in the demo", "unseen pools", measure="unseen pools, plans checked"),
    _plain("everybody on offer, as in the demo", "everybody"),
    _plain("everybody on offer, plans checked as in the demo", "everybody, plans checked"),
    _plain("a skill never trained (colours)", "unseen skill"),
    _shares("a skill never trained (colours)", "unseen skill", 0.75),
    _plain("a skill never trained (colours), plans checked as in the demo", "unseen skill, plans checked"),
)  # fmt: skip

SHIFTED: Final = (
    *(
        _plain(f"the mix shifts, {system}: {when}", f"{when} {system}")
        for system in ("conductor", "pipeline", "static router", "oracle")
        for when in ("before", "after")
    ),
    Figure(
        what="the conductor's loss, share of the fixed pipeline's",
        of=lambda m: _ratio(_loss(m, "conductor"), _loss(m, "pipeline")), most=1 / 3,
    ),
    Figure(
        what="the conductor's loss, share of the static router's",
        of=lambda m: _ratio(_loss(m, "conductor"), _loss(m, "static router")), most=1 / 3,
    ),
)  # fmt: skip

TABLE: Final = (*MAIN, *RIVALS, *COSTS, *OTHER_QUESTIONS, *SHIFTED)
