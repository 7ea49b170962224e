"""What a finished conductor reaches on held-out questions, through the very adapter that runs use. Needs no torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.pool import Pool
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.conductor_model import PROFILE, rehearsal_conductor
from conductor_cli.rehearsal.normalize import normalize
from conductor_cli.train.rollouts import Exercise, Outcome, Rollouts, SampledPlan
from scripts.rehearsal.exercises import EVERYBODY, Offer, RehearsalExercise, draw_exercises
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.rollouts import build_rollouts
from scripts.rehearsal.worker_table import Row
from scripts.rehearsal.world import draw_problems


def evaluate_conductor(
    workers: Pool, path: Path | None = None, *, count: int = 500, seed: int = 2026
) -> tuple[Row, ...]:
    """The table of the conductor in `path`, or of the shipped one, over workers with their cards."""
    return asyncio.run(_evaluate(workers, path, count, seed))


async def _evaluate(workers: Pool, path: Path | None, count: int, seed: int) -> tuple[Row, ...]:
    models = {worker.name: open_model(worker, environ={}) for worker in workers}
    model = open_model(rehearsal_conductor(path), environ={})
    try:
        evaluation = _Evaluation(build_rollouts(workers, models), model, count, seed)
        return tuple([row async for row in evaluation.rows()])
    finally:
        for opened in (model, *models.values()):
            await opened.close()


class _Evaluation:
    """The questions, and who answers them."""

    def __init__(self, rollouts: Rollouts, model: Model, count: int, seed: int) -> None:
        self._rollouts = rollouts
        self._model = model
        self._seed = seed
        self._known = draw_problems(count, seed, split="test", phrasings="known")
        self._held = draw_problems(count, seed, split="test", phrasings="held")

    async def rows(self) -> AsyncIterator[Row]:
        """The table, row by row."""
        everybody = draw_exercises(self._known, EVERYBODY, self._seed)
        found, best = await self._plan(everybody), await self._best(everybody)
        yield Row("four workers", _right(found), least=0.85, note=_by_hops(everybody, found))
        yield Row("below best routing", _right(best) - _right(found), most=0.08)
        yield Row("worker calls a question", _mean([outcome.calls for outcome in found]))
        yield Row("tokens a question, all models", _mean([outcome.tokens for outcome in found]))
        yield Row("three specialists", _right(await self._plan(draw_exercises(self._known, Offer(), self._seed))))
        again = [
            _right(await self._plan(draw_exercises(self._known, EVERYBODY, seed)))
            for seed in (self._seed + 1, self._seed + 2)
        ]
        yield Row("labels redrawn: largest difference", max(abs(one - _right(found)) for one in again), most=0.03)
        drawn = await planned(self._rollouts, self._model, everybody, temperature=1.0, seed=self._seed)
        yield Row("valid plans, no grammar, temperature 1", _mean([outcome.valid for outcome in drawn]), least=0.99)
        yield Row("valid plans, no grammar, no chance", _mean([outcome.valid for outcome in found]), least=0.95)
        held = draw_exercises(self._held, EVERYBODY, self._seed)
        found = await self._plan(held)
        yield Row("held-out phrasings", _right(found), least=0.75, note=_by_hops(held, found))
        yield Row("held-out phrasings, best routing", _right(await self._best(held)))
        for skill in SKILLS:
            lacking = [
                replace(item, workers=tuple(name for name in item.workers if name != skill)) for item in everybody
            ]
            found, best = await self._plan(lacking), await self._best(lacking)
            yield Row(
                f"without {skill}: below best routing", _right(best) - _right(found), most=0.10,
                note=f"{_right(found):.3f}",
            )  # fmt: skip

    async def _plan(self, exercises: Sequence[RehearsalExercise]) -> list[Outcome]:
        return await planned(self._rollouts, self._model, exercises)

    async def _best(self, exercises: Sequence[RehearsalExercise]) -> list[Outcome]:
        return await self._rollouts.outcomes([best_routing(item, self._rollouts) for item in exercises])


async def planned(
    rollouts: Rollouts, model: Model, exercises: Sequence[Exercise], *, temperature: float = 0.0, seed: int = 0
) -> list[Outcome]:
    """What comes of the plans that `model` itself writes, one after the other, without a grammar."""
    profile = replace(PROFILE, sampling=replace(PROFILE.sampling, temperature=temperature))
    found = []
    for number, item in enumerate(exercises):
        rehearsal_conductor = replace(rollouts.conductor_for(item), model=model, profile=profile, seed=seed + number)
        trace = await rollouts.trace(rehearsal_conductor.run(Question(text=item.question)))
        found.append(await rollouts.outcome(trace, item))
    return found


def best_routing(exercise: RehearsalExercise, rollouts: Rollouts) -> SampledPlan:
    """The true hops, each to the worker on offer that was measured to be best at it."""
    pool = rollouts.conductor_for(exercise).pool
    steps = tuple(
        Step(
            worker=max(pool, key=lambda worker, skill=hop.skill: worker.card.strengths.get(skill, 0.0)).name,  # type: ignore[misc]
            subtask=normalize(hop.subtask), access=hop.access,
        )
        for hop in exercise.problem.hops
    )  # fmt: skip
    context = plan_format_context(
        PROFILE, pool, PlanRules(workers=pool.names, steps=MAX_STEPS), "auto", constrained=False
    )
    return SampledPlan(exercise=exercise, text=PLAN_FORMATS[PROFILE.plan_format].render(Plan(steps=steps), context))


def _right(outcomes: Sequence[Outcome]) -> float:
    return _mean([outcome.right for outcome in outcomes])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _by_hops(exercises: Sequence[RehearsalExercise], outcomes: Sequence[Outcome]) -> str:
    found: dict[int, list[bool]] = {}
    for item, outcome in zip(exercises, outcomes, strict=True):
        found.setdefault(len(item.skills), []).append(outcome.right)
    return ", ".join(f"{hops} hop{'s' if hops > 1 else ''} {_mean(right):.3f}" for hops, right in sorted(found.items()))
