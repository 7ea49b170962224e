"""Pools of workers that are drawn, and whom a step should go to.

The best by what the planner is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from conductor_cli.core.kinds_of_work import KINDS
from conductor_cli.core.plan_formats.base import PlanFormatContext
from conductor_cli.core.pool import Card, Pool, Worker


def _read_words() -> dict[str, list[str]]:
    """The lists of words.txt by their names."""
    lists = dict[str, list[str]]()
    name = ""
    for line in Path(__file__).with_name("words.txt").read_text().splitlines():
        if line.endswith(":"):
            name = line.removesuffix(":")
        elif not line.startswith("#"):
            lists.setdefault(name, []).extend(line.split())
    return lists


WORDS: Final = _read_words()

ABOUT: Final = {
    "code": ("code in any language", "programming", "code, refactoring"),
    "debugging": ("debugging", "finds bugs in code"),
    "review": ("careful review", "code review, testing"),
    "sql": ("SQL and databases", "queries, databases"),
    "shell": ("shell and Linux", "Linux administration"),
    "devops": ("devops, operations", "servers and operations"),
    "security": ("security", "security audits"),
    "math": ("math, proofs", "arithmetic", "math and logic"),
    "science": ("science", "physics and chemistry, science"),
    "facts": ("broad knowledge", "facts, news"),
    "law": ("law and policy", "contracts, law"),
    "writing": ("fluent prose", "writing, editing of texts"),
    "translation": ("translation", "languages, translation"),
    "summary": ("summaries, long texts", "reads long texts"),
    "planning": ("planning, reasoning", "plans and reasoning"),
    "data": ("data analysis", "data and statistics"),
    "reasoning": ("careful reasoning", "analysis and logic"),
    "reading": ("reads documents", "long texts, reading"),
}
"""Descriptions by the skill that they tell."""

PLAIN: Final = (
    "",
    "",
    "",
    "general purpose",
    "fast and cheap",
    "local, private",
    "slow and thorough",
    "free tier",
)

CARD_WORDS: Final = (
    "general purpose, reasoning, very long texts",
    "general purpose, reasoning, long texts",
    "general purpose, very long texts, answers at once",
    "general purpose",
)

PUBLISHED: Final = ("math", "facts", "code", "science")
BASICS: Final = ("math", "letters", "reasoning", "code")


NEAR_ROW_SHARE: Final = 0.85  # The skills of questions that a table of drawn tags has a row for
OWN_WORD_SHARE: Final = 0.75  # The rows of these that mean the skill; the others are near it
NEAR_WORDS: Final = 4  # So many of the words that stand in for a skill are near it


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A worker for a step, and the word of the table that it is chosen by.

    Empty where a description decided.
    """

    worker: str
    tag: str = ""


def draw_pool(
    random: Random, *, skills: Sequence[str] = (), held: bool = False, size: int | None = None
) -> Pool:
    """A pool of one to eight workers. `held` draws names and tags that no lesson has.

    With `skills`, most of them have a row in a table of drawn tags: where no row is near, nothing
    can be learned but which word stands in for all.
    """
    count = size or random.choices(range(1, 9), weights=(3, 5, 7, 6, 4, 3, 2, 2))[0]
    names = random.sample(WORDS["held_names" if held else "names"], count)
    tags = _draw_tags(random, skills, held=held)
    # Some pools have figures for all workers, some for none, some for a part of them.
    measured = 0.0
    if tags:
        measured = random.choice((1.0, 1.0, 0.7))
    described = random.choice((0.3, 0.7, 0.9))
    return Pool(
        workers=tuple(
            _draw_worker(random, name, tags if random.random() < measured else (), described)
            for name in names
        )
    )


def _draw_tags(random: Random, skills: Sequence[str], *, held: bool) -> tuple[str, ...]:
    """The tags of a pool's cards, in the order in which they are listed.

    None where cards have only words.
    """
    # Validation and examination keep the shares that they had at first, so that figures compare.
    weights = (20, 15, 40, 25)
    if held:
        weights = (30, 10, 38, 22)
    kind = random.choices(("published", "basics", "custom", "words"), weights=weights)[0]
    if kind == "words":
        return ()
    if kind == "published":
        return tuple(random.sample(PUBLISHED, random.choice((2, 3, 4, 4))))
    if kind == "basics":
        return BASICS
    if held:
        return tuple(random.sample([*WORDS["tags"], *WORDS["held_tags"]], random.randint(2, 9)))
    count = random.randint(2, 9)
    tags = list[str]()
    for skill in dict.fromkeys(skills):
        if random.random() < NEAR_ROW_SHARE:
            tags.append(_word_for(skill, random))
    others = random.sample([*WORDS["tags"], *WORDS["more_tags"]], count)
    chosen = list(dict.fromkeys([*random.sample(tags, len(tags)), *others]))[:count]
    return tuple(random.sample(chosen, len(chosen)))


def _word_for(skill: str, random: Random) -> str:
    """A word of cards that means a skill, or nearly does."""
    held = WORDS["held_tags"]
    own = [word for word in KINDS[skill].tags if word not in held]
    near = [word for word in KINDS[skill].near_tags if word not in held][:NEAR_WORDS]
    if near and random.random() > OWN_WORD_SHARE:
        return random.choice(near)
    return random.choice(own)


def _draw_worker(random: Random, name: str, tags: Sequence[str], described: float) -> Worker:
    level = random.uniform(0.35, 0.9)
    strengths = {
        tag: round(min(0.99, max(0.05, random.gauss(level, 0.18))), 2)
        for tag in tags
        if random.random() < 0.93
    }
    about = ""
    if random.random() < described:
        about = random.choice(ABOUT[random.choice(list(ABOUT))] if random.random() < 0.7 else PLAIN)
    words = "" if strengths or about else random.choice(CARD_WORDS)
    card = Card(strengths=strengths, measured=bool(strengths), words=words)
    return Worker(
        name=name, kind="openai", model=random.choice(WORDS["models"]), about=about, card=card
    )


def choose(
    kind: str, context: PlanFormatContext, *, other_than: Collection[str] = (), withheld: str = ""
) -> Choice:
    """Whom the planner should choose for a kind of work: the first of the row that it may write.

    A worker on `other_than` is chosen only where the row has no other one; `withheld` never is.
    """
    row = [context.labels[label] for label in context.allowed_for(kind)]
    offered = [name for name in row if name != withheld]
    others = [name for name in offered if name not in other_than] or offered
    return Choice(worker=others[0], tag=kind)
