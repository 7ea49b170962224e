"""A chain of operations -> one sentence that asks for it, and the phrasing of each hop. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from conductor_cli.rehearsal.operations import Operation
from conductor_cli.rehearsal.phrasings import (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLink:
    """One operation of a chain with its amount."""

    operation: Operation
    amount: int = 0

    def phrasings(self, form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
        return WAYS[self.operation.name].of(form, which)


def build_sentence(
    random: Random, start: str, links: Sequence[ChainLink], which: PhrasingSet
) -> tuple[str, tuple[str, ...], bool]:
    """The sentence, the phrasing of each link, and whether training may see them all."""
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
    """The phrasings of the last link that name what they work on, and can do so in one way only.

    Over another phrase none that goes with a word only, and none that begins with what it works on where one inside it
    is of the same skill: in "the sorted letters of LION spelled backwards", what is spelled backwards?
    """
    texts = [text for text in links[-1].phrasings(form, which) if "{x}" in text]
    if pronoun or len(links) > 1:
        texts = [text for text in texts if not takes_word_only(text)]
    if any(link.operation.skill == links[-1].operation.skill for link in links[:-1]):
        texts = [text for text in texts if not text.startswith("{x}")]
    return tuple(texts)


def _frames(form: PhrasingForm, which: PhrasingSet) -> tuple[str, ...]:
    return FRAMES[form] if which == "known" else FRAMES[form] + HELD_FRAMES[form]
