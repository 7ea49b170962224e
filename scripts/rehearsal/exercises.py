"""How the rehearsal's conductor is trained by reward: what it practises on, and the settings of its course. Pure.

An exercise is drawn by its number, so a training that was killed continues with exactly the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any, Final

from conductor_cli.rehearsal import workers
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.world import Problem, ProblemSettings, draw_problem

GENERALIST: Final = "generalist"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The shares of the pools that are drawn: the three specialists alone, all four workers, one specialist missing."""

    specialists: float = 1.0
    everybody: float = 0.0
    missing: float = 0.0

    def draw(self, random: Random) -> tuple[str, ...]:
        """The names of the workers on offer, in an order that is drawn too, and with it their labels."""
        kinds = {"specialists": self.specialists, "everybody": self.everybody, "missing": self.missing}
        kind = random.choices(list(kinds), list(kinds.values()))[0]
        names = [*SKILLS] if kind == "specialists" else [*SKILLS, GENERALIST]
        if kind == "missing":
            names.remove(random.choice(SKILLS))
        return tuple(random.sample(names, len(names)))


ALONE: Final = Offer()
EVERYBODY: Final = Offer(specialists=0.0, everybody=1.0)
MIXED: Final = Offer(specialists=0.4, everybody=0.35, missing=0.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalExercise:
    """One problem of the world as an exercise: see `rollouts.Exercise`."""

    problem: Problem
    workers: tuple[str, ...]
    slow: bool = False

    @property
    def question(self) -> str:
        return self.problem.question

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(hop.skill for hop in self.problem.hops)

    def is_correct(self, text: str) -> bool:
        return workers.clean_answer(text) == self.problem.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some steps of training: how many, what is on offer, and how often a question has one, two or three hops."""

    steps: int
    offer: Offer
    hops: tuple[float, float, float]

    def exercise(self, seed: int, number: int) -> RehearsalExercise:
        """The exercise of a number, from the training half of the world."""
        random = Random(f"exercise {seed} {number}")  # noqa: S311 - reproducible, no secret
        hops = random.choices((1, 2, 3), self.hops)[0]
        return RehearsalExercise(problem=draw_problem(random, ProblemSettings(), hops), workers=self.offer.draw(random))


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalCurriculum:
    """One training by GRPO.

    Each step takes `prompts` exercises and samples `group` plans for each. `quantile` is the share of tokens, the least
    certain ones, that the gradient passes through; `entropy` the weight of their entropy in the loss: TRL's mean is one
    over those tokens, so the same number weighs five times as much as over all. `max_plan_tokens` is in tokens.

    The rate rises over `warmup` steps and then, if it is `falling`, falls to nothing as a line.
    """

    phases: tuple[Phase, ...]
    prompts: int = 32
    group: int = 8
    rate: float = 2e-4
    warmup: int = 5
    falling: bool = True
    betas: tuple[float, float] = (0.9, 0.99)
    quantile: float = 0.2
    entropy: float = 0.01
    max_plan_tokens: int = 64
    seed: int = 1

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def exercise(self, number: int) -> RehearsalExercise:
        """The exercise of a number, from the phase that it falls into."""
        step = number // self.prompts
        for phase in self.phases:
            if step < phase.steps:
                return phase.exercise(self.seed, number)
            step -= phase.steps
        return self.phases[-1].exercise(self.seed, number)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, to tell one training from another."""
        return asdict(self)


def rehearsal(*, steps: int | None = None, seed: int = 1) -> RehearsalCurriculum:
    """The course of the shipped conductor; with `steps` one of its own: its beginning, at a steady, higher rate."""
    first = Phase(steps=90, offer=ALONE, hops=(4, 4, 2))
    then = Phase(steps=130, offer=MIXED, hops=(3, 4, 3))
    if steps is None:
        return RehearsalCurriculum(phases=(first, then), seed=seed)
    return RehearsalCurriculum(phases=(replace(first, steps=steps),), falling=False, rate=3.5e-4, seed=seed)


def draw_exercises(problems: Sequence[Problem], offer: Offer, seed: int) -> tuple[RehearsalExercise, ...]:
    """Given problems with pools that are drawn: what a conductor is looked at with."""
    random = Random(f"offer {seed}")  # noqa: S311 - reproducible, no secret
    return tuple(RehearsalExercise(problem=problem, workers=offer.draw(random)) for problem in problems)
