"""The recipe of the shipped models.

Each lesson, question and pool is drawn as when they were trained.

A hash that differs means that `make rehearsal` would train other models than those that ship.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterable
from dataclasses import replace

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Step
from conductor_cli.core.question import Question
from conductor_cli.evals.cases import write_cases
from conductor_cli.rehearsal.players import CHECKING, NAMES, NO, find_plan_fault
from conductor_cli.rehearsal.players import render_for_worker as render
from conductor_cli.rehearsal.words import VOCABULARY, is_known
from conductor_cli.rehearsal.words import world as shipped_world
from training.rehearsal import lessons, plan_lessons
from training.rehearsal.exercises import Phase, RehearsalExercise, luck, pool_of, rehearsal
from training.rehearsal.lessons import CHUNK, COURSES, course_of
from training.rehearsal.operations import subjects
from training.rehearsal.phrasings import vocabulary
from training.rehearsal.rollouts import gold_plan
from training.rehearsal.shipped import PACKAGE, held_out_cases
from training.rehearsal.words import CAPITALS, COLOURS, ELEMENTS, OPPOSITES, SPANISH
from training.rehearsal.world import draw_problems

LESSONS = {
    "adding": "62450b695d5c8b19",
    "spelling": "d3f20b5ee8964de1",
    "comparing": "5ab138bdfa0e2249",
    "counting": "2d4b33c30c893b77",
    "multiplying": "e5fcc7fbfa29a9c9",
    "geography": "7013157190e75ee4",
    "chemistry": "6204b4bac3152719",
    "translation": "44bad2606b3da3bc",
    "opposites": "da03728f74b030a7",
    "calendar": "9adc03de2ed4d744",
    "colours": "4aa8c597f23a72cb",
    "checker": "8b8d4fe5526a6547",
    "generalist": "0f2a2b0b552f4244",
}
"""The first and the last lessons of each worker."""

LEGS = (
    "82191499e64bd74f",
    "4450e5d058ed1903",
    "593cb2c0be59f9d5",
    "de866cad69942ca1",
    "1cac3365d56a5afd",
    "afa3e7f95d5c0304",
)
"""The settings of each leg of GRPO, and some of its exercises with their pools."""


def digest(drawn: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(repr, drawn)).encode()).hexdigest()[:16]


def facts(item: RehearsalExercise) -> tuple[object, ...]:
    return item.question, item.problem.hops, item.members, item.seed, item.given


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_has_the_lessons_of_the_one_that_ships(name: str) -> None:
    course = replace(course_of(name), batch=8)
    assert (
        digest([*lessons.chunk(course, 0), *lessons.chunk(course, course.steps // CHUNK)])
        == LESSONS[name]
    )


def test_the_cold_start_has_the_lessons_of_the_one_that_ships() -> None:
    course = replace(plan_lessons.COURSE, batch=8)
    assert (
        digest([*plan_lessons.chunk(course, 0), *plan_lessons.chunk(course, 1)])
        == "60cd4665cdb04af8"
    )


@pytest.mark.parametrize(("leg", "expected"), [*enumerate(LEGS, start=1)])
def test_a_leg_has_the_exercises_of_the_conductor_that_ships(leg: int, expected: str) -> None:
    course = rehearsal(leg=leg)
    drawn = (course.exercise(number) for number in range(0, course.steps * course.prompts, 60))
    assert digest([course.as_dict(), *map(facts, drawn)]) == expected


def test_a_short_trial_is_the_beginning_of_the_first_leg() -> None:
    """At a steady rate. After its last step it stays in its last phase."""
    short = rehearsal(steps=40)
    whole = rehearsal()
    assert (short.steps, short.falling, whole.falling) == (40, False, True)
    assert short.exercise(7) == whole.exercise(7) != rehearsal(seed=2).exercise(7)
    assert short.exercise(40 * short.prompts + 5) == short.phases[-1].exercise(
        1, 40 * short.prompts + 5
    )


def test_a_name_without_a_course_is_refused() -> None:
    assert sorted(COURSES) == sorted(NAMES)
    with pytest.raises(UsageError, match="there is no course for 'poems'") as error:
        course_of("poems")
    assert "geography" in str(error.value.hint)


def test_the_shipped_questions_and_words_are_those_of_the_generator() -> None:
    """The package tells words of phrasings from operands, and known facts from others.

    The generator does so, too.
    """
    shipped = lzma.decompress((PACKAGE / "held_out.jsonl.xz").read_bytes()).decode()
    assert shipped.startswith(write_cases(held_out_cases(1000)))
    assert (vocabulary(), subjects()) == (VOCABULARY, shipped_world().subjects)
    # The sizes that docs/research/rehearsal.md names.
    assert [len(table) for table in (CAPITALS, ELEMENTS, OPPOSITES, SPANISH, COLOURS)] == [
        89,
        51,
        79,
        277,
        81,
    ]


def test_a_drawn_question_is_known_and_its_true_plan_has_no_fault() -> None:
    """Of phrasings that are put together loosely, the check of plans refuses a few."""
    problems = [*draw_problems(150, 5), *draw_problems(150, 5, split="test")]
    assert [problem.question for problem in problems if not is_known(problem.question)] == []
    loose = [Phase(steps=1, loose=1.0).exercise(2, number) for number in range(100)]
    faults = [
        find_plan_fault(Question(text=it.question), gold_plan(it).steps, pool_of(it.members))
        for it in loose
    ]
    assert sum(map(bool, faults)) < 5


def test_a_second_round_can_be_won_by_asking_somebody_else() -> None:
    """Only the worker that is named failed, and another one with its skill does not."""
    winners = [
        item
        for number in range(60)
        if (item := Phase(steps=1, second=1.0).exercise(3, number)).given
    ]
    assert len(winners) > 7
    for item in winners:
        failed, check = item.given
        last = next(hop for hop in reversed(item.problem.hops) if hop.skill != CHECKING)
        assert (failed.subtask, check.answer) == (last.subtask, NO)
        step = Step(worker="", subtask=last.subtask)
        text = render(Question(text=item.question), step, item.problem.seen_by(last))
        does = {
            name: luck(member.files, text, item.seed).random() < member.strengths[last.skill]
            for name, member in zip(item.workers, item.members, strict=True)
            if last.skill in member.strengths
        }
        assert not does[failed.worker]
        assert any(does.values())


def test_an_answer_is_compared_as_workers_write_it() -> None:
    item = rehearsal().exercise(1)
    assert item.is_correct(f" {item.problem.answer.lower()}.\n")
    assert not item.is_correct("?")
