"""What a training may ask of its workers, before it begins: calls, tokens and money, as a range. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from conductor_cli.core.estimate import Estimate, estimate_plan
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Pool
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.train.tasks import Task, TaskCurriculum

LOOKED_AT: Final = 50
"""Tasks that are reckoned one by one; more are taken to be like them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteBound:
    """Runs, the calls and tokens of workers in them, US dollars, and calls whose price nobody knows."""

    runs: int
    calls: int
    tokens: int
    cost: Decimal
    unpriced: int


def bounds(tasks: TaskCurriculum, pool: Pool, *, begin: int = 0) -> tuple[QuoteBound, QuoteBound]:
    """The least and the most of the steps of training that are left, where no answer is known yet.

    The least is one step of the cheapest worker for every plan, the most all steps of the dearest, each seeing all
    before it.
    """
    numbers = range(begin * tasks.prompts, tasks.steps * tasks.prompts)
    some = [tasks.exercise(number) for number in numbers[:LOOKED_AT]]
    runs = len(numbers) * tasks.group
    low = [min((_steps(task, name, 1, pool) for name in task.names), key=_cost_low) for task in some]
    steps = tasks.recipe.plan_steps
    high = [max((_steps(task, name, steps, pool) for name in task.names), key=_cost_high) for task in some]
    return _sum(low, runs, 0), _sum(high, runs, 1)


def _steps(task: Task, worker: str, count: int, pool: Pool) -> Estimate:
    asked = task.case.question
    steps = tuple(Step(worker=worker, subtask=asked, access=tuple(range(1, at))) for at in range(1, count + 1))
    return estimate_plan(Question(text=asked), Plan(steps=steps), pool, WorkerProfile())


def _cost_low(found: Estimate) -> tuple[Decimal, int]:
    return found.cost[0], found.tokens[0]


def _cost_high(found: Estimate) -> tuple[Decimal, int]:
    return found.cost[1], found.tokens[1]


def _sum(found: Sequence[Estimate], runs: int, end: int) -> QuoteBound:
    """So many runs like these; `end` 0 takes the lower end of each estimate, 1 the upper."""
    each = Decimal(runs) / len(found) if found else Decimal(0)
    return QuoteBound(
        runs=runs, calls=round(each * sum(item.calls for item in found)),
        tokens=round(each * sum(item.tokens[end] for item in found)),
        cost=each * sum((item.cost[end] for item in found), Decimal(0)),
        unpriced=round(each * sum(item.unpriced for item in found)),
    )  # fmt: skip
