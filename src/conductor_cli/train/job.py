"""What a training needs beside the model: its exercises, its rollouts, and its reward function."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from conductor_cli.train.distributed import run_on_first
from conductor_cli.train.metrics import compute_metrics
from conductor_cli.train.rewards import subtract_cost
from conductor_cli.train.rollouts import Exercise, Outcome, Rollouts, SampledPlan

Completion = tuple[str, int, int]
"""A text, how many tokens it has, and the number of its exercise."""


class Curriculum(Protocol):
    """The exercises of a training: `prompts` for each step, `group` plans for each, of at most `max_plan_tokens`."""

    @property
    def steps(self) -> int: ...
    @property
    def prompts(self) -> int: ...
    @property
    def group(self) -> int: ...
    @property
    def max_plan_tokens(self) -> int: ...
    @property
    def seed(self) -> int: ...

    def exercise(self, number: int) -> Exercise:
        """The exercise with a number, always the same one."""

    def as_dict(self) -> dict[str, Any]:
        """Everything that decides the result, as plain values: it distinguishes one training from another."""


@dataclass(slots=True, kw_only=True)
class TrainingJob:
    """A training without its model.

    `evaluate` computes metrics of the model on exercises that are never trained on. `run_async` runs a coroutine to its
    end. `cost_weight` is the penalty for the most expensive correct plan of a group. `latest_metrics` are those of the
    last step.
    """

    curriculum: Curriculum
    rollouts: Rollouts
    directory: Path
    max_seconds: float
    log: Callable[[str], None]
    evaluate: Callable[[Any], dict[str, Any]] | None = None
    clock: Callable[[], float] = time.monotonic
    run_async: Callable[[Coroutine[Any, Any, list[Outcome]]], list[Outcome]] = asyncio.run
    cost_weight: float = 0.0
    latest_metrics: dict[str, Any] = field(default_factory=dict)

    def rewards(
        self, completions: list[Any], completion_ids: list[list[int]], number: list[int], **_: object
    ) -> list[float | None]:
        """TRL's reward function. None, for a plan whose worker failed, is left out by TRL."""
        sampled: list[Completion] = [
            (text if isinstance(text, str) else text[-1].get("content") or "", len(ids), at)
            for at, text, ids in zip(number, completions, completion_ids, strict=True)
        ]
        return run_on_first(sampled, self._compute_rewards)

    def _compute_rewards(self, sampled: list[Completion]) -> list[float | None]:
        began, group = self.clock(), self.curriculum.group
        exercises = {number: self.curriculum.exercise(number) for _, _, number in sampled}
        plans = [
            SampledPlan(exercise=exercises[number], text=text, complete=length < self.curriculum.max_plan_tokens)
            for text, length, number in sampled
        ]
        outcomes = self.run_async(self.rollouts.outcomes(plans))
        self.latest_metrics = {
            **compute_metrics(outcomes, group), **self.rollouts.cost_metrics(outcomes),
            "run_seconds": self.clock() - began,
        }  # fmt: skip
        rewards = [outcome.reward for outcome in outcomes]
        if not self.cost_weight:
            return rewards
        costs = [outcome.cost for outcome in outcomes]
        slices = [slice(at, at + group) for at in range(0, len(outcomes), group)]
        return [reward for part in slices for reward in subtract_cost(rewards[part], costs[part], self.cost_weight)]
