"""Runs of the rehearsal's conductor over drawn pools, and what comes of sampled plans.

Needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import Profile
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import FREE, Usage, with_cost
from conductor_cli.models.base import NO_FEATURES, Features
from conductor_cli.rehearsal import players
from conductor_cli.rehearsal.players import ANYTHING, CHECKING, NO, YES
from conductor_cli.run import Orchestra, Team
from conductor_cli.train.rollouts import Exercise, PlanOutcome, Rollouts
from training.rehearsal.asking import build
from training.rehearsal.exercises import Member, RehearsalExercise, pool_of


class Answers(Protocol):
    """Where the answers of members come from: `asking.Bank`, or a double."""

    def member(
        self, strengths: Mapping[str, float], prompt: str, seed: int
    ) -> Coroutine[Any, Any, str]:
        """What a member answers whose files have these strengths."""


class AskedOnce:
    """Answers that are asked for only once, even if several runs need the same one at once."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._pending: dict[tuple[tuple[tuple[str, float], ...], str, int], asyncio.Task[str]] = {}

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        """See `Answers`.

        The source remembers what it has answered, so only running questions are kept here.
        """
        key = tuple(sorted(strengths.items())), prompt, seed
        if key not in self._pending:
            task = asyncio.create_task(self._answers.member(strengths, prompt, seed))
            self._pending[key] = task
            task.add_done_callback(lambda _: self._pending.pop(key))
        return await asyncio.shield(self._pending[key])


class MemberModel:
    """A member of a drawn pool as a model. Tokens are counted for each file that it asks.

    Where it would end without a word, it says that it cannot answer: a run would give the step to
    another worker, and in training, asking a worker for what it cannot do has to cost reward.
    """

    def __init__(self, member: Member, answers: Answers, seed: int) -> None:
        self._files = member.files
        self._answers = answers
        self._seed = seed

    @property
    def features(self) -> Features:
        return NO_FEATURES

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        prompt = request.messages[-1].content
        text = await self._answers.member(self._files, prompt, self._seed) or players.REFUSAL
        yield Chunk(text=text)
        count = len(self._files)
        used = Usage(
            calls=1,
            tokens_in=count * count_tokens(prompt),
            tokens_out=count * (count_tokens(text) + 1),
        )
        yield Chunk(usage=with_cost(used, FREE), finish="stop")

    async def close(self) -> None:
        """Nothing is open: the files belong to the bank."""


def count_tokens(text: str) -> int:
    """The tokens of a text, which are the same for all models here."""
    return len(build().encode(text).ids)


class DrawnPools(Rollouts):
    """Runs in which each exercise brings its own pool.

    A route is the first skill on the card of a worker.

    With `demands_checks`, a right answer without the check that the question asks for earns what a
    wrong one does, if somebody on offer can check: the answer alone would pay nothing for it.
    """

    answers: Answers
    demands_checks: bool = False

    def team_for(self, exercise: Exercise) -> Team:
        assert isinstance(exercise, RehearsalExercise)
        pool = pool_of(exercise.members)
        members = dict(zip(pool.names, exercise.members, strict=True))
        models = {
            name: MemberModel(member, self.answers, exercise.seed)
            for name, member in members.items()
        }
        return replace(self.orchestra.team, pool=pool, workers=models)

    def question(self, exercise: Exercise) -> Question:
        """The question; in a second round, with what the first one found."""
        assert isinstance(exercise, RehearsalExercise)
        return Question(text=exercise.question, given=exercise.given)

    async def outcome(self, trace: Trace, exercise: Exercise) -> PlanOutcome:
        assert isinstance(exercise, RehearsalExercise)
        result = await super().outcome(trace, exercise)
        if result.right and self.demands_checks and _lacks_check(trace, exercise):
            result = replace(result, reward=self.format_bonus, right=0.0)
        return result


def _lacks_check(trace: Trace, exercise: RehearsalExercise) -> bool:
    """Whether nobody was asked for the check that the question asks for.

    It is no fault where nobody on offer can check.
    """
    if exercise.given or exercise.skills[-1] != CHECKING or not _can_check(exercise):
        return False
    return all(players.clean_answer(record.text) not in (YES, NO) for record in trace.steps)


def _can_check(exercise: RehearsalExercise) -> bool:
    return any(CHECKING in member.strengths for member in exercise.members)


def best_workers(pool: Pool, skill: str) -> tuple[str, ...]:
    """The workers that are best at a skill by their cards; the generalist where nobody has it."""
    for wanted in (skill, ANYTHING):
        able = {
            worker.name: worker.card.strengths[wanted]
            for worker in pool
            if wanted in worker.card.strengths
        }
        if able:
            most = max(map(players.grade, able.values()))
            return tuple(name for name, strength in able.items() if players.grade(strength) == most)
    return ()


def build_rollouts(answers: Answers, profile: Profile = players.PROFILE) -> DrawnPools:
    """Runs of the rehearsal's conductor.

    Each exercise has its pool, and `answers` the answers of its members.
    """
    team = Team(
        model=None,
        pool=Pool(workers=()),
        workers={},
        profile=profile,
        worker_profile=players.WORKER_PROFILE,
    )
    orchestra = Orchestra(team=team, limits=Limits(attempts=1))
    rollouts = DrawnPools(
        orchestra=orchestra, name_route=lambda worker: next(iter(worker.card.strengths))
    )
    rollouts.answers = AskedOnce(answers)
    return rollouts


def gold_plan(exercise: RehearsalExercise) -> Plan:
    """The true steps, each to one of the best on offer.

    Without a check where nobody but the generalist could do it.
    """
    pool = pool_of(exercise.members)
    steps = list[Step]()
    for hop in exercise.problem.hops:
        if (hop.skill != CHECKING or _can_check(exercise)) and (
            names := best_workers(pool, hop.skill)
        ):
            steps.append(Step(worker=names[0], subtask=hop.subtask, access=hop.access))
    return Plan(steps=tuple(steps))
