"""What a finished conductor reaches on held-out questions, through the very adapter that runs use. Needs no torch.

Each row says apart whether plans are valid, split the question rightly, have the right shape, and go to the right
members, and how often a plan that is right in all of this ends in a wrong answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import labels_for
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.conductor_model import CHECKING, PROFILE, rehearsal_conductor
from conductor_cli.rehearsal.known import find_skills
from conductor_cli.rehearsal.normalize import normalize
from conductor_cli.train.rollouts import Outcome, Rollouts, is_valid
from scripts.rehearsal.asking import Bank
from scripts.rehearsal.baselines import METHODS, vote
from scripts.rehearsal.exercises import MIXED, STRONG, UNSEEN_POOLS, WHOLE, RehearsalExercise, draw_exercises
from scripts.rehearsal.operations import SKILLS, UNSEEN
from scripts.rehearsal.pools import PoolSettings, pool_of
from scripts.rehearsal.rollouts import DrawnPools, best_workers, build_rollouts
from scripts.rehearsal.worker_table import Row
from scripts.rehearsal.world import Hop, draw_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one question. `answers` are those of the steps."""

    exercise: RehearsalExercise
    outcome: Outcome
    plan: Plan | None
    answers: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.outcome.right

    @property
    def split(self) -> bool:
        """All subtasks are those of the question, word for word."""
        wanted = [hop.subtask for hop in self._hops]
        return self.plan is not None and [normalize(step.subtask) for step in self.plan.steps] == wanted

    @property
    def shaped(self) -> bool:
        """As many steps, and the same access lists."""
        wanted = [hop.access for hop in self._hops]
        return self.plan is not None and [step.access for step in self.plan.steps] == wanted

    @property
    def routed(self) -> bool:
        """As many steps, and each goes to one of the best on offer for the skill that it needs."""
        if self.plan is None or len(self.plan.steps) != len(self._hops):
            return False
        return all(step.worker in self._best(hop.skill) for step, hop in zip(self.plan.steps, self._hops, strict=True))

    @property
    def branches(self) -> bool:
        """Whether the right plan is no chain."""
        return any(len(hop.access) > 1 for hop in self.exercise.problem.hops if hop.skill != CHECKING)

    @property
    def _hops(self) -> tuple[Hop, ...]:
        """The steps of the right plan: without a check where nobody can check."""
        hops = self.exercise.problem.hops
        return hops if hops[-1].skill != CHECKING or self._best(CHECKING) else hops[:-1]

    def _best(self, skill: str) -> tuple[str, ...]:
        return best_of(self.exercise, skill)


def best_of(exercise: RehearsalExercise, skill: str) -> tuple[str, ...]:
    """The members that are best at a skill; nobody for a check that only the generalist could do."""
    able = any(skill in member.strengths for member in exercise.members)
    return best_workers(pool_of(exercise.members), skill) if able or skill != CHECKING else ()


def evaluate_conductor(
    directory: Path, path: Path | None = None, *, count: int = 500, seed: int = 2026
) -> tuple[Row, ...]:
    """The table of the conductor in `path`, or of the shipped one, over the workers in `directory`."""
    return asyncio.run(_evaluate(directory, path, count, seed))


async def _evaluate(directory: Path, path: Path | None, count: int, seed: int) -> tuple[Row, ...]:
    model = open_model(rehearsal_conductor(path), environ={})
    try:
        async with Bank(directory) as bank:
            evaluation = Evaluation(build_rollouts(bank), model, count, seed)
            return tuple([row async for row in evaluation.rows()])
    finally:
        await model.close()


