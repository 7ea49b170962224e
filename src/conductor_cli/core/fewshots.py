"""The examples that stand in a prompted conductor's prefix.

Their small pools differ, so that labels mean nothing by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.core.plan import Plan, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A pool as worker name and what it is about, a question, and a good plan for it."""

    workers: tuple[tuple[str, str], ...]
    question: str
    plan: Plan


FEWSHOTS: Final = (
    Example(
        workers=(
            ("quill", "fluent prose, summaries"),
            ("abacus", "arithmetic, proofs"),
            ("forge", "code in any language"),
        ),
        question="What is the capital of Mongolia?",
        plan=Plan(
            reasoning="- One fact. Any worker knows it, one step is enough.",
            steps=(Step(worker="quill", subtask="Name the capital of Mongolia."),),
        ),
    ),
    Example(
        workers=(
            ("forge", "code in any language"),
            ("abacus", "arithmetic, proofs"),
            ("quill", "fluent prose, summaries"),
        ),
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
        workers=(("lexis", "law and policy"), ("forge", "code in any language"), ("probe", "careful review, testing")),
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
