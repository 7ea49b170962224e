"""What a conductor learns before any reward: to write plans, to divide questions, to read a table. Pure.

Most steps of these lessons name a skill that is made up ("the zorb of FRANCE", and somebody has zorbing): so matching a
step to a row of the table becomes a habit that holds for words of any kind. Real skills are matched only where a step
names one itself ("spell it", spelling). What else belongs to which skill ("backwards", "capital") is left for the
reward to teach: such a step goes to a row at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from conductor_cli.core.plan_formats.native import ACCEPT
from conductor_cli.core.profile import labels_for
from conductor_cli.rehearsal.players import ANYTHING, CHECKING, NO, PROFILE, YES, Rows, prompt, skill_rows
from scripts.rehearsal.courses import Course, Size
from scripts.rehearsal.lessons import CHUNK, Lesson
from scripts.rehearsal.made_up import named_in, skill_named
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.pools import PoolSettings, draw_members, pool_of
from scripts.rehearsal.syntax_noise import GARBLED, OBSCURE, clauses_of, garble, name_skill, obscure
from scripts.rehearsal.trees import Shape
from scripts.rehearsal.world import Problem, ProblemSettings, draw_problem

COURSE: Final = Course(name="cold", skills=SKILLS, steps=9000, batch=64, rate=2e-3, size=Size(layers=6))

PLAIN: Final = 0.2
"""The share of questions that are left as they are."""

MADE_UP: Final = 0.65
"""The share of steps of the others that name a made-up skill, where their words allow it."""

AGAIN: Final = 0.4
"""The share of questions with a check that come with the verdict of an earlier plan."""

KEPT: Final = 0.03
"""The share of questions that come with an answer to which nobody objects."""

_SHAPES: Final[dict[Shape, float]] = {
    "single": 0.24, "chain2": 0.2, "chain3": 0.16, "join": 0.2, "join_then": 0.1, "chain_in_join": 0.1,
}  # fmt: skip


def chunk(course: Course, number: int) -> list[Lesson]:
    """The lessons of `CHUNK` batches."""
    random = Random(f"{course.name} {course.seed} {number}")  # noqa: S311 - reproducible, no secret
    return [lesson(random) for _ in range(CHUNK * course.batch)]


def lesson(random: Random) -> Lesson:
    """A question with a pool that is drawn for it, and a plan along its true steps."""
    problem = draw_problem(random, ProblemSettings(shapes=_SHAPES))
    text = clauses_of(problem)
    plain = random.random() < PLAIN
    needed = list[str]()
    for at, hop in enumerate(problem.hops):
        skill = "" if plain or random.random() > MADE_UP else name_skill(random, text, at, hop.skill)
        if not plain and random.random() < GARBLED and hop.skill != CHECKING:
            if random.random() < OBSCURE:
                obscure(random, text, at, skill)
            else:
                garble(random, text, at)
        needed.append(skill or hop.skill)
    offered = [skill for skill in needed if skill != CHECKING or random.random() < 0.8]
    rows = draw_rows(random, offered)
    subtasks = [" ".join(words) for words in text.subtasks]
    return _planned(random, problem, " ".join(text.asked), subtasks, needed, rows)


def draw_rows(random: Random, needed: Sequence[str]) -> Rows:
    """The table of a pool in which somebody has most of these skills."""
    made_up = [skill_named(random)[1] for _ in range(random.choice((0, 1, 3, 6)))]
    checking = [CHECKING] if random.random() < 0.5 else []
    others = [*random.sample(SKILLS, random.randint(2, len(SKILLS))), *made_up, *checking]
    pool = pool_of(draw_members(random, needed, random.sample(others, len(others)), PoolSettings()))
    return skill_rows({label: pool[name] for label, name in labels_for(pool.workers, PROFILE.labels).items()})


def _planned(  # noqa: PLR0913, PLR0917 - the parts of a lesson
    random: Random, problem: Problem, asked: str, subtasks: Sequence[str], needed: Sequence[str], rows: Rows
) -> Lesson:
    """The first plan, or what follows when the answer was checked: another plan, or none."""
    if random.random() < KEPT:
        return Lesson(prompt(rows, asked, f"{YES} {random.choice('ABC')}"), ACCEPT)
    checks = problem.check and CHECKING in rows
    again = checks and random.random() < AGAIN
    count = len(subtasks) - (problem.check and (again or not checks))
    skills = [_row(random, subtasks[at], needed[at], rows) for at in range(count)]
    labels = [rows[skill][0].label for skill in skills]
    verdict = ""
    if again:
        asked_before = rows[skills[-1]][0]
        verdict = f"{NO} {asked_before.letter}"
        labels[-1] = _somebody_else(skills[-1], asked_before.letter, rows)
    accesses = [" ".join(map(str, problem.hops[at].access)) or "-" for at in range(count)]
    lines = map(PROFILE.bar.join, zip(subtasks[:count], accesses, labels, strict=True))
    return Lesson(prompt(rows, asked, verdict), "\n".join(lines))


def _row(random: Random, subtask: str, needed: str, rows: Rows) -> str:
    """The row that a step goes to: the one that it names, or any."""
    named = named_in(subtask, list(rows))
    if named:
        return needed if needed in named else random.choice(named)
    if named_in(subtask, [needed]) and ANYTHING in rows:
        return ANYTHING
    return random.choice(list(rows))


def _somebody_else(skill: str, letter: str, rows: Rows) -> str:
    """The next best worker for a skill, else the generalist, else the same one again."""
    others = [entry for entry in (*rows[skill], *rows.get(ANYTHING, ())) if entry.letter != letter]
    return (others or rows[skill])[0].label
