"""What a sampled plan earns.

The rewards that are built in are those of the published recipe (arXiv 2512.04388, section 3.2): 0
for a text that is not a valid plan, 0.5 for a plan whose answer is wrong, 1 for a correct answer.
Less is earned by a plan with steps that the answer does not depend on, and by one that holds the
answer itself.

A function of the user's own may take the place of this for each run that has an answer. An invalid
plan earns 0 whatever the function says, and a run that says nothing about its plan earns nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from conductor_cli.core.learning import steps_behind_answer
from conductor_cli.core.plan import KeepAnswer, Plan
from conductor_cli.core.trace import Trace
from conductor_cli.evals.score import Score
from conductor_cli.system.user_functions import UserFunction

INVALID: Final = 0.0
VALID: Final = 0.5
CORRECT: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A run of a valid plan that has an answer: what a reward function gets.

    `score` is what the scorer of the case says of the answer. Fields may be added.
    """

    question: str
    plan: Plan | KeepAnswer
    trace: Trace
    score: Score
    unused_steps: int  # Steps that the answer does not depend on
    told: bool  # A subtask holds the answer, which the question does not hold
    builtin_reward: float  # What the built-in reward gives


RewardFunction = Callable[[ScoredRun], float]
"""Returns what a plan earns. It may be called by several threads at once."""


def user_reward(function: UserFunction) -> RewardFunction:
    """Return the reward by a function of the user. It raises `ConfigError` for no finite number."""

    def reward(run: ScoredRun) -> float:
        return function.call_for_number(run)

    return reward


def builtin_reward(
    *, is_right: bool, told: bool, unused_steps: int, format_bonus: float, step_cost: float
) -> float:
    """Return what a valid plan earns.

    `format_bonus` is for a wrong answer, and for one that the plan holds itself (`told`);
    `step_cost` is what each of the `unused_steps` costs.
    """
    earned = format_bonus
    if is_right and not told:
        earned = CORRECT
    return earned - step_cost * unused_steps


def is_valid(trace: Trace) -> bool:
    """Return whether the planner's text was a plan, without a grammar and at the first attempt.

    A text that is cut off, or has a fault anywhere, is none, whatever the run made of it.
    """
    return trace.plan is not None and not trace.rejected


def says_something(trace: Trace) -> bool:
    """Return whether the run says something about its plan.

    It says nothing where a planned worker failed, or the run did, for a reason other than its plan
    or a worker's refusal.
    """
    if trace.error is not None and trace.error.reason == "declined":
        return True
    if trace.state != "finished":
        return False
    for record in trace.steps:
        if record.state == "failed" or record.worker != record.step.worker:
            return False
    return True


def count_unused_steps(trace: Trace) -> int:
    """Return how many steps of the run its answer does not depend on."""
    return len(trace.steps) - len(steps_behind_answer(trace))
