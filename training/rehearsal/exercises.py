"""What the rehearsal's conductor practises on, with pools that are drawn for each question. Pure.

An exercise is drawn by its number, so a training that was killed continues with exactly the next
one. A member of a pool has one to three skills, and a strength for each. Its name means nothing.
One member may be the generalist, which has the one skill `anything`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from random import Random
from typing import Any, Final

from conductor_cli.core.plan import Step
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.question import Given, Question
from conductor_cli.core.usage import Price
from conductor_cli.evals.score import Score
from conductor_cli.rehearsal import players as workers
from conductor_cli.rehearsal.players import ANYTHING, CHECKER, CHECKING, NO
from training.rehearsal.operations import SKILLS, Shape
from training.rehearsal.phrasings import PhrasingSet
from training.rehearsal.world import CHECKED, SHAPES, Hop, Problem, ProblemSettings, draw_problem

GENERALIST: Final = "generalist"

GENERALIST_STRENGTH: Final = 0.4  # on its card: about the share of steps that it does rightly
MAX_SKILLS: Final = 3  # the most skills of a member


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What a member can do: the strength of each of its skills.

    `price` is in US dollars for a million tokens.
    """

    strengths: Mapping[str, float]
    price: int = 1

    @property
    def files(self) -> dict[str, float]:
        if ANYTHING in self.strengths:
            return {GENERALIST: 1.0}
        return {
            CHECKER if skill == CHECKING else skill: strength
            for skill, strength in self.strengths.items()
        }


