"""Finds the passages of some texts that most words of a query stand in. Pure.

Models search for phrases as readers do: "maximum number of redirects". No line of a program says
that; but few lines have several of the words, or have them close by.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

MAX_WORDS: Final = 12  # Words of a query that count
NEAR_LINES: Final = 3  # Lines around a line whose words count for it, by half
USUAL_LINE: Final = 160  # Characters of a line: in a longer one, words stand together by chance

DEFINITION_WEIGHT: Final = 1.5  # Of a line that defines something, where others only use it

_DEFINITION: Final = re.compile(
    r"\s*(?:(?:export|pub|async|static|public|const|let|var)\s+){0,3}"
    r"(?:(?:class|def|func|function|fn|struct|enum|trait|interface)\s+\w"
    r"|[A-Za-z_][\w.]*\s*(?::[^=]{1,60})?=\s*[^=\s])"
)
"""A class, a function, or a name that is given a value."""

_WORD: Final = re.compile(r"[^\W_]+")
_COMMON: Final = frozenset(
    _WORD.findall(
        "a about after all and any are as at be been before by can could did do does each for from "
        "get had has have how if in into is it its like made make many may most much must no none "
        "not of on one only or other our same should so some such than that the their them then "
        "there these they this those to until up was we were what when where which while who why "
        "will with within would you your"
    )
)
"""Words that say nothing about what is looked for."""

_SHORT_FORMS: Final = {"maximum": "max", "minimum": "min", "number": "num", "directory": "dir"}
"""What programs write for words that people write out."""


def words_of(query: str) -> tuple[str, ...]:
    """Return the words of a query that count, in small letters and without endings."""
    stems = []
    for word in _WORD.findall(query.lower()):
        if len(word) > 1 and word not in _COMMON:
            stems.append(_SHORT_FORMS.get(word) or _stem(word))
    return tuple(dict.fromkeys(stems))[:MAX_WORDS]


def _stem(word: str) -> str:
    for ending in ("ing", "es", "ed", "s"):
        if len(word) - len(ending) >= 4 and word.endswith(ending):
            return word.removesuffix(ending)
    return word


def best_lines(
    texts: Sequence[str], words: Sequence[str], count: int, apart: int
) -> list[tuple[int, int]]:
    """Return the best lines for some words, each as the position of its text and its number.

    At most `count`, the best first, and no two of a text closer than `apart` lines.
    """
    lines_with = _lines_with(texts, words)
    total = sum(text.count("\n") + 1 for text in texts)
    weights = {word: math.log(1 + total / (1 + len(lines))) for word, lines in lines_with.items()}
    words_at: dict[tuple[int, int], set[str]] = defaultdict(set)
    for word, lines in lines_with.items():
        for spot in lines:
            words_at[spot].add(word)
    positions = {position for position, _ in words_at}
    split = {position: texts[position].split("\n") for position in positions}
    scores = {}
    for (position, number), words_here in words_at.items():
        line = split[position][number - 1]
        score = _score((position, number), words_here, words_at, weights)
        if _DEFINITION.match(line):
            score *= DEFINITION_WEIGHT
        scores[position, number] = score / (1 + max(len(line) - USUAL_LINE, 0) / USUAL_LINE)
    best: list[tuple[int, int]] = []
    for spot in sorted(scores, key=lambda spot: (-scores[spot], spot)):
        if not _is_near(spot, best, apart):
            best.append(spot)
        if len(best) == count:
            break
    return best


def _is_near(spot: tuple[int, int], others: Iterable[tuple[int, int]], distance: int) -> bool:
    """Return whether a line is less than so many lines from another one of the same text."""
    position, number = spot
    for other_position, other_number in others:
        if position == other_position and abs(number - other_number) < distance:
            return True
    return False


def _lines_with(texts: Sequence[str], words: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the lines that each word stands in."""
    lines_with: dict[str, list[tuple[int, int]]] = {word: [] for word in words}
    for position, text in enumerate(texts):
        lowered = text.lower()
        contained = [word for word in words if word in lowered]
        if not contained:
            continue
        for number, line in enumerate(lowered.split("\n"), start=1):
            for word in contained:
                if word in line:
                    lines_with[word].append((position, number))
    return lines_with


def _score(
    spot: tuple[int, int],
    words_here: set[str],
    words_at: Mapping[tuple[int, int], set[str]],
    weights: Mapping[str, float],
) -> float:
    """Return the weight of the words of a line, and half of that of others around it."""
    position, line = spot
    near: set[str] = set()
    for number in range(line - NEAR_LINES, line + NEAR_LINES + 1):
        near |= words_at.get((position, number), set())
    weight_here = sum(weights[word] for word in words_here)
    weight_near = sum(weights[word] for word in near - words_here)
    return weight_here + weight_near / 2
