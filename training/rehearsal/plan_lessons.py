"""What a conductor learns before any reward: to write plans, to divide questions, to read a table.

Pure.

Most steps of these lessons name a skill that is made up ("the zorb of FRANCE", and somebody has
zorbing): so matching a step to a row of the table becomes a habit that holds for words of any kind.
Real skills are matched only where a step names one itself ("spell it", spelling); which other words
belong to which skill is left for the reward to teach.

A conductor has to find where a clause starts and ends and to copy it, not to understand it. Clauses
with words that are exchanged, added or left out cannot be recited from memory. Half of the words
that are put in are made up, and half are any of the vocabulary: a token that was never to be
written is one that cannot be copied later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Final

from conductor_cli.core.plan_formats.native import ACCEPT
from conductor_cli.core.profile import labels_for
from conductor_cli.rehearsal.players import (
    ANYTHING,
    CHECKING,
    NO,
    PROFILE,
    YES,
    Rows,
    prompt,
    skill_rows,
)
from conductor_cli.rehearsal.words import KEYWORDS, VOCABULARY, Skill, normalize
from training.rehearsal.exercises import PoolSettings, draw_members, pool_of
from training.rehearsal.lessons import CHUNK, NOISE, Course, Lesson, Size
from training.rehearsal.operations import SKILLS, Shape
from training.rehearsal.words import WORDS
from training.rehearsal.world import Problem, ProblemSettings, draw_problem

_ENDINGS: Final = ("", "", "", "s", "s", "ing", "ing", "ed", "ion", "ful")
_STEM_ENDINGS: Final = ("ing", "ion", "ful", "ed", "es", "s", "e")
_KEYWORDS: Final = frozenset(chain.from_iterable(KEYWORDS.values()))
_EVERYDAY: Final = tuple(
    sorted({word.lower() for word in WORDS if 3 <= len(word) <= 9} - VOCABULARY - _KEYWORDS)
)


def made_up_word(random: Random) -> str:
    """A word of no meaning in this world: an everyday one, or syllables."""
    if random.random() < 0.6:
        return random.choice(_EVERYDAY)
    while True:
        syllables = (NOISE["starts"], NOISE["middles"], (*NOISE["finals"], "", "")) * random.choice(
            (1, 1, 2)
        )
        word = "".join(map(random.choice, syllables))
        if word not in _KEYWORDS:
            return word


def skill_named(random: Random) -> tuple[str, str]:
    """A word as a step says it, and the name of the skill: the same, or with another ending."""
    word = made_up_word(random)
    words = word + random.choice(_ENDINGS)
    named = word + random.choice(_ENDINGS)
    if random.random() < 0.5:
        return (words, named)
    return (word, named)


def stem(word: str) -> str:
    """A word without its ending: spell, spelling and spelled have the same."""
    for ending in _STEM_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word.removesuffix(ending)
            break
    if not word.endswith("i"):
        return word
    return word[:-1] + "y"


def named_in(subtask: str, skills: list[str]) -> list[str]:
    """The skills that a subtask names."""
    stems = {stem(word) for word in subtask.split() if word.islower()}
    return [skill for skill in skills if stem(skill) in stems]


GARBLED: Final = 0.75  # the share of clauses in which words are changed
# The share of these in which all words are changed, so that nothing of them can be recited
OBSCURE: Final = 0.25

_HOLDING: Final = frozenset(NOISE["holding"])
_ANY: Final = tuple(sorted(word for word in VOCABULARY - _HOLDING if len(word) > 1))


@dataclass(slots=True)
class Clauses:
    """A question and its subtasks as lists of words, changed together."""

    asked: list[str]
    subtasks: list[list[str]]

    def spots(self, at: int) -> list[int]:
        """Where subtask `at` has small words that can be found in the question without doubt."""
        words = self.subtasks[at]
        return [
            index
            for index, word in enumerate(words)
            if word.islower() and self._spot(at, index) is not None
        ]

    def exchange(self, at: int, index: int, new: Sequence[str]) -> None:
        """Put `new` in the place of a word of subtask `at`, here and in the question."""
        spot = self._spot(at, index)
        if spot is not None:
            self.asked[spot : spot + 1] = new
            self.subtasks[at][index : index + 1] = new

    def _spot(self, at: int, index: int) -> int | None:
        """The same word in the question.

        The only such word, or the only one with the same neighbour.
        """
        words = self.subtasks[at]
        for low, high in (
            (index, index + 1),
            (index - 1, index + 1),
            (index, index + 2),
            (index - 1, index + 2),
        ):
            if low < 0 or high > len(words):
                continue
            clause = words[low:high]
            if (
                _count(self.asked, clause)
                == 1
                == sum(_count(other, clause) for other in self.subtasks)
            ):
                spots = (
                    at
                    for at in range(len(self.asked))
                    if self.asked[at : at + len(clause)] == clause
                )
                return next(spots) + index - low
        return None


def name_skill(random: Random, text: Clauses, at: int, skill: Skill) -> str:
    """Have subtask `at` name a made-up skill in place of its own one.

    Returns that skill; empty if it cannot be.
    """
    keywords = KEYWORDS.get(skill, ())
    telling = [index for index in text.spots(at) if text.subtasks[at][index] in keywords]
    left = [
        word
        for index, word in enumerate(text.subtasks[at])
        if word in keywords and index not in telling
    ]
    if not telling or left:
        return ""
    wording, named = skill_named(random)
    chosen = random.choice(telling)
    for index in sorted(telling, reverse=True):
        text.exchange(at, index, [wording if index == chosen else _word(random)])
    if wording in text.subtasks[at] and wording in text.asked:
        return named
    return ""


def garble(random: Random, text: Clauses, at: int) -> None:
    """Change some words of subtask `at`: another one, one more, or one less."""
    for _ in range(random.choice((1, 1, 2, 3, 4))):
        able = [index for index in text.spots(at) if text.subtasks[at][index] not in _HOLDING]
        if not able:
            return
        index = random.choice(able)
        word = text.subtasks[at][index]
        kind = random.random()
        if kind < 0.45:
            text.exchange(at, index, [_word(random)])
        elif kind < 0.85 or len(able) < 3:
            more = _run(random)
            last = index == len(text.subtasks[at]) - 1
            text.exchange(
                at,
                index,
                [*more, word] if last or (index and random.random() < 0.5) else [word, *more],
            )
        else:
            text.exchange(at, index, [])


def obscure(random: Random, text: Clauses, at: int, kept: str) -> None:
    """Exchange every word of subtask `at` that neither holds it together nor names a skill.

    `kept` is the word for the skill.
    """
    for index in text.spots(at):
        word = text.subtasks[at][index]
        if word not in _HOLDING and stem(word) != stem(kept):
            text.exchange(at, index, [_word(random)])


def _run(random: Random) -> list[str]:
    count = random.choice((1, 1, 1, 2, 3, 4))
    return [
        random.choice(NOISE["english"]) if random.random() < 0.6 else _word(random)
        for _ in range(count)
    ]


def _word(random: Random) -> str:
    if random.random() < 0.5:
        return made_up_word(random)
    return random.choice(_ANY)


def _count(words: Sequence[str], clause: Sequence[str]) -> int:
    if len(clause) == 1:
        return words.count(clause[0])
    size = len(clause)
    first = clause[0]
    return sum(word == first and words[at : at + size] == clause for at, word in enumerate(words))


COURSE: Final = Course(
    name="cold", skills=SKILLS, steps=9000, batch=64, rate=2e-3, size=Size(layers=6)
)

PLAIN: Final = 0.2  # the share of questions that are left as they are
# The share of steps of the others that name a made-up skill, where their words allow it
MADE_UP: Final = 0.65
# The share of questions with a check that come with the verdict of an earlier plan
AGAIN: Final = 0.4
KEPT: Final = 0.03  # the share of questions that come with an answer to which nobody objects

_SHAPES: Final[dict[Shape, float]] = {
    "single": 0.24,
    "chain2": 0.2,
    "chain3": 0.16,
    "join": 0.2,
    "join_then": 0.1,
    "chain_in_join": 0.1,
}


def chunk(course: Course, number: int) -> list[Lesson]:
    """The lessons of `CHUNK` batches."""
    random = Random(f"{course.name} {course.seed} {number}")
    return [lesson(random) for _ in range(CHUNK * course.batch)]


def lesson(random: Random) -> Lesson:
    """A question with a pool that is drawn for it, and a plan along its true steps."""
    problem = draw_problem(random, ProblemSettings(shapes=_SHAPES))
    text = Clauses(
        normalize(problem.question).split(), [hop.subtask.split() for hop in problem.hops]
    )
    plain = random.random() < PLAIN
    needed = list[str]()
    for at, hop in enumerate(problem.hops):
        skill = (
            "" if plain or random.random() > MADE_UP else name_skill(random, text, at, hop.skill)
        )
        if not plain and random.random() < GARBLED and hop.skill != CHECKING:
            if random.random() < OBSCURE:
                obscure(random, text, at, skill)
            else:
                garble(random, text, at)
        needed.append(skill or hop.skill)
    offered = [skill for skill in needed if skill != CHECKING or random.random() < 0.8]
    rows = draw_rows(random, offered)
    subtasks = [" ".join(words) for words in text.subtasks]
    return _planned(random, problem, " ".join(text.asked), subtasks, needed, rows)


def draw_rows(random: Random, needed: Sequence[str]) -> Rows:
    """The table of a pool in which somebody has most of these skills."""
    made_up = [skill_named(random)[1] for _ in range(random.choice((0, 1, 3, 6)))]
    checking = [CHECKING] if random.random() < 0.5 else []
    others = [*random.sample(SKILLS, random.randint(2, len(SKILLS))), *made_up, *checking]
    pool = pool_of(draw_members(random, needed, random.sample(others, len(others)), PoolSettings()))
    return skill_rows(
        {label: pool[name] for label, name in labels_for(pool.workers, PROFILE.labels).items()}
    )


def _planned(
    random: Random,
    problem: Problem,
    asked: str,
    subtasks: Sequence[str],
    needed: Sequence[str],
    rows: Rows,
) -> Lesson:
    """The first plan, or what follows when the answer was checked: another plan, or none."""
    if random.random() < KEPT:
        return Lesson(prompt(rows, asked, f"{YES} {random.choice('ABC')}"), ACCEPT)
    checks = problem.check and CHECKING in rows
    again = checks and random.random() < AGAIN
    count = len(subtasks) - (problem.check and (again or not checks))
    skills = [_row(random, subtasks[at], needed[at], rows) for at in range(count)]
    labels = [rows[skill][0].label for skill in skills]
    verdict = ""
    if again:
        asked_before = rows[skills[-1]][0]
        verdict = f"{NO} {asked_before.letter}"
        # The next best worker for the skill, else the generalist, else the same one again.
        others = [
            entry
            for entry in (*rows[skills[-1]], *rows.get(ANYTHING, ()))
            if entry.letter != asked_before.letter
        ]
        labels[-1] = (others or rows[skills[-1]])[0].label
    accesses = [" ".join(map(str, problem.hops[at].access)) or "-" for at in range(count)]
    lines = map(PROFILE.bar.join, zip(subtasks[:count], accesses, labels, strict=True))
    return Lesson(prompt(rows, asked, verdict), "\n".join(lines))


def _row(random: Random, subtask: str, needed: str, rows: Rows) -> str:
    """The row that a step goes to: the one that it names, or any."""
    named = named_in(subtask, list(rows))
    if named:
        if needed in named:
            return needed
        return random.choice(named)
    if named_in(subtask, [needed]) and ANYTHING in rows:
        return ANYTHING
    return random.choice(list(rows))
