"""Questions in words that mean nothing, with the same changes in their subtasks. Pure.

A conductor has to find where a clause starts and ends and to copy it, not to understand it, since people phrase things
in unexpected ways. Clauses with words that are exchanged, added or left out cannot be recited from memory. Half of the
words that are put in are made up, and half are any words of the vocabulary, also such that only held-out phrasings
have: a token that was never to be written is one that cannot be copied later. They are put in without their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from conductor_cli.rehearsal.words import KEYWORDS, VOCABULARY, Skill, normalize
from scripts.rehearsal.made_up import made_up_word, skill_named, stem
from scripts.rehearsal.world import Problem

GARBLED: Final = 0.75
"""The share of clauses in which words are changed."""

OBSCURE: Final = 0.25
"""The share of these in which all words are changed, so that nothing of them can be recited."""

_HOLDING: Final = frozenset(
    word
    for words in (
        "it its that them the then this result first second other two both and or of in at a an is with after before",
        "next what which how take now finally answer one from there these",
    )
    for word in words.split()
)
"""Words that hold a sentence together. They are never exchanged, nor is anything put beside `and` or `then`."""

_ANY: Final = tuple(sorted(word for word in VOCABULARY - _HOLDING if len(word) > 1))

_SMALL: Final = tuple(
    word
    for words in (
        "a an the of in on at by for with from to as is are was be has have does do that which who whose what how many",
        "much there their own out up off over whole so just very only if you we people",
    )
    for word in words.split()
)
"""The small words of English, whether or not a phrasing has them."""


@dataclass(slots=True)
class Clauses:
    """A question and its subtasks as lists of words, changed together."""

    asked: list[str]
    subtasks: list[list[str]]

    def spots(self, at: int) -> list[int]:
        """The places in subtask `at` of small words that can be found in the question without doubt."""
        words = self.subtasks[at]
        return [place for place, word in enumerate(words) if word.islower() and self._spot(at, place) is not None]

    def exchange(self, at: int, place: int, new: Sequence[str]) -> None:
        """Put `new` in the place of a word of subtask `at`, here and in the question."""
        spot = self._spot(at, place)
        if spot is not None:
            self.asked[spot : spot + 1] = new
            self.subtasks[at][place : place + 1] = new

    def _spot(self, at: int, place: int) -> int | None:
        """The same word in the question: the only such word, or the only one with the same neighbour."""
        words = self.subtasks[at]
        for low, high in ((place, place + 1), (place - 1, place + 1), (place, place + 2), (place - 1, place + 2)):
            if low < 0 or high > len(words):
                continue
            clause = words[low:high]
            if _count(self.asked, clause) == 1 == sum(_count(other, clause) for other in self.subtasks):
                return _find(self.asked, clause) + place - low
        return None


def clauses_of(problem: Problem) -> Clauses:
    """A problem's question and subtasks."""
    return Clauses(normalize(problem.question).split(), [hop.subtask.split() for hop in problem.hops])


def name_skill(random: Random, text: Clauses, at: int, skill: Skill) -> str:
    """Have subtask `at` name a made-up skill in place of its own one. Returns that skill; empty if it cannot be."""
    keywords = KEYWORDS.get(skill, ())
    telling = [place for place in text.spots(at) if text.subtasks[at][place] in keywords]
    left = [word for place, word in enumerate(text.subtasks[at]) if word in keywords and place not in telling]
    if not telling or left:
        return ""
    said, named = skill_named(random)
    chosen = random.choice(telling)
    for place in sorted(telling, reverse=True):
        text.exchange(at, place, [said if place == chosen else _word(random)])
    return named if said in text.subtasks[at] and said in text.asked else ""


def garble(random: Random, text: Clauses, at: int) -> None:
    """Change some words of subtask `at`: another one, one more, or one less."""
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        able = [place for place in text.spots(at) if text.subtasks[at][place] not in _HOLDING]
        if not able:
            return
        place = random.choice(able)
        word = text.subtasks[at][place]
        kind = random.random()
        if kind < 0.45:
            text.exchange(at, place, [_word(random)])
        elif kind < 0.85 or len(able) < 3:
            more = _run(random)
            last = place == len(text.subtasks[at]) - 1
            text.exchange(at, place, [*more, word] if last or (place and random.random() < 0.5) else [word, *more])
        else:
            text.exchange(at, place, [])


def obscure(random: Random, text: Clauses, at: int, kept: str) -> None:
    """Exchange every word of subtask `at` that neither holds it together nor names the skill `kept`."""
    for place in text.spots(at):
        word = text.subtasks[at][place]
        if word not in _HOLDING and stem(word) != stem(kept):
            text.exchange(at, place, [_word(random)])


def _run(random: Random) -> list[str]:
    """One word or several."""
    count = random.choice((1, 1, 1, 2, 3, 4))
    return [random.choice(_SMALL) if random.random() < 0.6 else _word(random) for _ in range(count)]


def _word(random: Random) -> str:
    return made_up_word(random) if random.random() < 0.5 else random.choice(_ANY)


def _count(words: Sequence[str], clause: Sequence[str]) -> int:
    if len(clause) == 1:
        return words.count(clause[0])
    size, first = len(clause), clause[0]
    return sum(word == first and words[at : at + size] == clause for at, word in enumerate(words))


def _find(words: Sequence[str], clause: Sequence[str]) -> int:
    size = len(clause)
    return next(at for at in range(len(words) - size + 1) if list(words[at : at + size]) == list(clause))
