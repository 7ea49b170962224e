"""Runs a plan over the workers of the world: the answer, its reward, and what each step did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Card, Pool, Worker
from training.planner.pools import WORDS
from training.planner.world.check import is_right
from training.planner.world.programs import Program, Seen
from training.planner.world.tables import COLUMNS

Answer = Callable[[str, Step, Seen, Seen], str]
"""What a worker answers: to a question, a step, the subtasks and the answers of the steps that it
sees.
"""

ABOUT: Final = {
    "py": "Python: evaluates the expression in its subtask; a2 is the answer of step 2",
    "bc": "the calculator bc: evaluates the expression in its subtask; a2 is the answer of step 2",
    "db": f"SELECT on {COLUMNS}",
    "db-old": f"SELECT, old copy: {COLUMNS}",
    "q15": "a small language model",
    "q05": "a very small language model",
    "pal": "a small language model that writes a program, which is run",
}
"""How the workers are described to a planner, by their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A worker of a drawn pool: its name there, and its kind."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a plan. `log` has the kind of the worker and the answer of each step."""

    answer: str
    reward: float
    log: tuple[tuple[str, str], ...]


def draw_seats(random: Random, kinds: Sequence[str], *, held: bool = False) -> tuple[Seat, ...]:
    """The workers of a question, under names and in an order that are drawn for it."""
    names = random.sample(WORDS["held_names" if held else "names"], len(kinds))
    order = random.sample(list(kinds), len(kinds))
    return tuple(Seat(name=name, kind=kind) for name, kind in zip(names, order, strict=True))


def pool_of(seats: Sequence[Seat], cards: Mapping[str, Card]) -> Pool:
    """The pool as the planner is shown it."""
    workers = [
        Worker(name=seat.name, kind="command", about=ABOUT[seat.kind], card=cards[seat.kind])
        for seat in seats
    ]
    return Pool(workers=tuple(workers))


def program_answer(program: Program) -> Answer:
    """How a program answers.

    It reads its subtask and the answers that it sees, and not the question.
    """
    return lambda _question, step, _subtasks, seen: program(step.subtask, seen)


def run_plan(
    question: str,
    steps: Sequence[Step],
    seats: Sequence[Seat],
    answers: Mapping[str, Answer],
    wanted: str,
    *,
    digits: int = 0,
) -> Outcome:
    """Run the steps one after the other; a plan without steps is none, and earns nothing."""
    kinds = {seat.name: seat.kind for seat in seats}
    subtasks = dict[int, str]()
    results = dict[int, str]()
    log = list[tuple[str, str]]()
    for number, step in enumerate(steps, start=1):
        kind = kinds[step.worker]
        seen = {item: results[item] for item in step.access}
        shown = {item: subtasks[item] for item in step.access}
        results[number] = answers[kind](question, step, shown, seen)
        subtasks[number] = step.subtask
        log.append((kind, results[number]))
    answer = results.get(len(steps), "")
    reward = float(bool(steps) and is_right(answer, wanted, digits))
    return Outcome(answer=answer, reward=reward, log=tuple(log))