def luck(files: Mapping[str, float], prompt: str, seed: int) -> Random:
    """What decides how a member with these files does with a prompt.

    Drawn for each member, and always the same.
    """
    return Random(f"{seed} {sorted(files.items())} {prompt}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What to draw.

    `sizes` are numbers of members, `extra` numbers of skills that the question does not need.
    `generalist` is the share of pools with one, and `missing` the share of those where nobody has
    one of the needed skills. The best member for a skill has the strength 1 in a share `sure` of
    all cases, and otherwise one of the range `best`. A skill has a rival in a share `rivals`; its
    strength is that of the best one times a factor in the range `weak`. With `sure_check`, whoever
    is best at checking says of every answer what the checker finds.
    """

    sizes: Sequence[int] = (2, 3, 3, 4, 4, 5, 6)
    extra: Sequence[int] = (0, 1, 2, 3, 4, 5)
    generalist: float = 0.4
    missing: float = 0.2
    sure: float = 0.7
    best: tuple[float, float] = (0.6, 0.95)
    rivals: float = 0.6
    weak: tuple[float, float] = (0.15, 0.75)
    sure_check: bool = False


@dataclass(slots=True)
class _Draft:
    """A pool while it is drawn."""

    random: Random
    members: list[dict[str, float]] = field(default_factory=list)

    def place(self, skill: str, strength: float) -> bool:
        """Give a skill to a member that lacks it and has room, one of those with the fewest.

        Whether there was one.
        """
        able = [
            member for member in self.members if skill not in member and len(member) < MAX_SKILLS
        ]
        if not able:
            return False
        fewest = min(map(len, able))
        self.random.choice([member for member in able if len(member) == fewest])[skill] = strength
        return True


def draw_members(
    random: Random, needed: Sequence[str], others: Sequence[str], settings: PoolSettings
) -> tuple[Member, ...]:
    """A pool for a question that needs the skills `needed`.

    Its other skills are drawn from `others`.
    """
    general = random.random() < settings.generalist
    wanted = list(dict.fromkeys(needed))
    if general and len(wanted) > 1 and random.random() < settings.missing:
        wanted.remove(random.choice([skill for skill in wanted if skill != CHECKING]))
    free = [skill for skill in dict.fromkeys(others) if skill not in needed]
    extra = random.sample(free, min(random.choice(settings.extra), len(free)))
    specialists = max(random.choice(settings.sizes) - general, -(-len(wanted) // MAX_SKILLS), 1)
    draft = _Draft(random, [{} for _ in range(specialists)])
    placed = (
        wanted
        + [skill for skill in extra if skill not in wanted][
            : MAX_SKILLS * specialists - len(wanted)
        ]
    )
    best = {
        skill: 1.0 if random.random() < settings.sure else random.uniform(*settings.best)
        for skill in placed
    }
    if settings.sure_check and CHECKING in best:
        best[CHECKING] = 1.0
    for skill in random.sample(placed, len(placed)):
        draft.place(skill, best[skill])
    for skill in random.sample(placed, len(placed)):
        if random.random() < settings.rivals:
            draft.place(skill, round(best[skill] * random.uniform(*settings.weak), 2))
    spare = [skill for skill in random.sample(free, len(free)) if skill not in placed]
    for member in [member for member in draft.members if not member]:
        # Nobody is left without a skill: with one worker on offer, a plan may have only one step.
        skill = spare.pop() if spare else random.choice(placed)
        member[skill] = round(best.get(skill, 1.0) * random.uniform(*settings.weak), 2)
    made = [dict(random.sample(list(member.items()), len(member))) for member in draft.members]
    if general:
        made.append({ANYTHING: GENERALIST_STRENGTH})
    return tuple(
        Member(strengths=strengths, price=random.randint(1, 9))
        for strengths in random.sample(made, len(made))
    )


def pool_of(members: Sequence[Member]) -> Pool:
    """The members as workers with cards. Whoever runs them has their models."""
    return Pool(
        workers=tuple(
            Worker(
                name=f"member{number}",
                kind="llama",
                card=Card(strengths=member.strengths, measured=True),
                price=Price(input=Decimal(member.price), output=Decimal(member.price)),
            )
            for number, member in enumerate(members, start=1)
        )
    )


EASY: Final = PoolSettings(sizes=(2, 3), extra=(1, 2, 2, 3), generalist=0.0, sure=1.0)
"""Few rows, so that a row that is drawn by chance is often the right one, and nobody who can do a
little of all.
"""

# What the conductor is trained and measured on
MIXED: Final = PoolSettings(sizes=(2, 3, 3, 4, 4, 5), sure=0.8)
STRONG: Final = replace(MIXED, sure=1.0, missing=0.0)
"""Pools in which somebody is as good as a specialist can be at each skill that is needed."""

WHOLE: Final = PoolSettings(
    sizes=(13,), extra=(12,), generalist=1.0, missing=0.0, sure=1.0, rivals=0.0
)
"""Somebody for each skill, and the generalist: as many members and rows as in the pool that
ships.
"""

MIXED_FAILING: Final = replace(
    MIXED, sure=0.3, best=(0.5, 0.8), rivals=1.0, weak=(0.7, 0.95), generalist=0.0, sure_check=True
)
"""Pools in which everybody fails now and then, there is mostly somebody else to ask, and a cheap
check tells.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalExercise:
    """One problem of the world with a pool: see `rollouts.Exercise`.

    `seed` decides when members fail.

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

    def score(self, text: str) -> Score:
        return Score(right=self.is_correct(text))


def exercise_of(random: Random, problem: Problem, settings: PoolSettings) -> RehearsalExercise:
    """A problem with a pool that is drawn for it."""
    needed = [hop.skill for hop in problem.hops]
    others = [*SKILLS, CHECKING] if random.random() < 0.5 else [*SKILLS]
    members = draw_members(random, needed, random.sample(others, len(others)), settings)
    return RehearsalExercise(problem=problem, members=members, seed=random.randrange(1_000_000))


_SEEDS: Final = 60  # how many seeds are tried to find one with which the right members fail


def second_round(
    random: Random, problem: Problem, settings: PoolSettings
) -> RehearsalExercise | None:
    """A problem whose first round ended with a NO.

    Only the last worker failed in it, and another one will not. None if the pool that was drawn
    offers nobody else.
    """
    made = exercise_of(random, problem, settings)
    hops = [hop for hop in problem.hops if hop.skill != CHECKING]
    ranked = [
        sorted(
            (m for m in made.members if hop.skill in m.strengths),
            key=lambda m: -m.strengths[hop.skill],
        )
        for hop in hops
    ]
    checkers = [member for member in made.members if CHECKING in member.strengths]
    if not checkers or not all(ranked) or len(ranked[-1]) < 2:
        return None
    prompts = [_prompt(problem, hop) for hop in hops]
    wanted = [
        (able[0], hop, prompt, True)
        for able, hop, prompt in zip(ranked, hops, prompts, strict=True)
    ]
    wanted[-1] = (ranked[-1][0], hops[-1], prompts[-1], False)
    wanted.append((ranked[-1][1], hops[-1], prompts[-1], True))
    for _ in range(_SEEDS):
        seed = random.randrange(1_000_000)
        if all(
            (luck(m.files, text, seed).random() < m.strengths[hop.skill]) == does
            for m, hop, text, does in wanted
        ):
            names = pool_of(made.members).names
            name = {id(member): name for member, name in zip(made.members, names, strict=True)}
            given = (
                Given(
                    worker=name[id(ranked[-1][0])], subtask=hops[-1].subtask, answer=workers.REFUSAL
                ),
                Given(worker=name[id(checkers[0])], subtask="check it", answer=NO),
            )
            return replace(made, seed=seed, given=given)
    return None


def _prompt(problem: Problem, hop: Hop) -> str:
    """What the worker of a step reads, if all steps before it are right."""
    return workers.render_for_worker(
        Question(text=problem.question), Step(worker="", subtask=hop.subtask), problem.seen_by(hop)
    )


def draw_exercises(
    problems: Sequence[Problem], settings: PoolSettings, seed: int
) -> tuple[RehearsalExercise, ...]:
    """Given problems with pools that are drawn: what a conductor is looked at with."""
    random = Random(f"pools {seed}")
    return tuple(exercise_of(random, problem, settings) for problem in problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Some steps of training.

    How many, what is on offer, and how often each shape comes and a check is asked for.

    A share `whole` of the exercises has everybody on offer; in a share `loose`, phrasings are put
    together loosely. A share `second` are second rounds, where that can be.
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
        random = Random(f"exercise {seed} {number}")
        if random.random() < self.second:
            problem = draw_problem(random, ProblemSettings(shapes=self.shapes, checked=1.0))
            again = second_round(random, problem, MIXED_FAILING)
            if again is not None:
                return again
        phrasings: PhrasingSet = "known"
        if random.random() < self.loose:
            phrasings = "loose"
        problem = draw_problem(
            random, ProblemSettings(shapes=self.shapes, checked=self.checked, phrasings=phrasings)
        )
        return exercise_of(random, problem, WHOLE if random.random() < self.whole else self.pools)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalCurriculum:
    """One training by GRPO.

    Each step takes `prompts` exercises and samples `group` plans for each. `quantile` is the share
    of tokens, the least certain ones, that the gradient passes through; `entropy` the weight of
    their entropy in the loss: TRL's mean is one over those tokens, so the same number weighs five
    times as much as over all. `max_plan_tokens` is in tokens.

    The rate rises over `warmup` steps and then, if it is `falling`, falls to nothing as a line.

    With `demands_checks`, a right answer without the check that was asked for counts as a wrong
    one. With `refuses_faults`, a plan that the demo would not run is invalid.
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


# How many trainings by GRPO follow each other, each with a rate of its own that falls to nothing
LEGS: Final = 6
_SHORT: Final[Mapping[Shape, float]] = {"single": 0.7, "chain2": 0.2, "join": 0.1}


def rehearsal(*, steps: int | None = None, seed: int = 1, leg: int = 1) -> RehearsalCurriculum:
    """One leg of the shipped conductor's course; with `steps` one of its own.

    Its beginning, at a steady, higher rate.

    A later leg starts from the result of the one before. Most of its questions have one step, where
    the reward says plainly whether the worker was right, with pools as they are measured and as
    they ship. The fourth leg has questions as they are measured, and pays for checks; in the last
    two the demo's check of plans decides what is valid.
    """
    if leg > 4:
        phase = Phase(
            steps=170 if leg == 5 else 180,
            checked=0.25,
            whole=0.5,
            loose=0.6 if leg == 5 else 0.8,
            second=0.2,
        )
        return RehearsalCurriculum(
            phases=(phase,), seed=10 * leg + seed, demands_checks=True, refuses_faults=True
        )
    if leg == 4:
        phase = Phase(steps=150, checked=0.35, whole=0.5)
        return RehearsalCurriculum(phases=(phase,), seed=10 * leg + seed, demands_checks=True)
    if leg > 1:
        whole = 0.5
        if leg == 2:
            whole = 0.3
        phases = (
            Phase(steps=120, shapes=_SHORT, checked=0.05, whole=whole),
            Phase(steps=60, whole=whole),
        )
        return RehearsalCurriculum(phases=phases, seed=10 * leg + seed)
    first = Phase(steps=60, pools=EASY, shapes=_SHORT, checked=0.05)
    then = Phase(steps=40, pools=replace(EASY, sizes=(2, 3, 4), extra=(1, 2, 3, 4)))
    last = Phase(steps=100)
    if steps is None:
        return RehearsalCurriculum(phases=(first, then, last), seed=seed)
    return RehearsalCurriculum(
        phases=(replace(first, steps=steps),), falling=False, rate=3.5e-4, seed=seed
    )
