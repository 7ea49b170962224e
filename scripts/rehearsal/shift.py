"""The mix of questions shifts in mid-stream: who loses how much.

A stream has 200 questions of one mix and then 200 of another, all over one pool of four members, whose names stay the
same. The first mix is what a pipeline could be built for: chains of two steps, a fact about a place or a Spanish word,
and then something about its letters. The second has the six other skills and all other shapes, as often as the world
has them. Three systems divide each question as the conductor does:

- the conductor, which reads the question and the cards;
- a fixed pipeline: the first step of every question goes to one member, all others to another, each step sees the one
  before it. The two are those that do best on 60 other questions of the first mix;
- a static router: it has learned from the outcomes of the steps of 200 other questions of the first mix which member a
  step goes to, by its words. It knows members by name and reads no cards.

The second mix is harder for everybody, so the loss of the true plans stands beside the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Final, Literal

from conductor_cli.core.plan import Plan
from conductor_cli.rehearsal.words import Skill
from scripts.rehearsal.evaluate import Found, followed, forced_chain, gold_plan, planned, routed_by, share
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.planning import StoredModel
from scripts.rehearsal.pools import MOST_SKILLS, Member
from scripts.rehearsal.rollouts import DrawnPools
from scripts.rehearsal.router import Router
from scripts.rehearsal.routing import step_samples
from scripts.rehearsal.trees import Shape
from scripts.rehearsal.world import SHAPES, Problem, ProblemSettings, Split, draw_problems

FIRST: Final[tuple[Skill, ...]] = ("geography", "translation")
THEN: Final[tuple[Skill, ...]] = ("spelling", "counting")
"""The skills of the two steps of the first mix."""

OTHERS: Final[tuple[Skill, ...]] = tuple(skill for skill in SKILLS if skill not in {*FIRST, *THEN})
OTHER_SHAPES: Final[Mapping[Shape, float]] = {shape: share for shape, share in SHAPES.items() if shape != "chain2"}

TEAM: Final[tuple[tuple[Skill, ...], ...]] = (
    ("geography", "translation", "opposites"), ("spelling", "counting", "comparing"), ("adding", "multiplying"),
    ("chemistry", "calendar"),
)  # fmt: skip
"""The members of the pool. Each skill is also with one other member that has room, and is worse."""

WEAK: Final = (0.15, 0.75)

When = Literal["before", "after"]
MIXES: Final[tuple[When, ...]] = ("before", "after")

DRAWN: Final = 6
"""Chains that are drawn for each question of the first mix."""

QUESTIONS: Final = 200
PRACTICE: Final = 200
TRIED: Final = 60
"""Questions of the first mix from which the static router learns; the first `TRIED` of them choose the pipeline."""


class Stream:
    """The stream of one seed. `count` questions of each mix."""

    def __init__(self, rollouts: DrawnPools, conductor: StoredModel, seed: int, count: int = QUESTIONS) -> None:
        self._rollouts, self._conductor, self._seed = rollouts, conductor, seed
        self._pool = draw_team(Random(f"stream {seed}"))  # noqa: S311 - reproducible, no secret
        self._count, self._practice = count, min(PRACTICE, count)

    async def measure(self) -> dict[str, list[float]]:
        """Who is right, before and after the shift."""
        practice = await self._planned(self._draw("before", "train", self._practice))
        pipeline = await self._best_pipeline(practice[:TRIED])
        router = await self._router(practice)
        values: dict[str, list[float]] = {}
        for when in MIXES:
            found = await self._planned(self._draw(when, "test", self._count))
            plans: dict[str, list[Plan | None]] = {
                "pipeline": [in_pipeline(item, pipeline) for item in found],
                "static router": [routed_by(item, router) for item in found],
                "oracle": [gold_plan(item.exercise) for item in found],
            }
            values[f"{when} conductor"] = [float(item.right) for item in found]
            for name, given in plans.items():
                values[f"{when} {name}"] = [float(item.right) for item in await self._followed(found, given)]
        return values

    async def _best_pipeline(self, practice: Sequence[Found]) -> tuple[str, str]:
        """The two members that do best on these questions."""
        names = practice[0].exercise.workers
        reached = dict[tuple[str, str], float]()
        for first, later in product(names, repeat=2):
            plans = [in_pipeline(item, (first, later)) for item in practice]
            reached[first, later] = share(await self._followed(practice, plans))
        return max(reached, key=reached.__getitem__)

    async def _router(self, practice: Sequence[Found]) -> Callable[[RehearsalExercise, str], str]:
        cards = [{name: 1.0} for name in practice[0].exercise.workers]
        found = [await step_samples(self._rollouts.answers, item.exercise, cards) for item in practice]
        router = Router([sample for samples in found for sample in samples])
        return lambda exercise, subtask: exercise.workers[router.choose(subtask, cards)]

    def _draw(self, when: When, split: Split, count: int) -> list[RehearsalExercise]:
        problems = draw_mix(when, split, count, self._seed)
        return [
            RehearsalExercise(problem=problem, members=self._pool, seed=1000 * self._seed + number)
            for number, problem in enumerate(problems)
        ]

    async def _planned(self, exercises: Sequence[RehearsalExercise]) -> list[Found]:
        self._conductor.prepare([self._rollouts.prompt(item)[0]["content"] for item in exercises])
        return await planned(self._rollouts, self._conductor, exercises)

    async def _followed(self, found: Sequence[Found], plans: Sequence[Plan | None]) -> list[Found]:
        pairs = zip(found, plans, strict=True)
        return [await followed(self._rollouts, item.exercise, plan) for item, plan in pairs]


def draw_team(random: Random) -> tuple[Member, ...]:
    """The pool of a stream: its weaker strengths, order and prices are drawn."""
    members: list[dict[str, float]] = [dict.fromkeys(skills, 1.0) for skills in TEAM]
    for skill in random.sample(SKILLS, len(SKILLS)):
        able = [member for member in members if skill not in member and len(member) < MOST_SKILLS]
        if able:
            random.choice(able)[skill] = round(random.uniform(*WEAK), 2)
    return tuple(
        Member(strengths=strengths, price=random.randint(1, 9)) for strengths in random.sample(members, len(members))
    )


def draw_mix(when: When, split: Split, count: int, seed: int) -> list[Problem]:
    """Questions of the first mix or the second."""
    settings = ProblemSettings(split=split, phrasings="held" if split == "test" else "known", checked=0.0)
    if when == "after":
        return list(draw_problems(count, seed, replace(settings, skills=OTHERS, shapes=OTHER_SHAPES)))
    chains = replace(settings, skills=(*FIRST, *THEN), shapes={"chain2": 1.0})
    drawn = draw_problems(DRAWN * count, seed, chains)
    fitting = [problem for problem in drawn if problem.hops[0].skill in FIRST and problem.hops[1].skill in THEN]
    assert len(fitting) >= count
    return fitting[:count]


def in_pipeline(found: Found, workers: tuple[str, str]) -> Plan | None:
    """The conductor's steps as a chain: the first to one worker, all others to another."""
    chain = forced_chain(found.plan)
    if chain is None:
        return None
    first, later = workers
    steps = (replace(step, worker=later if number else first) for number, step in enumerate(chain.steps))
    return Plan(steps=tuple(steps))
