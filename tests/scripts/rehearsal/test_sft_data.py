"""The cold start: valid plans along the true steps; workers only where a step names a skill."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from conductor_cli.rehearsal.players import BAR, CHECKING, NO, YES
from scripts.rehearsal.lessons import CHUNK, Lesson
from scripts.rehearsal.made_up import named_in
from scripts.rehearsal.operations import UNSEEN
from scripts.rehearsal.sft_data import COURSE, chunk, lesson

ROW = re.compile(r"([a-z]+)((?:[A-Z]\d)+)")


@pytest.fixture(scope="module")
def first() -> list[Lesson]:
    """Lessons on a question that nobody has worked on yet."""
    random = Random(1)
    return [given for given in (lesson(random) for _ in range(600)) if given.prompt.count("\n") == 2]


@pytest.fixture(scope="module")
def again() -> list[Lesson]:
    """Lessons on a question whose answer has a verdict."""
    random = Random(2)
    return [given for given in (lesson(random) for _ in range(3000)) if given.prompt.count("\n") == 3]


def rows_of(given: Lesson) -> dict[str, list[str]]:
    """The letters of each skill, the best first."""
    table = given.prompt.splitlines()[0].removeprefix(BAR).split(BAR)
    found = [row for text in table if (row := ROW.fullmatch(text))]
    assert len(found) == len(table)
    return {row[1]: re.findall("[A-Z]", row[2]) for row in found}


def steps_of(given: Lesson) -> list[tuple[str, str, str, str]]:
    """Subtask, access list, skill and letter of each step."""
    steps = []
    for line in given.answer.splitlines():
        subtask, access, label = line.split(BAR)
        steps.append((subtask, access, label[:-1], label[-1]))
    return steps


COMMON = frozenset(("it", "the", "that", "first", "second", "check", "and", "or", "count", "all", "in"))


def test_every_step_goes_to_the_best_of_a_row(first: list[Lesson]) -> None:
    """Each row has its grades in falling order."""
    for given in first:
        rows = rows_of(given)
        assert all(rows[skill][0] == letter for _, _, skill, letter in steps_of(given))
        for grades in re.findall(r"[a-z]+((?:[A-Z]\d)+)", given.prompt.splitlines()[0]):
            assert re.findall(r"\d", grades) == sorted(re.findall(r"\d", grades), reverse=True)


def test_a_step_that_names_a_skill_goes_to_it(first: list[Lesson]) -> None:
    """Most steps do. Others go anywhere: to each row of the table about equally often."""
    named, places = 0, Counter[int]()
    for given in first:
        skills = list(rows_of(given))
        for subtask, _, skill, _ in steps_of(given):
            found = named_in(subtask, skills)
            named += bool(found)
            assert not found or skill in found
            if not found and len(skills) == 5 and "anything" not in skills:
                places[skills.index(skill)] += 1
    assert 0.35 < named / sum(len(steps_of(given)) for given in first) < 0.8
    assert min(places[at] for at in range(5)) > max(places.values()) / 4


def test_subtasks_can_be_copied_and_see_what_they_need(first: list[Lesson]) -> None:
    """A step about "it" sees an earlier one, and one about two answers sees two."""
    for given in first:
        asked = set(given.prompt.splitlines()[1].split())
        for subtask, access, *_ in steps_of(given):
            strange = set(subtask.split()) - asked - COMMON
            assert len(strange) <= 1, (subtask, asked)
            if "the first and the second" in subtask:
                assert len(access.split()) == 2


def test_a_check_is_planned_where_somebody_can_check(first: list[Lesson]) -> None:
    """It sees what the checked step saw, and the checked step."""
    checks = [steps for given in first if (steps := steps_of(given))[-1][0] == "check it"]
    assert len(checks) > 20
    assert all(steps[-1][2] == CHECKING and steps[-1][1].endswith(str(len(steps) - 1)) for steps in checks)


def test_after_a_verdict_somebody_else_is_asked_or_the_answer_is_kept(again: list[Lesson]) -> None:
    """The line after the question says whom the checked step had gone to."""
    kept = [given for given in again if given.answer == "accept"]
    others = [given for given in again if given.answer != "accept"]
    assert min(len(kept), len(others)) > 30
    assert all(given.prompt.splitlines()[2].startswith(YES) for given in kept)
    for given in others:
        verdict, letter = given.prompt.splitlines()[2].split()
        *_, (_, _, skill, chosen) = steps_of(given)
        rows = rows_of(given)
        assert verdict == NO
        assert chosen != letter or not {*rows[skill], *rows.get("anything", [])} - {letter}


def test_lessons_are_drawn_by_their_number() -> None:
    """A training that was killed goes on with the very next ones."""
    small = replace(COURSE, batch=4)
    assert chunk(small, 2) == chunk(small, 2) != chunk(small, 3)
    assert len(chunk(small, 2)) == CHUNK * 4


def test_nobody_has_the_skill_that_is_kept_for_testing(first: list[Lesson], again: list[Lesson]) -> None:
    """Its word may stand in a question, where any word may, but it is never the name of a skill."""
    assert not any(UNSEEN[:6] in skill for given in (*first, *again) for skill in rows_of(given))
    assert sum(UNSEEN[:6] in given.prompt for given in (*first, *again)) < len((*first, *again)) / 30
