"""Subtasks in loose words."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_cli.rehearsal.normalize import find_operands, normalize
from scripts.rehearsal.courses import COURSES
from scripts.rehearsal.lessons import Lesson, with_word_noise
from scripts.rehearsal.phrasings import WAYS, fill_phrasing
from scripts.rehearsal.word_noise import add_word_noise
from scripts.rehearsal.world import draw_problems

TEXTS = tuple(normalize(problem.question) for problem in draw_problems(100, 1, hops=(1,)))


@settings(max_examples=200, deadline=None)
@given(text=st.sampled_from(TEXTS), seed=st.integers(0, 10**6))
def test_operands_stay_unchanged(text: str, seed: int) -> None:
    """Small words come, go and change places; the word or the numbers are those of the question."""
    made = add_word_noise(Random(seed), text)
    assert Counter(find_operands(made)) == Counter(find_operands(text))
    assert add_word_noise(Random(seed), text) == made


def test_words_are_added_removed_and_swapped() -> None:
    """All of it happens, and some text stays as it is."""
    made = [(text, add_word_noise(Random(seed), text)) for seed, text in enumerate(TEXTS * 3)]
    lengths = {(len(new.split()) > len(old.split())) - (len(new.split()) < len(old.split())) for old, new in made}
    assert lengths == {-1, 0, 1}
    assert any(sorted(old.split()) == sorted(new.split()) and old != new for old, new in made)


@pytest.mark.parametrize("operation", WAYS)
def test_the_result_is_never_a_held_out_phrasing(operation: str) -> None:
    """A text that would be one stays as it was."""
    held = [fill_phrasing(text, "OTTER", 3) for text in WAYS[operation].held_nouns + WAYS[operation].held_orders]
    for text in TEXTS:
        made = [add_word_noise(Random(seed), text) for seed in range(5)]
        assert not [new for new in made for phrasing in held if phrasing in new and new != text]


def test_only_the_own_subtask_is_changed() -> None:
    """The question and what others did stay as they are, and so does the answer."""
    lesson = Lesson("q: reverse ABC then sort it\ns: reverse ABC\na: CBA\ns: sort the letters of it\na:", "ABC")
    made = [with_word_noise(Random(seed), lesson, COURSES["letters"]) for seed in range(200)]
    head = lesson.prompt.removesuffix("sort the letters of it\na:")
    assert all(new.prompt.startswith(head) and new.prompt.endswith("\na:") and new.answer == "ABC" for new in made)
    assert 60 < sum(new != lesson for new in made) < 140


def test_trainings_end_with_word_noise() -> None:
    """Each worker meets them, at the latest in the last fifth of its course."""
    assert all(course.loose <= 0.8 * course.steps for course in COURSES.values())
