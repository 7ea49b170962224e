"""What plans can earn in the world, before anything is trained.

Whether there is something to learn here.

    python -m training.planner.world.check --out DIR --n 200

It runs the true steps of compositions with each choice of programs, and prints the share that is
right: the best by hindsight, a rule that reads cards, each rule that knows the manuals.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Final

from training.planner.world.programs import Program, Seen, open_programs, value_of
from training.planner.world.questions import RIGHT, Composed, Kind, compose, subjects
from training.planner.world.tables import get_tables

LOOKUPS: Final = ("db", "db-old")
SUMS: Final = ("py", "bc")
Assignment = Callable[[Kind], str]


def remembered(program: Program) -> Program:
    """The program, which runs once for the same subtask and the same answers.

    It has no chance in it.
    """
    replies = dict[tuple[str, tuple[tuple[int, str], ...]], str]()

    def run(subtask: str, seen: Seen) -> str:
        key = (subtask, tuple(seen.items()))
        if key not in replies:
            replies[key] = program(subtask, seen)
        return replies[key]

    return run


def run_steps(
    question: Composed, assignment: Sequence[str], programs: Mapping[str, Program]
) -> str:
    """The answer of the true steps, each done by the program that is assigned to it."""
    answers = dict[int, str]()
    for number, (step, name) in enumerate(zip(question.steps, assignment, strict=True), start=1):
        seen = {item: answers[item] for item in step.access}
        answers[number] = programs[name](step.subtask, seen)
    return answers[len(question.steps)]


_ERROR: Final = re.compile(r"\b\w*error\b", re.IGNORECASE)
"""What a message of each program has that is no answer: its number is one of a line."""


def is_right(answer: str, wanted: str, digits: int) -> bool:
    """Whether an answer is the number that is wanted, to its digits. An error message is not."""
    if _ERROR.search(answer):
        return False
    try:
        return abs(float(value_of(answer)) - float(value_of(wanted))) < 0.51 * 10.0**-digits
    except ValueError:
        return False


def is_lookup(kind: Kind) -> bool:
    """Whether a step of this kind asks for a value of the tables."""
    return kind in ("current", "lasting")


def choices(question: Composed) -> list[tuple[str, ...]]:
    """Every way to give the true steps to programs that may do their kind at all."""
    return list(product(*(LOOKUPS if is_lookup(step.kind) else SUMS for step in question.steps)))


def measure(questions: Sequence[Composed], programs: Mapping[str, Program]) -> dict[str, float]:
    """The share of right answers by each way to choose programs."""
    rules: dict[str, Assignment] = {
        "best by the manuals": lambda kind: RIGHT[kind][0],
        # Both have the same figure on their cards, so a rule that reads cards takes the first of
        # them.
        "by card, first of equals": lambda kind: LOOKUPS[0] if is_lookup(kind) else SUMS[1],
        "by card, last of equals": lambda kind: LOOKUPS[1] if is_lookup(kind) else SUMS[1],
        "py and db-old": lambda kind: LOOKUPS[1] if is_lookup(kind) else SUMS[0],
    }
    right = dict.fromkeys([*rules, "hindsight", "chance", "signal"], 0.0)
    for question in questions:
        wanted = run_steps(question, [RIGHT[step.kind][0] for step in question.steps], programs)
        results = {
            assignment: is_right(run_steps(question, assignment, programs), wanted, question.digits)
            for assignment in choices(question)
        }
        for name, rule in rules.items():
            right[name] += results[tuple(rule(step.kind) for step in question.steps)]
        right["hindsight"] += any(results.values())
        right["chance"] += sum(results.values()) / len(results)
        right["signal"] += 0 < sum(results.values()) < len(results)
    return {name: round(count / len(questions), 3) for name, count in right.items()}


def main() -> int:
    """Print the shares for compositions of the training and for held-out ones."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.world.check")
    parser.add_argument("--out", type=Path, required=True, help="the directory of the tables")
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--seed", default="check")
    given = parser.parse_args()
    tables = get_tables(given.out)
    programs = {name: remembered(program) for name, program in open_programs(tables).items()}
    countries, cities = subjects(tables["new"])
    random = Random(given.seed)
    drawn = [compose(random, countries, cities) for _ in range(given.n)]
    for held in (False, True):
        part = [question for question in drawn if question.is_held_out == held]
        print(
            json.dumps({"held out": held, "questions": len(part), **measure(part, programs)}),
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
