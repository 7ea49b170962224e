"""Subtasks in loose words."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.rehearsal.words import find_operands, normalize
from scripts.rehearsal.word_noise import add_word_noise
from scripts.rehearsal.world import draw_problems

TEXTS = tuple(normalize(problem.question) for problem in draw_problems(100, 1, shapes={"single": 1.0}, checked=0.0))


@given(text=st.sampled_from(TEXTS), seed=st.integers(0, 10**6), ordered=st.booleans())
def test_operands_stay_unchanged(text: str, seed: int, ordered: bool) -> None:
    """Small words come, go and change places; the word or the numbers are those of the question."""
    made = add_word_noise(Random(seed), text, ordered=ordered)
    assert Counter(find_operands(made)) == Counter(find_operands(text))
    assert add_word_noise(Random(seed), text, ordered=ordered) == made


def test_words_are_added_removed_and_swapped() -> None:
    """All of it happens."""
    made = [(text, add_word_noise(Random(seed), text, ordered=False)) for seed, text in enumerate(TEXTS * 3)]
    lengths = {(len(new.split()) > len(old.split())) - (len(new.split()) < len(old.split())) for old, new in made}
    assert lengths == {-1, 0, 1}
    assert any(sorted(old.split()) == sorted(new.split()) and old != new for old, new in made)


def test_values_whose_order_has_a_meaning_keep_it() -> None:
    """What is taken from what, and which of two answers is the first."""
    for text in ("subtract 3 from 17", "the second taken from the first", "put DOG after CAT"):
        values = [word for word in text.split() if word.isupper() or word.isdecimal() or word in {"first", "second"}]
        for seed in range(50):
            made = add_word_noise(Random(seed), text, ordered=True).split()
            assert [word for word in dict.fromkeys(made) if word in values] == values
