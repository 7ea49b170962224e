"""Lessons of the checker: a step, an answer, and whether it is right. Pure."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from conductor_cli.core.plan import Step
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import REFUSAL
from conductor_cli.rehearsal.players import render_for_worker as render
from scripts.rehearsal.mistakes import near_miss
from scripts.rehearsal.phrasings import CHECKS, expand, lines_of

if TYPE_CHECKING:
    from scripts.rehearsal.lessons import Task


def check_lesson(random: Random, made: Task) -> tuple[str, str]:
    """The prompt, and the right answer with the verdict: one bit would be too little to learn a skill from."""
    right = random.random() < 0.5
    wrong = REFUSAL if random.random() < 0.05 else near_miss(random, made.operation, made.answer)
    asked = SeenStep(number=len(made.seen) + 1, worker="", subtask=made.subtask, answer=made.answer if right else wrong)
    words = (
        "check it" if random.random() < 0.6 else random.choice(expand(random.choice(lines_of(CHECKS, "then", "known"))))
    )
    prompt = render(Question(text=made.subtask), Step(worker="", subtask=words), (*made.seen, asked))
    return prompt, f"{made.answer} {'YES' if right else 'NO'}"
