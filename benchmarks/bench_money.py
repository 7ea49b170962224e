"""What prices, policy, limits and the estimate add to a run, and what it takes to write down what was spent."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Final

from figures import Figure, Table, show

from conductor_cli.core.estimate import Planner, estimate_plan, estimate_planning
from conductor_cli.core.ledger import DayBudget, Ledger, Reservation
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.policy import Policy, PoolPolicy, check_limits, check_pool, permitted_pool
from conductor_cli.core.pool import DayLimits, Limits, Pool, Worker
from conductor_cli.core.profile import WorkerProfile
from conductor_cli.core.question import Question
from conductor_cli.core.usage import Price, Usage, with_cost
from conductor_cli.models.presets import PRESETS, party_of
from conductor_cli.models.prices import load_prices, with_prices
from conductor_cli.state.spending import DailySpend

ROUNDS: Final = 200
CALLS: Final = 1000
"""Calls of the day that are recorded before a run begins."""

WORKERS: Final = tuple(
    Worker(name=kind, kind=kind, model=preset.model)
    for kind, preset in PRESETS.items()
    if preset.model and preset.cost == "unknown"
)
"""A worker at each provider, by its preset's model."""

QUESTION: Final = Question(text="How many primes below 1000 end in 7, and what is their sum? " * 20)
LIMITS: Final = Limits(cost=Decimal(1), tokens=100_000, calls=20)
POLICY: Final = Policy(deny=("nobody",), files_only=(("local",),))
PRICE: Final = Price(input=Decimal(1), output=Decimal(10))


def measure() -> Table:
    """Each of them alone, in one process that has read the price table."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        read = timed(load_prices.__wrapped__, 3)
        workers, problem = with_prices(WORKERS)
        if problem or not all(worker.price for worker in workers):
            raise SystemExit(problem or "a preset's model has no price")
        looked = timed(lambda: with_prices(WORKERS))
        held = timed(lambda: judged(workers))
        free, limited = called(place / "free", DayLimits()), called(place / "limited", DayLimits(cost=Decimal(10**6)))
    if "litellm" in sys.modules:
        raise SystemExit("litellm was imported")
    return Table(
        title="money",
        about=f"Medians of {ROUNDS} rounds in one process, {len(workers)} workers; litellm is not imported.",
        figures=(
            Figure(what="prices, policy and estimate together", value=looked + held, unit="us", bound=1e-3),
            Figure(what="prices of all workers, once the table is read", value=looked, unit="us"),
            Figure(what="policy, limits and the estimate of five steps", value=held, unit="us"),
            Figure(what="reading litellm's table, once in a process", value=read, unit="ms"),
            Figure(what="a call written down, without limits of a day", value=free, unit="us"),
            Figure(
                what="a call held and written down, with one", value=limited, unit="us",
                also=f"after {CALLS} calls of that day",
            ),
        ),
    )  # fmt: skip


def judged(workers: tuple[Worker, ...]) -> None:
    """What is decided before a run, and the estimate of its plan."""
    pool_policy = PoolPolicy(policy=POLICY, parties={worker.name: party_of(worker) for worker in workers})
    pool = permitted_pool(Pool(workers=workers), pool_policy)
    check_limits(LIMITS)
    check_pool(pool, LIMITS)
    steps = tuple(
        Step(worker=pool.names[number % len(pool)], subtask="Work on this part. " * 5, access=tuple(range(1, number)))
        for number in range(1, 6)
    )
    planner = Planner(read=2000, price=PRICE)
    if (
        estimate_plan(QUESTION, Plan(steps=steps), pool, WorkerProfile(), planner) + estimate_planning(planner)
    ).unpriced:
        raise SystemExit("a step has no price")


def called(place: Path, limits: DayLimits) -> float:
    """Seconds that recording one call takes, from the reservation to its end."""
    book, ledger, worker = DailySpend(place, limits), Ledger(Limits()), WORKERS[0]
    usage = with_cost(Usage(tokens_in=100, tokens_out=50, calls=1), PRICE)

    def decide(today: DayBudget) -> Reservation | None:
        return ledger.reserve(100, 1000, PRICE, today=today)

    def call() -> None:
        reservation = book.reserve(decide, ledger.release, worker)
        if reservation is None:
            raise SystemExit("there is no room")
        ledger.settle(reservation, usage)
        book.settle(reservation, usage)

    for _ in range(CALLS):
        call()
    seconds = timed(call)
    book.close()
    return seconds


def timed(what: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of so many rounds, after one that is not counted."""
    seen = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        what()
        seen.append(time.perf_counter() - began)
    return statistics.median(seen[1:])


if __name__ == "__main__":
    sys.exit(show(measure()))