class Evaluation:
    """The questions, and who answers them."""

    def __init__(self, rollouts: DrawnPools, model: Model, count: int, seed: int) -> None:
        self._rollouts = rollouts
        self._model = model
        self._count = count
        self._seed = seed

    async def rows(self) -> AsyncIterator[Row]:
        """The table, row by row."""
        for row in await self._main():
            yield row
        for row in await self._without_a_conductor():
            yield row
        for row in await self._second_round():
            yield row
        for row in await self._unseen():
            yield row

    async def _main(self) -> list[Row]:
        """Held-out phrasings, strong pools; and the same plans with another shape or another router."""
        exercises = self._draw(split="test", checked=0.0)
        found = await self._plan(exercises)
        best = share(await self._follow(exercises, [gold_plan(item) for item in exercises]))
        chains = await self._follow(exercises, [forced_chain(item.plan) for item in found])
        routed = await self._follow(exercises, [keyword_routed(item) for item in found])
        known = await self._plan(self._draw(split="test", phrasings="known", checked=0.0))
        return [
            Row("held-out phrasings", share(found), least=0.80, note=by_shape(found)),
            *parts(found),
            Row("best routing", best, least=0.93),
            Row("the same split, a keyword router", share(routed), most=share(found) - 0.15),
            Row("the same steps, a forced chain", share(chains), most=share(found) - 0.15),
            Row("known phrasings", share(known), note=by_shape(known)),
            Row("worker calls a question", mean([item.outcome.calls for item in found])),
            Row("tokens a question, all models", mean([item.outcome.tokens for item in found])),
        ]

    async def _without_a_conductor(self) -> list[Row]:
        """The same questions and pools by methods that do not divide a question."""
        exercises = self._draw(split="test", checked=0.0)
        rows = list[Row]()
        for name, method in METHODS.items():
            found = await self._follow(exercises, [method(item) for item in exercises])
            tokens = mean([item.outcome.tokens for item in found])
            calls = mean([item.outcome.calls for item in found])
            rows.append(Row(name, share(found), note=f"{calls:.2f} calls, {tokens:.0f} tokens a question"))
        everybody = [item.answers[:-1] for item in found]
        voted = [item.is_correct(vote(given)) for item, given in zip(exercises, everybody, strict=True)]
        able = [any(map(item.is_correct, given)) for item, given in zip(exercises, everybody, strict=True)]
        return [*rows, Row("majority vote", mean(voted)), Row("anybody is right: no method without steps", mean(able))]

    async def _second_round(self) -> list[Row]:
        """Questions that ask for a check, in pools where members fail: one round, and two."""
        exercises = self._draw(MIXED_FAILING, split="test", checked=1.0)
        one, two = await self._plan(exercises), await self._plan(exercises, recursion=1)
        return [
            Row("questions with a check, one round", share(one)),
            Row("gained by a second round", share(two) - share(one), least=0.05),
        ]

    async def _unseen(self) -> list[Row]:
        """Pools unlike those of training, and a skill that no training had."""
        rows = []
        for what, settings, needs, least in (
            ("unseen pools", UNSEEN_POOLS, "", 0.90), ("everybody on offer", WHOLE, "", 0.90),
            (f"a skill never trained ({UNSEEN})", STRONG, UNSEEN, 0.75),
        ):  # fmt: skip
            skills = (*SKILLS, UNSEEN) if needs else SKILLS
            exercises = self._draw(settings, split="test", needs=needs, checked=0.0, skills=skills)
            found = share(await self._plan(exercises))
            best = share(await self._follow(exercises, [gold_plan(item) for item in exercises]))
            row = Row(f"{what}: share of best routing", found / max(best, 0.001), least=least, note=f"{found:.3f}")
            rows.append(row)
        return rows

    def _draw(self, settings: PoolSettings = STRONG, **changes: Any) -> tuple[RehearsalExercise, ...]:  # noqa: ANN401
        return draw_exercises(draw_problems(self._count, self._seed, **changes), settings, self._seed)

    async def _plan(self, exercises: Sequence[RehearsalExercise], *, recursion: int = 0) -> list[Found]:
        return await planned(self._rollouts, self._model, exercises, recursion=recursion)

    async def _follow(self, exercises: Sequence[RehearsalExercise], plans: Sequence[Plan | None]) -> list[Found]:
        return [await followed(self._rollouts, exercise, plan) for exercise, plan in zip(exercises, plans, strict=True)]


MIXED_FAILING: Final = replace(MIXED, sure=0.3, best=(0.5, 0.8), rivals=1.0, weak=(0.7, 0.95), generalist=0.0)
"""Pools in which everybody fails now and then, and there is somebody else to ask."""


async def planned(  # noqa: PLR0913 - how a run is made
    rollouts: DrawnPools, model: Model, exercises: Sequence[RehearsalExercise], *, temperature: float = 0.0,
    seed: int = 0, recursion: int = 0,
) -> list[Found]:  # fmt: skip
    """What comes of the plans that `model` itself writes, one after the other, without a grammar."""
    profile = replace(PROFILE, sampling=replace(PROFILE.sampling, temperature=temperature))
    found = []
    for number, item in enumerate(exercises):
        limits = Limits(attempts=1, recursion=recursion)
        conductor = rollouts.conductor_for(item)
        conductor = replace(conductor, model=model, profile=profile, seed=seed + number, limits=limits)
        trace = await rollouts.trace(conductor.run(Question(text=item.question)))
        found.append(await _found(rollouts, item, trace))
    return found


