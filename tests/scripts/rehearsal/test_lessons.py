"""What workers are taught: lessons as runs would send them, and never a word that is kept for testing."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from conductor_cli.core.errors import UsageError
from scripts.rehearsal.courses import COURSES, Course, course_of
from scripts.rehearsal.lessons import CHUNK, Lesson, chunk
from scripts.rehearsal.words import WORDS
from scripts.rehearsal.world import is_test_word

COURSE = COURSES["letters"]


def lessons(course: Course, chunks: int = 1) -> list[Lesson]:
    return [lesson for number in range(chunks) for lesson in chunk(course, number)]


def test_every_worker_has_a_course() -> None:
    """The four workers, and a clear word for any other."""
    assert list(COURSES) == ["letters", "numbers", "facts", "generalist"]
    assert course_of("facts").skills == ("facts",)
    with pytest.raises(UsageError, match="there is no course for 'poems'") as error:
        course_of("poems")
    assert error.value.hint == "known: letters, numbers, facts, generalist"


def test_courses_can_be_distinguished() -> None:
    """All that a training depends on is in what is said of its course."""
    said = [course.as_dict() for course in COURSES.values()]
    assert all(one != two for at, one in enumerate(said) for two in said[:at])
    assert said[0]["size"]["layers"] == 4


def test_lessons_are_drawn_by_their_number() -> None:
    """The same number gives the same lessons; another number others."""
    small = replace(COURSE, batch=4)
    assert chunk(small, 3) == chunk(small, 3) != chunk(small, 4)
    assert len(chunk(small, 3)) == CHUNK * 4


@pytest.mark.parametrize("name", COURSES)
def test_no_lesson_has_a_held_out_word(name: str) -> None:
    """Made-up words included, and written backwards too where that is a word."""
    kept = {word for word in WORDS if is_test_word(word)}
    seen = {word for lesson in lessons(COURSES[name]) for word in re.findall("[A-Z]{3,}", lesson.prompt)}
    assert seen
    assert not kept & seen


@pytest.mark.parametrize("name", COURSES)
def test_lessons_have_every_form_of_a_run(name: str) -> None:
    """With and without the question, with no, one and more answers of others, always ready for the answer."""
    prompts = [lesson.prompt for lesson in lessons(COURSES[name])]
    assert all(prompt.endswith("\na:") for prompt in prompts)
    assert {prompt.startswith("q: ") for prompt in prompts} == {True, False}
    assert {0, 1, 2} <= {prompt.count("\na: ") for prompt in prompts}
    assert any(re.search(r"\ns: [^\n]*\b(it|its)\b[^\n]*\na:$", prompt) for prompt in prompts)


def test_answers_are_upper_case_letters_or_digits() -> None:
    """What a model has to write is what no merge of the vocabulary touches."""
    assert all(re.fullmatch("[A-Z]+|[0-9]+", lesson.answer) for lesson in lessons(COURSES["generalist"]))


def test_a_specialist_learns_its_own_skill_only() -> None:
    """Letters' specialist is never asked for a capital as its own subtask; the generalist is, and for whole chains."""
    own = [lesson.prompt.rsplit("s: ", 1)[1] for lesson in lessons(COURSE)]
    assert not [subtask for subtask in own if re.search(r"^(capital|symbol|atomic)", subtask)]
    every = [lesson.prompt for lesson in lessons(COURSES["generalist"])]
    assert any(prompt.startswith("s: ") and " then " in prompt for prompt in every)
