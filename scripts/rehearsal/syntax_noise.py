"""Ungrammatical questions, with the same changes in their subtasks. Pure.

A conductor has to find where a clause starts and ends and to copy it, not to understand it, since people phrase things
in unexpected ways. These clauses cannot be recited from memory. No held-out phrasing is generated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from conductor_cli.rehearsal.normalize import find_operands, normalize
from scripts.rehearsal.phrasings import HELD_FRAMES, HELD_OPENINGS, PRONOUNS, WAYS, PhrasingForm, fill_phrasing
from scripts.rehearsal.world import Problem

PLAIN: Final = 0.3
"""The share of questions that are left as they are."""

GARBLED: Final = 0.7
"""The share of clauses of the others that are garbled."""

FILLING: Final = ("please", "now", "so", "just", "can you", "you", "me", "then", "tell me", "give me", "what is")
"""What people say before they say anything."""

_FORMS: Final[tuple[PhrasingForm, ...]] = ("noun", "ask", "order")
_ENDS: Final = frozenset(["and", "then", "it", "its", "that", "take", "with"])
"""Words that join two clauses: none of them is put where a clause begins or ends."""


def _known_words() -> tuple[str, ...]:
    texts = [text for ways in WAYS.values() for form in _FORMS for text in ways.of(form, "known")]
    return tuple(sorted(set(re.findall(r"[a-z]{2,}", " ".join([*texts, *PRONOUNS]))) - _ENDS))


_WORDS: Final = _known_words()
"""Words that training may see, without those that join two clauses."""

_NOUNS: Final = frozenset(text for ways in WAYS.values() for text in ways.of("noun", "known"))

_HELD: Final = frozenset(
    text.removeprefix("the ") for ways in WAYS.values() for form in _FORMS for text in ways.of(form, "held")
)

_INNER: Final = (*_WORDS, "that", "is", "with", "and", "that is", "that has", "the", "the")
"""What may be put between two words of a clause."""

_SMALL: Final = frozenset(
    re.findall(r"\w+", "the of in at a is that with and for by from to has have how many which what")
)
"""Words that hold a clause together; the others may all be exchanged at once."""


@dataclass(slots=True)
class _Text:
    """The question and its subtasks as models read them, a space at each end, while clauses are changed."""

    asked: str
    subtasks: list[str]
    phrasings: list[str]

    def change(self, at: int, old: str, new: str) -> None:
        """`old` becomes `new` in the question and in subtask `at`, where both have it once and nothing held is made."""
        subtask, phrasing = self.subtasks[at], f" {self.phrasings[at]} "
        if self.asked.count(old) != 1 or subtask.count(old) != 1 or _is_held(phrasing.replace(old, new)):
            return
        self.asked, self.subtasks[at] = self.asked.replace(old, new), subtask.replace(old, new)
        self.phrasings[at] = phrasing.replace(old, new).strip()


def add_syntax_noise(random: Random, problem: Problem) -> tuple[str, tuple[str, ...]]:
    """The question and its subtasks as models read them, most of them garbled."""
    hops = problem.hops
    text = _Text(
        f" {normalize(problem.question)} ", [f" {normalize(hop.subtask)} " for hop in hops],
        [hop.phrasing for hop in hops],
    )  # fmt: skip
    if random.random() > PLAIN:
        _wrap(random, text, problem)
        for at in range(len(hops)):
            if random.random() < GARBLED:
                old = f" {random.choice(_pieces(text.phrasings[at]))} "
                text.change(at, old, f" {_other(random, old.split())} ")
        _end(random, text, problem)
        text.asked = _with_other_opening(random, text.asked)
    return text.asked.strip(), tuple(subtask.strip() for subtask in text.subtasks)


def _wrap(random: Random, text: _Text, problem: Problem) -> None:
    """Some things become things of things: "the sum of 3 and 4" becomes "the order of the sum of 3 and 4"."""
    inner = find_operands(normalize(problem.question))[:1]
    said_so_far = inner[0] if inner else ""
    for at, hop in enumerate(problem.hops):
        whole = normalize(fill_phrasing(hop.phrasing, said_so_far, hop.amount))
        said_so_far = whole
        if (
            random.random() > 0.25
            or not hop.phrasing.startswith(("the ", "{x} "))
            or text.asked.count(f" {whole} ") != 1
        ):
            continue
        around = f"{random.choice(_WORDS)} {random.choice(('of', 'of', 'of', 'in', 'that has', 'for'))}"
        made = f"the {around} {text.phrasings[at]}"
        if f"the {around} {{x}}" in _NOUNS or _is_held(made):
            continue  # a hop of its own, or kept from training
        text.asked = text.asked.replace(f" {whole} ", f" the {around} {whole} ")
        article = "the " if hop.phrasing.startswith("the ") else ""
        text.subtasks[at] = f" {around} {article}{text.subtasks[at].strip()} "
        text.phrasings[at] = made
        said_so_far = f"the {around} {whole}"


def _end(random: Random, text: _Text, problem: Problem) -> None:
    """Some clauses that end with a number go on with a word: "27 plus 3 letters"."""
    for at, hop in enumerate(problem.hops):
        made = f"{text.phrasings[at]} {random.choice(_WORDS)}"
        words = text.subtasks[at].split()
        old = f" {' '.join(words[-2:])} "
        if random.random() > 0.3 or not hop.phrasing.endswith("{k}") or text.asked.count(old) != 1 or _is_held(made):
            continue
        new = f"{old}{made.rsplit(maxsplit=1)[-1]} "
        text.asked, text.subtasks[at] = text.asked.replace(old, new), text.subtasks[at].replace(old, new)
        text.phrasings[at] = made


def _with_other_opening(random: Random, asked: str) -> str:
    """The question with another beginning, or with words before it that say nothing; never a held-out one."""
    words = asked.split()
    if words[0] == "take" and words[1] in find_operands(asked) and random.random() < 0.6:
        opening = random.sample(("take", "first", *_WORDS), random.choice((1, 1, 2, 2, 3)))
        words = [*opening, *([random.choice(("with", "from", "by"))] if random.random() < 0.3 else []), *words[1:]]
    elif random.random() < 0.3:
        words = [random.choice(FILLING), *words]
    made = " ".join(words)
    return asked if made.startswith(_held_beginnings()) else made


def _held_beginnings() -> tuple[str, ...]:
    frames = [text for frames in (*HELD_FRAMES.values(), HELD_OPENINGS) for text in frames]
    return tuple(text.partition("{")[0].rstrip() for text in frames)


def _pieces(phrasing: str) -> list[str]:
    """What a phrasing says apart from what it works on, without an article in front."""
    pieces = re.split(r"\{x\}(?:'s)?|\{k\}", phrasing)
    return [piece.strip().removeprefix("the ") for piece in pieces if piece.strip()]


def _other(random: Random, words: Sequence[str]) -> str:
    """Other words in their place: all but the small ones exchanged, or some put in, left out or exchanged."""
    times = random.choice((1, 1, 2, 3))
    if random.random() < 0.4:
        words, times = [word if word in _SMALL else random.choice(_WORDS) for word in words], random.choice((0, 1))
    changed = " ".join(words)
    for _ in range(times):
        changed = _changed(random, changed.split())
    return changed


def _changed(random: Random, words: Sequence[str]) -> str:
    """Add, replace or remove one word. Short clauses keep theirs, or they could not be distinguished."""
    kept, place = list(words), random.randrange(len(words))
    way = random.choice(("in", "out", "other")) if len(kept) > 2 else "in"
    if way == "in":
        kept.insert(place, random.choice(_INNER if place else _WORDS))
    elif way == "out":
        del kept[place]
    else:
        kept[place] = random.choice(_WORDS)
    return " ".join(kept)


def _is_held(phrasing: str) -> bool:
    """Whether this is a phrasing that is kept from training, of whatever operation."""
    return phrasing.strip().removeprefix("the ") in _HELD
