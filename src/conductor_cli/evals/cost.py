"""What an evaluation will probably cost, and the budget that stops it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import PolicyError
from conductor_cli.core.estimate import Estimate, Planner, estimate_plan, estimate_planning
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.prompts import CHARS_PER_TOKEN
from conductor_cli.core.question import Question
from conductor_cli.evals.outcomes import Outcome

if TYPE_CHECKING:
    from conductor_cli.evals.cases import Case
    from conductor_cli.evals.systems import System
    from conductor_cli.run import Conductor

LOOKED_AT: Final = 50
"""Cases of a system that are reckoned one by one; more are taken to be like them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """What is still to be done, from the least to the most. `unpriced` are calls whose price nobody knows."""

    runs: int
    calls: tuple[int, int]
    tokens: tuple[int, int]
    cost: tuple[Decimal, Decimal]
    unpriced: int
    unknown: tuple[str, ...]

    def lines(self) -> list[str]:
        """For a person, in two lines. Attempts and repairs come on top, so it is about so much."""
        return [
            f"{self.runs:,} runs: about {_span(self.calls)} calls, {_span(self.tokens)} tokens",
            f"estimated cost: {self._money()}",
        ]

    @property
    def each(self) -> Decimal:
        """The least that a run costs on the mean."""
        return self.cost[0] / self.runs if self.runs else Decimal(0)

    def _money(self) -> str:
        known = f"${self.cost[0]:.2f} to ${self.cost[1]:.2f}"
        if not self.unpriced:
            return known
        unknown = f"no price is known for {', '.join(self.unknown)}"
        return f"unknown: {unknown}" if self.cost[1] == 0 else f"{known}, and more: {unknown}"


def _span(amount: tuple[int, int]) -> str:
    low, high = amount
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def quote(
    systems: Sequence[System], cases: Sequence[Case], conductor: Conductor, done: Mapping[str, frozenset[str]]
) -> CostEstimate:
    """The sum over all systems; `done` names the cases that each of them has done already."""
    found = [
        _of(system, [case for case in cases if case.id not in done.get(system.name, ())], conductor)
        for system in systems
    ]
    return CostEstimate(
        runs=sum(item.runs for item in found),
        calls=(sum(item.calls[0] for item in found), sum(item.calls[1] for item in found)),
        tokens=(sum(item.tokens[0] for item in found), sum(item.tokens[1] for item in found)),
        cost=(sum((item.cost[0] for item in found), Decimal(0)), sum((item.cost[1] for item in found), Decimal(0))),
        unpriced=sum(item.unpriced for item in found), unknown=unpriced(conductor, systems),
    )  # fmt: skip


def _of(system: System, cases: Sequence[Case], conductor: Conductor) -> CostEstimate:
    """One system: some of its cases, and as often as there are more of them."""
    setting = system.fit(conductor)
    some = cases[:LOOKED_AT]
    ranges = [item for case in some for item in _ranges(system, case, setting)]
    share = len(cases) / len(some) if some else 0
    runs = sum(plan_for(system, case) is not None for case in cases)

    def total(values: Sequence[int]) -> int:
        return round(sum(values) * share)

    return CostEstimate(
        runs=runs,
        calls=(total([low.calls for low, _ in ranges]), total([high.calls for _, high in ranges])),
        tokens=(total([low.tokens[0] for low, _ in ranges]), total([high.tokens[1] for _, high in ranges])),
        cost=(
            sum((low.cost[0] for low, _ in ranges), Decimal(0)) * Decimal(share),
            sum((high.cost[1] for _, high in ranges), Decimal(0)) * Decimal(share),
        ),
        unpriced=total([high.unpriced for _, high in ranges]), unknown=(),
    )  # fmt: skip


def plan_for(system: System, case: Case) -> Plan | bool | None:
    """The plan of a system that has one; True where the conductor plans, None where the case is not for the system."""
    return True if system.plan is None else system.plan(case, Random(0))  # noqa: S311 - any draw costs about the same


