"""What one trained conductor and its rivals reach, question by question, over several evaluation seeds.

All go through the ordinary `Conductor` and the very adapter that runs use. `docs/rehearsal.md` says what each is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_cli.core.errors import ConfigError
from conductor_cli.core.plan import Plan
from conductor_cli.models.catalog import open_model
from conductor_cli.rehearsal.players import CHECKER, NO, YES, conductor_path, rehearsal_conductor
from training.rehearsal.asked_once import Phrasings, draw_phrased
from training.rehearsal.asking import Bank, Store, StoredModel
from training.rehearsal.exercises import (
    MIXED_FAILING,
    STRONG,
    UNSEEN_POOLS,
    WHOLE,
    PoolSettings,
    RehearsalExercise,
    draw_exercises,
)
from training.rehearsal.figures import Measured
from training.rehearsal.operations import SKILLS, STEPS, UNSEEN
from training.rehearsal.rivals import (
    METHODS,
    reflection,
    solve_in_turns,
    verifying_prompt,
    vote,
    weight_of,
    weighted_vote,
)
from training.rehearsal.rollouts import (
    DrawnPools,
    Found,
    build_rollouts,
    followed,
    forced_chain,
    gold_plan,
    keyword_routed,
    planned,
    rights_with_checked_plans,
    routed_by,
)
from training.rehearsal.world import draw_problems

if TYPE_CHECKING:
    from training.rehearsal.routers import Routers

Values = dict[str, list[float]]  # the values of each measure, one for each question


@dataclass(frozen=True, slots=True, kw_only=True)
class Planners:
    """The models that plan: the conductor, and the cold start that it was trained from, if its file is there."""

    conductor: StoredModel
    cold: StoredModel | None = None


class Examination:
    """The questions of one evaluation seed, and who answers them. Without torch there are no `routers`."""

    def __init__(
        self, rollouts: DrawnPools, bank: Bank, planners: Planners, routers: Routers | None, count: int, seed: int
    ) -> None:
        self.rollouts, self.bank, self.planners, self.routers = rollouts, bank, planners, routers
        self.count, self.seed = count, seed

    async def measure(self, say: Callable[[str], None]) -> Values:
        """All of it. `say` is told how long each part took."""
        exercises = self.draw(split="test", checked=0.0)
        found = await self.plan(exercises)
        values = parts(found) | {"plans checked": await self.plan_with_check(exercises)}
        for what, part in (
            ("other routers", self._same_plans(found)), ("cold start", self._cold(exercises)),
            ("one step at a time", self._in_turns(exercises)), ("no division", self._whole(exercises)),
            ("known phrasings", self._known()), ("checks", self._checked()), ("unseen", self._unseen()),
        ):  # fmt: skip
            began = time.monotonic()
            values |= await part
            say(f"seed {self.seed}: {what}, {time.monotonic() - began:.0f} s")
        return values

    async def of_questions(self, exercises: Sequence[RehearsalExercise]) -> Values:
        """The conductor and the best routing at questions that were drawn elsewhere."""
        found = await self.plan(exercises)
        return {
            **parts(found), "oracle": rights(await self.follow(exercises, [gold_plan(item) for item in exercises])),
            "plans checked": await self.plan_with_check(exercises),
            "readable": [float(item.exercise.problem.readable) for item in found],
            "right, readable": [float(item.right) for item in found if item.exercise.problem.readable],
        }  # fmt: skip

    async def _same_plans(self, found: Sequence[Found]) -> Values:
        """The conductor's own plans with other workers or another shape; and the true plans."""
        exercises = [item.exercise for item in found]
        return {
            "oracle": rights(await self.follow(exercises, [gold_plan(item) for item in exercises])),
            "chain": rights(await self.follow(exercises, [forced_chain(item.plan) for item in found])),
            "keyword": rights(await self.follow(exercises, [keyword_routed(item) for item in found])),
        }

    async def _cold(self, exercises: Sequence[RehearsalExercise]) -> Values:
        """The cold start alone, and its plans with other workers."""
        if self.planners.cold is None:
            return {}
        cold = await self.plan(exercises, by=self.planners.cold)
        values = {
            "cold": rights(cold),
            "cold, keyword": rights(await self.follow(exercises, [keyword_routed(item) for item in cold])),
        }
        if self.routers is not None:
            routed = [routed_by(item, self.routers.of_step) for item in cold]
            values["cold, step router"] = rights(await self.follow(exercises, routed))
        return values

    async def _in_turns(self, exercises: Sequence[RehearsalExercise]) -> Values:
        """One step at a time, by the conductor and by the cold start."""
        values: Values = {}
        for name, policy in (("conductor", self.planners.conductor), ("cold", self.planners.cold)):
            if policy is None:
                continue
            found = await solve_in_turns(self.rollouts, policy, exercises)
            values[f"turns {name}"] = [
                float(item.is_correct(one.answer)) for item, one in zip(exercises, found, strict=True)
            ]
            values[f"turns {name} tokens"] = [float(one.tokens) for one in found]
            values[f"turns {name} calls"] = [float(one.calls + one.turns) for one in found]
        return values

    async def _whole(self, exercises: Sequence[RehearsalExercise]) -> Values:
        """The same questions and pools by methods that do not divide a question."""
        values: Values = {}
        for name, method in METHODS.items():
            found = await self.follow(exercises, [method(item) for item in exercises])
            values |= {name: rights(found), f"{name} calls": calls(found), f"{name} tokens": tokens(found)}
        everybody = [item.answers[:-1] for item in found]  # of the mixture, which is the last method
        alone = [[item.is_correct(text) for text in given] for item, given in zip(exercises, everybody, strict=True)]
        again = [await self._reflected(item) for item in exercises]
        values["majority vote"] = [
            float(item.is_correct(vote(given))) for item, given in zip(exercises, everybody, strict=True)
        ]
        values["verifier-weighted vote"] = [
            float(item.is_correct(await self._weighed(item, given)))
            for item, given in zip(exercises, everybody, strict=True)
        ]
        values["reflection, mean of the workers"] = [sum(one) / len(one) for one in again]
        values["reflection, best in hindsight"] = [float(any(one)) for one in again]
        values["anybody"] = [float(any(one)) for one in alone]
        methods = [values[name] for name in (*METHODS, "majority vote", "verifier-weighted vote")]
        values["ceiling"] = [
            float(any(one) or any(two) or any(three)) for one, two, *three in zip(alone, again, *methods, strict=True)
        ]
        if self.routers is not None:
            chosen = [self.routers.of_question(item) for item in exercises]
            values["router"] = [float(one[place]) for one, place in zip(alone, chosen, strict=True)]
        return values

    async def _reflected(self, exercise: RehearsalExercise) -> list[bool]:
        """Whether each worker is right after it has looked again at its own answer."""
        found = [await followed(self.rollouts, exercise, reflection(exercise, name)) for name in exercise.workers]
        return [item.right for item in found]

    async def _weighed(self, exercise: RehearsalExercise, answers: Sequence[str]) -> str:
        """The vote in which an answer weighs as much as the checker, at its full strength, believes it."""
        weights = [
            weight_of(await self.bank.ask(CHECKER, verifying_prompt(exercise.question, text))) for text in answers
        ]
        return weighted_vote(answers, weights)

    async def _known(self) -> Values:
        return {"known": rights(await self.plan(self.draw(split="test", phrasings="known", checked=0.0)))}

    async def _checked(self) -> Values:
        """Questions that ask for a check, in pools where members fail: one round, and two."""
        exercises = self.draw(MIXED_FAILING, split="test", checked=1.0)
        one, two = await self.plan(exercises), await self.plan(exercises, recursion=1)
        said = [item.answers[-1] if item.answers else "" for item in one]
        verdicts = [(item.right, text) for item, text in zip(one, said, strict=True) if text in {YES, NO}]
        objected = [pair for *pair, text in zip(one, two, said, strict=True) if text == NO]
        return {
            "one round": rights(one), "two rounds": rights(two),
            "checks": [float(text in {YES, NO}) for text in said],
            "NO to wrong": [float(verdict == NO) for right, verdict in verdicts if not right],
            "NO to right": [float(verdict == NO) for right, verdict in verdicts if right],
            "right before NO": [float(first.right) for first, _ in objected],
            "right after NO": [float(second.right) for _, second in objected],
        }  # fmt: skip

    async def _unseen(self) -> Values:
        """Pools unlike those of training, and a skill that no training had."""
        values: Values = {}
        pools = ("unseen pools", UNSEEN_POOLS, ""), ("everybody", WHOLE, ""), ("unseen skill", STRONG, UNSEEN)
        for name, settings, needs in pools:
            skills = (*SKILLS, UNSEEN) if needs else SKILLS
            exercises = self.draw(settings, split="test", needs=needs, checked=0.0, skills=skills)
            values[name] = rights(await self.plan(exercises))
            values[f"{name}, oracle"] = rights(await self.follow(exercises, [gold_plan(item) for item in exercises]))
            values[f"{name}, plans checked"] = await self.plan_with_check(exercises)
        return values

    # How questions are drawn and plans are run

    def draw(self, settings: PoolSettings = STRONG, **changes: Any) -> tuple[RehearsalExercise, ...]:
        """Questions of this seed, with pools."""
        return draw_exercises(draw_problems(self.count, self.seed, **changes), settings, self.seed)

    async def plan(
        self, exercises: Sequence[RehearsalExercise], *, recursion: int = 0, by: StoredModel | None = None
    ) -> list[Found]:
        """What comes of the conductor's own plans, or of those of another model."""
        return await planned(self.rollouts, by or self.planners.conductor, exercises, recursion=recursion)

    async def plan_with_check(self, exercises: Sequence[RehearsalExercise]) -> list[float]:
        """Which answers are right where the conductor's plans are checked, as in the demo."""
        return await rights_with_checked_plans(self.rollouts, self.planners.conductor, exercises)

    async def follow(self, exercises: Sequence[RehearsalExercise], plans: Sequence[Plan | None]) -> list[Found]:
        """What comes of given plans."""
        return [await followed(self.rollouts, exercise, plan) for exercise, plan in zip(exercises, plans, strict=True)]


