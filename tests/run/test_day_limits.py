"""Runs that share the limits of a day."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.errors import ConfigError, PolicyError
from conductor_cli.core.pool import DayLimits, Pool
from conductor_cli.core.usage import FREE, Price
from conductor_cli.models.response_cache import CachedModel, ResponseCache
from conductor_cli.run import Conductor
from conductor_cli.state.spending import DailySpend, local_now, read_spent
from tests.run.kit import Counting, of, play, pool_of, says, setting

DEAR = Price(input=Decimal(1), output=Decimal(10))
TWO = "A | - | one\nA | 1 | two"


def over(daily_spend: DailySpend, pool: Pool | None = None, price: Price | None = FREE) -> Conductor:
    """A conductor of two steps over one worker that costs money."""
    pool = pool or pool_of("ann", price=DEAR)
    workers: dict[str, Any] = {"ann": Counting("found", seconds=1)}
    return setting(TWO, workers, pool=pool, price=price, daily_spend=daily_spend)


def test_the_limit_of_a_day_ends_a_run_as_its_own_would(tmp_path: Path) -> None:
    """Finished work is kept, and the exit code is 6."""
    limits = DayLimits(calls=1)
    run, events = play(over(DailySpend(tmp_path, limits)))
    assert [event.reason for event in of(events, ev.StepStopped)] == ["limit"]
    assert (run.trace.answer, run.trace.partial, run.trace.exit_code) == ("found", True, 6)
    assert run.trace.error is not None
    assert run.trace.error.message == "today's limit of 1 worker calls is reached"
    assert (run.trace.error.reason, run.trace.error.suggested_limit) == ("limit_calls_day", "2")


def test_a_second_run_finds_the_day_spent(tmp_path: Path) -> None:
    """Nothing is planned or called, and it says so."""
    limits = DayLimits(tokens=1000)
    first, _ = play(over(DailySpend(tmp_path, limits)))
    assert first.trace.exit_code == 0
    second, events = play(over(DailySpend(tmp_path, limits)))
    assert (second.trace.exit_code, of(events, ev.StepStarted)) == (6, [])
    assert second.trace.error is not None
    assert second.trace.error.message == "today's limit of 1,000 tokens leaves no room for another call"


def test_a_cost_limit_of_a_day_needs_prices_too(tmp_path: Path) -> None:
    """A worker or a conductor without a price could spend anything: refused before it is called."""
    book = DailySpend(tmp_path, DayLimits(cost=Decimal(1)))
    with pytest.raises(PolicyError, match="ann has no price"):
        play(over(book, pool_of("ann")))
    with pytest.raises(PolicyError, match=r"the cost limit of the day .* cannot be enforced: the conductor") as caught:
        play(over(book, price=None))
    assert "conductor workers add NAME … --price IN,OUT, then conductor model use NAME" in caught.value.hint


def test_a_day_limit_that_cannot_be_enforced_is_refused(tmp_path: Path) -> None:
    """Before anything is called."""
    (tmp_path / "spending").write_text("a file")
    with pytest.raises(ConfigError, match="the limits per day cannot be enforced"):
        play(over(DailySpend(tmp_path / "spending", DayLimits(cost=Decimal(1)))))


def test_a_disk_that_fills_up_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reservation that cannot be stored is dropped: the run ends with what it has, and nothing waits for it."""
    book = DailySpend(tmp_path, DayLimits(calls=9))
    open_transaction, opened = book._transaction, []

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
    assert run.trace.error is not None
    assert run.trace.error.message.startswith("today's limit cannot be enforced")


def test_each_call_is_written_down(tmp_path: Path) -> None:
    """Those of workers and those of the conductor, also where there is no limit."""
    play(over(DailySpend(tmp_path)))
    rows = read_spent(tmp_path, local_now().date())
    assert [(row.worker, row.usage.calls, row.calls) for row in rows] == [("conductor", 1, 0), ("ann", 2, 2)]
    assert rows[1].usage.cost == Decimal("0.00012")


def test_a_reply_that_was_made_before_is_not_paid_for_again(tmp_path: Path) -> None:
    """The run counts what it took then; the day counts what is spent today."""
    book = ResponseCache(tmp_path / "book.jsonl")
    ann, planner = CachedModel(says("found"), book, "ann"), CachedModel(says("A | - | one"), book, "planner")
    runs = []
    for day in ("first", "second"):
        daily_spend = DailySpend(tmp_path / day)
        conductor = setting(planner, {"ann": ann}, pool=pool_of("ann", price=DEAR), price=FREE, daily_spend=daily_spend)
        runs.append(play(conductor)[0])
    book.close()
    assert runs[0].trace.usage.cost == runs[1].trace.usage.cost
    assert [len(read_spent(tmp_path / day, local_now().date())) for day in ("first", "second")] == [2, 0]
