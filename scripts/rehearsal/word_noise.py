"""Subtasks in loose words: a word more or less, two words exchanged, or all in another order. Pure.

In this world words in any order still say what is meant: there is one thing to do, with one word, or with two numbers
of which the smaller is taken from the larger. A model that has met loose words holds on to what is said and not to
where it stands; that is what it needs for a phrasing that it has never met. No loose text has a held-out phrasing in
it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from random import Random
from typing import Final

from scripts.rehearsal.phrasings import HELD_FRAMES, WAYS

_SMALL: Final = frozenset(
    {"a", "can", "does", "give", "is", "me", "of", "please", "tell", "that", "the", "what", "you"}
)
"""Words that may be left out in every course."""

_MORE: Final = ("now", "so", "then", "the", "of", "here", "just", "is", "with", "and", "to", "for", "in", "that")
"""Words that may be too many."""


def _pattern(phrasing: str) -> str:
    return re.escape(phrasing).replace(r"\{x\}", "[a-zA-Z0-9 ]+").replace(r"\{k\}", "[0-9]+").replace(r"\{s\}", "")


_HELD: Final = re.compile(
    "|".join(
        rf"\b{_pattern(text)}"
        for text in (
            *(text for ways in WAYS.values() for text in ways.held_nouns + ways.held_orders),
            *(text for frames in HELD_FRAMES.values() for text in frames),
        )
    )
)


def add_word_noise(random: Random, text: str, missing: Collection[str] = ()) -> str:
    """`text` in loose words; as it is where those would be a held-out phrasing. Those of `missing` may be left out."""
    words = text.split()
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = random.choice(("more", "more", "less", "exchanged", "exchanged", "shuffled"))
        if kind == "more":
            words = _with_one_more(random, words)
        elif kind == "less":
            words = _without_one(random, words, missing)
        elif kind == "exchanged":
            words = _exchanged(random, words)
        else:
            words = random.sample(words, len(words))
    made = " ".join(words)
    return text if _HELD.search(made) else made


def _with_one_more(random: Random, words: list[str]) -> list[str]:
    """A small word, or one that is there already, once more."""
    small = [word for word in words if word.islower()]
    word = random.choice(_MORE if random.random() < 0.5 or not small else small)
    at = random.randint(0, len(words))
    return [*words[:at], word, *words[at:]]


def _without_one(random: Random, words: list[str], missing: Collection[str]) -> list[str]:
    able = [at for at, word in enumerate(words) if word in _SMALL or word in missing]
    if not able:
        return words
    at = random.choice(able)
    return words[:at] + words[at + 1 :]


def _exchanged(random: Random, words: list[str]) -> list[str]:
    """Two neighbours exchanged."""
    at = random.randrange(max(len(words) - 1, 1))
    return words[:at] + words[at : at + 2][::-1] + words[at + 2 :]