def rights(found: Sequence[Found]) -> list[float]:
    """1 for a right answer, 0 for any other."""
    return [float(item.right) for item in found]


def calls(found: Sequence[Found]) -> list[float]:
    """The calls of workers."""
    return [float(item.outcome.calls) for item in found]


def tokens(found: Sequence[Found]) -> list[float]:
    """The tokens of all models."""
    return [float(item.outcome.tokens) for item in found]


def parts(found: Sequence[Found]) -> Values:
    """What went right and wrong in the conductor's plans, apart."""
    whole = [item for item in found if item.split and item.shaped and item.routed]
    values = {
        "conductor": rights(found), "calls": calls(found), "tokens": tokens(found),
        "valid": [float(item.outcome.valid) for item in found],
        "split": [float(item.split) for item in found],
        "shape": [float(item.shaped) for item in found],
        "shape, no chain": [float(item.shaped) for item in found if item.branches],
        "routed": [float(item.routed) for item in found],
        "wrong, plan right": [float(not item.right) for item in whole],
    }  # fmt: skip
    for shape in STEPS:
        values[f"shape {shape}"] = [float(item.right) for item in found if item.exercise.problem.shape == shape]
    return values


Say = Callable[[str], None]


def examine(
    directory: Path, path: Path | None = None, *, cold: Path | None = None, count: int = 500,
    seeds: Sequence[int] = (1, 2, 3), store: Path | None = None, say: Say = lambda _: None,
) -> Measured:  # fmt: skip
    """What the conductor in `path` and its rivals reach. Without torch, those that learn are left out."""

    async def measure(bank: Bank, planners: Planners) -> list[Values]:
        rollouts, began = build_rollouts(bank), time.monotonic()
        try:
            from training.rehearsal import routers as learned
        except ConfigError:  # without torch
            return [await Examination(rollouts, bank, planners, None, count, seed).measure(say) for seed in seeds]
        routers = await learned.learned_routers(rollouts.answers)
        say(f"learned routers, {time.monotonic() - began:.0f} s")
        found = []
        for seed in seeds:
            values = await Examination(rollouts, bank, planners, routers, count, seed).measure(say)
            began = time.monotonic()
            stream = learned.Stream(rollouts, planners.conductor, seed, min(count, learned.SHIFT_QUESTIONS))
            found.append(values | await stream.measure())
            say(f"seed {seed}: the mix shifts, {time.monotonic() - began:.0f} s")
        return found

    return asyncio.run(_with_models(directory, path, cold, store, count, measure))


