"""Questions with checkable answers, drawn from a seed: chains of one to three operations in the words of people.

Nothing here reads or writes; the same arguments give the same problems on every machine. What is kept for testing: a
quarter of the words, a fifth of the chains (and of the single questions about facts and numbers), and the held-out
phrasings. A fact or a sum itself is in both: a model that has never met a capital cannot know it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from conductor_cli.rehearsal.normalize import normalize
from conductor_cli.rehearsal.operations import SKILLS, Operation, Skill, of_skill
from conductor_cli.rehearsal.phrasings import PhrasingSet, fill_phrasing
from conductor_cli.rehearsal.sentences import ChainLink, build_sentence
from conductor_cli.rehearsal.words import WORDS

Split = Literal["train", "test"]

HOPS: Final = (2, 1, 3, 2, 3, 1, 2, 3, 2, 1)
"""How many hops the problems of a set have, in turn: at least half are multi-hop, wherever the set ends."""


_PATIENCE: Final = 1000
"""Draws without a new question after which there are none left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One operation of a problem.

    `subtask` is a short clause in words of the question, "it" standing for what an earlier hop found; `access` are the
    numbers of the hops (from 1) that it needs. `phrasing` and `amount` are what `subtask` was made from.
    """

    skill: Skill
    op: str
    subtask: str
    answer: str
    access: tuple[int, ...]
    phrasing: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question as somebody might type it, its answer, and the hops that lead there. `normal(question)` is unique."""

    id: str
    question: str
    answer: str
    hops: tuple[Hop, ...]


def _word(split: Split) -> Callable[[Random], str]:
    kept = tuple(word for word in WORDS if is_test_word(word) == (split == "test"))
    return lambda random: random.choice(kept)


def is_test_word(word: str) -> bool:
    """Whether a word is kept for testing."""
    return _held(word, 4)


def _held(key: str, one_in: int) -> bool:
    """Whether what `key` names is kept for testing. By MD5, since it must be the same everywhere and for ever."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % one_in == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """What is drawn.

    `shares` is how often an operation comes, 1 where it is not named, 0 for never. `word` draws the words of letters'
    questions, from the split's own list where it is None.
    """

    split: Split = "train"
    phrasings: PhrasingSet = "known"
    skills: tuple[Skill, ...] = SKILLS
    shares: Mapping[str, float] = field(default_factory=dict)
    word: Callable[[Random], str] | None = None


def draw_problems(  # noqa: PLR0913 - what a set of problems is made of
    count: int,
    seed: int,
    *,
    split: Split = "train",
    phrasings: PhrasingSet | None = None,
    hops: Sequence[int] = HOPS,
    skills: Sequence[Skill] = SKILLS,
) -> tuple[Problem, ...]:
    """`count` problems, no two alike. Without `phrasings`, training gets the known ones and tests the held-out ones.

    `hops` are the numbers of hops, in turn. Raises `ValueError` where so many different ones do not exist.
    """
    recipe = ProblemSettings(
        split=split, phrasings=phrasings or ("known" if split == "train" else "held"), skills=tuple(skills)
    )
    random = Random(f"{split} {recipe.phrasings} {seed}")  # noqa: S311 - reproducible, no secret
    found: dict[str, Problem] = {}
    known = 0  # questions in a row that were there already
    while len(found) < count:
        problem = draw_problem(random, recipe, hops[len(found) % len(hops)], id=f"{split}-{seed}-{len(found) + 1:04}")
        known = known + 1 if found.setdefault(normalize(problem.question), problem) is not problem else 0
        if known == _PATIENCE:
            raise ValueError(f"there are no {count} different problems of this kind")
    return tuple(found.values())


def draw_problem(random: Random, recipe: ProblemSettings, hops: int, *, id: str = "") -> Problem:  # noqa: A002 - the field's name
    """One problem of so many hops."""
    while True:
        start, links, values = _chain(random, recipe, hops)
        if not links:
            continue
        text, phrases, known = build_sentence(random, start, links, recipe.phrasings)
        if _split_of(start, links, text, known=known) != recipe.split:
            continue
        return Problem(
            id=id, question=_typed(random, text), answer=values[-1], hops=_hops(start, links, phrases, values)
        )


def _chain(random: Random, recipe: ProblemSettings, hops: int) -> tuple[str, tuple[ChainLink, ...], tuple[str, ...]]:
    """A start, what is done with it, and what comes out each time; no links where no chain so long goes on from it."""
    operation = _pick(random, recipe, [op for skill in recipe.skills for op in of_skill(skill)])
    start = random.choice(operation.starts) if operation.starts else (recipe.word or _word(recipe.split))(random)
    value, links, values = start, list[ChainLink](), list[str]()
    for _ in range(hops):
        amounts = operation.amounts(value)
        if not amounts:
            return start, (), ()
        amount = random.choice(amounts)
        value = operation.does(value, amount)
        links.append(ChainLink(operation=operation, amount=amount))
        values.append(value)
        able = [op for skill in recipe.skills for op in of_skill(skill) if op.amounts(value)]
        able = [op for op in able if operation.name not in (op.name, op.undoes)]
        if len(links) < hops and not able:
            return start, (), ()
        operation = _pick(random, recipe, able) if able else operation
    return start, tuple(links), tuple(values)


def _pick(random: Random, recipe: ProblemSettings, able: Sequence[Operation]) -> Operation:
    """First a skill, each as likely as the others, then one of its operations."""
    skill = random.choice(sorted({operation.skill for operation in able}))
    same = [operation for operation in able if operation.skill == skill]
    return random.choices(same, [recipe.shares.get(operation.name, 1.0) for operation in same])[0]


def _split_of(start: str, links: Sequence[ChainLink], text: str, *, known: bool) -> Split:
    """Where a problem belongs. Each has one place, so no two sets of different splits can share a question."""
    if links[0].operation.skill == "letters":
        held = start in WORDS and is_test_word(start)
    elif len(links) > 1:
        held = _held(" ".join([start, *(f"{link.operation.name} {link.amount}" for link in links)]), 5)
    else:
        held = not known or _held(text, 5)
    return "test" if held else "train"


def _hops(start: str, links: Sequence[ChainLink], phrases: Sequence[str], values: Sequence[str]) -> tuple[Hop, ...]:
    return tuple(
        Hop(
            skill=link.operation.skill,
            op=link.operation.name,
            subtask=fill_phrasing(phrase, "it" if at else start, link.amount).removeprefix("the "),
            answer=value,
            access=(at,) if at else (),
            phrasing=phrase,
            amount=link.amount,
        )
        for at, (link, phrase, value) in enumerate(zip(links, phrases, values, strict=True))
    )


_CASES: Final[tuple[Callable[[str], str], ...]] = (str.title, str.title, str.title, str.lower, str.upper)


def _typed(random: Random, text: str) -> str:
    """The text as people type it: a large first letter or not, quotes or none, final stop or none."""
    cased = random.choice(_CASES)
    quote = random.choice(("", "", "", "'", '"'))
    owned = "'s" in text
    text = re.sub(r"[A-Z]+", lambda word: cased(word[0]) if owned else f"{quote}{cased(word[0])}{quote}", text)
    if random.random() < 0.7:
        text = text[0].upper() + text[1:]
    end = "?" if text.lower().startswith(("what", "which", "how", "can")) else "."
    return text + random.choice((end, end, ""))
