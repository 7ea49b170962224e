"""Lessons: questions over drawn pools, with plans that are right by construction.

The product writes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS
from conductor_cli.core.plan_formats.base import ANSWER_DIRECTLY, PlanFormatContext
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import KINDS_PROFILE
from conductor_cli.core.prompts import plan_format_context, planner_request
from training.planner.pools import Choice, choose, draw_pool
from training.planner.tasks import draw_task
from training.planner.written import Task, TaskStep

MINI: Final = 0.06  # The share of groups that name one worker alone
WITHHELD: Final = 0.15  # The share of questions with files that one worker may not see


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the planner is sent, and what it should write."""

    kind: str
    request: Request
    text: str
    steps: int


def _closed(steps: Sequence[TaskStep]) -> tuple[TaskStep, ...]:
    """The steps with a last one that reads all others and answers the whole question."""
    *before, last = steps
    access = tuple(range(1, len(steps)))
    return (*before, replace(last, access=access, subtask=KINDS_PROFILE.closing))


def plan_for(
    task: Task, context: PlanFormatContext, *, withheld: str = ""
) -> list[tuple[Step, Choice]]:
    """The plan that is right over this pool, with the word by which each worker is chosen.

    One step where no other helps: by the question, with one worker only, or within the limit of
    steps. The worker `withheld` may not see the files of the question, and does nothing.
    """
    alone = len(context.rules.workers) == 1
    if not task.steps or alone or len(task.steps) > context.rules.steps:
        chosen = choose(task.skill, context, withheld=withheld)
        return [(Step(worker=chosen.worker, subtask=ANSWER_DIRECTLY), chosen)]
    plan = list[tuple[Step, Choice]]()
    for step in _closed(task.steps):
        others = [plan[number - 1][0].worker for number in step.other_than]
        chosen = choose(step.skill, context, other_than=others, withheld=withheld)
        plan.append((Step(worker=chosen.worker, subtask=step.subtask, access=step.access), chosen))
    return plan


def write_plan(plan: Sequence[tuple[Step, Choice]], context: PlanFormatContext) -> str:
    """The text of a plan as the profile has it, with the word of the table before each label."""
    text = PLAN_FORMATS[KINDS_PROFILE.plan_format].render(
        Plan(steps=tuple(step for step, _ in plan)), context
    )
    if context.single or not context.skills:
        return text
    lines = []
    for line, (_, chosen) in zip(text.splitlines(), plan, strict=True):
        head, bar, label = line.rpartition(context.bar)
        lines.append(f"{head}{bar}{chosen.tag} {label}" if chosen.tag else line)
    return "\n".join(lines)


def draw_group(seed: str, count: int, *, held: bool = False) -> list[Lesson]:
    """`count` lessons over one pool, the same ones for the same seed.

    Mostly as `conductor ask` sends them; some groups name one worker alone, as `--mode mini` does.
    """
    random = Random(seed)
    tasks = [draw_task(random, held=held) for _ in range(count)]
    pool = draw_pool(random, skills=_skills_of(tasks), held=held)
    single = len(pool) > 1 and random.random() < MINI
    return [make_lesson(task, pool, random, single=single) for task in tasks]


def _skills_of(tasks: Sequence[Task]) -> list[str]:
    """The skills that tasks ask for, each question's own before those of its steps."""
    skills = [task.skill for task in tasks]
    for task in tasks:
        skills += [step.skill for step in task.steps]
    return skills


def make_lesson(task: Task, pool: Pool, random: Random, *, single: bool) -> Lesson:
    """The lesson of a task.

    Some have a lower limit of steps, a worker that is not available, or one without the files.
    """
    limit = MAX_STEPS if random.random() < 0.88 else random.randint(1, MAX_STEPS - 1)
    names = pool.names
    if len(pool) > 2 and random.random() < 0.06:
        absent = random.choice(names)
        names = tuple(name for name in names if name != absent)
    rules = PlanRules(workers=names, steps=limit)
    context = plan_format_context(
        KINDS_PROFILE, pool, rules, "mini" if single else "auto", constrained=True
    )
    withheld = _withheld_worker(task, names, random)
    rules_of_files = (f"{context.label(withheld)} {_NOT_SHOWN}",) if withheld else ()
    request = planner_request(task.question, pool, KINDS_PROFILE, context, rules=rules_of_files)
    plan = plan_for(replace(task, steps=()) if single else task, context, withheld=withheld)
    return Lesson(kind=task.kind, request=request, text=write_plan(plan, context), steps=len(plan))


_NOT_SHOWN: Final = "is not shown the attached files, nor answers that come from them."
"""What `DataPolicy.rules_for_planner` says of a worker."""


def _withheld_worker(task: Task, names: Sequence[str], random: Random) -> str:
    """The worker that may not see the files of a question, empty where all may."""
    if task.question.files and len(names) > 2 and random.random() < WITHHELD:
        return random.choice(names)
    return ""
