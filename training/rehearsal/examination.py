"""What a trained conductor reaches on held-out questions, with pools drawn for each of them.

Needs no torch. Plans run through the ordinary `Orchestra` and the very adapter that runs use. What
was measured of the conductor that ships, beside other ways to answer, stands in
`docs/research/rehearsal.md`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.plan import Plan
from conductor_cli.core.profile import Profile
from conductor_cli.core.question import Question
from conductor_cli.models.base import Model
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.players import CHECKED, PROFILE, model_path, rehearsal_conductor
from conductor_cli.run import RunSpec, Team, start_run
from training.rehearsal.asking import Bank
from training.rehearsal.exercises import (
    STRONG,
    WHOLE,
    PoolSettings,
    RehearsalExercise,
    draw_exercises,
)
from training.rehearsal.operations import SKILLS, UNSEEN
from training.rehearsal.rollouts import DrawnPools, build_rollouts, gold_plan
from training.rehearsal.worker_table import Row, share
from training.rehearsal.world import draw_problems

GREEDY: Final = replace(PROFILE, sampling=replace(PROFILE.sampling, temperature=0.0))
"""The conductor alone, without a grammar and without the demo's check of plans (`CHECKED`)."""


async def rows(
    directory: Path, path: Path | None = None, *, count: int, seed: int
) -> tuple[Row, ...]:
    """The table of the planner in `path`, or the shipped one, over the workers in `directory`."""
    model = open_model(rehearsal_conductor(path or model_path("conductor")), environ={})
    try:
        async with Bank(directory) as bank:
            return await Examination(
                rollouts=build_rollouts(bank), model=model, count=count, seed=seed
            ).rows()
    finally:
        await model.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """`count` questions for each row, drawn from `seed`; `model` plans."""

    rollouts: DrawnPools
    model: Model
    count: int
    seed: int

    async def rows(self) -> tuple[Row, ...]:
        held = self.draw()
        whole = self.draw(WHOLE)
        colours = self.draw(needs=UNSEEN, skills=(*SKILLS, UNSEEN))
        right = await self.planned(held)
        shapes = defaultdict[str, list[bool]](list)
        for item, is_right in zip(held, right, strict=True):
            shapes[item.problem.shape].append(is_right)
        note = ", ".join(
            f"{shape} {share(results):.3f}" for shape, results in sorted(shapes.items())
        )
        unseen = share(await self.planned(colours)) / max(share(await self.best(colours)), 0.001)
        return (
            Row("held-out phrasings", share(right), least=0.80, note=note),
            Row("known phrasings", share(await self.planned(self.draw(phrasings="known")))),
            Row("best routing (oracle)", share(await self.best(held)), least=0.93),
            Row("held-out phrasings, plans checked", share(await self.planned(held, CHECKED))),
            Row("everybody on offer, plans checked", share(await self.planned(whole, CHECKED))),
            Row("a skill never trained: share of best routing", unseen, least=0.75),
        )

    def draw(self, pools: PoolSettings = STRONG, **changes: Any) -> tuple[RehearsalExercise, ...]:
        """Questions that ask for no check, with pools; `changes` are as in `draw_problems`."""
        settings = {"phrasings": "held", **changes}
        return draw_exercises(
            draw_problems(self.count, self.seed, split="test", checked=0.0, **settings),
            pools,
            self.seed,
        )

    async def planned(
        self, exercises: Sequence[RehearsalExercise], profile: Profile = GREEDY
    ) -> list[bool]:
        """Which answers are right where the model plans.

        With `CHECKED`, a plan with a fault is written again.
        """
        return [
            await self._right(item, replace(self._team(item), profile=profile))
            for item in exercises
        ]

    async def best(self, exercises: Sequence[RehearsalExercise]) -> list[bool]:
        """Which answers are right along the true steps, each by one of the best on offer."""
        return [await self._right(item, self._team(item), gold_plan(item)) for item in exercises]

    def _team(self, item: RehearsalExercise) -> Team:
        return replace(self.rollouts.team_for(item), model=self.model)

    async def _right(self, item: RehearsalExercise, team: Team, plan: Plan | None = None) -> bool:
        spec = RunSpec(question=Question(text=item.question), plan=plan, team=team)
        trace = await self.rollouts.trace(start_run(self.rollouts.orchestra, spec))
        return item.is_correct(trace.answer or "")
