"""Projects: questions for a thing and for what is wanted with it, as in projects.txt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Final

from conductor_cli.core.question import Question
from training.planner.shapes import HERE, Slots, StepShape, Task, decorated


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliverable:
    """Something that is wanted with a thing, or the thing itself.

    `relation` is that of its step to those before it: `+` reads them, `-` stands beside them, `*`
    checks them. `nouns` and `orders` are ways to say it.
    """

    relation: str
    skill: str
    nouns: tuple[str, ...]
    orders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A thing and what may be wanted with it. `closing` is the kind of work of its last step."""

    thing: Deliverable
    closing: str
    deliverables: tuple[Deliverable, ...] = ()


@cache
def read_projects() -> Mapping[str, Project]:
    """The projects of projects.txt by their names."""
    projects = dict[str, Project]()
    name = ""
    closing = ""
    for line in (HERE / "projects.txt").read_text().splitlines():
        if line.startswith("="):
            name, _, closing = (part.strip() for part in line.removeprefix("=").partition("|"))
        elif line and not line.startswith("#"):
            deliverable = _read_deliverable(line)
            if name not in projects:
                closing = closing or deliverable.skill
                projects[name] = Project(thing=deliverable, closing=closing)
                continue
            project = projects[name]
            deliverables = (*project.deliverables, deliverable)
            projects[name] = replace(project, deliverables=deliverables)
    return projects


def _read_deliverable(line: str) -> Deliverable:
    skill, nouns, orders = (part.strip() for part in line[1:].split("|"))
    return Deliverable(
        relation=line[0].strip(),
        skill=skill,
        nouns=tuple(noun.strip() for noun in nouns.split(" ; ")),
        orders=tuple(order.strip() for order in orders.split(" ; ")),
    )


_PROJECT_FORMS: Final = (
    "{order}, with {nouns}.",
    "{order}. I also need {nouns}.",
    "{order}: {nouns} included.",
    "{order}, {orders}.",
    "{order}. {sentences}.",
    "{order}, then {orders}.",
    "I need {noun}, {nouns}.",
    "Please give me {noun}, plus {nouns}.",
    "{noun}: {nouns}.",
    "{noun}, {nouns}",
    "1. {order}\n{lines}",
)
"""How a thing and what is wanted with it stand in a question."""


def draw_project(random: Random, *, held: bool) -> Task:
    """A question for a thing and one to three deliverables.

    Each has a step that is worded as in the question. The last step answers from all results.
    """
    projects = read_projects()
    kept = sorted(projects)[::6]
    name = random.choice([name for name in projects if (name in kept) == held])
    project = projects[name]
    thing = project.thing
    drawn = random.sample(project.deliverables, random.choices((1, 2, 3), weights=(3, 5, 2))[0])
    checks = [deliverable for deliverable in drawn if deliverable.relation == "*"]
    chosen = [deliverable for deliverable in drawn if deliverable.relation != "*"] + checks[:1]
    slots = Slots(random, held)
    text, subtasks = _as_questions((thing, *chosen), slots)
    if not text or random.random() < AS_REQUEST:
        form = random.choice(_PROJECT_FORMS)
        text, subtasks = _project_text(form, (thing, *chosen), slots)
    steps = [StepShape(skill=thing.skill, access=(), subtask=subtasks[0])]
    for deliverable, subtask in zip(chosen, subtasks[1:], strict=True):
        steps.append(_step_of(deliverable, subtask, before=len(steps)))
    if len(steps) > 1 and _closes(steps, project.closing):
        steps.pop()
    steps.append(StepShape(skill=project.closing, access=(), subtask=""))
    question = Question(text=decorated(random, text, form=False))
    return Task(kind=f"project {name}", question=question, skill=thing.skill, steps=tuple(steps))


def _closes(steps: Sequence[StepShape], closing: str) -> bool:
    """Whether the last of the steps reads all others and is of the closing's kind of work.

    The closing step adds what results lack, so it does that work itself.
    """
    last = steps[-1]
    reads_all = last.access == tuple(range(1, len(steps)))
    return reads_all and last.skill == closing and not last.other_than


_POINTS_BACK: Final = re.compile(r"\b(it|its|this|these|them|each)\b")
"""Words by which a subtask refers to what is before it, so that its step reads that."""


def _step_of(deliverable: Deliverable, subtask: str, *, before: int) -> StepShape:
    if deliverable.relation == "*":
        access = tuple(range(1, before + 1))
        return StepShape(skill=deliverable.skill, access=access, subtask=subtask, other_than=1)
    access = ()
    if deliverable.relation == "+" or _POINTS_BACK.search(subtask):
        access = tuple(range(1, before + 1))
    return StepShape(skill=deliverable.skill, access=access, subtask=subtask)


AS_REQUEST: Final = 0.5  # The share of questions as requests, where all can be asked

_ASKING: Final = re.compile(r"say ((?:what|how|who|whom|which|why|when|where)\b.*)")


def _as_questions(deliverables: Sequence[Deliverable], slots: Slots) -> tuple[str, list[str]]:
    """Several questions in one sentence, with their subtasks; empty where one cannot be asked."""
    clauses = list[str]()
    for deliverable in deliverables:
        asking = [match[1] for match in map(_ASKING.fullmatch, deliverable.orders) if match]
        if not asking:
            return "", []
        clauses.append(slots.fill(slots.random.choice(asking)))
    subtasks = [f"Say {clause.rstrip('.?')}." for clause in clauses]
    return f"{_capital(_listed(clauses))}?", subtasks


def _project_text(
    form: str, deliverables: Sequence[Deliverable], slots: Slots
) -> tuple[str, list[str]]:
    """The question for a thing with deliverables, and their parts of it as subtasks."""
    random = slots.random
    nouns = [slots.fill(random.choice(deliverable.nouns)) for deliverable in deliverables]
    orders = [slots.fill(random.choice(deliverable.orders)) for deliverable in deliverables]
    lines = [f"{number}. {order}" for number, order in enumerate(orders[1:], start=2)]
    text = form.format(
        noun=nouns[0],
        order=orders[0],
        nouns=_listed(nouns[1:]),
        orders=_listed(orders[1:]),
        sentences=". ".join(map(_capital, orders[1:])),
        lines="\n".join(lines),
    )
    subtasks = [
        _as_subtask(order, noun, as_order=order in text or _capital(order) in text)
        for order, noun in zip(orders, nouns, strict=True)
    ]
    return _capital(text), subtasks


def _as_subtask(order: str, noun: str, *, as_order: bool) -> str:
    words = f"Give {noun}"
    if as_order:
        words = _capital(order)
    elif noun.split(maxsplit=1)[0] in ("what", "how", "who", "whom", "when"):
        words = f"Say {noun}"
    return words.rstrip(".?") + "."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _listed(texts: Sequence[str]) -> str:
    """The texts as a list in a sentence."""
    if len(texts) == 1:
        return texts[0]
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
