"""Learned routers as rivals of the conductor: what they are trained on, and how they choose. Imports torch.

Their questions are drawn from the training half of the world with pools as in the evaluation, and the real workers
answer, so a router knows who was right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.plan import Step
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import render_for_worker as render
from scripts.rehearsal.exercises import STRONG, RehearsalExercise, draw_exercises
from scripts.rehearsal.rollouts import Answers
from scripts.rehearsal.router import Card, Router, Sample
from scripts.rehearsal.worker_table import steps_of
from scripts.rehearsal.world import draw_problems

SEED: Final = 4711
"""Of the questions that routers learn from; no evaluation uses it."""

QUESTIONS: Final = 1500
STEP_QUESTIONS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Routers:
    """Routers that read cards: one for whole questions, as RouterDC, and one for single steps."""

    questions: Router
    steps: Router

    def of_question(self, exercise: RehearsalExercise) -> int:
        """The place of the member that is asked the whole question."""
        return self.questions.choose(exercise.question, [member.strengths for member in exercise.members])

    def of_step(self, exercise: RehearsalExercise, subtask: str) -> str:
        """The worker that is asked a step."""
        return exercise.workers[self.steps.choose(subtask, [member.strengths for member in exercise.members])]


async def learned_routers(answers: Answers, *, questions: int = QUESTIONS, steps: int = STEP_QUESTIONS) -> Routers:
    """Both routers, trained on so many questions."""
    drawn = draw_exercises(draw_problems(questions, SEED, checked=0.0), STRONG, SEED)
    return Routers(
        questions=Router([await whole_sample(answers, item) for item in drawn]),
        steps=Router([sample for item in drawn[:steps] for sample in await step_samples(answers, item)]),
    )


async def whole_sample(answers: Answers, exercise: RehearsalExercise) -> Sample:
    """Who was right about the whole question."""
    prompt = render(Question(text=exercise.question), Step(worker="", subtask=exercise.question), [])
    given = [await answers.member(member.files, prompt, exercise.seed) for member in exercise.members]
    cards = [member.strengths for member in exercise.members]
    return Sample(exercise.question, cards, [exercise.is_correct(text) for text in given])


async def step_samples(
    answers: Answers, exercise: RehearsalExercise, cards: Sequence[Card] | None = None
) -> list[Sample]:
    """Who was right about each true step, given the right answers before it."""
    offered = cards or [member.strengths for member in exercise.members]
    samples = []
    for step in steps_of(exercise.problem):
        given = [await answers.member(member.files, step.prompt, exercise.seed) for member in exercise.members]
        samples.append(Sample(step.hop.subtask, offered, [text == step.hop.answer for text in given]))
    return samples
