"""An estimate of what a training will ask of its workers: calls, tokens and money, as a range. Pure."""

from __future__ import annotations

from typing import Final

from conductor_cli.core.estimate import Estimate
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.evals.cost import CostEstimate, chain_estimates, scale_estimate
from conductor_cli.train.tasks import TaskCurriculum

SAMPLE: Final = 50
"""Tasks that are estimated one by one; the rest are assumed to be like them."""


def estimate_cost(curriculum: TaskCurriculum, pool: Pool, *, begin: int = 0) -> CostEstimate:
    """The estimate for the steps after `begin`, as if no answer were known yet.

    At least, every plan is one step by the cheapest worker. At most, it has all the steps that are allowed, by the
    most expensive worker, and each of them sees all the steps before it.
    """
    numbers = range(begin * curriculum.prompts, curriculum.steps * curriculum.prompts)
    tasks = [curriculum.exercise(number) for number in numbers[:SAMPLE]]
    steps, profile = curriculum.recipe.max_plan_steps, WorkerProfile()
    ranges = [chain_estimates(Question(text=task.question), task.workers, steps, pool, profile) for task in tasks]
    runs = len(numbers) * curriculum.group
    factor = runs / len(tasks) if tasks else 0
    low = scale_estimate(sum((least for least, _ in ranges), Estimate()), factor)
    high = scale_estimate(sum((most for _, most in ranges), Estimate()), factor)
    unknown = tuple(worker.name for worker in pool if worker.price is None)
    return CostEstimate(runs=runs, low=low, high=high, unknown=unknown)
