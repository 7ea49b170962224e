"""An estimate of what a training will ask of its workers: calls, tokens and money, as a range. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from conductor_cli.core.estimate import Estimate, estimate_plan
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.evals.cost import CostEstimate
from conductor_cli.train.tasks import Task, TaskCurriculum

SAMPLE: Final = 50
"""Tasks that are estimated one by one; the rest are assumed to be like them."""


def estimate_cost(curriculum: TaskCurriculum, pool: Pool, *, begin: int = 0) -> CostEstimate:
    """The estimate for the steps after `begin`, as if no answer were known yet.

    At least, every plan is one step by the cheapest worker. At most, it has all the steps that are allowed, by the
    most expensive worker, and each of them sees all the steps before it.
    """
    numbers = range(begin * curriculum.prompts, curriculum.steps * curriculum.prompts)
    tasks = [curriculum.exercise(number) for number in numbers[:SAMPLE]]
    steps = curriculum.recipe.max_plan_steps
    low = [
        min((_estimate(task, worker, 1, pool) for worker in task.workers), key=lambda it: (it.cost[0], it.tokens[0]))
        for task in tasks
    ]
    high = [
        max(
            (_estimate(task, worker, steps, pool) for worker in task.workers),
            key=lambda it: (it.cost[1], it.tokens[1]),
        )
        for task in tasks
    ]
    runs = len(numbers) * curriculum.group
    runs_each = Decimal(runs) / len(tasks) if tasks else Decimal(0)

    def total(values: Iterable[int]) -> int:
        return round(runs_each * sum(values))

    return CostEstimate(
        runs=runs, calls=(total(it.calls for it in low), total(it.calls for it in high)),
        tokens=(total(it.tokens[0] for it in low), total(it.tokens[1] for it in high)),
        cost=(
            runs_each * sum((it.cost[0] for it in low), Decimal(0)),
            runs_each * sum((it.cost[1] for it in high), Decimal(0)),
        ),
        unpriced=total(it.unpriced for it in high),
        unknown=tuple(worker.name for worker in pool if worker.price is None),
    )  # fmt: skip


def _estimate(task: Task, worker: str, count: int, pool: Pool) -> Estimate:
    steps = tuple(
        Step(worker=worker, subtask=task.question, access=tuple(range(1, number))) for number in range(1, count + 1)
    )
    return estimate_plan(Question(text=task.question), Plan(steps=steps), pool, WorkerProfile())
