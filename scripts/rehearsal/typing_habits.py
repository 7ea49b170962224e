"""A sentence of this world as people type it: capitals, quotes, signs, number words, a full stop or none. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Final

from conductor_cli.rehearsal.words import NUMBER_WORDS

_CASES: Final[tuple[Callable[[str], str], ...]] = (str.title, str.lower, str.lower, str.lower, str.upper)
_SIGNS: Final = {"plus": ("+", " + "), "minus": ("-", " - "), "times": ("*", "x", " x ", " * ")}
_WORDS: Final = {str(number): word for word, number in NUMBER_WORDS.items() if number > 3}
_ASKS: Final = ("what", "which", "how", "can", "could", "would", "do you", "where")


def typed(random: Random, text: str) -> str:
    """The text as somebody might type it."""
    cased = random.choice(_CASES)
    quote = random.choice(("", "", "", "", "'", '"'))
    owned = "'s" in text
    text = re.sub(r"\b[A-Z]+\b", lambda word: cased(word[0]) if owned else f"{quote}{cased(word[0])}{quote}", text)
    if random.random() < 0.5:
        text = re.sub(r"(?<=\d) (plus|minus|times) (?=\d)", lambda sign: random.choice(_SIGNS[sign[1]]), text)
    if random.random() < 0.2:
        text = re.sub(r"\b\d+\b", lambda number: _WORDS.get(number[0], number[0]), text)
    if random.random() < 0.5:
        text = text[0].upper() + text[1:]
    end = "?" if text.lower().startswith(_ASKS) else "."
    return text + random.choice((end, end, "", ""))
