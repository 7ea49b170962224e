"""Limits of a day in PostgreSQL.

Exact over many processes, holds that expire, and a database that goes away.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from conductor_cli.config.settings import load_settings
from conductor_cli.core.errors import (
    ConductorError,
    ConfigError,
    LimitReached,
    StateUnavailable,
    TakenOver,
)
from conductor_cli.core.ledger import DayBudget, Ledger, Reservation
from conductor_cli.core.pool import DayLimits, Limits, Worker
from conductor_cli.core.usage import NO_USAGE, Price, Usage
from conductor_cli.state.interfaces import Spender, Spending
from conductor_cli.state.opening import open_state
from conductor_cli.state.postgres import database as module
from conductor_cli.state.postgres.database import Database, migrations
from conductor_cli.state.postgres.spending import (
    SharedSpend,
    _Ended,
    read_holds,
    read_shared_spent,
    release_hold,
)
from tests.state.cluster import PASSWORD, Cluster

CENT = Usage(tokens_in=1, tokens_out=1, calls=1, cost=Decimal("0.01"))
LONG_AGO = date(2020, 1, 1)
Open = Callable[[str], Database]
ANN = Worker(
    name="ann", kind="openai", model="m", price=Price(input=Decimal(0), output=Decimal(10_000))
)


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens databases and closes them at the end."""
    databases = list[Database]()

    def open_one(url: str) -> Database:
        databases.append(Database(url))
        return databases[-1]

    yield open_one
    for database in databases:
        database.close()


@pytest.fixture
def database(postgres: Cluster, opened: Open) -> Database:
    return opened(postgres.new_database())


async def reserve_room(spend: Spending, answer: int = 1) -> Reservation:
    """Room for a call that costs a cent for each token of its answer."""
    ledger = Ledger(Limits())

    def decide(today: DayBudget) -> Reservation | None:
        return ledger.reserve(0, answer, ANN.price, today=today)

    room = await spend.reserve(decide, ledger.release, ANN)
    assert room is not None
    return room


def reserve(spend: Spending, answer: int = 1) -> Reservation:
    return asyncio.run(reserve_room(spend, answer))


def test_a_call_takes_all_of_its_limits_or_none(database: Database) -> None:
    spend = SharedSpend(database, DayLimits(calls=1), client=Spender(name="app", cost=Decimal(1)))
    with pytest.raises(LimitReached):
        reserve(
            SharedSpend(database, DayLimits(), client=Spender(name="app", cost=Decimal("0.01"))), 2
        )
    held = "SELECT sum(held_cost), sum(held_calls) FROM conductor_totals"
    assert database.call(held) == [(None, None)]
    reserve(spend)
    with pytest.raises(LimitReached):
        reserve(SharedSpend(database, DayLimits(calls=1)))
    assert database.call(held) == [(20_000_000, 2)]
    assert spend.today().calls == 1


