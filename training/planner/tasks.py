"""Questions with the steps of their plans: written one by one, or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from conductor_cli.core.question import File, PastTurn, Question
from training.planner.requests import draw_request
from training.planner.shapes import Shape, Slots, decorated, read_files, read_shapes
from training.planner.written import Task, draw_written

WRITTEN: Final = 0.6  # The share of questions that were written one by one
REQUESTS: Final = 0.25  # The share of short requests
IN_CONTEXT: Final = 0.08  # The share of technical questions that begin with who asks, or with what

_TECHNICAL: Final = ("code", "debugging", "sql", "devops", "security", "architecture", "testing")
_CONTEXTS: Final = (
    "I am {role}.",
    "We use {language} and {database}.",
    "Context: {system}, {count} users.",
    "We are {purpose}.",
    "I am new to this.",
    "This is for production.",
    "Our stack: {framework}, {database}, {cloud}.",
    "It is urgent.",
)
"""What stands before a question and changes nothing in its plan."""


def draw_task(random: Random, *, held: bool = False) -> Task:
    """A question with the steps of its plan.

    With `held` from what no lesson has, where there is such.
    """
    drawn = random.random()
    if drawn < WRITTEN:
        return draw_written(random, held=held)
    if drawn < WRITTEN + REQUESTS:
        return draw_request(random, held=held)
    return draw_shaped(random, held=held)


def draw_shaped(random: Random, *, held: bool = False) -> Task:
    """A question of a shape, which one worker answers."""
    return _fill_shape(random, random.choice(_shapes(random, held=held)), held=held)


def _shapes(random: Random, *, held: bool) -> Sequence[Shape]:
    """Shapes of one kind: those with some work, easy or odd ones.

    A held-out one half of the time it may be.
    """
    shapes = [shape for shape in read_shapes() if not shape.held]
    if held and random.random() < 0.5:
        return [shape for shape in read_shapes() if shape.held]
    kind = random.choices(("work", "easy", "odd"), weights=(34, 14, 14))[0]
    return [shape for shape in shapes if _kind(shape) == kind]


def _kind(shape: Shape) -> str:
    if shape.skill == "general" and (shape.easy or shape.follows_up):
        return "odd"
    if shape.easy:
        return "easy"
    return "work"


def _fill_shape(random: Random, shape: Shape, *, held: bool) -> Task:
    slots = Slots(random, held)
    text = slots.fill(random.choice(shape.asked))
    if shape.follows_up:
        later = _follow_up(random, text, held=held)
        return Task(kind=shape.name, question=later, skill=shape.skill)
    files = tuple(_draw_file(slots, kind, number) for number, kind in enumerate(shape.files))
    if shape.skill in _TECHNICAL and random.random() < IN_CONTEXT:
        text = f"{slots.fill(random.choice(_CONTEXTS))} {text}"
    question = Question(text=decorated(random, text, form=not files), files=files)
    return Task(kind=shape.name, question=question, skill=shape.skill)


def _follow_up(random: Random, text: str, *, held: bool) -> Question:
    """A question that goes on from an earlier one, whose answer is short here."""
    before = _fill_shape(random, random.choice(_first_shapes()), held=held).question.text
    answer = Slots(random, held).fill("It is about {thing}: {text} See {tool}.")
    return Question(text=text, history=(PastTurn(question=before, answer=answer),))


def _first_shapes() -> list[Shape]:
    """The shapes that a conversation may begin with."""
    return [shape for shape in read_shapes() if not (shape.follows_up or shape.held)]


def _draw_file(slots: Slots, kind: str, number: int) -> File:
    name, text = slots.random.choice(read_files()[kind])
    # A second file of a kind has other values.
    own = slots
    if number != 0:
        own = Slots(slots.random, slots.held)
    stem, dot, ending = name.rpartition(".")
    if number and stem:
        name = f"{stem}{number + 1}{dot}{ending}"
    return File(name=name, text=own.fill(text))
