"""Subtasks in loose words: a word more or less, two exchanged, or all in another order. Pure.

A model that has met loose words holds on to what is said and not to where it stands; that is what it needs for a
phrasing that it has never met.
"""

from __future__ import annotations

from random import Random
from typing import Final

from conductor_cli.rehearsal.words import normalize

_SMALL: Final = frozenset({
    "a", "can", "do", "does", "for", "give", "in", "is", "me", "now", "of", "one", "please", "tell", "that", "the",
    "what", "you",
})  # fmt: skip
"""Words that may be left out."""

_MORE: Final = ("now", "so", "then", "the", "of", "here", "just", "is", "with", "and", "to", "for", "in", "that")
"""Words that may be too many."""


def add_word_noise(random: Random, text: str, *, ordered: bool) -> str:
    """`text` in loose words. `ordered`: the order of its values has a meaning, so nothing is exchanged."""
    words = normalize(text).split()
    kinds: tuple[str, ...] = ("more", "less")
    if not ordered or sum(map(_is_value, words)) < 2:
        kinds = ("more", "less", "exchanged", "shuffled")
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = random.choice(kinds)
        if kind == "more":
            small = [word for word in words if not _is_value(word)]
            word = random.choice(_MORE if random.random() < 0.5 or not small else small)
            words.insert(random.randint(0, len(words)), word)
        elif kind == "less":
            able = [at for at, word in enumerate(words) if word in _SMALL]
            if able:
                del words[random.choice(able)]
        elif kind == "shuffled":
            random.shuffle(words)
        elif len(words) > 1:
            at = random.randrange(len(words) - 1)
            words[at : at + 2] = words[at : at + 2][::-1]
    return " ".join(words)


def _is_value(word: str) -> bool:
    word = word.removesuffix("'s")
    return word.isupper() or word.isdecimal() or word in {"first", "second"}
