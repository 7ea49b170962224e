"""The world's training questions -> what a worker reads and what it should write. Pure.

Every lesson is what a run would send: the same `render`, with the question whole or equal to the subtask, with none to
two answers of others. Lessons are drawn by number, so a training that was killed continues with exactly the next one.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from conductor_cli.core.plan import Step
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.normalize import normalize
from conductor_cli.rehearsal.workers import render
from scripts.rehearsal.courses import Course
from scripts.rehearsal.operations import LENGTHS, SKILLS
from scripts.rehearsal.phrasings import fill_phrasing
from scripts.rehearsal.word_noise import add_word_noise
from scripts.rehearsal.words import WORDS
from scripts.rehearsal.world import Hop, Problem, ProblemSettings, draw_problem, is_test_word

CHUNK: Final = 32
"""Batches that are drawn together, so that lessons of like length can share one."""

_OFTEN: Final = "EEEEEAAAAIIIOOOTTTNNNSSSRRRLLLDDCCMMPPUUGGHHBBYYKFVWZJQX"
_HELD: Final = frozenset(word for word in WORDS if is_test_word(word))


class Lesson(NamedTuple):
    """What a worker reads, and what it should write."""

    prompt: str
    answer: str


def chunk(course: Course, number: int) -> list[Lesson]:
    """The lessons of `CHUNK` batches."""
    random = Random(f"{course.name} {course.seed} {number}")  # noqa: S311 - reproducible, no secret
    drawn = [lesson(random, course) for _ in range(CHUNK * course.batch)]
    return [with_word_noise(random, item, course) for item in drawn] if number * CHUNK >= course.loose else drawn


def lesson(random: Random, course: Course) -> Lesson:
    """One lesson: a single hop, asked in one of three ways, or one hop of a chain; sometimes a chain as a whole."""
    kind = random.random()
    if kind < course.whole:
        return _whole(draw_problem(random, _recipe(random, course, every=True), random.choice((2, 3))))
    if kind < 0.45 + course.whole / 2:
        return _direct(random, draw_problem(random, _recipe(random, course), 1))
    if kind < 0.6:
        return _alone(random, draw_problem(random, _recipe(random, course), 1))
    return _in_chain(random, course)


def _recipe(random: Random, course: Course, *, every: bool = False) -> ProblemSettings:
    """What is drawn from: the course's own skills, or every skill; words mostly made up, so that letters are learnt."""
    skills = SKILLS if every else course.skills
    return ProblemSettings(skills=skills, shares=course.shares, word=_made_up if random.random() < 0.7 else None)


def _made_up(random: Random) -> str:
    """A word of no meaning, never one that is kept for testing."""
    while True:
        length = random.choice(LENGTHS)
        letters = _OFTEN if random.random() < 0.7 else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        word = "".join(random.choice(letters) for _ in range(length))
        if word not in _HELD:
            return word


def _whole(problem: Problem) -> Lesson:
    return _lesson(problem.question, problem.question, (), problem.answer)


def _direct(random: Random, problem: Problem) -> Lesson:
    """The subtask is the question; now and then somebody has tried it before, rightly or not."""
    seen: tuple[SeenStep, ...] = ()
    if random.random() < 0.12:
        tries = [problem.answer if random.random() < 0.6 else _wrong(random, problem.answer) for _ in range(2)]
        seen = tuple(_seen(at, problem.question, text) for at, text in enumerate(tries[: random.choice((1, 2))], 1))
    return _lesson(problem.question, problem.question, seen, problem.answer)


def _wrong(random: Random, answer: str) -> str:
    """An answer of the same kind that is not right."""
    if answer.isdecimal():
        return str(int(answer) + random.choice((-2, -1, 1, 2, 10)))
    letters = list(answer)
    random.shuffle(letters)
    return "".join(letters)


def _alone(random: Random, problem: Problem) -> Lesson:
    """The subtask is a clause of the question, which shows the value."""
    return _lesson(problem.question, _clause(random, problem.hops[0]), (), problem.answer)


def _in_chain(random: Random, course: Course) -> Lesson:
    """A hop of a longer chain, with the answer before it or with all before it."""
    while True:
        problem = draw_problem(random, _recipe(random, course, every=True), random.choice((2, 2, 3)))
        able = [at for at, hop in enumerate(problem.hops) if hop.skill in course.skills]
        if able:
            break
    at = random.choice(able)
    shown = range(_first(random, at), at)
    seen = tuple(_seen(number + 1, problem.hops[number].subtask, problem.hops[number].answer) for number in shown)
    hop = problem.hops[at]
    return _lesson(problem.question, _clause(random, hop), seen, hop.answer)


def _first(random: Random, at: int) -> int:
    """The first hop that hop `at` sees: mostly the one before it, sometimes all."""
    return max(at - 1, 0) if random.random() < 0.75 else 0


def _clause(random: Random, hop: Hop) -> str:
    """The subtask, in the words that a conductor may choose for it."""
    if not hop.access:
        return hop.subtask if random.random() < 0.7 else _with_article(hop)
    kind = "number" if hop.skill == "numbers" or hop.op == "numbered" else "word"
    pronoun = random.choice(("it", "it", "it", "it", "that", "the result", f"that {kind}"))
    text = fill_phrasing(hop.phrasing, pronoun, hop.amount)
    return text.removeprefix("the ") if random.random() < 0.7 else text


def _with_article(hop: Hop) -> str:
    return f"the {hop.subtask}" if hop.phrasing.startswith("the ") else hop.subtask


def _seen(number: int, subtask: str, answer: str) -> SeenStep:
    return SeenStep(number=number, worker="", subtask=subtask, answer=answer)


def _lesson(question: str, subtask: str, seen: tuple[SeenStep, ...], answer: str) -> Lesson:
    step = Step(worker="", subtask=normalize(subtask))
    return Lesson(prompt=render(Question(text=question), step, seen), answer=answer)


def with_word_noise(random: Random, item: Lesson, course: Course) -> Lesson:
    """The lesson, in every other case with its own subtask in loose words."""
    if random.random() < 0.5:
        return item
    before, mark, own = item.prompt.removesuffix("\na:").rpartition("s: ")
    return item._replace(prompt=f"{before}{mark}{add_word_noise(random, own, course.missing)}\na:")
