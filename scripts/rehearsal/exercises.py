"""How the rehearsal's conductor is trained by reward: what it practises on, and the settings of its course. Pure.

An exercise is drawn by its number, so a training that was killed continues with exactly the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any, Final

from conductor_cli.core.plan import Step
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Given, Question
from conductor_cli.rehearsal import players as workers
from conductor_cli.rehearsal.players import CHECKING, NO
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.phrasings import PhrasingSet
from scripts.rehearsal.pools import Member, PoolSettings, draw_members, luck, pool_of
from scripts.rehearsal.trees import Shape
from scripts.rehearsal.world import CHECKED, SHAPES, Hop, Problem, ProblemSettings, draw_problem

EASY: Final = PoolSettings(sizes=(2, 3), extra=(1, 2, 2, 3), generalist=0.0, sure=1.0)
"""Few rows, so that a row that is drawn by chance is often the right one, and nobody who can do a little of all."""

MIXED: Final = PoolSettings(sizes=(2, 3, 3, 4, 4, 5), sure=0.8)
"""What the conductor is trained and measured on."""

STRONG: Final = replace(MIXED, sure=1.0, missing=0.0)
"""Pools in which somebody is as good as a specialist can be at each skill that is needed."""

UNSEEN_POOLS: Final = PoolSettings(sizes=(6,), extra=(3, 4, 5, 6, 7), generalist=0.5, missing=0.0, sure=0.3, rivals=0.9)
"""Larger ones than any of training, with more rivals, and the best ones less good."""


WHOLE: Final = PoolSettings(sizes=(13,), extra=(12,), generalist=1.0, missing=0.0, sure=1.0, rivals=0.0)
"""Somebody for each skill, and the generalist: as many members and rows as in the pool that ships."""


MIXED_FAILING: Final = replace(
    MIXED, sure=0.3, best=(0.5, 0.8), rivals=1.0, weak=(0.7, 0.95), generalist=0.0, sure_check=True
)
"""Pools in which everybody fails now and then, there is mostly somebody else to ask, and a cheap check tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalExercise:
    """One problem of the world with a pool: see `rollouts.Exercise`. `seed` decides when members fail.

    `given` is what the first round found, for an exercise that is a second one.
    """

    problem: Problem
    members: tuple[Member, ...]
    seed: int = 0
    slow: bool = False
    given: tuple[Given, ...] = ()

    @property
    def question(self) -> str:
        return self.problem.question

    @property
    def workers(self) -> tuple[str, ...]:
        return pool_of(self.members).names

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(hop.skill for hop in self.problem.hops)

    def is_correct(self, text: str) -> bool:
        return workers.clean_answer(text) == self.problem.answer


def exercise_of(random: Random, problem: Problem, settings: PoolSettings) -> RehearsalExercise:
    """A problem with a pool that is drawn for it."""
    needed = [hop.skill for hop in problem.hops]
    others = [*SKILLS, CHECKING] if random.random() < 0.5 else [*SKILLS]
    members = draw_members(random, needed, random.sample(others, len(others)), settings)
    return RehearsalExercise(problem=problem, members=members, seed=random.randrange(1_000_000))


_SEEDS: Final = 60
"""How many seeds are tried to find one with which the right members fail."""


def second_round(random: Random, problem: Problem, settings: PoolSettings) -> RehearsalExercise | None:
    """A problem whose first round ended with a NO, since only the last worker failed, and another one will not.

    None if the pool that was drawn offers nobody else.
    """
    made = exercise_of(random, problem, settings)
    hops = [hop for hop in problem.hops if hop.skill != CHECKING]
    ranked = [
        sorted((m for m in made.members if hop.skill in m.strengths), key=lambda m: -m.strengths[hop.skill])
        for hop in hops
    ]
    checkers = [member for member in made.members if CHECKING in member.strengths]
    if not checkers or not all(ranked) or len(ranked[-1]) < 2:
        return None
    prompts = [_prompt(problem, hop) for hop in hops]
    wanted = [(able[0], hop, prompt, True) for able, hop, prompt in zip(ranked, hops, prompts, strict=True)]
    wanted[-1] = (ranked[-1][0], hops[-1], prompts[-1], False)
    wanted.append((ranked[-1][1], hops[-1], prompts[-1], True))
    for _ in range(_SEEDS):
        seed = random.randrange(1_000_000)
        if all((luck(m.files, text, seed).random() < m.strengths[hop.skill]) == does for m, hop, text, does in wanted):
            names = pool_of(made.members).names
            name = {id(member): name for member, name in zip(made.members, names, strict=True)}
            given = (
                Given(worker=name[id(ranked[-1][0])], subtask=hops[-1].subtask, answer=workers.REFUSAL),
                Given(worker=name[id(checkers[0])], subtask="check it", answer=NO),
            )
            return replace(made, seed=seed, given=given)
    return None


