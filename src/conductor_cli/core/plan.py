"""A plan: one to five steps, each a subtask, a worker and an access list; and the rules for it.

A plan names workers. Labels exist only in the text that a planner reads and writes (see
`plan_formats`). Step numbers start at 1. In a nested run item 0 is `given`, the text that the
nested question is about. The form is that of the RL Conductor (arXiv 2512.04388, section 3.1); its
`"all"` is resolved while parsing. `Schedule` says which steps may start now; nothing here starts or
waits for anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from conductor_cli.core.errors import PlanError

MAX_STEPS: Final = 5  # The most steps in a plan written by a model, whatever the limits say
UNMEASURED_STEPS: Final = 2
"""The most steps, without a limit, of a planner that nobody trained to plan or measured."""
SMALL_PLANNER_STEPS: Final = 1
"""The same of a small one: with two, a model of 1.5 billion weights let a weaker worker end the
plan, at an estimated 2.5 times the tokens of the best worker alone.
"""
GIVEN: Final = 0  # The number of the given text in the access lists of a nested run
SELF: Final = "self"  # The worker name and kind of the planner itself: such a step is a nested run
REVIEW: Final = "review"  # What people call such a step, and write into plan files and templates


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One subtask, the worker that does it, and the earlier steps that the worker sees.

    It sees their subtasks and their answers.
    """

    worker: str
    subtask: str
    access: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in order; the last one's answer is the run's answer."""

    steps: tuple[Step, ...]
    reasoning: str = ""


def asks_self(steps: Iterable[Step]) -> bool:
    """Return whether a step is one on the planner itself, which is a nested run."""
    return any(step.worker == SELF for step in steps)


def example_plan(reasoning: str, *steps: tuple[str, tuple[int, ...], str]) -> Plan:
    """Return a plan for a prompt, from the worker, the access list and the subtask of each step."""
    written = []
    for worker, access, subtask in steps:
        written.append(Step(worker=worker, access=access, subtask=subtask))
    return Plan(reasoning=reasoning, steps=tuple(written))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAnswer:
    """The planner's decision to keep the existing answer.

    Valid only in a run that was given one.
    """

    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedPlan:
    """A plan that the user did not approve, and what they said about it."""

    plan: Plan
    feedback: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the user decides about the plan that is offered.

    Without anything else, to run it as it is.

    An `edited` plan replaces it and is offered as well; with `feedback` the planner plans again.
    """

    edited: Plan | None = None
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """What a plan's rest is planned anew with.

    Step `step` could not be done, and those in `left_out` are given up.

    `why` has, for each worker that failed at the step, the reason in a word. The new steps begin
    with `first`, and there are at most `most` of them. `unusable` are workers that cannot be asked
    any more.
    """

    step: int
    why: Mapping[str, str]
    left_out: tuple[int, ...]
    first: int
    most: int
    unusable: frozenset[str] = frozenset()

    @property
    def hidden(self) -> tuple[int, ...]:
        return (self.step, *self.left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """What a plan may contain: these workers, at most `steps` steps.

    Item 0 and *accept* if something was `given`.
    """

    workers: tuple[str, ...]
    steps: int = MAX_STEPS
    given: bool = False


def check_step(step: Step, number: int, rules: PlanRules, line: str = "") -> None:
    """Raise `PlanError` unless `step`, read from `line`, may be step `number` under `rules`.

    Steps are counted from 1.
    """
    problem = ""
    hint = ""
    if number > rules.steps:
        problem = f"exceeds the limit of {rules.steps} steps"
    elif step.worker not in rules.workers:
        problem = f"names a worker that is not in the pool: {step.worker!r}"
        hint = f"known: {', '.join(rules.workers)}"
    elif not step.subtask.strip():
        problem = "has an empty subtask"
    elif unseen := [item for item in step.access if not _exists_before(item, number, rules)]:
        target = "a step that does not exist"
        if unseen[0] >= number:
            target = "itself or a later step"
        problem = f"cannot see {target}: {unseen[0]}"
    elif len(set(step.access)) != len(step.access):
        problem = "names a step twice in its access list"
    if problem:
        raise PlanError(f"step {number} {problem}", hint=hint, line=line)


def _exists_before(item: int, number: int, rules: PlanRules) -> bool:
    """Return whether `item` is an earlier step than `number`, or what was given."""
    if item == GIVEN:
        return rules.given
    return 1 <= item < number


def from_written_name(worker: str, workers: Collection[str]) -> str:
    """Return the worker that a person calls by a name, where these `workers` have theirs.

    A review is done by the planner, unless a worker is called so.
    """
    if worker == REVIEW and REVIEW not in workers:
        return SELF
    return worker


def to_written_name(worker: str, workers: Collection[str]) -> str:
    """Return how a person writes the name of a worker: the other way of `from_written_name`."""
    if worker == SELF and REVIEW not in workers:
        return REVIEW
    return worker


def check_plan(plan: Plan, rules: PlanRules) -> None:
    """Raise `PlanError` unless the whole plan obeys `rules`."""
    if not plan.steps:
        raise PlanError("a plan needs at least one step")
    for number, step in enumerate(plan.steps, start=1):
        check_step(step, number, rules)


def unread_steps(steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the numbers of the steps that no later step reads, without the last one."""
    read: set[int] = set()
    for step in steps:
        read.update(step.access)
    return tuple(number for number in range(1, len(steps)) if number not in read)


class Schedule:
    """The steps of one run while it is being planned and executed.

    A step may start when every step on its access list has ended, fewer than `parallel` steps run,
    and fewer than its worker's own bound run on that worker. Steps start in the order of their
    numbers.
    """

    def __init__(self, parallel: int, per_worker: Mapping[str, int] | None = None) -> None:
        self._parallel = parallel
        self._per_worker = dict(per_worker or {})
        self._access: dict[int, tuple[int, ...]] = {}
        self._worker: dict[int, str] = {}
        self._waiting: list[int] = []
        self._running: set[int] = set()
        self._ended: set[int] = set()

    def add(self, number: int, worker: str, access: Sequence[int]) -> None:
        # Item 0 is given from the start, so no step has to wait for it.
        self._access[number] = tuple(item for item in access if item > 0)
        self._worker[number] = worker
        self._waiting.append(number)

    def take_ready(self) -> list[int]:
        started = []
        # Lower numbers first: with few slots, the steps that others wait for tend to come early in
        # a plan.
        for number in sorted(self._waiting):
            worker = self._worker[number]
            busy = sum(self._worker[other] == worker for other in self._running)
            free = len(self._running) < self._parallel and busy < self._per_worker.get(
                worker, self._parallel
            )
            if free and self._ended.issuperset(self._access[number]):
                self._waiting.remove(number)
                self._running.add(number)
                started.append(number)
        return started

    def mark_ended(self, number: int) -> None:
        # A step that is stopped before it starts is still waiting.
        if number in self._waiting:
            self._waiting.remove(number)
        self._running.discard(number)
        self._ended.add(number)

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(sorted(self._running))

    @property
    def waiting(self) -> tuple[int, ...]:
        return tuple(sorted(self._waiting))


FindOperands = Callable[[str], Sequence[str]]
"""The words and numbers in a text that something is done with, each as often as it is named."""


def lost_operand(question: str, steps: Sequence[Step], find: FindOperands) -> str:
    """Return the first operand of the question that no subtask names; empty if there is none."""
    if any(GIVEN in step.access for step in steps):  # which may have the others
        return ""
    named = Counter(chain.from_iterable(find(step.subtask) for step in steps))
    return next(iter(Counter(find(question)) - named), "")
