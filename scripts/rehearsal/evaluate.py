"""What comes of plans: those that a conductor writes, and others that are given, each through a real run.

`Found` says apart whether a plan is valid, splits the question rightly, has the right shape, and goes to the right
members. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.pool import Limits, Pool
from conductor_cli.core.profile import labels_for
from conductor_cli.core.question import Question
from conductor_cli.core.trace import Trace
from conductor_cli.evals.systems import MAX_FIXED_STEPS
from conductor_cli.models.base import Model
from conductor_cli.rehearsal.players import CHECKED, CHECKING, PROFILE
from conductor_cli.rehearsal.words import find_skills, normalize
from conductor_cli.train.rollouts import Outcome, Rollouts, is_valid
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.pools import pool_of
from scripts.rehearsal.rollouts import DrawnPools, best_workers
from scripts.rehearsal.world import Hop


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


async def rights_with_checked_plans(
    rollouts: DrawnPools, model: Model, exercises: Sequence[RehearsalExercise]
) -> list[float]:
    """1 for a right answer, 0 for any other. Plans are checked as in the demo: one with a fault is written again."""
    found = []
    for item in exercises:
        conductor = replace(rollouts.conductor_for(item), model=model, profile=CHECKED)
        trace = await rollouts.trace(conductor.run(Question(text=item.question)))
        found.append(float(item.is_correct(trace.answer or "")))
    return found


async def followed(rollouts: DrawnPools, exercise: RehearsalExercise, plan: Plan | None) -> Found:
    """What comes of a given plan, which may have more steps than a conductor can plan."""
    if plan is None:
        return Found(exercise=exercise, outcome=Outcome(reward=0.0, valid=False), plan=None)
    conductor = rollouts.conductor_for(exercise)
    conductor = replace(conductor, limits=replace(conductor.limits, steps=MAX_FIXED_STEPS))
    trace = await rollouts.trace(conductor.run(Question(text=exercise.question), plan=plan))
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
    return routed_by(found, lambda exercise, subtask: _by_keyword(subtask, pool_of(exercise.members)))


def routed_by(found: Found, choose: Callable[[RehearsalExercise, str], str]) -> Plan | None:
    """The same steps and access lists, each step to the worker that is chosen for its subtask."""
    if found.plan is None:
        return None
    steps = (replace(step, worker=choose(found.exercise, step.subtask)) for step in found.plan.steps)
    return Plan(steps=tuple(steps))


def _by_keyword(subtask: str, pool: Pool) -> str:
    skills = [CHECKING] if subtask == "check it" else find_skills(subtask)
    return next((name for skill in skills for name in best_workers(pool, skill)), pool.best().name)


def share(found: Sequence[Found]) -> float:
    """The share of right answers."""
    return mean([item.right for item in found])


def mean(values: Sequence[float]) -> float:
    """The mean; 0 for no values."""
    return sum(values) / len(values) if values else 0.0
