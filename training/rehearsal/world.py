"""Questions with checkable answers, drawn from a seed: one to five steps in the words of people.

The same arguments give the same problems on every machine. A quarter of the words, a fifth of the
questions of several steps and the held-out phrasings are kept for testing. A fact or a sum itself
is in both splits: a model that has never seen a capital cannot know it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

from conductor_cli.core.profile import SeenStep
from conductor_cli.rehearsal.words import Skill, find_operands, normalize
from training.rehearsal.operations import SKILLS, Growth, Node, Shape, WordDraw, grow, subjects
from training.rehearsal.phrasings import PhrasingSet
from training.rehearsal.sentences import Phrased, sentence, typed
from training.rehearsal.words import WORDS

Split = Literal["train", "test"]

SHAPES: Final[Mapping[Shape, float]] = {
    "single": 0.30,
    "chain2": 0.20,
    "chain3": 0.14,
    "join": 0.20,
    "join_then": 0.08,
    "chain_in_join": 0.08,
}
"""How often each shape comes."""

CHECKED: Final = 0.15  # the share of questions that ask for a check of the answer
MAX_REPEATS: Final = 1000  # after so many draws without a new question, there are none left


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One step of a problem.

    `subtask` is a short clause in words of the question; "it", or "the first" and "the second",
    stand for answers of earlier hops. `access` are the numbers of the hops that it needs, from 1,
    in that order. A check ("checking") has the subtask "check it" and the answer "YES".
    """

    skill: Skill
    op: str
    subtask: str
    answer: str
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question as somebody might type it, its answer and its hops.

    No two of a set normalize to the same text.

    With `check`, the question asks for a check, and the last hop is one; it needs the hop before
    it, and what that one needs.
    """

    id: str
    question: str
    answer: str
    hops: tuple[Hop, ...]
    shape: Shape
    check: bool = False

    @property
    def skills(self) -> tuple[Skill, ...]:
        return tuple(dict.fromkeys(hop.skill for hop in self.hops))

    def seen_by(self, hop: Hop) -> tuple[SeenStep, ...]:
        """The earlier steps that a step sees, with the right answers."""
        seen = ((number, self.hops[number - 1]) for number in hop.access)
        return tuple(
            SeenStep(number=number, worker="", subtask=earlier.subtask, answer=earlier.answer)
            for number, earlier in seen
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSettings:
    """What to draw.

    `shares` are the weights of operations, 1 for one that is not named. `word` draws the words for
    questions about letters; None takes the list of the split. `shapes` are weights; `checked` is
    the share of questions with a check. `needs` is a skill that each question needs, if it is not
    empty.
    """

    split: Split = "train"
    phrasings: PhrasingSet = "known"
    skills: tuple[Skill, ...] = SKILLS
    shares: Mapping[str, float] = field(default_factory=dict)
    shapes: Mapping[Shape, float] = field(default_factory=lambda: SHAPES)
    word: WordDraw | None = None
    checked: float = CHECKED
    needs: Skill | Literal[""] = ""


_SUBJECTS: Final = tuple(sorted(word for word in subjects() if len(word) > 2))


def _held(key: str, one_in: int) -> bool:
    """Whether `key` is kept for testing.

    MD5 gives the same result on every machine and in every version of Python.
    """
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big") % one_in == 0


def is_test_word(word: str) -> bool:
    """Whether a word is kept for testing. Words of facts are in both splits."""
    return word in _TEST_WORDS


_TEST_WORDS: Final = frozenset(word for word in WORDS if word not in subjects() and _held(word, 4))
_BY_SPLIT: Final[Mapping[Split, tuple[str, ...]]] = {
    "train": tuple(word for word in WORDS if word not in _TEST_WORDS),
    "test": tuple(word for word in WORDS if word in _TEST_WORDS),
}


def draw_word(random: Random, split: Split) -> str:
    """A word for a question about letters.

    Mostly of the split's own, sometimes one that facts are known about.
    """
    if random.random() < 0.25:
        return random.choice(_SUBJECTS)
    return random.choice(_BY_SPLIT[split])


def draw_problems(
    count: int, seed: int, settings: ProblemSettings | None = None, **changes: object
) -> tuple[Problem, ...]:
    """`count` different problems.

    `changes` are fields of `ProblemSettings`. By default, training has the known phrasings and
    tests have the held-out ones. Raises `ValueError` if there are not so many different problems.
    """
    if settings is None:
        phrasings = "known"
        if changes.get("split") == "test":
            phrasings = "held"
        settings = ProblemSettings(**{"phrasings": phrasings, **changes})  # type: ignore[arg-type]
    random = Random(f"{settings.split} {settings.phrasings} {seed}")
    problems: dict[str, Problem] = {}
    repeats = 0
    while len(problems) < count:
        problem = draw_problem(
            random, settings, id=f"{settings.split}-{seed}-{len(problems) + 1:04}"
        )
        repeats = (
            repeats + 1
            if problems.setdefault(normalize(problem.question), problem) is not problem
            else 0
        )
        if repeats == MAX_REPEATS:
            raise ValueError(f"there are no {count} different problems of this kind")
    return tuple(problems.values())


# The field's name
def draw_problem(random: Random, settings: ProblemSettings, *, id: str = "") -> Problem:  # noqa: A002
    """One problem."""
    split = settings.split
    growth = Growth(
        skills=settings.skills,
        shares=settings.shares,
        word=settings.word or (lambda drawn: draw_word(drawn, split)),
    )
    shape = random.choices(tuple(settings.shapes), tuple(settings.shapes.values()))[0]
    while True:
        root = grow(random, growth, shape)
        if settings.needs and settings.needs not in {
            operation.skill for operation in root.operations()
        }:
            continue
        if split_of(root) not in {None, split}:
            continue
        check = random.random() < settings.checked and len(root.operations()) < 5
        made = sentence(random, root, settings.phrasings, check=check)
        if made is None:
            continue
        question = typed(random, made.text)
        hops = _hops(made.steps, check=check)
        # A word may be lost among those of a phrasing ("use the number Ra say ..."): then nobody
        # could solve it.
        texts = (normalize(question), " ".join(hop.subtask for hop in hops))
        if all(Counter(find_operands(text)) == Counter(root.literals) for text in texts):
            return Problem(
                id=id, question=question, answer=root.value, hops=hops, shape=shape, check=check
            )


def split_of(root: Node) -> Split | None:
    """The split of a tree.

    None if it is in both: a single fact or sum, of which tests have other phrasings.
    """
    if any(is_test_word(word) for word in root.literals):
        return "test"
    if not root.children:
        return None
    if _held(root.key, 5):
        return "test"
    return "train"


def _hops(steps: Sequence[Phrased], *, check: bool) -> tuple[Hop, ...]:
    numbers = {id(step.node): number for number, step in enumerate(steps, start=1)}
    hops = [
        Hop(
            skill=step.node.operation.skill,
            op=step.node.operation.name,
            subtask=normalize(step.subtask),
            answer=step.node.value,
            access=tuple(numbers[id(part)] for part in step.parts),
        )
        for step in steps
    ]
    if check:
        last = len(hops)
        hops.append(
            Hop(
                skill="checking",
                op="check",
                subtask="check it",
                answer="YES",
                access=(*hops[-1].access, last),
            )
        )
    return tuple(hops)