async def followed(rollouts: DrawnPools, exercise: RehearsalExercise, plan: Plan | None) -> Found:
    """What comes of a given plan."""
    if plan is None:
        return Found(exercise=exercise, outcome=Outcome(reward=0.0, valid=False), plan=None)
    trace = await rollouts.trace(rollouts.conductor_for(exercise).run(Question(text=exercise.question), plan=plan))
    return await _found(rollouts, exercise, trace)


async def _found(rollouts: Rollouts, exercise: RehearsalExercise, trace: Trace) -> Found:
    plan = trace.plan if is_valid(trace) and isinstance(trace.plan, Plan) else None
    if plan is not None and plan.steps[-1].worker == SELF:
        plan = replace(plan, steps=plan.steps[:-1])
    answers = tuple(record.text for record in trace.steps)
    return Found(exercise=exercise, outcome=await rollouts.outcome(trace, exercise), plan=plan, answers=answers)


def gold_plan(exercise: RehearsalExercise) -> Plan:
    """The true steps, each to one of the best on offer."""
    best = [(hop, best_of(exercise, hop.skill)) for hop in exercise.problem.hops]
    steps = [Step(worker=names[0], subtask=hop.subtask, access=hop.access) for hop, names in best if names]
    return Plan(steps=tuple(steps))


def plan_text(exercise: RehearsalExercise, plan: Plan | None = None) -> str:
    """A plan as the conductor would write it; by default the gold plan. Each step names the skill that it needs."""
    lines = []
    for step, hop in zip((plan or gold_plan(exercise)).steps, exercise.problem.hops, strict=False):
        labels = labels_for(pool_of(exercise.members).workers, PROFILE.labels)
        mine = [label for label, name in labels.items() if name == step.worker]
        label = next((label for label in mine if label.startswith(hop.skill)), mine[0])
        lines.append(PROFILE.bar.join((step.subtask, " ".join(map(str, step.access)) or "-", label)))
    return "\n".join(lines)


def forced_chain(plan: Plan | None) -> Plan | None:
    """The same steps, each of which sees the one before it and nothing else."""
    if plan is None:
        return None
    return Plan(
        steps=tuple(replace(step, access=(number,) if number else ()) for number, step in enumerate(plan.steps))
    )


def keyword_routed(found: Found) -> Plan | None:
    """The same steps and access lists, each step to the best for the first skill whose keywords it contains."""
    if found.plan is None:
        return None
    pool = pool_of(found.exercise.members)
    return Plan(steps=tuple(replace(step, worker=_by_keyword(step.subtask, pool)) for step in found.plan.steps))


def _by_keyword(subtask: str, pool: Pool) -> str:
    skills = [CHECKING] if subtask == "check it" else find_skills(subtask)
    return next((name for skill in skills for name in best_workers(pool, skill)), pool.best().name)


def parts(found: Sequence[Found]) -> list[Row]:
    """What went right and wrong, apart."""
    whole = [item for item in found if item.split and item.shaped and item.routed]
    branching = [item for item in found if item.branches]
    return [
        Row("  valid plans", mean([item.outcome.valid for item in found])),
        Row("  split right, word for word", mean([item.split for item in found])),
        Row("  shape right", mean([item.shaped for item in found])),
        Row("  shape right, where it is no chain", mean([item.shaped for item in branching]), least=0.80),
        Row("  every step to one of the best", mean([item.routed for item in found])),
        Row("  wrong, though all of that is right", mean([not item.right for item in whole])),
    ]


def by_shape(found: Sequence[Found]) -> str:
    """The share of right answers for each shape."""
    shapes: dict[str, list[bool]] = {}
    for item in found:
        shapes.setdefault(item.exercise.problem.shape, []).append(item.right)
    return ", ".join(f"{shape} {mean(right):.3f}" for shape, right in sorted(shapes.items()))


def share(found: Sequence[Found]) -> float:
    """The share of right answers."""
    return mean([item.right for item in found])


def mean(values: Sequence[float]) -> float:
    """The mean; 0 for no values."""
    return sum(values) / len(values) if values else 0.0