def _prompt(problem: Problem, hop: Hop) -> str:
    """What the worker of a step reads, if all steps before it are right."""
    seen = [
        SeenStep(
            number=number, worker="", subtask=problem.hops[number - 1].subtask, answer=problem.hops[number - 1].answer
        )
        for number in hop.access
    ]
    return workers.render_for_worker(Question(text=problem.question), Step(worker="", subtask=hop.subtask), seen)


def draw_exercises(problems: Sequence[Problem], settings: PoolSettings, seed: int) -> tuple[RehearsalExercise, ...]:
    """Given problems with pools that are drawn: what a conductor is looked at with."""
    random = Random(f"pools {seed}")  # noqa: S311 - reproducible, no secret
    return tuple(exercise_of(random, problem, settings) for problem in problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some steps of training: how many, what is on offer, and how often each shape comes and a check is asked for.

    A share `whole` of the exercises has everybody on offer; in a share `loose`, phrasings are put together loosely. A
    share `second` are second rounds, where that can be.
    """

    steps: int
    pools: PoolSettings = MIXED
    shapes: Mapping[Shape, float] = field(default_factory=lambda: SHAPES)
    checked: float = CHECKED
    whole: float = 0.0
    loose: float = 0.0
    second: float = 0.0

    def exercise(self, seed: int, number: int) -> RehearsalExercise:
        """The exercise of a number, from the training half of the world."""
        random = Random(f"exercise {seed} {number}")  # noqa: S311 - reproducible, no secret
        if random.random() < self.second:
            problem = draw_problem(random, ProblemSettings(shapes=self.shapes, checked=1.0))
            again = second_round(random, problem, MIXED_FAILING)
            if again is not None:
                return again
        phrasings: PhrasingSet = "loose" if random.random() < self.loose else "known"
        problem = draw_problem(random, ProblemSettings(shapes=self.shapes, checked=self.checked, phrasings=phrasings))
        return exercise_of(random, problem, WHOLE if random.random() < self.whole else self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalCurriculum:
    """One training by GRPO.

    Each step takes `prompts` exercises and samples `group` plans for each. `quantile` is the share of tokens, the least
    certain ones, that the gradient passes through; `entropy` the weight of their entropy in the loss: TRL's mean is one
    over those tokens, so the same number weighs five times as much as over all. `max_plan_tokens` is in tokens.

    The rate rises over `warmup` steps and then, if it is `falling`, falls to nothing as a line.

    With `demands_checks`, a right answer without the check that was asked for counts as a wrong one. With
    `refuses_faults`, a plan that the demo would not run is invalid.
    """

    phases: tuple[Phase, ...]
    prompts: int = 24
    group: int = 8
    rate: float = 4e-4
    warmup: int = 5
    falling: bool = True
    betas: tuple[float, float] = (0.9, 0.99)
    quantile: float = 0.2
    entropy: float = 0.01
    max_plan_tokens: int = 144
    seed: int = 1
    demands_checks: bool = False
    refuses_faults: bool = False

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


LEGS: Final = 6
"""How many trainings by GRPO follow each other, each with a rate of its own that falls to nothing."""

_SHORT: Final[Mapping[Shape, float]] = {"single": 0.7, "chain2": 0.2, "join": 0.1}


def rehearsal(*, steps: int | None = None, seed: int = 1, leg: int = 1) -> RehearsalCurriculum:
    """One leg of the shipped conductor's course; with `steps` one of its own: its beginning, at a steady, higher rate.

    A later leg starts from the result of the one before. Most of its questions have one step, where the reward says
    plainly whether the worker was right, with pools as they are measured and as they ship. The fourth leg has questions
    as they are measured, and pays for checks; in the last two the demo's check of plans decides what is valid.
    """
    if leg > 4:
        phase = Phase(
            steps=170 if leg == 5 else 180, checked=0.25, whole=0.5, loose=0.6 if leg == 5 else 0.8, second=0.2
        )
        return RehearsalCurriculum(phases=(phase,), seed=10 * leg + seed, demands_checks=True, refuses_faults=True)
    if leg == 4:
        phase = Phase(steps=150, checked=0.35, whole=0.5)
        return RehearsalCurriculum(phases=(phase,), seed=10 * leg + seed, demands_checks=True)
    if leg > 1:
        whole = 0.3 if leg == 2 else 0.5
        phases = Phase(steps=120, shapes=_SHORT, checked=0.05, whole=whole), Phase(steps=60, whole=whole)
        return RehearsalCurriculum(phases=phases, seed=10 * leg + seed)
    first = Phase(steps=60, pools=EASY, shapes=_SHORT, checked=0.05)
    then = Phase(steps=40, pools=replace(EASY, sizes=(2, 3, 4), extra=(1, 2, 3, 4)))
    last = Phase(steps=100)
    if steps is None:
        return RehearsalCurriculum(phases=(first, then, last), seed=seed)
    return RehearsalCurriculum(phases=(replace(first, steps=steps),), falling=False, rate=3.5e-4, seed=seed)
