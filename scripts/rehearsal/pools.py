"""Pools that are drawn for one question: how many members, what each can do and how well, in which order. Pure.

A member has one to three skills, and a strength for each. Its name means nothing. One member may be the generalist,
which has the one skill `anything`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Final

from conductor_cli.core.pool import Card, Pool, Worker
from conductor_cli.core.usage import Price
from conductor_cli.rehearsal.players import ANYTHING, CHECKER, CHECKING

GENERALIST: Final = "generalist"

GENERALIST_STRENGTH: Final = 0.4
"""On its card: about the share of steps that it does rightly."""

MOST_SKILLS: Final = 3
"""The most skills of a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What a member can do: the strength of each of its skills. `price` is in US dollars for a million tokens."""

    strengths: Mapping[str, float]
    price: int = 1

    @property
    def files(self) -> dict[str, float]:
        """The strengths by the names of the files that answer."""
        if ANYTHING in self.strengths:
            return {GENERALIST: 1.0}
        return {CHECKER if skill == CHECKING else skill: strength for skill, strength in self.strengths.items()}


def luck(files: Mapping[str, float], prompt: str, seed: int) -> Random:
    """What decides how a member with these files does with a prompt: drawn for each member, and always the same."""
    return Random(f"{seed} {sorted(files.items())} {prompt}")  # noqa: S311 - reproducible, no secret


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What to draw.

    `sizes` are numbers of members, `extra` numbers of skills that the question does not need. `generalist` is the share
    of pools with one, and `missing` the share of those where nobody has one of the needed skills. The best member for
    a skill has the strength 1 in a share `sure` of all cases, and otherwise one of the range `best`. A skill has a
    rival in a share `rivals`; its strength is that of the best one times a factor in the range `weak`. With
    `sure_check`, whoever is best at checking says of every answer what the checker finds.
    """

    sizes: Sequence[int] = (2, 3, 3, 4, 4, 5, 6)
    extra: Sequence[int] = (0, 1, 2, 3, 4, 5)
    generalist: float = 0.4
    missing: float = 0.2
    sure: float = 0.7
    best: tuple[float, float] = (0.6, 0.95)
    rivals: float = 0.6
    weak: tuple[float, float] = (0.15, 0.75)
    sure_check: bool = False


@dataclass(slots=True)
class _Draft:
    """A pool while it is drawn."""

    random: Random
    members: list[dict[str, float]] = field(default_factory=list)

    def place(self, skill: str, strength: float) -> bool:
        """Give a skill to a member that lacks it and has room, one of those with the fewest. Whether there was one."""
        able = [member for member in self.members if skill not in member and len(member) < MOST_SKILLS]
        if not able:
            return False
        fewest = min(map(len, able))
        self.random.choice([member for member in able if len(member) == fewest])[skill] = strength
        return True


def draw_members(
    random: Random, needed: Sequence[str], others: Sequence[str], settings: PoolSettings
) -> tuple[Member, ...]:
    """A pool for a question that needs the skills `needed`; its other skills are drawn from `others`."""
    general = random.random() < settings.generalist
    wanted = list(dict.fromkeys(needed))
    if general and len(wanted) > 1 and random.random() < settings.missing:
        wanted.remove(random.choice([skill for skill in wanted if skill != CHECKING]))
    free = [skill for skill in dict.fromkeys(others) if skill not in needed]
    extra = random.sample(free, min(random.choice(settings.extra), len(free)))
    specialists = max(random.choice(settings.sizes) - general, -(-len(wanted) // MOST_SKILLS), 1)
    draft = _Draft(random, [{} for _ in range(specialists)])
    placed = wanted + [skill for skill in extra if skill not in wanted][: MOST_SKILLS * specialists - len(wanted)]
    best = {skill: 1.0 if random.random() < settings.sure else random.uniform(*settings.best) for skill in placed}
    if settings.sure_check and CHECKING in best:
        best[CHECKING] = 1.0
    for skill in random.sample(placed, len(placed)):
        draft.place(skill, best[skill])
    for skill in random.sample(placed, len(placed)):
        if random.random() < settings.rivals:
            draft.place(skill, round(best[skill] * random.uniform(*settings.weak), 2))
    spare = [skill for skill in random.sample(free, len(free)) if skill not in placed]
    for member in [member for member in draft.members if not member]:
        # Nobody is left without a skill: with one worker on offer, a plan may have only one step.
        skill = spare.pop() if spare else random.choice(placed)
        member[skill] = round(best.get(skill, 1.0) * random.uniform(*settings.weak), 2)
    made = [_shuffled(random, member) for member in draft.members]
    if general:
        made.append({ANYTHING: GENERALIST_STRENGTH})
    return tuple(
        Member(strengths=strengths, price=random.randint(1, 9)) for strengths in random.sample(made, len(made))
    )


def _shuffled(random: Random, strengths: Mapping[str, float]) -> dict[str, float]:
    return dict(random.sample(list(strengths.items()), len(strengths)))


def pool_of(members: Sequence[Member]) -> Pool:
    """The members as workers with cards. Whoever runs them has their models."""
    return Pool(
        workers=tuple(
            Worker(
                name=f"member{number}", kind="llama", card=Card(strengths=member.strengths, measured=True),
                price=Price(input=Decimal(member.price), output=Decimal(member.price)),
            )
            for number, member in enumerate(members, start=1)
        )
    )  # fmt: skip
