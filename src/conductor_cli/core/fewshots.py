"""The examples that stand in a prompted conductor's prefix.

Their small pools differ, so that labels mean nothing by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Card, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A pool with cards, a question, and a good plan for it."""

    workers: tuple[Worker, ...]
    question: str
    plan: Plan


def _worker(name: str, about: str, **strengths: float) -> Worker:
    return Worker(name=name, kind="example", about=about, card=Card(strengths=strengths))


_FORGE: Final = _worker("forge", "code in any language", code=0.88, math=0.71)
_ABACUS: Final = _worker("abacus", "arithmetic, proofs", math=0.93, code=0.52)
_QUILL: Final = _worker("quill", "fluent prose, summaries", facts=0.84, math=0.35)
_LEXIS: Final = _worker("lexis", "law and policy", facts=0.90, code=0.21)
_PROBE: Final = _worker("probe", "careful review, testing", code=0.79, math=0.74)

FEWSHOTS: Final = (
    Example(
        workers=(_QUILL, _ABACUS, _FORGE),
        question="What is the capital of Mongolia?",
        plan=Plan(
            reasoning="- One fact. Any worker knows it, one step is enough.",
            steps=(Step(worker="quill", subtask="Name the capital of Mongolia."),),
        ),
    ),
    Example(
        workers=(_FORGE, _ABACUS, _QUILL),
        question=(
            "A tank fills in 3 hours through one pipe and in 5 through another, and empties in 4 through a leak. "
            "How long until it is full with all three open?"
        ),
        plan=Plan(
            reasoning="- Easy to get wrong by a sign. Two independent solutions, then a comparison.",
            steps=(
                Step(
                    worker="abacus", subtask="Set up the rates of all three openings and solve for the time, exactly."
                ),
                Step(worker="forge", subtask="Compute the time by adding the signed hourly rates; give a fraction."),
                Step(
                    worker="abacus",
                    access=(1, 2),
                    subtask="Compare both results, settle any difference by substitution, and state the time.",
                ),
            ),
        ),
    ),
    Example(
        workers=(_LEXIS, _FORGE, _PROBE),
        question="Write a Python function that merges overlapping intervals, and make sure that it is right.",
        plan=Plan(
            reasoning="- Write first, then a review with test cases by another worker, then the corrected code.",
            steps=(
                Step(worker="forge", subtask="Write the function with type hints; sort by start, then sweep once."),
                Step(
                    worker="probe",
                    access=(1,),
                    subtask="Test it by hand on empty, touching, nested and unsorted input; list each fault.",
                ),
                Step(worker="forge", access=(1, 2), subtask="Give the final function with every listed fault mended."),
            ),
        ),
    ),
)
