"""What workers are taught: lessons as runs would send them, and never a word that is kept for testing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.players import NAMES, REFUSAL
from conductor_cli.rehearsal.words import find_operands, normalize
from training.rehearsal.lessons import CHUNK, COURSES, EVERY, Lesson, add_word_noise, chunk, course_of
from training.rehearsal.operations import OPERATIONS
from training.rehearsal.world import draw_problems, is_test_word

COURSE = COURSES["spelling"]


@cache
def lessons(name: str) -> tuple[Lesson, ...]:
    course = replace(COURSES[name], batch=24)
    return (*chunk(course, 0), *chunk(course, course.steps // CHUNK))


def test_every_worker_has_a_course() -> None:
    """A specialist for each skill, the checker, the generalist; and a clear word for any other."""
    assert sorted(COURSES) == sorted(NAMES)
    assert {COURSES[skill].skills for skill in EVERY} == {(skill,) for skill in EVERY}
    with pytest.raises(UsageError, match="there is no course for 'poems'") as error:
        course_of("poems")
    assert "geography" in str(error.value.hint)


def test_lessons_are_drawn_by_their_number() -> None:
    small = replace(COURSE, batch=4)
    assert chunk(small, 3) == chunk(small, 3) != chunk(small, 4)
    assert len(chunk(small, 3)) == CHUNK * 4


@pytest.mark.parametrize("name", ["spelling", "checker", "generalist"])
def test_no_lesson_has_a_held_out_word(name: str) -> None:
    seen = {word for lesson in lessons(name) for word in re.findall("[A-Z]{3,}", lesson.prompt)}
    assert seen
    assert not [word for word in seen if is_test_word(word)]


@pytest.mark.parametrize("name", ["spelling", "adding", "geography", "generalist"])
def test_lessons_have_every_form_of_a_run(name: str) -> None:
    prompts = [lesson.prompt for lesson in lessons(name)]
    assert all(prompt.startswith("s: ") and prompt.endswith("\na:") for prompt in prompts)
    assert {0, 1, 2} <= {prompt.count("\na: ") for prompt in prompts}
    assert any(re.search(r"\ns: [^\n]*\b(it|its)\b[^\n]*\na:$", prompt) for prompt in prompts)


@pytest.mark.parametrize("name", EVERY)
def test_a_specialist_learns_to_refuse(name: str) -> None:
    """About a fifth of its lessons: other skills, unknown words, steps without what they need."""
    refused = [lesson for lesson in lessons(name) if lesson.answer == REFUSAL]
    assert 0.15 < len(refused) / len(lessons(name)) < 0.3
    assert len({lesson.prompt for lesson in refused}) > 0.6 * len(refused)


def test_the_checker_learns_verdicts_from_right_and_wrong_answers() -> None:
    """It works the answer out first. Half of its checks are right; the other lessons are steps to be done."""
    answers = [lesson.answer for lesson in lessons("checker")]
    yes, no = (sum(answer.endswith(f" {verdict}") for answer in answers) for verdict in ("YES", "NO"))
    assert 0.8 < yes / no < 1.25
    assert 0.5 < (yes + no) / len(answers) < 0.8


def test_a_wrong_answer_that_is_checked_is_wrong() -> None:
    """A near miss is never the right answer: where a check shows a fact and the verdict is NO, the fact differs."""
    capital = OPERATIONS["capital"]
    shown = [
        (match[1], match[2], lesson.answer)
        for lesson in lessons("checker")
        if (match := re.search(r"capital of ([A-Z]+)\na: (.+)\ns: check it\na:$", lesson.prompt))
    ]
    assert shown
    for country, answer, verdict in shown:
        right = capital.does(country)
        assert verdict == f"{right} {'YES' if right == answer else 'NO'}"


TEXTS = tuple(normalize(problem.question) for problem in draw_problems(100, 1, shapes={"single": 1.0}, checked=0.0))


@given(text=st.sampled_from(TEXTS), seed=st.integers(0, 10**6), ordered=st.booleans())
def test_operands_stay_unchanged(text: str, seed: int, ordered: bool) -> None:
    """Small words come, go and change places; the word or the numbers are those of the question."""
    made = add_word_noise(Random(seed), text, ordered=ordered)
    assert Counter(find_operands(made)) == Counter(find_operands(text))
    assert add_word_noise(Random(seed), text, ordered=ordered) == made


def test_values_whose_order_has_a_meaning_keep_it() -> None:
    for text in ("subtract 3 from 17", "the second taken from the first", "put DOG after CAT"):
        values = [word for word in text.split() if word.isupper() or word.isdecimal() or word in {"first", "second"}]
        for seed in range(50):
            made = add_word_noise(Random(seed), text, ordered=True).split()
            assert [word for word in dict.fromkeys(made) if word in values] == values
