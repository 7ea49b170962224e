"""What a run is worth to the model that planned it. Pure: a trace goes in, a number comes out.

As in the published recipe (arXiv 2512.04388, section 3.2): 0 for a text that is not a valid plan, 0.5 for a plan whose
answer is wrong, 1 for a correct answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from conductor_cli.core.trace import Trace

INVALID: Final = 0.0
VALID: Final = 0.5
CORRECT: Final = 1.0


def compute_reward(trace: Trace, is_correct: Callable[[str], bool], *, valid: float = VALID) -> float | None:
    """The reward of a run; None if a worker failed, which says nothing about the plan.

    `valid` is the reward for a valid plan with a wrong answer. A text that is cut off, or has a fault anywhere, is
    invalid, whatever the run made of it.
    """
    if not is_valid(trace):
        return INVALID
    if has_failed(trace):
        return None
    return CORRECT if is_correct(trace.answer) else valid


def subtract_cost(
    rewards: Sequence[float | None], costs: Sequence[Decimal | None], weight: float
) -> list[float | None]:
    """The rewards of one question's group, less the cost of correct plans.

    The most expensive correct plan pays `weight`, the others proportionally less. So only the comparison with other
    correct plans for the same question counts, not the price level. A wrong answer pays nothing: otherwise giving up
    cheaply would be rewarded.
    """
    highest = max(
        (cost or Decimal(0) for cost, worth in zip(costs, rewards, strict=True) if worth == CORRECT), default=0
    )
    if not highest:
        return list(rewards)
    return [
        worth - weight * float((cost or Decimal(0)) / highest) if worth == CORRECT else worth
        for cost, worth in zip(costs, rewards, strict=True)
    ]


def is_valid(trace: Trace) -> bool:
    """Whether the conductor's text was a plan, without a grammar and without a second attempt."""
    return trace.plan is not None and not trace.rejected


def has_failed(trace: Trace) -> bool:
    """Whether a planned worker failed, or the run failed for a reason other than its plan."""
    missed = any(record.state == "failed" or record.worker != record.step.worker for record in trace.steps)
    return missed or trace.state != "finished"
