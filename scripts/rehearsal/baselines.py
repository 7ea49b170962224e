"""Other ways to answer with the same pool, without a conductor: each is a plan that is always the same. Pure.

Each member is asked the whole question, as these methods do it. None of them divides a question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import REFUSAL, YES
from conductor_cli.rehearsal.players import render_for_worker as render
from scripts.rehearsal.asking import Reply
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.pools import pool_of

LOOKS: Final = 2
"""How often a worker looks at its own answer again."""


DOUBTED: Final = 0.001
"""The weight of an answer to which the checker does not say YES."""


def best_alone(exercise: RehearsalExercise) -> Plan:
    """The worker with the best card answers."""
    return _plan(_asked(exercise, _best(exercise)))


def reflection(exercise: RehearsalExercise, worker: str = "") -> Plan:
    """A worker answers, by default the one with the best card, and then improves its own answer."""
    name = worker or _best(exercise)
    return _plan(*(_asked(exercise, name, range(1, number)) for number in range(1, LOOKS + 2)))


def mixture(exercise: RehearsalExercise) -> Plan:
    """Mixture-of-Agents with one layer: all answer, and the one with the best card makes one answer of all."""
    steps = [_asked(exercise, name) for name in exercise.workers]
    return _plan(*steps, _asked(exercise, _best(exercise), range(1, len(steps) + 1)))


def vote(answers: Sequence[str]) -> str:
    """The most frequent answer of those that are none to refuse; of several, the one that came first."""
    given = [answer for answer in answers if answer != REFUSAL]
    return Counter(given).most_common(1)[0][0] if given else REFUSAL


def weighted_vote(answers: Sequence[str], weights: Sequence[float]) -> str:
    """The answer with the greatest weight of all that gave it, of those that are none to refuse."""
    totals = dict[str, float]()
    for answer, weight in zip(answers, weights, strict=True):
        if answer != REFUSAL:
            totals[answer] = totals.get(answer, 0.0) + weight
    return max(totals, key=totals.__getitem__) if totals else REFUSAL


def verifying_prompt(question: str, answer: str) -> str:
    """What the checker reads to say whether an answer to the whole question is right."""
    claim = SeenStep(number=1, worker="", subtask=question, answer=answer)
    return render(Question(text=question), Step(worker="", subtask="check it", access=(1,)), [claim])


def weight_of(verdict: Reply) -> float:
    """How much an answer weighs: after YES the confidence, after anything else so little that only doubted ones count.

    The confidence in a NO says nothing of YES, since the checker writes its own answer before the verdict.
    """
    return verdict.confidence if verdict.text == YES else DOUBTED


METHODS: Final[dict[str, Callable[[RehearsalExercise], Plan]]] = {
    "best worker by card": best_alone, "reflection": reflection, "Mixture-of-Agents": mixture,
}  # fmt: skip


def _best(exercise: RehearsalExercise) -> str:
    return pool_of(exercise.members).best().name


def _asked(exercise: RehearsalExercise, name: str, access: Sequence[int] = ()) -> Step:
    return Step(worker=name, subtask=exercise.question, access=tuple(access))


def _plan(*steps: Step) -> Plan:
    return Plan(steps=steps)
