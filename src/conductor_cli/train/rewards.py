"""What a run was worth to whoever planned it. Pure: a trace goes in, a number comes out.

As in the published recipe (arXiv 2512.04388, section 3.2): nothing for a text that is no valid plan, a half for a plan
whose answer is wrong, one for a right answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from conductor_cli.core.trace import Trace

MALFORMED: Final = 0.0
VALID: Final = 0.5
RIGHT: Final = 1.0


def reward(trace: Trace, right: Callable[[str], bool], *, valid: float = VALID) -> float | None:
    """The reward of a run; None where a worker failed, which says nothing about the plan.

    `right` says whether an answer is; `valid` is what a plan is worth whose answer is wrong. A text that breaks off or
    is at fault anywhere is malformed, whatever the run made of it.
    """
    if not is_valid(trace):
        return MALFORMED
    if has_failed(trace):
        return None
    return RIGHT if right(trace.answer) else valid


def subtract_cost(
    rewards: Sequence[float | None], costs: Sequence[Decimal | None], weight: float
) -> list[float | None]:
    """The rewards of one question's group, where a right answer pays for what it took.

    The dearest of the right ones pays `weight`, the others their share of that: what counts is to be cheaper than
    another right plan for the same question, whatever the currency. A wrong answer pays nothing, so that it does not
    pay to give up cheaply.
    """
    dearest = max((cost or Decimal(0) for cost, worth in zip(costs, rewards, strict=True) if worth == RIGHT), default=0)
    if not dearest:
        return list(rewards)
    return [
        worth - weight * float((cost or Decimal(0)) / dearest) if worth == RIGHT else worth
        for cost, worth in zip(costs, rewards, strict=True)
    ]


def is_valid(trace: Trace) -> bool:
    """Whether the conductor's text was a plan, read without a grammar and without a second try."""
    return trace.plan is not None and not trace.rejected


def has_failed(trace: Trace) -> bool:
    """Whether a worker failed at a step of its own, or the run at something else than its plan."""
    missed = any(record.state == "failed" or record.worker != record.step.worker for record in trace.steps)
    return missed or trace.state != "finished"