def _ranges(system: System, case: Case, setting: Conductor) -> Sequence[tuple[Estimate, Estimate]]:
    """The least and the most of one case; nothing where the system leaves it out."""
    asked = Question(text=case.question)
    plan = plan_for(system, case)
    if isinstance(plan, Plan):
        itself = any(step.worker == SELF for step in plan.steps)
        planner = planner_estimate(setting, asked) if itself else None
        found = estimate_plan(asked, plan, setting.pool, setting.worker_profile, planner)
        return [(found, found)]
    return [_conducted(asked, setting)] if plan else []


def _conducted(asked: Question, setting: Conductor) -> tuple[Estimate, Estimate]:
    """A conductor's least: a step of the cheapest worker. Its most: all steps of the dearest, each seeing all."""
    workers = [worker for worker in setting.pool if worker.kind != SELF]
    steps = 1 if setting.mode == "mini" else setting.limits.steps * (1 + setting.limits.recursion)
    short = [_steps(asked, worker.name, 1, setting) for worker in workers]
    long = [_steps(asked, worker.name, steps, setting) for worker in workers]
    low, high = min(short, key=lambda item: item.cost[0]), max(long, key=lambda item: item.cost[1])
    itself = planner_estimate(setting, asked)
    assert itself is not None, "only a conductor plans"
    return low + estimate_planning(itself), high + estimate_planning(itself, 1 + setting.limits.recursion)


def _steps(asked: Question, worker: str, count: int, setting: Conductor) -> Estimate:
    steps = tuple(
        Step(worker=worker, subtask=asked.text, access=tuple(range(1, number))) for number in range(1, count + 1)
    )
    return estimate_plan(asked, Plan(steps=steps), setting.pool, setting.worker_profile)


def planner_estimate(setting: Conductor, asked: Question) -> Planner | None:
    """The conductor as an estimate counts it, None where there is none."""
    if setting.model is None:
        return None
    read = int(sum(len(message.content) for message in setting.asks(asked).messages) / CHARS_PER_TOKEN)
    return Planner(read=read, price=setting.price, steps=setting.limits.steps)


def unpriced(conductor: Conductor, systems: Sequence[System]) -> tuple[str, ...]:
    """The names of those whose price nobody knows, among all that may be asked."""
    names = [worker.name for worker in conductor.pool if worker.price is None and worker.kind != SELF]
    plans = any(system.plan is None for system in systems)
    return (*names, *([conductor.name] if plans and conductor.price is None else []))


def is_free(conductor: Conductor, systems: Sequence[System]) -> bool:
    """Whether it is known that nothing costs anything."""
    if unpriced(conductor, systems):
        return False
    prices = [worker.price for worker in conductor.pool if worker.price is not None]
    prices += (
        [conductor.price] if conductor.price is not None and any(system.plan is None for system in systems) else []
    )
    return not any(any(price.amounts()) for price in prices)


def check_prices_known(conductor: Conductor, systems: Sequence[System]) -> None:
    """Raise `PolicyError` where a limit on the cost could not be kept."""
    unknown = unpriced(conductor, systems)
    if unknown:
        raise PolicyError(
            f"a cost limit cannot be kept: no price is known for {', '.join(unknown)}",
            hint="give them one (conductor workers add … --price IN,OUT), or leave them out: --workers",
        )


class Budget:
    """US dollars up to `limit`, None for no limit; `spent` counts each run in full.

    A run is taken to cost as much as the dearest one so far, `expected` before there is any. Beside others none begins
    that would pass the limit with them; with none under way one begins as long as the limit is not reached.
    """

    def __init__(
        self, limit: Decimal | None = None, *, spent: Decimal = Decimal(0), expected: Decimal = Decimal(0)
    ) -> None:
        self.limit = limit
        self.spent = spent
        self._each = expected
        self._under_way = 0

    @property
    def reached(self) -> bool:
        return self.limit is not None and self.spent >= self.limit

    def begins(self) -> bool:
        """Whether one more run may begin, which is under way then."""
        may = not self.reached and (not self._under_way or self._fits())
        self._under_way += may
        return may

    def _fits(self) -> bool:
        return self.limit is None or self.spent + (self._under_way + 1) * self._each <= self.limit

    def ends(self, outcome: Outcome | None) -> None:
        """A run is over; None where there was nothing to run."""
        cost = (outcome.usage.cost if outcome is not None else None) or Decimal(0)
        self._under_way -= 1
        self.spent += cost
        self._each = max(self._each, cost)
