"""Before an evaluation asks anybody: how many calls it will make, what they may cost, and whether that is wanted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.output import remark
from conductor_cli.core.errors import PolicyError, UsageError
from conductor_cli.core.estimate import Estimate, Planner, estimate, planning
from conductor_cli.core.plan import SELF, Plan, Step
from conductor_cli.core.prompts import CHARS_PER_TOKEN
from conductor_cli.core.question import Question

if TYPE_CHECKING:
    from conductor_cli.config import Settings
    from conductor_cli.evals.cases import Case
    from conductor_cli.evals.systems import System
    from conductor_cli.run import Conductor

LOOKED_AT: Final = 50
"""Cases of a system that are reckoned one by one; more are taken to be like them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
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
) -> Quote:
    """The sum over all systems; `done` names the cases that each of them has done already."""
    found = [
        _of(system, [case for case in cases if case.id not in done.get(system.name, ())], conductor)
        for system in systems
    ]
    return Quote(
        runs=sum(item.runs for item in found),
        calls=(sum(item.calls[0] for item in found), sum(item.calls[1] for item in found)),
        tokens=(sum(item.tokens[0] for item in found), sum(item.tokens[1] for item in found)),
        cost=(sum((item.cost[0] for item in found), Decimal(0)), sum((item.cost[1] for item in found), Decimal(0))),
        unpriced=sum(item.unpriced for item in found), unknown=unpriced(conductor, systems),
    )  # fmt: skip


def _of(system: System, cases: Sequence[Case], conductor: Conductor) -> Quote:
    """One system: some of its cases, and as often as there are more of them."""
    setting = system.fit(conductor)
    some = cases[:LOOKED_AT]
    ranges = [item for case in some for item in _ranges(system, case, setting)]
    share = len(cases) / len(some) if some else 0
    runs = sum(plan_for(system, case) is not None for case in cases)

    def total(values: Sequence[int]) -> int:
        return round(sum(values) * share)

    return Quote(
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
        planner = planner_of(setting, asked) if itself else None
        found = estimate(asked, plan, setting.pool, setting.worker_profile, planner)
        return [(found, found)]
    return [_conducted(asked, setting)] if plan else []


def _conducted(asked: Question, setting: Conductor) -> tuple[Estimate, Estimate]:
    """A conductor's least: a step of the cheapest worker. Its most: all steps of the dearest, each seeing all."""
    workers = [worker for worker in setting.pool if worker.kind != SELF]
    steps = 1 if setting.mode == "mini" else setting.limits.steps * (1 + setting.limits.recursion)
    short = [_steps(asked, worker.name, 1, setting) for worker in workers]
    long = [_steps(asked, worker.name, steps, setting) for worker in workers]
    low, high = min(short, key=lambda item: item.cost[0]), max(long, key=lambda item: item.cost[1])
    itself = planner_of(setting, asked)
    assert itself is not None, "only a conductor plans"
    return low + planning(itself), high + planning(itself, 1 + setting.limits.recursion)


def _steps(asked: Question, worker: str, count: int, setting: Conductor) -> Estimate:
    steps = tuple(
        Step(worker=worker, subtask=asked.text, access=tuple(range(1, number))) for number in range(1, count + 1)
    )
    return estimate(asked, Plan(steps=steps), setting.pool, setting.worker_profile)


def planner_of(setting: Conductor, asked: Question) -> Planner | None:
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


def check_limit(conductor: Conductor, systems: Sequence[System]) -> None:
    """Raise `PolicyError` where a limit on the cost could not be kept."""
    unknown = unpriced(conductor, systems)
    if unknown:
        raise PolicyError(
            f"a cost limit cannot be kept: no price is known for {', '.join(unknown)}",
            hint="give them one (conductor workers add … --price IN,OUT), or leave them out: --workers",
        )


def left_today(settings: Settings) -> Decimal | None:
    """The dollars that the limit of the day leaves, None where there is none. Raises `ConfigError`."""
    from conductor_cli.models.daybook import DayBook

    limits = settings.day_limits
    if limits.cost is None:
        return None
    book = DayBook(settings.places.spending, limits)
    book.check()
    return max(limits.cost - book.today().cost, Decimal(0))


def agreed_to(found: Quote, what: str, *, yes: bool, quiet: bool) -> bool:
    """Say what it takes and have a yes, by `--yes` or a person. Raises `UsageError` where nobody can be asked."""
    if not quiet:
        for line in found.lines():
            remark(line)
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{what} may cost money, so it begins only after a yes", hint="look at the estimate, then add --yes"
        )
    from conductor_cli.cli.model.pulling import agreed

    with _interruptible():
        return agreed("Begin?", otherwise=False)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end the question at once: inside an event loop it would wait for the line to be read."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
