"""Which answer a text gives by the rules of authors: the scorers `mmlu-pro` and `rlpr`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

MAX_PUBLISHED_TEXT: Final = 100_000  # Characters at the end of a text that are searched
_SAID: Final = re.compile(r"answer is \(?([A-J])\)?")
# A letter may begin the next "Answer:", so it is only looked at
_PUBLISHED_ANNOUNCED: Final = re.compile(r"[aA]nswer:(?=\s*([A-J]))")
_LETTER: Final = re.compile(r"\b[A-J]\b")


def mmlu_pro_letter(text: str, _: Sequence[str] = ()) -> str:
    """Return the letter after "answer is", else after "answer:", else the last letter at all.

    Empty without one.
    """
    text = text[-MAX_PUBLISHED_TEXT:].replace("**", "")
    if letter_match := _SAID.search(text):
        return letter_match[1]
    # The last letter that the first line with one announces: the authors search with a greedy `.*`
    # before it.
    last = None
    for match in _PUBLISHED_ANNOUNCED.finditer(text):
        if last is not None and "\n" in text[last.start() : match.start()]:
            break
        last = match
    if last is not None:
        return last[1]
    letters: list[str] = _LETTER.findall(text)
    return letters[-1] if letters else ""


_ANSWER: Final = re.compile(r"<answer>(.*?)</answer>", re.IGNORECASE | re.DOTALL)
_UNIT: Final = re.compile(r"[A-Za-z/^.\s]+$")
_PUBLISHED_NUMBER: Final = re.compile(r"-?\d+\.?\d*")
_MAX_ANSWER: Final = 2000
_WORDS: Final = (("million", 1e6), ("thousand", 1e3), ("k", 1e3))


def rlpr_answer(text: str, _: Sequence[str] = ()) -> str:
    """Return what the first pair of tags holds, without repeated white space; empty without one."""
    match = _ANSWER.search(text[-MAX_PUBLISHED_TEXT:])
    return " ".join(match[1].split()) if match else ""


def is_rlpr(text: str, answer: str, _: Sequence[str] = ()) -> bool:
    """Return whether the answers are equal as texts or as numbers.

    The first way in which both are numbers decides.
    """
    given = rlpr_answer(text)
    expected = " ".join(answer.split())
    if not given or len(given) > _MAX_ANSWER:
        return False
    if given.lower() == expected.lower():
        return True
    if ("%" in given) != ("%" in expected):
        ours, theirs = (_float(value.replace("%", "")) for value in (given, expected))
        if ours is not None and theirs is not None:
            return abs(_of_percent(ours, given) - _of_percent(theirs, expected)) < 1e-6
    for read in (lambda text: _float(re.sub(r"[,$%]", "", text)), _leading, _money):
        ours = read(given)
        theirs = read(expected)
        if ours is not None and theirs is not None:
            tolerance = 1e-6
            if abs(theirs) > 1:
                tolerance = abs(theirs) * 1e-3
            return abs(ours - theirs) < tolerance
    return False


def _of_percent(value: float, text: str) -> float:
    """Return a number of a text, where it is a percentage as the share that it means."""
    return value / 100 if "%" in text else value


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _leading(text: str) -> float | None:
    text = re.sub(r"[$,%]", "", _UNIT.sub("", text.strip()))
    if "e" in text.lower():
        return _float(text)
    match = _PUBLISHED_NUMBER.search(text)
    return float(match[0]) if match else None


def _money(text: str) -> float | None:
    """Return an amount in dollars, written with a word for its size."""
    text = text.lower().strip()
    for word, factor in _WORDS:
        if word in text:
            value = _float(re.sub(r"[$,]", "", text.replace(word, "")).strip())
            return None if value is None else value * factor
    if "$" in text:
        return _float(re.sub(r"[$,]", "", text).strip())
    return None
