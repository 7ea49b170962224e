"""Made-up words for skills, and words that share a stem. Pure.

The conductor has to learn that a step goes to whoever has the skill that the step names, whatever its name. So most
steps of its supervised lessons name a skill that exists nowhere else.
"""

from __future__ import annotations

from random import Random
from typing import Final

from conductor_cli.rehearsal.words import KEYWORDS, VOCABULARY
from scripts.rehearsal.words import WORDS

_ENDINGS: Final = ("", "", "", "s", "s", "ing", "ing", "ed", "ion", "ful")
_STEM_ENDINGS: Final = ("ing", "ion", "ful", "ed", "es", "s", "e")
_STARTS: Final = tuple("b bl br c ch cl d dr f fl g gl gr h j k l m n p pl pr qu r s sh sk sl st t tr v w y z".split())  # noqa: SIM905 - shorter so
_MIDDLES: Final = ("a", "e", "i", "o", "u", "ai", "ea", "oo", "ou")
_FINALS: Final = tuple("b ck d ft g l ll m mb n nd ng p r rm sh st t x z".split())  # noqa: SIM905 - shorter so

_KEYWORDS: Final = frozenset(word for words in KEYWORDS.values() for word in words)
_EVERYDAY: Final = tuple(sorted({word.lower() for word in WORDS if 3 <= len(word) <= 9} - VOCABULARY - _KEYWORDS))


def made_up_word(random: Random) -> str:
    """A word of no meaning in this world: an everyday one, or syllables."""
    if random.random() < 0.6:
        return random.choice(_EVERYDAY)
    while True:
        word = "".join(_syllable(random) for _ in range(random.choice((1, 1, 2))))
        if word not in _KEYWORDS:
            return word


def _syllable(random: Random) -> str:
    return random.choice(_STARTS) + random.choice(_MIDDLES) + random.choice((*_FINALS, "", ""))


def skill_named(random: Random) -> tuple[str, str]:
    """A word as a step says it, and the name of the skill: the same, or with another ending."""
    word = made_up_word(random)
    said, named = word + random.choice(_ENDINGS), word + random.choice(_ENDINGS)
    return (said, named) if random.random() < 0.5 else (word, named)


def stem(word: str) -> str:
    """A word without its ending: spell, spelling and spelled have the same."""
    for ending in _STEM_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word.removesuffix(ending)
            break
    return word[:-1] + "y" if word.endswith("i") else word


def named_in(subtask: str, skills: list[str]) -> list[str]:
    """The skills that a subtask names."""
    said = {stem(word) for word in subtask.split() if word.islower()}
    return [skill for skill in skills if stem(skill) in said]
