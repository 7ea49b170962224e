"""What counting finds in the log of a training by rewards.

    python -m training.planner.world.count OUT/rewards.jsonl

For each kind of step and worker it prints how many plans with such a step earned their reward. A
kind is told by the words of a subtask alone: the column of a SELECT, the signs of an expression.
The worker that succeeds most often for a kind is what the count chooses; nothing else of a plan is
looked at. `judge --count LOG` measures that choice. Beside it stand the figures that the product's
own ratings would give the workers after the same plans; `judge --ratings LOG` measures the choice
of the best of these.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.learning import Rating, RatingShare, Verdict, kind_of_task, learn
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.evals.significance import wilson_interval
from training.planner.world.cases import CARDS
from training.planner.world.rules import ChooseWorker, able_workers

_COLUMN: Final = re.compile(r"\bselect\s+(\w+)\s+from\s+(\w+)", re.IGNORECASE)
_SIGNS: Final = (
    ("letters", re.compile(r"isalpha|\blen\(")),
    ("dates", re.compile(r"\bdate")),
    ("division", re.compile(r"/|%")),
    ("arithmetic", re.compile(r"[-+*]")),
)
"""The signs of an expression, of which the first that is there names the kind of the step."""

PRIOR_PLANS: Final = 2  # So many plans of the mean reward are added to what was counted


def kind_of_step(subtask: str) -> str:
    """What a subtask asks for, by its words alone."""
    column = _COLUMN.search(subtask)
    if column is not None:
        return f"{column[1]} of a {column[2]}".lower()
    for name, sign in _SIGNS:
        if sign.search(subtask):
            return name
    return "words"


@dataclass(slots=True)
class Tally:
    """How many plans there were, and how many of them earned the reward."""

    right: float = 0.0
    plans: int = 0

    def add_plan(self, reward: float) -> None:
        self.right += reward
        self.plans += 1


@dataclass(slots=True)
class Count:
    """Successes of all plans, and by the kind of a step and the kind of its worker."""

    whole: Tally = field(default_factory=Tally)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def add_plan(self, steps: Iterable[tuple[str, str]], reward: float) -> None:
        """Count a plan, once for each different pair of a subtask's kind and a worker."""
        self.whole.add_plan(reward)
        for pair in {(kind_of_step(subtask), worker) for subtask, worker in steps}:
            self.tallies.setdefault(pair, Tally()).add_plan(reward)

    def rate(self, kind: str, worker: str) -> float:
        """The share of right plans with such a step by this worker; few plans say little."""
        tally = self.tallies[kind, worker]
        mean = self.whole.right / self.whole.plans
        return (tally.right + PRIOR_PLANS * mean) / (tally.plans + PRIOR_PLANS)

    def choose_worker(self, subtask: str, workers: Sequence[str]) -> str:
        """The worker of the highest rate for what a subtask asks, the first of equals.

        Where none of them was ever given such a step, the first of all.
        """
        kind = kind_of_step(subtask)
        tried = [worker for worker in workers if (kind, worker) in self.tallies]
        if not tried:
            return workers[0]
        return max(tried, key=lambda worker: self.rate(kind, worker))


def count_plans(lines: Iterable[Mapping[str, Any]]) -> Count:
    """The count of a reward log.

    A step that was computed twice, because the training was killed, counts once.
    """
    count = Count()
    for line in _newest(lines):
        count.add_plan([(subtask, worker) for subtask, worker in line["steps"]], line["reward"])
    return count


def _newest(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines of a log, of those with the same numbers the newest."""
    plans = {(line["step"], line["number"], line["plan"]): line for line in lines}
    return [*plans.values()]


def read_count(path: Path) -> Count:
    """The count of the reward log in a file."""
    return count_plans(_read_log(path))


def _read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rated_figures(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What the ratings of the product say of each kind of worker after the plans of a log.

    Every plan is rated by its reward, as `--check` would, a second after the one before it. Its
    steps share the verdict; their kind is told by words, which expressions and queries do not have.
    """
    workers = [Worker(name=kind, kind="command", card=card) for kind, card in CARDS.items()]
    pool = Pool(workers=tuple(workers))
    ratings = list[Rating]()
    for number, line in enumerate(_newest(lines)):
        shares = [
            RatingShare(
                worker=worker,
                step=step,
                kind=kind_of_task(subtask, pool),
                weight=1 / len(line["steps"]),
                good=line["reward"] > 0,
                key=worker,
            )
            for step, (subtask, worker) in enumerate(line["steps"], start=1)
        ]
        ratings.append(_rating(number, line["reward"] > 0, shares))
    learned = learn(ratings, float(len(ratings)))
    return {worker.name: learned.apply_to(worker, worker.name).card.mean() for worker in workers}


def _rating(number: int, good: bool, shares: Sequence[RatingShare]) -> Rating:  # noqa: FBT001
    verdict: Verdict = "bad"
    if good:
        verdict = "good"
    return Rating(
        run=str(number), step=0, verdict=verdict, by="check", time=float(number), shares=(*shares,)
    )


def chooser_by_ratings(path: Path) -> ChooseWorker:
    """Choose, of the workers that may do a subtask at all, the one with the best rated figure."""
    figures = rated_figures(_read_log(path))

    def choose(subtask: str, workers: Sequence[str]) -> str:
        able = able_workers(subtask)
        return max((kind for kind in workers if kind in able), key=lambda kind: figures[kind])

    return choose


def table_lines(count: Count) -> list[str]:
    """The count as lines: kind of step, worker, right of all, rate with its 95 % interval."""
    lines = list[str]()
    for (kind, worker), tally in sorted(count.tallies.items()):
        low, high = wilson_interval(round(tally.right), tally.plans)
        share = tally.right / tally.plans
        figures = f"{tally.right:.0f} of {tally.plans}, {share:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"{kind:24} {worker:8} {figures}")
    return lines


def choice_lines(count: Count) -> list[str]:
    """What the count chooses for each kind of step, among the workers that it has seen there."""
    best = dict[str, str]()
    for kind, worker in sorted(count.tallies):
        if count.rate(kind, worker) > count.rate(kind, best.setdefault(kind, worker)):
            best[kind] = worker
    return [f"{kind:24} {worker}" for kind, worker in best.items()]


def main() -> int:
    """Print the count of a log, and what it chooses."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.world.count")
    parser.add_argument("log", type=Path, help="rewards.jsonl of a training by rewards")
    log = parser.parse_args().log
    count = read_count(log)
    print("Plans with such a step that were right, by its kind and its worker:")
    print("\n".join(table_lines(count)))
    print("The count chooses:")
    print("\n".join(choice_lines(count)))
    print("The figures of the product's ratings after these plans:")
    for kind, figure in rated_figures(_read_log(log)).items():
        print(f"{kind:24} {figure:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