class _Watched(Database):
    """A database that knows how often each statement was said."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.said_of = Counter[str]()

    def call(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        for name in ("conductor_reserve", "conductor_settle"):
            self.said_of[name] += name in statement
        return super().call(statement, *values)


def test_calls_that_come_together_are_held_and_settled_together(postgres: Cluster) -> None:
    """Few transactions hold many calls, and the limit is exact all the same."""
    database = _Watched(postgres.new_database())
    spend = SharedSpend(database, DayLimits(calls=60), client=Spender(name="app"))

    async def ask() -> list[BaseException | Reservation]:
        spend.check()
        rooms = await asyncio.gather(
            *(reserve_room(spend) for _ in range(100)), return_exceptions=True
        )
        for room in rooms:
            if isinstance(room, Reservation):
                spend.settle(room, CENT)
        return list(rooms)

    outcomes = asyncio.run(ask())
    spend.close()
    held = [outcome for outcome in outcomes if isinstance(outcome, Reservation)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, LimitReached)]
    assert (len(held), len(refused)) == (60, 40)
    assert spend.today().calls == 60
    assert read_holds(database) == ()
    assert database.said_of["conductor_reserve"] <= 10
    assert database.said_of["conductor_settle"] <= 10
    database.close()


def test_a_call_of_a_run_that_another_process_has_takes_no_other_call_with_it(
    database: Database,
) -> None:
    spend = SharedSpend(database, DayLimits())
    ledger = Ledger(Limits())

    def decide(today: DayBudget) -> Reservation | None:
        return ledger.reserve(0, 1, ANN.price, today=today)

    async def ask() -> list[BaseException | Reservation | None]:
        runs = ["", "", "20260101-000000-lost", "", ""]
        calls = [spend.reserve(decide, ledger.release, ANN, leased=run) for run in runs]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    outcomes = asyncio.run(ask())
    lost = outcomes.pop(2)
    assert isinstance(lost, TakenOver)
    assert all(isinstance(outcome, Reservation) for outcome in outcomes)
    assert spend.today().calls == 4


def test_a_hold_never_touches_what_is_committed_and_is_settled_once(database: Database) -> None:
    spend = SharedSpend(database, DayLimits(cost=Decimal(1)))
    totals = "SELECT cost, tokens, calls, held_cost, held_tokens, held_calls FROM conductor_totals"
    room = reserve(spend, 50)
    assert database.call(totals) == [(0, 0, 0, 500_000_000, 50, 1)]
    number, _ = spend._begun[id(room)]
    spend.settle(room, CENT)
    # The answer to the first was lost
    spend._settle_soon(_Ended(number=number, made=1, usage=CENT, failed=False))
    spend.close()
    assert database.call(totals) == [(10_000_000, 2, 1, 0, 0, 0)]
    spend.settle(reserve(spend), NO_USAGE)  # from a cache
    spend.close()
    assert database.call(totals) == [(10_000_000, 2, 1, 0, 0, 0)]


@pytest.mark.parametrize("ends", [False, True])
def test_an_expired_hold_counts_in_full_until_it_is_released(
    database: Database, *, ends: bool
) -> None:
    """A call that ends after its hold was released is counted all the same."""
    spend = SharedSpend(database, DayLimits(cost=Decimal(1)), client=Spender(name="app"))
    room = reserve(spend, 100)
    (hold,) = read_holds(database)
    assert not release_hold(database, hold.id), "it has not expired"
    with database.transaction() as connection:
        connection.execute("UPDATE conductor_calls SET expires_at = now() - interval '1 s'")
    assert [(hold.expired, hold.cost, hold.client) for hold in read_holds(database)] == [
        (True, Decimal(1), "app")
    ]
    with pytest.raises(LimitReached):
        reserve(spend)
    assert release_hold(database, hold.id)
    assert not release_hold(database, hold.id)
    assert (read_holds(database), spend.today().cost) == ((), Decimal(0))
    if ends:
        spend.settle(room, CENT)
        assert spend.today().cost == Decimal("0.01")
        (row,) = read_shared_spent(database, LONG_AGO, "key")
        assert (row.key, row.open, row.calls) == ("app", 0, 1)


def test_without_the_database_no_call_is_made_and_what_ended_is_recorded_later(
    postgres: Cluster, database: Database, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    """It comes back, also for a process that began meanwhile, and nothing is opened again."""
    monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)
    spend = SharedSpend(database, DayLimits())
    room = reserve(spend)
    postgres.control("stop", "--mode", "immediate")
    late = SharedSpend(opened(postgres.url()), DayLimits())
    for record in (spend, late):
        with pytest.raises(StateUnavailable) as error:
            reserve(record)
        assert (error.value.failure.kind, PASSWORD in str(error.value)) == ("unreachable", False)
    spend.settle(room, CENT)
    spend.close()
    assert "not recorded yet" in spend.take_problem()
    postgres.control("start")
    assert (spend.find_problem(), late.find_problem()) == ("", "")
    spend.settle(reserve(spend), CENT)
    assert spend.today().cost == Decimal("0.02")


def test_a_migration_that_fails_leaves_nothing_behind(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    database = opened(postgres.new_database())
    steps = (*migrations(), "CREATE TABLE half (a int); SELECT 1 / 0")
    monkeypatch.setattr(module, "migrations", lambda: steps)
    with pytest.raises(StateUnavailable, match="division by zero"):
        database.migrate()
    assert database.version() == 0


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ("UPDATE conductor_version SET version = 99", ConfigError, "is of version 99"),
        ("UPDATE conductor_version SET version = 1", ConfigError, "is of version 1"),
        ("DELETE FROM conductor_version", ConfigError, "half of a migration"),
        (
            "ALTER DATABASE {name} SET default_transaction_read_only = on",
            StateUnavailable,
            "is read-only",
        ),
    ],
)
def test_a_database_that_cannot_be_used_is_left_alone(
    postgres: Cluster, change: str, kind: type[ConductorError], message: str, opened: Open
) -> None:
    url = postgres.new_database()
    opened(url).migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(change.format(name=url.rpartition("/")[2]).encode())
    with pytest.raises(kind, match=message):
        SharedSpend(opened(url), DayLimits()).check()


def test_a_wrong_password_is_said_and_not_shown(postgres: Cluster, opened: Open) -> None:
    with pytest.raises(StateUnavailable) as error:
        opened(postgres.url(password="swordfish")).migrate()
    assert "refuses the password" in str(error.value)
    assert "swordfish" not in str(error.value)


def test_the_clock_of_the_database_says_which_day_it_is(database: Database) -> None:
    """A machine whose clock is two days ahead opens no day of its own."""
    spend = SharedSpend(database, DayLimits(calls=1))
    spend.check()
    database._started -= 2 * 86_400
    yesterday = spend.today()
    database._started += 2 * 86_400
    assert yesterday.calls == 0
    database.close()
    reserve(spend)
    assert [row.day for row in read_shared_spent(database, LONG_AGO)] == [database.now().date()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has that clock")
def test_a_day_begins_also_while_the_machine_sleeps(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to a database on the same machine lives on, and one clock stands still."""
    before = database.now()
    clock = time.clock_gettime
    asleep = {time.CLOCK_BOOTTIME: 86_400.0}
    monkeypatch.setattr(time, "clock_gettime", lambda kind: clock(kind) + asleep.get(kind, 0.0))
    slept = database.now() - before
    assert timedelta(days=1) <= slept < timedelta(days=1, minutes=1)


def test_the_setting_names_the_database_of_the_limits(
    postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands before the sections of a file; the environment comes first.

    Neither text shows the password.
    """
    url = postgres.new_database()
    file = tmp_path / "config.toml"
    file.write_text(f'state = "{url}"\n[limits]\ncost_day = 1\n')
    settings = load_settings({"HOME": str(tmp_path)}, file=str(file))
    assert settings.paths.database == url
    assert url not in repr(settings.paths)
    with_state = open_state(settings.paths)
    assert PASSWORD not in with_state.place
    assert isinstance(with_state.spending(settings.day_limits), SharedSpend)
    assert load_settings({"CONDUCTOR_LLM_CONFIG": str(file)}).paths.database == url
    other = "postgresql://db/other"
    assert load_settings({"CONDUCTOR_LLM_STATE": other}, file=str(file)).paths.database == other
    file.write_text('state = "mysql://me:secret@db/x"')
    with pytest.raises(ConfigError, match="not a URL of PostgreSQL") as error:
        load_settings({}, file=str(file))
    assert "secret" not in str(error.value)