def examine_phrasings(
    directory: Path, path: Path | None, phrasings: Phrasings, *, count: int = 500, seeds: Sequence[int] = (1, 2, 3),
    store: Path | None = None,
) -> Measured:  # fmt: skip
    """What the conductor in `path` reaches in phrasings that were written for the last measurement."""

    async def measure(bank: Bank, planners: Planners) -> list[Values]:
        return [
            await Examination(build_rollouts(bank), bank, planners, None, count, seed).of_questions(
                draw_phrased(phrasings, count, seed)
            )
            for seed in seeds
        ]

    return asyncio.run(_with_models(directory, path, None, store, count, measure))


async def _with_models(
    directory: Path, path: Path | None, cold: Path | None, store: Path | None, count: int,
    measure: Callable[[Bank, Planners], Awaitable[list[Values]]],
) -> Measured:  # fmt: skip
    """What is measured of the conductor in a file over the workers in a directory; all files are closed then."""
    async with AsyncExitStack() as stack:
        opened = stack.enter_context(Store(store or ":memory:"))

        def open_planner(file: Path) -> StoredModel:
            model = StoredModel(open_model(rehearsal_conductor(file), environ={}), file, opened)
            stack.push_async_callback(model.close)
            return model

        planners = Planners(
            conductor=open_planner(path or conductor_path()), cold=open_planner(cold) if cold is not None else None
        )
        bank = await stack.enter_async_context(Bank(directory, opened))
        return Measured.of_one(await measure(bank, planners), count=count)
