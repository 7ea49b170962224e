"""Compositions over drawn pools, as a planner is sent them, and lessons of their true steps.

A lesson words its steps as the programs want them. The worker of each step is drawn evenly from
those that may do its kind at all, so a start learns the wording, and not the choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from conductor_cli.core.chat import Request
from conductor_cli.core.plan import PlanRules, Step
from conductor_cli.core.plan_formats.base import PlanFormatContext
from conductor_cli.core.pool import Card, Pool
from conductor_cli.core.profile import BRIEF_PROFILE
from conductor_cli.core.prompts import plan_format_context, planner_request
from conductor_cli.core.question import Question
from training.planner.lessons import Lesson, write_plan
from training.planner.pools import Choice
from training.planner.world.check import LOOKUPS, SUMS, is_lookup, remembered, run_steps
from training.planner.world.programs import Program, open_programs
from training.planner.world.questions import RIGHT, Composed, compose, subjects
from training.planner.world.run import Seat, draw_seats, pool_of
from training.planner.world.tables import get_tables

MATH: Final = "math"
# What `conductor workers calibrate` measured: Python and bc are right in 10 of 10 questions of
# arithmetic. It has no question for a table, so no card tells the two releases apart.
_RIGHT_IN_ALL: Final = Card(strengths={MATH: 1.0}, measured=True)
CARDS: Final = {"py": _RIGHT_IN_ALL, "bc": _RIGHT_IN_ALL, "db": Card(), "db-old": Card()}

POOLS: Final = (("py", "bc", "db", "db-old"), ("py", "bc", "db"), ("py", "db", "db-old"))
"""The kinds of workers of a pool: in each of them, every question has a right plan."""
POOL_WEIGHTS: Final = (6, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The programs by kind, and what questions are about; without `dates`, not of days."""

    programs: Mapping[str, Program]
    countries: Sequence[str]
    cities: Sequence[str]
    dates: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPool:
    """A pool under drawn names: who sits there, and how a plan over it is written."""

    seats: tuple[Seat, ...]
    pool: Pool
    context: PlanFormatContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A composition over a drawn pool: what the planner is sent, and the right answer."""

    composed: Composed
    drawn: DrawnPool
    request: Request
    wanted: str


def open_world(directory: Path, *, dates: bool = True) -> World:
    """The world whose tables are in `directory`, where they are made if they are missing.

    Its programs run once for the same subtask. Raises `ConfigError`.
    """
    tables = get_tables(directory)
    programs = {kind: remembered(program) for kind, program in open_programs(tables).items()}
    countries, cities = subjects(tables["new"])
    return World(programs=programs, countries=countries, cities=cities, dates=dates)


def draw_case(world: World, seed: str, *, held: bool = False, unseen_names: bool = False) -> Case:
    """The case of a seed. `held` draws a composition that no training has."""
    random = Random(seed)
    drawn = draw_world_pool(random, unseen_names=unseen_names)
    return _case(world, _draw_composed(world, random, held=held), drawn)


def draw_cases(world: World, seed: str, count: int) -> list[Case]:
    """The cases of a step of a training: `count` over one pool, none of a held-out shape."""
    random = Random(seed)
    drawn = draw_world_pool(random)
    return [_case(world, _draw_composed(world, random, held=False), drawn) for _ in range(count)]


def draw_world_pool(random: Random, *, unseen_names: bool = False) -> DrawnPool:
    """A pool of programs whose names, order and number are drawn."""
    (kinds,) = random.choices(POOLS, weights=POOL_WEIGHTS)
    seats = draw_seats(random, kinds, held=unseen_names)
    pool = pool_of(seats, CARDS)
    rules = PlanRules(workers=pool.names)
    context = plan_format_context(BRIEF_PROFILE, pool, rules, "auto", constrained=True)
    return DrawnPool(seats=seats, pool=pool, context=context)


def _draw_composed(world: World, random: Random, *, held: bool) -> Composed:
    while True:
        composed = compose(random, world.countries, world.cities, dates=world.dates)
        if composed.is_held_out == held:
            return composed


def _request(composed: Composed, drawn: DrawnPool) -> Request:
    question = Question(text=composed.text)
    return planner_request(question, drawn.pool, BRIEF_PROFILE, drawn.context)


def _case(world: World, composed: Composed, drawn: DrawnPool) -> Case:
    right_programs = [RIGHT[step.kind][0] for step in composed.steps]
    return Case(
        composed=composed,
        drawn=drawn,
        request=_request(composed, drawn),
        wanted=run_steps(composed, right_programs, world.programs),
    )


def draw_world_group(world: World, seed: str, count: int) -> list[Lesson]:
    """`count` lessons over one pool, the same ones for the same seed, none of a held-out shape."""
    random = Random(f"world {seed}")
    drawn = draw_world_pool(random)
    lessons = list[Lesson]()
    for _ in range(count):
        composed = _draw_composed(world, random, held=False)
        lessons.append(_lesson(composed, drawn, random))
    return lessons


def _lesson(composed: Composed, drawn: DrawnPool, random: Random) -> Lesson:
    plan = list[tuple[Step, Choice]]()
    for operation in composed.steps:
        able = SUMS
        tag = MATH
        if is_lookup(operation.kind):
            able = LOOKUPS
            tag = ""
        names = [seat.name for seat in drawn.seats if seat.kind in able]
        choice = Choice(worker=random.choice(names), tag=tag)
        step = Step(worker=choice.worker, subtask=operation.subtask, access=operation.access)
        plan.append((step, choice))
    return Lesson(
        kind=composed.shape,
        request=_request(composed, drawn),
        text=write_plan(plan, drawn.context),
        steps=len(plan),
    )


def lesson_texts(world: World) -> list[str]:
    """Texts that together have all tokens of plans of this world: of every form and every name."""
    texts = list[str]()
    for number in range(40):
        texts += [lesson.text for lesson in draw_world_group(world, f"tokens {number}", 8)]
    texts += [f"= '{name}'" for name in (*world.countries, *world.cities)]
    return texts
