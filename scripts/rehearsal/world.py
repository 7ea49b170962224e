"""Questions with checkable answers, drawn from a seed: chains of one to three operations in the words of people.

The same arguments give the same problems on every machine. A quarter of the words, a fifth of the chains (and of the
single questions about facts and numbers) and the held-out phrasings are kept for testing. A fact or a sum itself is in
both splits: a model that has never seen a capital cannot know it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from conductor_cli.rehearsal.normalize import Skill, normalize
from scripts.rehearsal.operations import SKILLS, Operation, of_skill
from scripts.rehearsal.phrasings import (
    FRAMES,
    HELD_FRAMES,
    HELD_OPENINGS,
    JOINTS,
    OPENINGS,
    PRONOUNS,
    WAYS,
    PhrasingForm,
    PhrasingSet,
    can_nest,
    fill_phrasing,
    takes_word_only,
)
from scripts.rehearsal.words import WORDS

Split = Literal["train", "test"]

HOPS: Final = (2, 1, 3, 2, 3, 1, 2, 3, 2, 1)
"""How many hops the problems of a set have, in turn. At least half of any set have several."""

MAX_REPEATS: Final = 1000
"""After so many draws without a new question, there are none left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One operation of a problem.

    `subtask` is a short clause in words of the question; "it" stands for the answer of an earlier hop. `access` are the
    numbers of the hops that it needs, from 1. `subtask` is made from `phrasing` and `amount`.
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
    """A question as somebody might type it, its answer and its hops. No two of a set normalize to the same text."""

    id: str
    question: str
    answer: str
    hops: tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """One operation of a chain with its amount."""

    operation: Operation
    amount: int = 0

    def phrasings(self, form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
        return WAYS[self.operation.name].of(form, which)


def _word(split: Split) -> Callable[[Random], str]:
    kept = tuple(word for word in WORDS if is_test_word(word) == (split == "test"))
    return lambda random: random.choice(kept)


def is_test_word(word: str) -> bool:
    """Whether a word is kept for testing."""
    return _held(word, 4)


def _held(key: str, one_in: int) -> bool:
    """Whether `key` is kept for testing. MD5 gives the same result on every machine and in every version of Python."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % one_in == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """What to draw.

    `shares` are the weights of operations, 1 for one that is not named. `word` draws the words for questions about
    letters; None takes the list of the split.
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
    """`count` different problems. By default, training has the known phrasings and tests have the held-out ones.

    `hops` are the numbers of hops, in turn. Raises `ValueError` if there are not so many different problems.
    """
    settings = ProblemSettings(
        split=split, phrasings=phrasings or ("known" if split == "train" else "held"), skills=tuple(skills)
    )
    random = Random(f"{split} {settings.phrasings} {seed}")  # noqa: S311 - reproducible, no secret
    found: dict[str, Problem] = {}
    repeats = 0
    while len(found) < count:
        problem = draw_problem(random, settings, hops[len(found) % len(hops)], id=f"{split}-{seed}-{len(found) + 1:04}")
        repeats = repeats + 1 if found.setdefault(normalize(problem.question), problem) is not problem else 0
        if repeats == MAX_REPEATS:
            raise ValueError(f"there are no {count} different problems of this kind")
    return tuple(found.values())


def draw_problem(random: Random, settings: ProblemSettings, hops: int, *, id: str = "") -> Problem:  # noqa: A002 - the field's name
    """One problem with this number of hops."""
    while True:
        start, links, values = _chain(random, settings, hops)
        if not links:
            continue
        text, phrases, known = _build_sentence(random, start, links, settings.phrasings)
        if _split_of(start, links, text, known=known) != settings.split:
            continue
        return Problem(
            id=id, question=_typed(random, text), answer=values[-1], hops=_hops(start, links, phrases, values)
        )


def _chain(random: Random, settings: ProblemSettings, hops: int) -> tuple[str, tuple[ChainLink, ...], tuple[str, ...]]:
    """A start value, the operations on it, and their answers. No links if the start allows no chain of this length."""
    operation = _pick(random, settings, [op for skill in settings.skills for op in of_skill(skill)])
    start = random.choice(operation.starts) if operation.starts else (settings.word or _word(settings.split))(random)
    value, links, values = start, list[ChainLink](), list[str]()
    for _ in range(hops):
        amounts = operation.amounts(value)
        if not amounts:
            return start, (), ()
        amount = random.choice(amounts)
        value = operation.does(value, amount)
        links.append(ChainLink(operation=operation, amount=amount))
        values.append(value)
        able = [op for skill in settings.skills for op in of_skill(skill) if op.amounts(value)]
        able = [op for op in able if operation.name not in (op.name, op.undoes)]
        if len(links) < hops and not able:
            return start, (), ()
        operation = _pick(random, settings, able) if able else operation
    return start, tuple(links), tuple(values)


def _pick(random: Random, settings: ProblemSettings, able: Sequence[Operation]) -> Operation:
    """One of the operations. Each skill is equally likely, however many operations it has."""
    skill = random.choice(sorted({operation.skill for operation in able}))
    same = [operation for operation in able if operation.skill == skill]
    return random.choices(same, [settings.shares.get(operation.name, 1.0) for operation in same])[0]


def _split_of(start: str, links: Sequence[ChainLink], text: str, *, known: bool) -> Split:
    """The split of a problem. Each problem has one, so two sets of different splits never share a question."""
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
    """The text as people type it: with or without a capital first letter, quotes and a full stop."""
    cased = random.choice(_CASES)
    quote = random.choice(("", "", "", "'", '"'))
    owned = "'s" in text
    text = re.sub(r"[A-Z]+", lambda word: cased(word[0]) if owned else f"{quote}{cased(word[0])}{quote}", text)
    if random.random() < 0.7:
        text = text[0].upper() + text[1:]
    end = "?" if text.lower().startswith(("what", "which", "how", "can")) else "."
    return text + random.choice((end, end, ""))


# From a chain of operations to a sentence


def _build_sentence(
    random: Random, start: str, links: Sequence[ChainLink], which: PhrasingSet
) -> tuple[str, tuple[str, ...], bool]:
    """The sentence, the phrasing of each link, and whether all of them are used in training."""
    if len(links) > 1 and random.random() < 0.5:
        text, phrases, frame = _in_a_row(random, start, links, which)
    else:
        text, phrases, frame = _as_one(random, start, links, which)
    known = frame and all(
        phrase not in link.phrasings("noun", "held") + link.phrasings("order", "held")
        for link, phrase in zip(links, phrases, strict=True)
    )
    return text, phrases, known


def _as_one(
    random: Random, start: str, links: Sequence[ChainLink], which: PhrasingSet
) -> tuple[str, tuple[str, ...], bool]:
    """One phrase inside the other: "the first letter of the capital of FRANCE"."""
    inner, phrases = _nested(random, start, links[:-1], which)
    form: PhrasingForm = random.choice(("noun", "noun", "order", "ask"))
    choices = _over(links, form, which)
    if not choices:  # no question of this operation is held out
        form = "noun"
        choices = _over(links, form, which)
    phrase = random.choice(choices)
    frame = random.choice(_frames(form, which))
    text = frame.replace("{s}", fill_phrasing(phrase, inner, links[-1].amount))
    return text, (*phrases, phrase), frame in FRAMES[form]


def _in_a_row(
    random: Random, start: str, links: Sequence[ChainLink], which: PhrasingSet
) -> tuple[str, tuple[str, ...], bool]:
    """One order after the other: "take LION, spell it backwards, then count its letters"."""
    openings = (*OPENINGS, "", "") if which == "known" else (*OPENINGS, *HELD_OPENINGS, "")
    opening = random.choice(openings)
    taken = "{x}" in opening
    at = 0 if taken else random.randrange(len(links) - 1)
    inner, nested = _nested(random, start, links[:at], which)
    first = random.choice(_over(links[: at + 1], "order", which, pronoun=taken))
    orders = [fill_phrasing(first, random.choice(PRONOUNS[:2]) if taken else inner, links[at].amount)]
    phrases = [*nested, first]
    for link in links[at + 1 :]:
        phrase = random.choice([text for text in link.phrasings("order", which) if not takes_word_only(text)])
        orders.append(fill_phrasing(phrase, random.choice(PRONOUNS), link.amount))
        phrases.append(phrase)
    text = orders[0] + "".join(random.choice(JOINTS) + order for order in orders[1:])
    frame = opening or random.choice(_frames("order", which))
    known = frame in OPENINGS or frame in FRAMES["order"]
    return frame.replace("{s}", text).replace("{x}", start), tuple(phrases), known


def _nested(random: Random, start: str, links: Sequence[ChainLink], which: PhrasingSet) -> tuple[str, tuple[str, ...]]:
    text, phrases = start, list[str]()
    for at, link in enumerate(links):
        phrase = random.choice([phrase for phrase in _over(links[: at + 1], "noun", which) if can_nest(phrase)])
        phrases.append(phrase)
        text = fill_phrasing(phrase, text, link.amount)
    return text, tuple(phrases)


def _over(
    links: Sequence[ChainLink], form: PhrasingForm, which: PhrasingSet, *, pronoun: bool = False
) -> tuple[str, ...]:
    """The phrasings of the last link that name their operand unambiguously.

    Around another phrase, those that need a word are left out. So are those that start with the operand if an inner
    phrase has the same skill: in "the sorted letters of LION spelled backwards", what is spelled backwards?
    """
    texts = [text for text in links[-1].phrasings(form, which) if "{x}" in text]
    if pronoun or len(links) > 1:
        texts = [text for text in texts if not takes_word_only(text)]
    if any(link.operation.skill == links[-1].operation.skill for link in links[:-1]):
        texts = [text for text in texts if not text.startswith("{x}")]
    return tuple(texts)


def _frames(form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
    return FRAMES[form] if which == "known" else FRAMES[form] + HELD_FRAMES[form]
