"""What workers are taught: lessons as runs would send them, and never a word that is kept for testing."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.rehearsal.players import NAMES, REFUSAL
from scripts.rehearsal.courses import COURSES, Course, course_of
from scripts.rehearsal.lessons import CHUNK, EVERY, Lesson, chunk
from scripts.rehearsal.operations import OPERATIONS
from scripts.rehearsal.world import is_test_word

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


def test_courses_can_be_distinguished() -> None:
    """All that a training depends on is in what is said of its course."""
    said = [course.as_dict() for course in COURSES.values()]
    assert all(one != two for at, one in enumerate(said) for two in said[:at])


def test_lessons_are_drawn_by_their_number() -> None:
    """The same number gives the same lessons; another number others."""
    small = replace(COURSE, batch=4)
    assert chunk(small, 3) == chunk(small, 3) != chunk(small, 4)
    assert len(chunk(small, 3)) == CHUNK * 4


@pytest.mark.parametrize("name", ["spelling", "checker", "generalist"])
def test_no_lesson_has_a_held_out_word(name: str) -> None:
    """Made-up words included, and the answers of earlier steps."""
    seen = {word for lesson in lessons(name) for word in re.findall("[A-Z]{3,}", lesson.prompt)}
    assert seen
    assert not [word for word in seen if is_test_word(word)]


@pytest.mark.parametrize("name", ["spelling", "adding", "geography", "generalist"])
def test_lessons_have_every_form_of_a_run(name: str) -> None:
    """With no, one and two answers of earlier steps, always ready for the answer."""
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


def test_answers_are_upper_case_letters_or_digits() -> None:
    """What a model has to write is what no merge of the vocabulary touches, or a refusal."""
    for name in ("generalist", "colours"):
        assert all(re.fullmatch(r"[A-Z]+|[0-9]+|\?", lesson.answer) for lesson in lessons(name))


def test_a_specialist_answers_only_its_own_skill() -> None:
    """Asked for a capital or a sum, the speller refuses; its own lessons are right."""
    for lesson in lessons("spelling"):
        own = lesson.prompt.removesuffix("\na:").rpartition("s: ")[2]
        if re.search(r"^(capital (city )?of|sum of|symbol) ", own):
            assert lesson.answer == REFUSAL, lesson
    assert any(
        lesson.answer == "".join(sorted(lesson.answer)) and len(lesson.answer) > 5 for lesson in lessons("spelling")
    )


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


def test_a_generalist_is_asked_whole_questions() -> None:
    """Of several steps, in one go; a specialist only to refuse them."""
    assert any(" then " in lesson.prompt and lesson.answer != REFUSAL for lesson in lessons("generalist"))


def test_several_answers_to_the_same_question_are_shown() -> None:
    """A worker learns to aggregate what others answered, and to look at its own answer once more."""
    repeated = [
        lesson for lesson in lessons("geography")
        if len(parts := re.findall(r"s: (.*)\na:", lesson.prompt)) > 1 and parts[-1] == parts[-2]
    ]  # fmt: skip
    assert len(repeated) > 20


def course(name: str) -> Course:
    return COURSES[name]


def test_trainings_end_with_word_noise() -> None:
    """Each specialist meets changed words, at the latest in the last third of its course."""
    assert all(course(name).loose <= 0.7 * course(name).steps for name in EVERY)
