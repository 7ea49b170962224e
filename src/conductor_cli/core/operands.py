"""What a plan must not lose of its question, where workers read nothing but their subtasks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from conductor_cli.core.plan import GIVEN, Step

FindOperands = Callable[[str], Sequence[str]]
"""The words and numbers in a text that something is done with, each as often as it is named."""


def lost_operand(question: str, steps: Sequence[Step], find: FindOperands) -> str:
    """The first operand of the question that no subtask names; empty if there is none.

    A plan that sees what was given may leave the question's own operands to that.
    """
    if any(GIVEN in step.access for step in steps):
        return ""
    named = Counter(operand for step in steps for operand in find(step.subtask))
    return next(iter(Counter(find(question)) - named), "")
