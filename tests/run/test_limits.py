"""Limits of one run, and of all runs of a day."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core import events as ev
from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import Failure, ModelError, PolicyError
from conductor_cli.core.pool import DayLimits, Limits, Pool
from conductor_cli.core.usage import FREE, Price, Usage
from conductor_cli.models.base import ScriptedModel
from conductor_cli.models.response_cache import CachedModel, ResponseCache
from conductor_cli.run import Orchestra
from conductor_cli.state.spending import DailySpend, local_now
from conductor_cli.state.spending_file import read_spent
from tests.run.kit import Counting, error_of, inner, of, play, pool_of, says, setting

DEAR = Price(input=Decimal(1), output=Decimal(10))
ROOM_FOR_ONE = Limits(cost=Decimal("0.043"))
"""Dollars for one call of `DEAR` at its longest, or for many as they turn out."""
THREE = "A | - | one\nA | - | two\nA | 1 2 | three"


def limit(message: str, reason: str, suggested: str | None = None) -> Failure:
    fields: Any = {
        "reason": f"limit_{reason}",
        "suggested_limit": ANY if suggested is None else suggested,
    }
    return Failure(kind="limit", message=f"stopped: {message}", **fields)


class Greedy(Counting):
    """Uses every token of answer that it is allowed, and says so."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__(seconds=seconds)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        async for chunk in super().stream(request):
            read = int(sum(len(message.content) for message in request.messages) / 3.5)
            used = Usage(tokens_in=read, tokens_out=request.max_tokens or 0, calls=1)
            yield Chunk(text=chunk.text, usage=used if chunk.usage else None, finish=chunk.finish)


def test_parallel_steps_cannot_overshoot_the_money_together() -> None:
    ann = Greedy()
    orchestra = setting(
        THREE, {"ann": ann}, pool=pool_of("ann", price=DEAR), limits=Limits(cost=Decimal("0.02"))
    )
    run, _ = play(orchestra)
    assert run.trace.usage.cost is not None
    assert run.trace.usage.cost <= Decimal("0.02")
    assert run.trace.exit_code == 6
    assert run.trace.error == limit("limit of $0.0200, no room for another call", "cost", "0.04")


def test_calls_are_counted_with_those_that_run() -> None:
    ann = Counting(seconds=3)
    run, events = play(setting(THREE, {"ann": ann}, limits=Limits(calls=2)))
    assert len(of(events, ev.StepStarted)) == 2
    assert run.trace.exit_code == 6
    assert run.trace.error == limit("limit of 2 calls", "calls", "4")
    assert (run.trace.answer, run.trace.partial) == ("done", True)


def test_a_step_waits_for_room_that_a_running_call_will_leave() -> None:
    pool = pool_of("ann", price=DEAR)
    run, events = play(setting(THREE, {"ann": Counting(seconds=3)}, pool=pool, limits=ROOM_FOR_ONE))
    assert [(event.step, event.at) for event in of(events, ev.StepStarted)] == [
        (1, 0.0),
        (2, 3.0),
        (3, 6.0),
    ]
    assert run.trace.exit_code == 0


def test_a_step_waits_for_room_that_planning_will_leave() -> None:
    planner = ["A | - | one\n", 5.0, "A | 1 | two"]
    pool = pool_of("ann", price=DEAR)
    limits = Limits(cost=Decimal("0.0145"))
    run, events = play(
        setting(
            planner, {"ann": Counting()}, pool=pool, price=DEAR, constrained=True, limits=limits
        )
    )
    assert of(events, ev.StepStarted)[0].at == 5.0
    assert run.trace.exit_code == 0


def test_planning_that_has_no_room_ends_the_run() -> None:
    planner = says("A | - | one")
    run, events = play(setting(planner, limits=Limits(tokens=300)))
    assert planner.requests == []
    assert [event.kind for event in events] == ["run_started", "run_failed"]
    assert run.trace.error == limit("limit of 300 tokens, no room for another call", "tokens")


def test_time_is_a_limit_of_the_whole_run() -> None:
    ann = ScriptedModel([["The answer ", 60.0, "is 42."]])
    run, events = play(setting([4.0, "A | - | one"], {"ann": ann}, limits=Limits(seconds=10)))
    assert (run.trace.at, run.trace.answer, run.trace.exit_code) == (10.0, "The answer ", 6)
    assert run.trace.error == limit("limit of 10 s", "time", "20")
    assert of(events, ev.StepStopped)[0].reason == "limit"
    run, _ = play(setting([40.0, "A | - | one"], limits=Limits(seconds=2.5)))
    assert (run.trace.at, run.trace.state, run.trace.exit_code) == (2.5, "failed", 6)


def test_a_nested_run_shares_the_limits() -> None:
    planner = ScriptedModel([["A | - | one"], ["A | 0 | two\nA | 1 | three\nA | 2 | four"]])
    ann = ScriptedModel([["one"], ["two"], ["three"]])
    run, events = play(setting(planner, {"ann": ann}, limits=Limits(recursion=1, calls=3)))
    assert len(ann.requests) == 3
    assert of(inner(events, 2), ev.RunFinished)[0].error == limit("limit of 3 calls", "calls", "6")
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("three", True, 6)


amounts = st.lists(
    st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 15)), min_size=1, max_size=5
)


