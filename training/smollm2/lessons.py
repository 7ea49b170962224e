"""Questions and plans for the supervised start, as texts. Several questions share one prompt: the workers are the same.

A lesson is drawn by its number, so a training that was stopped goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import BRIEF, Profile
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.evals.cases import Case
from conductor_cli.run.conductor import Conductor
from training.smollm2.questions import draw_case
from training.smollm2.workers import best_for, draw_workers


@dataclass(frozen=True, slots=True)
class Lesson:
    """A prompt of a planner, as messages for a chat template, and the plan that it should write."""

    messages: tuple[Mapping[str, str], ...]
    plan: str


def lessons(number: int, count: int, seed: int = 1) -> tuple[Lesson, ...]:
    """`count` lessons over one pool of two to four workers, drawn by their number."""
    random = Random(f"lessons {seed} {number}")
    workers = draw_workers(random.randint(2, 4), "lessons", seed, number)
    return tuple(lesson(draw_case(random, str(place), "train"), workers) for place in range(count))


def lesson(case: Case, workers: Sequence[Worker], profile: Profile = BRIEF) -> Lesson:
    """The prompt that `conductor ask` sends for a question, and the best plan by the cards."""
    pool = Pool(workers=tuple(workers))
    conductor = Conductor(
        model=None, pool=pool, workers={}, profile=profile, limits=Limits(steps=MAX_STEPS), constrained=False
    )
    request = conductor.planning_request(Question(text=case.question))
    messages = tuple({"role": message.role, "content": message.content} for message in request.messages)
    return Lesson(messages, plan_text(case, pool, profile))


def best_plan(case: Case, pool: Pool) -> Plan:
    """The known decomposition, each step with the worker whose card is best."""
    steps = (
        Step(worker=best_for(step.skill, pool.workers).name, subtask=step.subtask, access=step.access)
        for step in case.steps
    )
    return Plan(steps=tuple(steps))


def plan_text(case: Case, pool: Pool, profile: Profile = BRIEF) -> str:
    """The best plan as the planner writes it: where the profile has a table, each worker with the skill of its row."""
    rules = PlanRules(workers=pool.names, steps=MAX_STEPS)
    context = plan_format_context(profile, pool, rules, "auto", constrained=False)
    lines = PLAN_FORMATS[profile.plan_format].render(best_plan(case, pool), context).splitlines()
    if not context.skills:
        return "\n".join(lines)
    cells = [line.rpartition(context.bar) for line in lines]
    skills = [step.skill for step in case.steps]
    return "\n".join(f"{head}{bar}{skill} {label}" for (head, bar, label), skill in zip(cells, skills, strict=True))
