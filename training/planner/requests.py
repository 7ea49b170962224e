"""Short requests: what one person asks in a breath, of several workers or of one.

They are joined of pieces of work, whose subtasks are known, and of sentences that say who does
them (`requests.txt`). Written questions are mostly longer (`written.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Final

from conductor_cli.core.question import Question
from training.planner.shapes import HERE, Slots
from training.planner.written import Task, TaskStep

HELD_EVERY: Final = 6  # Every so many sentences of a join are in no lesson, where there are as many
ENGLISH: Final = 0.8  # The share of requests in English
JOINS: Final[Mapping[str, int]] = {
    "checked": 24,
    "repaired": 8,
    "both": 14,
    "three": 5,
    "follow": 9,
    "opinions": 9,
    "debate": 5,
    "opinions of three": 10,
    "alone": 16,
}
"""How often each way to join is drawn, of 100."""

BY_OTHERS: Final = ("testing", "security")  # What these sentences want of somebody else
OPINIONS: Final = (
    "Give an opinion on {topic}.",
    "Give an opinion of your own on {topic}.",
    "Give a further, independent opinion on {topic}.",
)
SIDES: Final = ("Argue in favour: {topic}.", "Argue against it: {topic}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of work, how it is asked for, and its subtask.

    `check` is the kind of work that a check of it is, `result` what a sentence calls its result.
    """

    tongue: str
    kind: str
    check: str
    result: str
    asked: list[str] = field(default_factory=list)
    subtask: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Sentences that join pieces in one way.

    A piece of the kind `follower` builds on a first one, which is of one of the `kinds`.
    """

    tongue: str
    name: str
    kinds: tuple[str, ...] = ()
    follower: str = ""
    sentences: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Requests:
    """What requests.txt has; the topics by their tongue."""

    pieces: list[Piece] = field(default_factory=list)
    joins: list[Join] = field(default_factory=list)
    topics: dict[str, list[str]] = field(default_factory=dict)


@cache
def read_requests() -> Requests:
    """The pieces, joins and topics of requests.txt."""
    requests = Requests()
    for line in (HERE / "requests.txt").read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark.startswith("="):
            kind, check, result = rest.split(" | ")
            piece = Piece(tongue=mark[1:], kind=kind, check=check, result=result)
            requests.pieces.append(piece)
        elif mark == "?":
            requests.pieces[-1].asked.append(rest)
        elif mark == ">":
            requests.pieces[-1] = replace(requests.pieces[-1], subtask=rest)
        elif mark.startswith("*"):
            requests.joins.append(_read_join(mark[1:], rest))
        elif mark.startswith("~"):
            requests.topics.setdefault(mark[1:], []).append(rest)
        elif line and mark != "#":
            requests.joins[-1].sentences.append(line)
    return requests


def _read_join(tongue: str, head: str) -> Join:
    name, *rest = head.split(" | ")
    if not rest:
        return Join(tongue=tongue, name=name)
    kinds, follower = rest
    return Join(tongue=tongue, name=name, kinds=tuple(kinds.split()), follower=follower)


def draw_request(random: Random, *, held: bool = False) -> Task:
    """A short request with the steps of its plan.

    With `held` it uses a sentence that no lesson has, where there are enough of its kind.
    """
    requests = read_requests()
    (name,) = random.choices([*JOINS], weights=[*JOINS.values()])
    joins = [join for join in requests.joins if join.name == name]
    in_english = random.random() < ENGLISH
    in_tongue = [join for join in joins if (join.tongue == "") == in_english]
    join = random.choice(in_tongue or joins)
    sentence = random.choice(_sentences(join.sentences, held=held))
    slots = Slots(random, held)
    if name in ("opinions", "debate", "opinions of three"):
        return _asked_opinions(join, sentence, random.choice(requests.topics[join.tongue]), slots)
    pieces = _draw_pieces(join, random)
    return _asked_pieces(join, sentence, pieces, slots)


def _sentences(sentences: Sequence[str], *, held: bool) -> Sequence[str]:
    """The sentences that are held out, or the others; all of them where they are few."""
    if len(sentences) < HELD_EVERY:
        return sentences
    kept = sentences[HELD_EVERY - 1 :: HELD_EVERY]
    if held:
        return kept
    return [sentence for sentence in sentences if sentence not in kept]


def _asked_opinions(join: Join, sentence: str, topic: str, slots: Slots) -> Task:
    """A request for opinions of people who work apart, each other than all before."""
    topic = slots.fill(topic)
    count = 3 if join.name == "opinions of three" else 2
    wanted = SIDES if join.name == "debate" else OPINIONS[:count]
    named = topic
    if join.tongue:
        named = "the question"
    steps = [
        TaskStep(
            skill="reasoning",
            subtask=subtask.format(topic=named),
            other_than=tuple(range(1, number)),
        )
        for number, subtask in enumerate(wanted, start=1)
    ]
    steps.append(TaskStep(skill="reasoning", subtask=""))
    text = sentence.replace("{topic}", topic)
    return _task(join, text, "reasoning", steps)


def _draw_pieces(join: Join, random: Random) -> list[Piece]:
    """The pieces that a sentence of this join has, of different kinds."""
    count = {"both": 2, "three": 3}.get(join.name, 1)
    pieces = [piece for piece in read_requests().pieces if piece.tongue == join.tongue]
    if join.kinds:
        pieces = [piece for piece in pieces if piece.kind in join.kinds]
    drawn = dict[str, Piece]()
    for piece in random.sample(pieces, len(pieces)):
        drawn.setdefault(piece.kind, piece)
    return [*drawn.values()][:count]


def _asked_pieces(join: Join, sentence: str, pieces: Sequence[Piece], slots: Slots) -> Task:
    """A request for pieces of work that a sentence joins."""
    text = sentence.replace("{result}", pieces[0].result)
    done = list[TaskStep]()
    for letter, piece in zip("abc", pieces, strict=False):
        asked = slots.fill(slots.random.choice(piece.asked))
        text = text.replace(f"{{{letter}}}", asked)
        text = text.replace(f"{{{letter.upper()}}}", asked[:1].upper() + asked[1:])
        done.append(TaskStep(skill=piece.kind, subtask=slots.fill(piece.subtask)))
    return _task(join, slots.fill(text), pieces[0].kind, _plan_of(join, pieces, done))


def _plan_of(join: Join, pieces: Sequence[Piece], done: list[TaskStep]) -> list[TaskStep]:
    """The steps of a request for pieces of work that are `done` by a step each."""
    first = pieces[0]
    match join.name:
        case "alone":
            return []
        case "checked":
            return [*done, TaskStep(skill=first.check, subtask="", other_than=(1,))]
        case "repaired":
            return [*done, _check_of(first), TaskStep(skill=first.kind, subtask="")]
        case "follow":
            other = (1,) if join.follower in BY_OTHERS else ()
            return [*done, TaskStep(skill=join.follower, subtask="", other_than=other)]
        case _:
            return [*done[:-1], TaskStep(skill=pieces[-1].kind, subtask="")]


def _check_of(piece: Piece) -> TaskStep:
    """The step in which somebody else checks the first one."""
    subtask = f"Check {_named(piece)} and list what is wrong with it."
    return TaskStep(skill=piece.check, subtask=subtask, access=(1,), other_than=(1,))


def _named(piece: Piece) -> str:
    """What a subtask, which is in English, calls the result of a piece."""
    return piece.result if not piece.tongue else "the result"


def _task(join: Join, text: str, skill: str, steps: Sequence[TaskStep]) -> Task:
    kind = f"request {join.name}"
    return Task(kind=kind, question=Question(text=text), skill=skill, steps=tuple(steps))
