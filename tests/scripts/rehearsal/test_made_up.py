"""Made-up skills: words that mean nothing, and words with the same stem."""

from __future__ import annotations

from random import Random

import pytest

from conductor_cli.rehearsal.words import KEYWORDS
from scripts.rehearsal.made_up import made_up_word, named_in, skill_named, stem
from scripts.rehearsal.operations import UNSEEN


@pytest.mark.parametrize(
    ("said", "skill"),
    [("spell it backwards", "spelling"), ("count the letters", "counting"), ("add them", "adding"),
     ("check it", "checking"), ("opposite of HOT", "opposites"), ("translate it", "translation"),
     ("colour of a BANANA", "colours")],
)  # fmt: skip
def test_a_step_names_a_skill_by_its_stem(said: str, skill: str) -> None:
    """As the real skills of this world, and the one that no training has."""
    assert named_in(said, [skill, "geography"]) == [skill]


@pytest.mark.parametrize("said", ["country of ROME", "capital of FRANCE", "first letter of it", "SPELL and 3"])
def test_other_words_name_none(said: str) -> None:
    """Neither words that only begin alike, nor operands."""
    assert named_in(said, ["counting", "spelling", "geography"]) == []


def test_a_made_up_skill_is_named_by_its_word() -> None:
    """Whatever the endings are."""
    random = Random(1)
    for _ in range(500):
        said, skill = skill_named(random)
        assert said[:2] == skill[:2]
    found = [skill_named(random) for _ in range(500)]
    assert sum(stem(said) == stem(skill) for said, skill in found) > 450
    assert sum(said != skill for said, skill in found) > 200


def test_made_up_words_tell_nothing_about_the_real_skills() -> None:
    """No word by which a real skill could be known, and nothing of the skill that is never trained."""
    random = Random(2)
    words = {made_up_word(random) for _ in range(3000)}
    assert len(words) > 1000
    assert not words & {word for words in KEYWORDS.values() for word in words}
    assert not any(word.startswith(UNSEEN[:5]) for word in words)
