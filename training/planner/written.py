"""Questions that were written one by one with their plans, not drawn from shapes.

A language model wrote them, by the rules of docs/research/planner.md. `written.jsonl` has a line
for each: the question, its files, the kind of work that it is as a whole, and where several workers
should do it, the steps before the last one, the last one's kind of work, and the steps whose
workers should not do the last one, if any (`closing_other_than`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

from conductor_cli.core.question import File, Question

HELD_EVERY: Final = 12  # Every so many lines is in no lesson: these measure the adapter
SEVERAL: Final = 0.5  # The share of those that are drawn whose plans have several steps


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """A step of a task's plan. The workers of the steps `other_than` should not do it."""

    skill: str
    subtask: str
    access: tuple[int, ...] = ()
    other_than: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A question with the steps of its plan; none where one worker answers it.

    The last step answers the question, and has no subtask of its own. `kind` names what the task
    was drawn from.
    """

    kind: str
    question: Question
    skill: str
    steps: tuple[TaskStep, ...] = ()


def draw_written(random: Random, *, held: bool = False) -> Task:
    """A written question with the steps of its plan, one that is held out from lessons or not."""
    has_steps = random.random() < SEVERAL
    return random.choice(
        [task for task in read_written(held=held) if bool(task.steps) == has_steps]
    )


@cache
def read_written(*, held: bool) -> Sequence[Task]:
    """The written questions that are held out, or those that are in lessons."""
    lines = Path(__file__).with_name("written.jsonl").read_text().splitlines()
    return tuple(
        _task(json.loads(line))
        for number, line in enumerate(lines, start=1)
        if (number % HELD_EVERY == 0) == held
    )


def _task(line: Mapping[str, Any]) -> Task:
    files = tuple(File(name=name, text=text) for name, text in line.get("files", {}).items())
    steps = tuple(_step(step) for step in line.get("steps", ()))
    if steps:
        steps = (*steps, _last_step(line))
    question = Question(text=line["text"], files=files)
    return Task(kind="written", question=question, skill=line["skill"], steps=steps)


def _last_step(line: Mapping[str, Any]) -> TaskStep:
    """The step that answers: where it checks earlier work, not by the worker who did that."""
    return TaskStep(
        skill=line["closing"], subtask="", other_than=_others(line.get("closing_other_than", 0))
    )


def _step(step: Mapping[str, Any]) -> TaskStep:
    return TaskStep(
        skill=step["kind"],
        subtask=step["subtask"],
        access=tuple(step.get("reads", ())),
        other_than=_others(step.get("other_than", 0)),
    )


def _others(written: int | list[int]) -> tuple[int, ...]:
    """The steps by other workers: a line has one number or several, or 0 for none."""
    if isinstance(written, list):
        return tuple(written)
    return (written,) if written else ()
