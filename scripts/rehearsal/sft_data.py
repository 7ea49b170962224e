"""What a conductor learns before any reward: how a plan is written and how questions come apart. Pure.

Workers and access lists of these plans are drawn at random, so who is good at what, and who must see what, is left for
the reward to teach.
"""

from __future__ import annotations

from random import Random
from typing import Final

from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, Step
from conductor_cli.core.plan_formats import PLAN_FORMATS, PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.prompts import plan_format_context
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.conductor_model import PROFILE, render
from scripts.rehearsal.courses import Course, Size
from scripts.rehearsal.lessons import CHUNK, Lesson
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.syntax_noise import add_syntax_noise
from scripts.rehearsal.world import ProblemSettings, draw_problem

COURSE: Final = Course(name="cold", skills=SKILLS, steps=4500, rate=2e-3, size=Size(layers=6))

HOPS: Final = (1, 2, 2, 3, 3)


WORKERS: Final = Pool(
    workers=(
        *(Worker(name=skill, kind="llama", card=Card(strengths={skill: 1.0})) for skill in SKILLS),
        Worker(name="generalist", kind="llama"),
    )
)
"""The four kinds of workers that labels tell apart, one that is good at each skill and one at none."""


def chunk(course: Course, number: int) -> list[Lesson]:
    """The lessons of `CHUNK` batches."""
    random = Random(f"{course.name} {course.seed} {number}")  # noqa: S311 - reproducible, no secret
    return [lesson(random) for _ in range(CHUNK * course.batch)]


def lesson(random: Random) -> Lesson:
    """A question with any workers on offer, and a plan for it by its true hops, workers and access lists at random."""
    problem = draw_problem(random, ProblemSettings(), random.choice(HOPS))
    asked, subtasks = add_syntax_noise(random, problem)
    terms = offered(random)
    steps = tuple(
        Step(worker=random.choice(terms.rules.workers), subtask=subtask, access=_some(random, number))
        for number, subtask in enumerate(subtasks)
    )
    prompt = render(Question(text=asked), WORKERS, terms)
    return Lesson(prompt=prompt, answer=PLAN_FORMATS[PROFILE.plan_format].render(Plan(steps=steps), terms))


def offered(random: Random) -> PlanFormatContext:
    """Some workers in some order; now and then some of them are away, and their numbers with them."""
    names = random.sample(WORKERS.names, random.choice((1, 2, 3, 3, 4, 4, 4)))
    pool = Pool(workers=tuple(WORKERS[name] for name in names))
    up = tuple(names)
    if random.random() < 0.25:
        kept = random.sample(names, random.randint(1, len(names)))
        up = tuple(name for name in names if name in kept)
    return plan_format_context(PROFILE, pool, PlanRules(workers=up, steps=MAX_STEPS), "auto", constrained=False)


def _some(random: Random, earlier: int) -> tuple[int, ...]:
    return tuple(number for number in range(1, earlier + 1) if random.random() < 0.5)
