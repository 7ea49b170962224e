"""The demo conductor: a real model of 1.2 million parameters that ships with this package, and its prompt.

It reads the labels of the workers, each a short form of a card, and the question; it writes one line for each step.
Which label suits which subtask, and which step should see which answers, it has learnt from rewards alone.

    |l0|n1|a2|f3
    spell the capital of FRANCE backwards

    capital of FRANCE|-|f3
    spell it backwards|1|l0
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from conductor_cli.core.plan_formats import PlanFormatContext
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import Profile, Sampling
from conductor_cli.core.question import Question
from conductor_cli.core.usage import FREE
from conductor_cli.rehearsal import workers
from conductor_cli.rehearsal.normalize import normalize

CONTEXT: Final = 1024
"""Tokens that the conductor can read and write."""

LONGEST_QUESTION: Final = 700
"""Characters of a question that fit this context, with the labels and the plan."""

MOST_TOKENS: Final = 160
"""A plan of five steps takes about 100."""

NAME: Final = "rehearsal"


def render(question: Question, pool: Pool, context: PlanFormatContext) -> str:
    """The whole prompt: the labels of the available workers, the question, and a new line for the plan.

    If the conductor only has to choose a worker, the prompt starts the plan: its one step is the question.
    """
    del pool  # the labels contain its cards
    asked = normalize(question.text)[:LONGEST_QUESTION]
    cards = "".join(f"{BAR}{label}" for label in context.allowed)
    begun = f"{asked}{BAR}-{BAR}" if context.single else ""
    return f"{cards}\n{asked}\n{begun}"


BAR: Final = "|"

PROFILE: Final = Profile(
    name=NAME, order=("subtask", "access", "worker"), bar=BAR, labels="cards", names=False, fewshots=False,
    sampling=Sampling(max_tokens=MOST_TOKENS), render=render,
)  # fmt: skip


def conductor_path() -> Path:
    """The file of the trained conductor."""
    return workers.model_path("conductor")


def rehearsal_conductor(path: Path | None = None) -> Worker:
    """The conductor as a model to open: the shipped file, or the one at `path`."""
    options = {"context": CONTEXT, "threads": 1, "gpu_layers": 0}
    return Worker(name=NAME, kind="llama", model=str(path or conductor_path()), options=options, price=FREE)
