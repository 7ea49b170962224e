"""Other ways to answer with the same pool, without a conductor: each is a plan that is always the same. Pure.

Each member is asked the whole question, as these methods do it. None of them divides a question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from conductor_cli.core.plan import Plan, Step
from conductor_cli.rehearsal.workers import REFUSAL
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.pools import pool_of

LOOKS: Final = 2
"""How often a worker looks at its own answer again."""


def best_alone(exercise: RehearsalExercise) -> Plan:
    """The worker with the best card answers."""
    return _plan(_asked(exercise, _best(exercise)))


def reflection(exercise: RehearsalExercise) -> Plan:
    """The worker with the best card answers, and then improves its own answer."""
    best = _best(exercise)
    return _plan(*(_asked(exercise, best, range(1, number)) for number in range(1, LOOKS + 2)))


def mixture(exercise: RehearsalExercise) -> Plan:
    """Mixture-of-Agents with one layer: all answer, and the one with the best card makes one answer of all."""
    steps = [_asked(exercise, name) for name in exercise.workers]
    return _plan(*steps, _asked(exercise, _best(exercise), range(1, len(steps) + 1)))


def vote(answers: Sequence[str]) -> str:
    """The most frequent answer of those that are none to refuse; of several, the one that came first."""
    given = [answer for answer in answers if answer != REFUSAL]
    return Counter(given).most_common(1)[0][0] if given else REFUSAL


METHODS: Final[dict[str, Callable[[RehearsalExercise], Plan]]] = {
    "best worker by card": best_alone, "reflection": reflection, "Mixture-of-Agents": mixture,
}  # fmt: skip


def _best(exercise: RehearsalExercise) -> str:
    return pool_of(exercise.members).best().name


def _asked(exercise: RehearsalExercise, name: str, access: Sequence[int] = ()) -> Step:
    return Step(worker=name, subtask=exercise.question, access=tuple(access))


def _plan(*steps: Step) -> Plan:
    return Plan(steps=steps)
