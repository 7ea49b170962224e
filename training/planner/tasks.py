"""Questions with the steps of their plans: drawn from shapes, projects, and pieces of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from conductor_cli.core.question import File, PastTurn, Question
from training.planner.projects import draw_project
from training.planner.shapes import (
    Shape,
    Slots,
    StepShape,
    Task,
    decorated,
    read_files,
    read_shapes,
)

IN_CONTEXT: Final = 0.08  # The share of technical questions that begin with who asks, or with what

_PLURALS: Final = {2: "both", 3: "all three", 4: "all four"}

_JOINED: Final = {
    2: (
        "{0}, and {1}.",
        "{0}. Then {1}.",
        "Two things: {0}; and {1}.",
        "{0}. Also {1}.",
        "{0}. Besides, {1}",
        "(1) {0} (2) {1}",
        "Please {0}, and also {1}.",
        "{0} and {1}",
        "- {0}\n- {1}",
    ),
    3: (
        "{0}, {1}, and {2}.",
        "I need three things: (1) {0} (2) {1} (3) {2}.",
        "{0}. {1}. {2}.",
        "- {0}\n- {1}\n- {2}",
        "Please {0}. Then {1}, and finally {2}.",
        "1. {0}\n2. {1}\n3. {2}",
    ),
    4: (
        "1. {0}\n2. {1}\n3. {2}\n4. {3}",
        "{0}; {1}; {2}; and {3}.",
        "Four tasks: {0}. {1}. {2}. {3}.",
    ),
}
"""How the parts of a question are joined."""

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
    kind = random.choices(("shape", "project", "parts", "then"), weights=(52, 26, 15, 7))[0]
    if kind == "project":
        return draw_project(random, held=held)
    if kind == "parts":
        return _draw_parts(random, held=held)
    if kind == "then":
        return _draw_then(random, held=held)
    pool = _shapes(random, held=held)
    return _draw_shape(random, random.choice(pool), held=held)


def _shapes(random: Random, *, held: bool) -> Sequence[Shape]:
    """Shapes of one kind: those of one step, of several, or odd ones.

    A held-out one half of the time it may be.
    """
    shapes = [shape for shape in read_shapes() if not shape.held]
    if held and random.random() < 0.5:
        return [shape for shape in read_shapes() if shape.held]
    kind = random.choices(("one", "easy", "several", "odd"), weights=(34, 14, 38, 14))[0]
    return [shape for shape in shapes if _kind(shape) == kind]


def _kind(shape: Shape) -> str:
    if shape.skill == "general" and (shape.easy or shape.follows_up):
        return "odd"
    if shape.steps:
        return "several"
    if shape.easy:
        return "easy"
    return "one"


def _draw_shape(random: Random, shape: Shape, *, held: bool) -> Task:
    slots = Slots(random, held)
    text = slots.fill(random.choice(shape.asked))
    steps = tuple(replace(step, subtask=slots.fill(step.subtask)) for step in shape.steps)
    if shape.follows_up:
        later = _follow_up(random, text, held=held)
        return Task(kind=shape.name, question=later, skill=shape.skill, steps=steps)
    files = tuple(_draw_file(slots, kind, number) for number, kind in enumerate(shape.files))
    if shape.skill in _TECHNICAL and random.random() < IN_CONTEXT:
        text = f"{slots.fill(random.choice(_CONTEXTS))} {text}"
    question = Question(text=decorated(random, text, form=not steps and not files), files=files)
    return Task(kind=shape.name, question=question, skill=shape.skill, steps=steps)


def _follow_up(random: Random, text: str, *, held: bool) -> Question:
    """A question that goes on from an earlier one, whose answer is short here."""
    before = _draw_shape(random, random.choice(_singles()), held=held).question.text
    answer = Slots(random, held).fill("It is about {thing}: {text} See {tool}.")
    return Question(text=text, history=(PastTurn(question=before, answer=answer),))


def _singles() -> list[Shape]:
    return [shape for shape in read_shapes() if shape.order and not shape.held]


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


_ON_IT: Final = (
    "check it for {edges}",
    "test it on {edges} and {edges.2}",
    "make sure that it is right",
    "check it for mistakes",
    "review it",
    "list what could go wrong with it",
    "say what could be misunderstood in it",
    "have it reviewed",
    "check all of it twice",
    "verify the figures in it",
)
"""Parts of a question that are about the results of the other parts."""


def _draw_parts(random: Random, *, held: bool) -> Task:
    """A question of two to four parts.

    Easy ones are one step; else each is a step, and a last one reads all.
    """
    count = random.choices((2, 3, 4), weights=(5, 4, 1))[0]
    easy = random.random() < 0.25
    # The slots of all parts are drawn together, so that no two parts have the same value.
    fitting_shapes = [shape for shape in _singles() if shape.easy == easy]
    shapes = random.sample(fitting_shapes, count)
    orders = [Slots(random, held).fill(shape.order).rstrip(".") for shape in shapes]
    follows = not easy and count > 2 and random.random() < 0.5
    if follows:
        orders[-1] = Slots(random, held).fill(random.choice(_ON_IT))
    request = random.choice(_JOINED[count]).format(*orders)
    question = Question(text=decorated(random, request[:1].upper() + request[1:], form=False))
    if easy:
        return Task(kind=f"{count} easy parts", question=question, skill=shapes[0].skill)
    steps = [
        StepShape(skill=shape.skill, access=(), subtask=order[:1].upper() + order[1:] + ".")
        for shape, order in zip(shapes, orders, strict=True)
    ]
    if follows:
        # The last part is about the results of the others, so it reads them, and is done by another
        # worker.
        before = tuple(range(1, count))
        kind = _kind_of_check(shape.skill for shape in shapes[:-1])
        steps[-1] = replace(steps[-1], skill=kind, access=before, other_than=1)
    last = StepShape(
        skill="writing",
        access=tuple(range(1, count + 1)),
        subtask=(
            f"Put {_PLURALS[count]} answers together in the order of the question, each complete."
        ),
    )
    return Task(
        kind=f"{count} parts", question=question, skill=shapes[0].skill, steps=(*steps, last)
    )


_OF_CODE: Final = ("code", "debugging", "testing", "shell", "regex", "sql", "frontend", "review")


def _kind_of_check(skills: Iterable[str]) -> str:
    """The kind of work that checks results of these kinds: who reviews code knows code."""
    if all(skill in _OF_CODE for skill in skills):
        return "review"
    return "reasoning"


_THEN: Final = (
    (
        "translation",
        "then translate the answer into {tongue}",
        "Translate this answer into {tongue}, and give it.",
    ),
    (
        "translation",
        "with the answer in {tongue} as well",
        "Translate the answer into {tongue}, and give both.",
    ),
    (
        "writing",
        "then turn it into an e-mail that {mail}",
        "Write an e-mail with this result that {mail}.",
    ),
    ("writing", "and explain the result {style}", "Explain this result {style}, and give both."),
    ("docs", "then write {doc} for it", "Write {doc} for this, and give both."),
    (
        "review",
        "and have it checked by a second pair of eyes",
        "Check this for mistakes, and give it corrected.",
    ),
    (
        "review",
        "this is critical, so verify it",
        "Verify this with an example, and give it corrected.",
    ),
    (
        "security",
        "and make sure that it is secure",
        "Look for weaknesses in this, and give it made secure.",
    ),
    ("testing", "with tests", "Write tests for this, and give both, corrected where a test fails."),
)
"""What follows on an answer: the skill, the words of the question, the subtask of the second
step.
"""


def _draw_then(random: Random, *, held: bool) -> Task:
    """A piece of work, and what is done with its result by another worker."""
    code = [
        shape for shape in _singles() if shape.skill in ("code", "sql", "shell", "regex", "devops")
    ]
    skill, words, subtask = random.choice(_THEN)
    shapes = code
    if skill not in ("docs", "review", "security", "testing"):
        shapes = _singles()
    shape = random.choice([shape for shape in shapes if not shape.easy])
    slots = Slots(random, held)
    order, words, subtask = (slots.fill(text) for text in (shape.order.rstrip("."), words, subtask))
    order = order[:1].upper() + order[1:]
    request = random.choice(("{0}, {1}.", "{0}. {1}", "{0}, {1}", "{0} - {1}")).format(order, words)
    first = StepShape(skill=shape.skill, access=(), subtask=f"{order}.")
    second = StepShape(skill=skill, access=(1,), subtask=subtask, other_than=1)
    question = Question(text=decorated(random, request, form=False))
    return Task(kind=f"then {skill}", question=question, skill=shape.skill, steps=(first, second))
