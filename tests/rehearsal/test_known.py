"""Which questions the demo takes on, by their words alone."""

from __future__ import annotations

import pytest

from conductor_cli.rehearsal.words import KEYWORDS, is_known
from training.rehearsal.operations import SKILLS, UNSEEN


@pytest.mark.parametrize(
    "typed",
    [
        "How many letters does 'banana' have?", "What's 3 plus 4", "opposite of hot", "Spell Conductor backwards",
        "Which month comes after May?", "What is the capital of Norway, spelled backwards?", "20 - 6", "what's 6x7",
        "five plus three", "reverse the word planet", "what colour is a banana", "do you know the symbol for gold",
        "sum of 3 and 4, check it",
    ],
)  # fmt: skip
def test_a_question_of_this_world_is_known(typed: str) -> None:
    assert is_known(typed)


@pytest.mark.parametrize(
    "typed",
    [
        "Who is the president of France?", "What is the meaning of life?", "What is the capital of Atlantis?",
        "Write a poem", "Is 17 prime?", "", "Spell", "What is the opposite of a zebra crossing", "how many letters",
        "Prove that there are infinitely many primes.", "Spell 東京 backwards", "10/2", "3.5 plus 2", "-5 plus 3",
        "what is 1000 plus 3", "capital of New Zealand", "Is Paris the capital of France?", "how old is Madonna",
        "5 plus -3", "what's the weather tomorrow", "50% of 10", "https://example.com spelled backwards",
    ],
)  # fmt: skip
def test_a_question_outside_the_world_is_not_known(typed: str) -> None:
    assert not is_known(typed)


def test_each_skill_has_keywords() -> None:
    assert set(KEYWORDS) == {*SKILLS, UNSEEN}