@pytest.mark.parametrize("kind", ["tokens", "cost", "calls"])
@given(
    drawn=amounts,
    amount=st.integers(1, 12),
    parallel=st.integers(1, 4),
    recursion=st.integers(0, 1),
)
def test_no_limit_is_ever_overshot(
    kind: str, drawn: list[tuple[str, int]], amount: int, parallel: int, recursion: int
) -> None:
    lines = [
        (
            f"{label} | {' '.join(str(i) for i in range(1, number) if bits >> (i - 1) & 1) or '-'} | "
            f"do {number}"
        )
        for number, (label, bits) in enumerate(drawn, start=1)
    ]
    limit: Any = {"tokens": amount * 1000, "cost": Decimal(amount) / 200, "calls": amount}[kind]
    limits = Limits(parallel=parallel, recursion=recursion, **{kind: limit})
    workers = {"ann": Greedy(1), "bob": Greedy(2)}
    planner = ScriptedModel([["\n".join(lines)], ["accept"]])
    pool = pool_of("ann", "bob", price=DEAR)
    run, _ = play(setting(planner, workers, pool=pool, limits=limits))
    calls = sum(len(worker.requests) for worker in workers.values())
    used: Any = {
        "tokens": run.trace.usage.tokens,
        "cost": run.trace.usage.cost or Decimal(0),
        "calls": calls,
    }[kind]
    assert used <= limit
    assert run.trace.exit_code in (0, 6)


TWO = "A | - | one\nA | 1 | two"


def over(
    daily_spend: DailySpend, pool: Pool | None = None, price: Price | None = FREE
) -> Orchestra:
    """A conductor of two steps over one worker that costs money."""
    pool = pool or pool_of("ann", price=DEAR)
    workers: dict[str, Any] = {"ann": Counting("found", seconds=1)}
    return setting(TWO, workers, pool=pool, price=price, daily_spend=daily_spend)


def test_the_limit_of_a_day_ends_a_run_as_its_own_would(tmp_path: Path) -> None:
    limits = DayLimits(calls=1)
    run, events = play(over(DailySpend(tmp_path, limits)))
    assert [event.reason for event in of(events, ev.StepStopped)] == ["limit"]
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("found", True, 6)
    assert run.trace.error == limit("today's limit of 1 call", "calls_day", "2")


def test_a_second_run_finds_the_day_spent(tmp_path: Path) -> None:
    limits = DayLimits(tokens=1000)
    first, _ = play(over(DailySpend(tmp_path, limits)))
    assert first.trace.exit_code == 0
    second, events = play(over(DailySpend(tmp_path, limits)))
    assert (second.trace.exit_code, of(events, ev.StepStarted)) == (6, [])
    message = "stopped: today's limit of 1,000 tokens, no room for another call"
    assert error_of(second).message == message


def test_a_cost_limit_needs_prices_of_workers_and_of_the_planner(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="the cost limit cannot be enforced: the planner"):
        play(
            setting(
                "A | - | one",
                limits=Limits(cost=Decimal(1)),
                price=None,
                pool=pool_of("ann", price=DEAR),
            )
        )
    book = DailySpend(tmp_path, DayLimits(cost=Decimal(1)))
    with pytest.raises(PolicyError, match="ann has no price"):
        play(over(book, pool_of("ann")))
    with pytest.raises(
        PolicyError, match=r"the cost limit of the day .* cannot be enforced: the planner"
    ) as caught:
        play(over(book, price=None))
    assert (
        "conductor workers add NAME … --set price=IN,OUT, then conductor model use NAME"
        in caught.value.hint
    )


def test_a_disk_that_fills_up_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = DailySpend(tmp_path, DayLimits(calls=9))
    open_transaction = book._transaction
    opened = []

    @contextmanager
    def full() -> Iterator[sqlite3.Connection]:
        opened.append(1)
        if len(opened) > 5:
            raise sqlite3.OperationalError("database or disk is full")
        with open_transaction() as database:
            yield database

    monkeypatch.setattr(book, "_transaction", full)
    run, _ = play(over(book))
    assert (run.trace.answer, run.trace.exit_code) == ("found", 6)
    assert error_of(run).message.startswith("today's limit cannot be enforced")


def test_each_call_is_written_down(tmp_path: Path) -> None:
    play(over(DailySpend(tmp_path)))
    rows = read_spent(tmp_path, local_now().date())
    assert [(row.worker, row.usage.calls, row.calls) for row in rows] == [
        ("conductor", 1, 0),
        ("ann", 2, 2),
    ]
    assert rows[1].usage.cost == Decimal("0.00012")


def test_calls_whose_replies_are_not_used_are_marked(tmp_path: Path) -> None:
    broken = ModelError("broken", "it broke off", usage=Usage(tokens_in=5, calls=1))
    planner = ScriptedModel([["A | 3 | nobody has done this"], ["A | - ", broken]])
    ann = ScriptedModel([["half", broken], ["found"]])
    play(setting(planner, {"ann": ann}, price=FREE, daily_spend=DailySpend(tmp_path)))
    rows = read_spent(tmp_path, local_now().date())
    assert [(row.worker, row.usage.calls, row.failed.calls) for row in rows] == [
        ("conductor", 2, 2),
        ("ann", 2, 1),
    ]


def test_a_reply_that_was_made_before_is_not_paid_for_again(tmp_path: Path) -> None:
    book = ResponseCache(tmp_path / "book.jsonl")
    ann = CachedModel(says("found"), book, "ann")
    planner = CachedModel(says("A | - | one"), book, "planner")
    runs = []
    for day in ("first", "second"):
        daily_spend = DailySpend(tmp_path / day)
        orchestra = setting(
            planner,
            {"ann": ann},
            pool=pool_of("ann", price=DEAR),
            price=FREE,
            daily_spend=daily_spend,
        )
        runs.append(play(orchestra)[0])
    book.close()
    assert runs[0].trace.usage.cost == runs[1].trace.usage.cost
    assert [len(read_spent(tmp_path / day, local_now().date())) for day in ("first", "second")] == [
        2,
        0,
    ]
