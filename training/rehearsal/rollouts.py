"""Runs of the rehearsal's conductor over drawn pools, and what comes of plans: written ones, and given ones.

`Found` says apart whether a plan is valid, splits the question rightly, has the right shape, and goes to the right
members. Needs no torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import labels_for
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import FREE, Usage, with_cost
from conductor_cli.evals.systems import MAX_FIXED_STEPS
from conductor_cli.models.base import NO_FEATURES, Features, Model
from conductor_cli.rehearsal import players
from conductor_cli.rehearsal import players as workers
from conductor_cli.rehearsal.players import ANYTHING, CHECKED, CHECKING, NO, PROFILE, YES
from conductor_cli.rehearsal.words import find_skills, normalize
from conductor_cli.run import start_run
from conductor_cli.run.conductor import Conductor
from conductor_cli.train.rollouts import Exercise, PlanOutcome, Rollouts, is_valid
from training.rehearsal.asking import build
from training.rehearsal.exercises import Member, RehearsalExercise, pool_of
from training.rehearsal.world import Hop


class Answers(Protocol):
    """Where the answers of members come from: `asking.Bank`, or a double."""

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        """What a member answers whose files have these strengths."""


class AskedOnce:
    """Answers that are asked for only once, even if several runs need the same one at the same time."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._pending: dict[tuple[tuple[tuple[str, float], ...], str, int], asyncio.Task[str]] = {}

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        """See `Answers`. The source remembers what it has answered, so only running questions are kept here."""
        key = tuple(sorted(strengths.items())), prompt, seed
        if key not in self._pending:
            self._pending[key] = asyncio.create_task(self._ask(key, strengths, prompt, seed))
        return await asyncio.shield(self._pending[key])

    async def _ask(self, key: Any, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        try:
            return await self._answers.member(strengths, prompt, seed)
        finally:
            del self._pending[key]


class MemberModel:
    """A member of a drawn pool as a model. Tokens are counted for each file that it asks.

    Where it would end without a word, it says that it cannot answer: a run would give the step to another worker, and
    in training, asking a worker for what it cannot do has to cost reward.
    """

    def __init__(self, member: Member, answers: Answers, seed: int) -> None:
        self._files = member.files
        self._answers = answers
        self._seed = seed

    @property
    def features(self) -> Features:
        return NO_FEATURES

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        """The member's answer, in one piece."""
        prompt = request.messages[-1].content
        text = await self._answers.member(self._files, prompt, self._seed) or workers.REFUSAL
        yield Chunk(text=text)
        count = len(self._files)
        used = Usage(calls=1, tokens_in=count * count_tokens(prompt), tokens_out=count * (count_tokens(text) + 1))
        yield Chunk(usage=with_cost(used, FREE), finish="stop")

    async def close(self) -> None:
        """Nothing is open: the files belong to the bank."""


def count_tokens(text: str) -> int:
    """The tokens of a text, which are the same for all models here."""
    return len(build().encode(text).ids)


class DrawnPools(Rollouts):
    """Runs in which each exercise brings its own pool. A route is the first skill on the card of a worker.

    With `demands_checks`, a right answer without the check that the question asks for earns what a wrong one does, if
    somebody on offer can check: the answer alone would pay nothing for it.
    """

    answers: Answers
    demands_checks: bool = False

    def conductor_for(self, exercise: Exercise) -> Conductor:
        """The conductor with the members that are on offer."""
        assert isinstance(exercise, RehearsalExercise)
        pool = pool_of(exercise.members)
        members = dict(zip(pool.names, exercise.members, strict=True))
        models = {name: MemberModel(member, self.answers, exercise.seed) for name, member in members.items()}
        return replace(self.conductor, pool=pool, workers=models)

    def question(self, exercise: Exercise) -> Question:
        """The question; in a second round, with what the first one found."""
        assert isinstance(exercise, RehearsalExercise)
        return Question(text=exercise.question, given=exercise.given)

    async def outcome(self, trace: Trace, exercise: Exercise) -> PlanOutcome:
        """As for any exercise, but `fitting` says whether a step went to one of the best for its skill."""
        assert isinstance(exercise, RehearsalExercise)
        found = await super().outcome(trace, exercise)
        pool = self.conductor_for(exercise).pool
        steps = [record for record in trace.steps if record.step.worker in pool]
        if found.right and self.demands_checks and _lacks_check(trace, exercise):
            found = replace(found, reward=self.format_bonus)
        if not found.valid or len(exercise.skills) != len(steps):
            return replace(found, fitting=())
        pairs = zip(exercise.skills, steps, strict=True)
        fitting = tuple((skill, record.step.worker in best_workers(pool, skill)) for skill, record in pairs)
        return replace(found, fitting=fitting)


def _lacks_check(trace: Trace, exercise: RehearsalExercise) -> bool:
    """Whether nobody was asked for the check that the question asks for, though somebody on offer can check."""
    if (
        exercise.given
        or exercise.skills[-1] != CHECKING
        or not any(CHECKING in member.strengths for member in exercise.members)
    ):
        return False
    return all(workers.clean_answer(record.text) not in (YES, NO) for record in trace.steps)


def best_workers(pool: Pool, skill: str) -> tuple[str, ...]:
    """The workers that are best at a skill by their cards; the generalist where nobody has it."""
    for wanted in (skill, ANYTHING):
        able = {worker.name: worker.card.strengths[wanted] for worker in pool if wanted in worker.card.strengths}
        if able:
            most = max(map(players.grade, able.values()))
            return tuple(name for name, strength in able.items() if players.grade(strength) == most)
    return ()


NOBODY: Final = Pool(workers=())


def build_rollouts(answers: Answers) -> DrawnPools:
    """Runs of the rehearsal's conductor; each exercise has its pool, and `answers` the answers of its members."""
    conductor = Conductor(
        model=None, pool=NOBODY, workers={}, profile=players.PROFILE, worker_profile=workers.WORKER_PROFILE,
        limits=Limits(attempts=1), constrained=False,
    )  # fmt: skip
    rollouts = DrawnPools(conductor=conductor, name_route=lambda worker: next(iter(worker.card.strengths)))
    rollouts.answers = AskedOnce(answers)
    return rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one question. `answers` are those of the steps."""

    exercise: RehearsalExercise
    outcome: PlanOutcome
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


async def planned(
    rollouts: DrawnPools, model: Model, exercises: Sequence[RehearsalExercise], *, recursion: int = 0
) -> list[Found]:
    """What comes of the plans that `model` itself writes, one after the other, without a grammar."""
    profile = replace(PROFILE, sampling=replace(PROFILE.sampling, temperature=0.0))
    found = []
    for number, item in enumerate(exercises):
        limits = Limits(attempts=1, recursion=recursion)
        conductor = rollouts.conductor_for(item)
        conductor = replace(conductor, model=model, profile=profile, seed=number, limits=limits)
        trace = await rollouts.trace(start_run(conductor, Question(text=item.question)))
        found.append(await _found(rollouts, item, trace))
    return found


async def rights_with_checked_plans(
    rollouts: DrawnPools, model: Model, exercises: Sequence[RehearsalExercise]
) -> list[float]:
    """1 for a right answer, 0 for any other. Plans are checked as in the demo: one with a fault is written again."""
    found = []
    for item in exercises:
        conductor = replace(rollouts.conductor_for(item), model=model, profile=CHECKED)
        trace = await rollouts.trace(start_run(conductor, Question(text=item.question)))
        found.append(float(item.is_correct(trace.answer or "")))
    return found


async def followed(rollouts: DrawnPools, exercise: RehearsalExercise, plan: Plan | None) -> Found:
    """What comes of a given plan, which may have more steps than a conductor can plan."""
    if plan is None:
        return Found(exercise=exercise, outcome=PlanOutcome(reward=0.0, valid=False), plan=None)
    conductor = rollouts.conductor_for(exercise)
    conductor = replace(conductor, limits=replace(conductor.limits, steps=MAX_FIXED_STEPS))
    trace = await rollouts.trace(start_run(conductor, Question(text=exercise.question), plan=plan))
    return await _found(rollouts, exercise, trace)


async def _found(rollouts: Rollouts, exercise: RehearsalExercise, trace: Trace) -> Found:
    plan = trace.plan if is_valid(trace) and isinstance(trace.plan, Plan) else None
    if plan is not None and plan.steps[-1].worker == SELF:
        plan = replace(plan, steps=plan.steps[:-1])
    answers = tuple(record.text for record in trace.steps)
    # Also those of steps that ran before a plan was found invalid.
    calls = sum(record.state == "done" and record.worker != SELF for record in trace.steps)
    outcome = replace(await rollouts.outcome(trace, exercise), calls=calls)
    return Found(exercise=exercise, outcome=outcome, plan=plan, answers=answers)


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

    def choose(exercise: RehearsalExercise, subtask: str) -> str:
        pool = pool_of(exercise.members)
        skills = [CHECKING] if subtask == "check it" else find_skills(subtask)
        return next((name for skill in skills for name in best_workers(pool, skill)), pool.best().name)

    return routed_by(found, choose)


def routed_by(found: Found, choose: Callable[[RehearsalExercise, str], str]) -> Plan | None:
    """The same steps and access lists, each step to the worker that is chosen for its subtask."""
    if found.plan is None:
        return None
    steps = (replace(step, worker=choose(found.exercise, step.subtask)) for step in found.plan.steps)
    return Plan(steps=tuple(steps))
