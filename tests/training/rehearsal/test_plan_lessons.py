"""The lessons of the cold start: valid plans along the true steps, in words that mean nothing."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest

from conductor_cli.rehearsal.players import BAR, CHECKING, NO, YES
from conductor_cli.rehearsal.words import normalize
from training.rehearsal.lessons import Lesson
from training.rehearsal.plan_lessons import Clauses, clauses_of, garble, lesson, name_skill, named_in
from training.rehearsal.world import Problem, ProblemSettings, draw_problem

ROW = re.compile(r"([a-z]+)((?:[A-Z]\d)+)")


@pytest.fixture(scope="module")
def first() -> list[Lesson]:
    """Lessons on a question that nobody has worked on yet."""
    random = Random(1)
    return [given for given in (lesson(random) for _ in range(300)) if given.prompt.count("\n") == 2]


@pytest.fixture(scope="module")
def again() -> list[Lesson]:
    """Lessons on a question whose answer has a verdict."""
    random = Random(2)
    return [given for given in (lesson(random) for _ in range(500)) if given.prompt.count("\n") == 3]


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
    for given in first:
        asked = set(given.prompt.splitlines()[1].split())
        for subtask, access, *_ in steps_of(given):
            strange = set(subtask.split()) - asked - COMMON
            assert len(strange) <= 1, (subtask, asked)
            if "the first and the second" in subtask:
                assert len(access.split()) == 2


def test_a_check_is_planned_where_somebody_can_check(first: list[Lesson]) -> None:
    checks = [steps for given in first if (steps := steps_of(given))[-1][0] == "check it"]
    assert len(checks) > 10
    assert all(steps[-1][2] == CHECKING and steps[-1][1].endswith(str(len(steps) - 1)) for steps in checks)


def test_after_a_verdict_somebody_else_is_asked_or_the_answer_is_kept(again: list[Lesson]) -> None:
    kept = [given for given in again if given.answer == "accept"]
    others = [given for given in again if given.answer != "accept"]
    assert min(len(kept), len(others)) > 10
    assert all(given.prompt.splitlines()[2].startswith(YES) for given in kept)
    for given in others:
        verdict, letter = given.prompt.splitlines()[2].split()
        *_, (_, _, skill, chosen) = steps_of(given)
        rows = rows_of(given)
        assert verdict == NO
        assert chosen != letter or not {*rows[skill], *rows.get("anything", [])} - {letter}


OPERANDS = re.compile(r"\b(?:[A-Z]+|[0-9]+)\b")


def problem(seed: int) -> Problem:
    return draw_problem(Random(seed), ProblemSettings(checked=0.0))


def test_a_clause_is_changed_the_same_in_question_and_subtask() -> None:
    changed = 0
    for seed in range(80):
        plain, random = problem(seed), Random(seed)
        text = clauses_of(plain)
        for at in range(len(plain.hops)):
            garble(random, text, at)
        changed += text.asked != normalize(plain.question).split()
        for words, hop in zip(text.subtasks, plain.hops, strict=True):
            assert set(words) - set(hop.subtask.split()) <= set(text.asked)
        assert OPERANDS.findall(" ".join(text.asked)) == OPERANDS.findall(normalize(plain.question))
    assert changed > 60


def test_a_step_can_name_a_made_up_skill() -> None:
    """The words that tell its real skill are gone from the question and from the subtask."""
    named = 0
    for seed in range(80):
        plain = problem(seed)
        text = clauses_of(plain)
        skill = name_skill(Random(seed), text, 0, plain.hops[0].skill)
        if skill:
            named += 1
            assert any(word[:2] == skill[:2] and word in text.asked for word in text.subtasks[0])
    assert named > 48


def test_a_word_that_could_be_meant_twice_is_left_alone() -> None:
    text = Clauses(["the", "sum", "of", "3", "and", "the", "sum", "of", "4"], [["sum", "of", "3"], ["sum", "of", "4"]])
    assert text.spots(0) == [1]
    text.exchange(0, 1, ["for"])
    assert text.asked == ["the", "sum", "for", "3", "and", "the", "sum", "of", "4"]
    assert text.subtasks == [["sum", "for", "3"], ["sum", "of", "4"]]


@pytest.mark.parametrize(
    ("said", "skill"),
    [("spell it backwards", "spelling"), ("count the letters", "counting"), ("add them", "adding"),
     ("check it", "checking"), ("opposite of HOT", "opposites"), ("translate it", "translation"),
     ("colour of a BANANA", "colours")],
)  # fmt: skip
def test_a_step_names_a_skill_by_its_stem(said: str, skill: str) -> None:
    assert named_in(said, [skill, "geography"]) == [skill]


@pytest.mark.parametrize("said", ["country of ROME", "capital of FRANCE", "first letter of it", "SPELL and 3"])
def test_other_words_name_none(said: str) -> None:
    assert named_in(said, ["counting", "spelling", "geography"]) == []
