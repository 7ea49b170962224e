"""Limits over all runs of a day, enforced across processes, and reading back what was spent."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.core.errors import ConfigError, LimitReached
from conductor_cli.core.ledger import DayBudget, Ledger, Reservation
from conductor_cli.core.pool import DayLimits, Limits, Worker
from conductor_cli.core.usage import Price, Usage, with_cost
from conductor_cli.state import spending
from conductor_cli.state.interfaces import USER, Spender
from conductor_cli.state.spending import MAX_WRITTEN_AT_ONCE, DailySpend
from conductor_cli.state.spending_file import (
    FILE,
    checkpoint,
    open_database,
    read_spent,
    read_tokens,
)

DEAR = Price(input=Decimal(1), output=Decimal(10))
ANN = Worker(name="ann", kind="openai", model="gpt-x", price=DEAR)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class OneRun:
    """A run with its ledger and the spending of the day; the clock is set by the test."""

    def __init__(
        self, directory: Path, limits: DayLimits, now: datetime = NOON, client: Spender = USER
    ) -> None:
        self.now = now
        self.ledger = Ledger(Limits())
        self.spend = DailySpend(directory, limits, client=client, now=lambda: self.now)

    def find_room(self, answer: int = 1000) -> Reservation | None:
        def decide(today: DayBudget) -> Reservation | None:
            return self.ledger.reserve(100, answer, DEAR, today=today)

        return asyncio.run(self.spend.reserve(decide, self.ledger.release, ANN))

    def reserve(self, answer: int = 1000) -> Reservation:
        room = self.find_room(answer)
        assert room is not None
        return room

    def settle(self, reservation: Reservation, written: int) -> None:
        usage = with_cost(Usage(tokens_in=100, tokens_out=written, calls=1), DEAR)
        self.ledger.settle(reservation, usage)
        self.spend.settle(reservation, usage)

    def call(self, written: int = 1000) -> Reservation:
        room = self.reserve()
        self.settle(room, written)
        return room


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "spending"


def cents(amount: int) -> DayLimits:
    return DayLimits(cost=Decimal(amount) / 100)


@contextmanager
def other_process(
    work: Callable[..., None], *arguments: Any
) -> Iterator[tuple[SpawnProcess, Connection]]:
    """Another process at some work, which gets the other end of the pipe first.

    It is killed at the end.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *arguments))
    process.start()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()


def test_runs_of_a_day_share_its_limit(directory: Path) -> None:
    OneRun(directory, cents(2)).call()
    later = OneRun(directory, cents(2))
    assert later.call(written=900).answer == 980
    with pytest.raises(
        LimitReached, match=r"stopped: today's limit of \$0.0200, no room for another call"
    ) as caught:
        later.reserve()
    assert (caught.value.reason, caught.value.suggested_limit) == ("limit_cost_day", "0.04")


def test_what_others_hold_is_not_there(directory: Path) -> None:
    """A call under way in another run holds its most.

    When it ends, what it did not use is there again.
    """
    first = OneRun(directory, cents(1))
    other = OneRun(directory, cents(1))
    room = first.reserve(answer=600)
    cut = other.reserve()
    assert cut.answer == 380
    first.settle(room, 10)
    other.settle(cut, 10)
    assert other.spend.today().cost == Decimal("0.0004")


def test_a_run_waits_for_its_own_calls_only(directory: Path) -> None:
    """Its own call may leave room, so it waits; nobody knows when another run's will end."""
    first = OneRun(directory, cents(1))
    other = OneRun(directory, cents(1))
    first.reserve(answer=950)
    assert first.find_room() is None
    with pytest.raises(LimitReached):
        other.reserve()


def test_midnight_gives_a_new_day(directory: Path) -> None:
    """And a call counts for the day on which it began, wherever it ends."""
    run = OneRun(directory, cents(1), NOON.replace(hour=23, minute=59))
    room = run.reserve(answer=980)
    run.now += timedelta(minutes=2)
    run.reserve(answer=980)
    run.settle(room, 980)
    rows = read_spent(directory, date(2026, 1, 1))
    assert [(str(row.day), row.usage.cost, row.open) for row in rows] == [
        ("2026-11-22", Decimal("0.0099"), 0),
        ("2026-11-23", Decimal("0.0099"), 1),
    ]


def test_a_clock_that_goes_back_opens_no_new_day(directory: Path) -> None:
    """Back over midnight, what was spent after it still counts."""
    run = OneRun(directory, cents(1), NOON)
    run.call(written=980)
    run.now -= timedelta(hours=13)
    with pytest.raises(LimitReached):
        run.reserve()
    run.now -= timedelta(days=1)
    run.reserve()


def hold(pipe: Connection, directory: Path) -> None:
    """Hold nearly all of a cent."""
    OneRun(directory, cents(1)).reserve(answer=980)
    pipe.send("held")
    pipe.recv()


def test_a_call_of_a_killed_process_counts(directory: Path) -> None:
    """Its provider may charge for it: its most counts, in the limit and in what is shown."""
    with other_process(hold, directory) as (_, holder):
        assert holder.recv() == "held"
        with pytest.raises(LimitReached):
            OneRun(directory, cents(1)).reserve()
    with pytest.raises(LimitReached):
        OneRun(directory, cents(1)).reserve()
    (row,) = read_spent(directory, NOON.date())
    assert (row.worker, row.calls, row.open, row.usage.calls, row.usage.cost) == (
        "ann",
        1,
        1,
        1,
        Decimal("0.0099"),
    )


def test_a_file_that_was_only_just_created_is_read(directory: Path) -> None:
    """A process that is killed at its first write leaves an empty file.

    Nothing is spent, and the next call counts.
    """
    directory.mkdir()
    (directory / FILE).touch()
    assert read_spent(directory, NOON.date()) == ()
    OneRun(directory, cents(1)).call(written=5)
    assert len(read_spent(directory, NOON.date())) == 1


HALF_DONE = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = DELETE")
database.execute("PRAGMA cache_size = 1")
database.execute("BEGIN IMMEDIATE")
for number in range(500):
    database.execute("INSERT INTO calls (day, worker_call, cost) VALUES ('2026-11-22', 1, 5)")
os._exit(9)
"""


def test_what_a_killed_process_left_half_done_is_undone_by_a_reader(directory: Path) -> None:
    """The journal that SQLite has left must be played back, which needs to write.

    `conductor cost` was refused.
    """
    run = OneRun(directory, cents(1))
    run.call(written=5)
    run.spend.close()
    subprocess.run([sys.executable, "-c", HALF_DONE, str(directory / FILE)], check=False)
    assert (directory / f"{FILE}-journal").stat().st_size > 0
    assert [row.usage.calls for row in read_spent(directory, NOON.date())] == [1]


def test_tokens_of_a_day_are_read_from_a_file_without_totals(directory: Path) -> None:
    """As an earlier version left it, and where nobody may write."""
    run = OneRun(directory, DayLimits())
    run.call(written=5)
    run.spend.close()
    with closing(open_database(directory / FILE)) as database:
        database.execute("DROP TABLE totals")
    assert read_tokens(directory, NOON.date()) == 105
    assert read_tokens(directory / "nowhere", NOON.date()) == 0


def call_by_two_keys(pipe: Connection, directory: Path, checkpoints: bool) -> None:
    runs = [
        OneRun(directory, DayLimits(), client=Spender(name=name)) for name in ("phone", "laptop")
    ]
    for run in runs:
        run.spend.checkpoints = checkpoints
    while True:
        count = pipe.recv()
        for run in runs:
            for _ in range(count):
                run.call()
        pipe.send("written")


@pytest.mark.parametrize("checkpoints", [True, False])
def test_reading_between_the_calls_of_a_server_loses_none_of_them(
    directory: Path, *, checkpoints: bool
) -> None:
    """Two records are open in one process.

    Another process that reads must not delete the log they still write to.
    """
    with other_process(call_by_two_keys, directory, checkpoints) as (_, server):
        for new_calls, written in ((1, 1), (6, 7)):
            server.send(new_calls)
            assert server.recv() == "written"
            assert [row.calls for row in read_spent(directory, NOON.date(), by="key")] == [
                written
            ] * 2
        server.send(1)
        assert server.recv() == "written"
    rows = read_spent(directory, NOON.date(), by="key")
    assert [(row.key, row.calls, row.open) for row in rows] == [("laptop", 8, 0), ("phone", 8, 0)]


def test_a_call_without_a_limit_is_recorded_before_it_is_made(directory: Path) -> None:
    run = OneRun(directory, DayLimits())
    run.reserve()
    room = Reservation(answer=9, tokens=9, cost=Decimal(0), call=False)
    assert asyncio.run(run.spend.reserve(lambda _: room, print)) is room
    orchestra, ann = read_spent(directory, NOON.date())
    assert (ann.worker, ann.open, ann.usage.cost) == ("ann", 1, Decimal("0.0101"))
    assert (orchestra.worker, orchestra.open, orchestra.usage.unpriced, orchestra.usage.cost) == (
        "conductor",
        1,
        1,
        None,
    )


def spend_all(pipe: Connection, directory: Path) -> None:
    run = OneRun(directory, cents(5))
    pipe.recv()
    with suppress(LimitReached):
        while True:
            room = run.reserve(answer=300)
            run.settle(room, room.answer)


def test_processes_at_once_never_overspend(directory: Path) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(other_process(spend_all, directory)) for _ in range(3)]
        for _, pipe in processes:
            pipe.send("go")
        for process, _ in processes:
            process.join(60)
            assert process.exitcode == 0
    today = OneRun(directory, cents(5)).spend.today()
    assert Decimal("0.045") < today.cost <= Decimal("0.05")
    assert today.calls >= 15


def open_databases(pipe: Connection, directory: Path) -> None:
    while True:
        spend = DailySpend(directory / pipe.recv())
        spend.today()
        spend.close()
        pipe.send("opened")


def test_processes_at_once_open_a_new_database(directory: Path) -> None:
    with ExitStack() as stack:
        pipes = [stack.enter_context(other_process(open_databases, directory))[1] for _ in range(3)]
        for number in range(20):
            for pipe in pipes:
                pipe.send(str(number))
            assert [pipe.recv() for pipe in pipes] == ["opened"] * 3


@pytest.mark.parametrize("closes", [False, True])
def test_what_a_disk_refused_is_recorded_with_the_next_call_or_at_the_end(
    directory: Path, *, closes: bool
) -> None:
    run = OneRun(directory, DayLimits())
    directory.write_text("in the way")
    run.call(written=5)
    run.call(written=6)
    assert "what was spent is not recorded" in run.spend.take_problem()
    directory.unlink()
    if closes:
        run.spend.close()
    else:
        run.call(written=7)
    (row,) = read_spent(directory, NOON.date())
    assert (row.usage.calls, row.usage.tokens_out) == ((2, 11) if closes else (3, 18))


def test_closing_leaves_only_the_database(directory: Path) -> None:
    run = OneRun(directory, cents(1))
    run.call(written=5)
    run.spend.close()
    assert [path.name for path in directory.iterdir()] == [FILE]
    assert (directory / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("tokens", [10**12, 10**30])
def test_an_absurd_number_of_tokens_uses_the_limits_up(directory: Path, tokens: int) -> None:
    """Who states it must not switch the limits off, nor break what `conductor cost` reads."""
    limits = DayLimits(calls=2, tokens=10**9, cost=Decimal(100))
    run = OneRun(directory, limits)
    for _ in range(2):
        room = run.reserve()
        run.spend.settle(room, with_cost(Usage(tokens_out=tokens, calls=1), DEAR))
        run.ledger.release(room)
        run.spend.limits = DayLimits(calls=9)
    today = run.spend.today()
    assert (today.calls, today.tokens >= 2 * 10**12, today.cost >= 1000) == (2, True, True)
    for limit in (DayLimits(calls=2), DayLimits(tokens=10**9), DayLimits(cost=Decimal(100))):
        with pytest.raises(LimitReached):
            OneRun(directory, limit).reserve()
    assert read_spent(directory, NOON.date())[0].usage.calls == 2


@pytest.mark.parametrize("cost", ["Infinity", "1E+999999", "9" * 400, "1E-999999", "-0"])
def test_an_absurd_cost_never_gives_money_or_calls_back(directory: Path, cost: str) -> None:
    """A call and its tokens count whatever its cost is, and no cost lowers the others' sum."""
    run = OneRun(directory, DayLimits(calls=9, cost=Decimal(10**9)))
    run.call(written=1000)
    before = run.spend.today()
    run.spend.settle(run.reserve(), Usage(tokens_out=60, calls=1, cost=Decimal(cost)))
    today = run.spend.today()
    assert (today.calls, today.tokens) == (before.calls + 1, before.tokens + 60)
    assert before.cost <= today.cost <= before.cost + 10**6
    assert run.spend.take_problem() == ""
    assert read_spent(directory, NOON.date())[0].usage.calls == 2


def test_the_end_of_a_quick_call_is_recorded_with_the_next_call_or_a_moment_later(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the most that it may have cost counts."""

    async def call(spend: DailySpend) -> Reservation:
        room = Reservation(answer=900, tokens=1000, cost=Decimal(0), call=True)
        assert await spend.reserve(lambda _: room, lambda _: None, ANN) is room
        return room

    def held() -> tuple[int, int]:
        (row,) = read_spent(directory, NOON.date())
        return row.open, row.usage.tokens

    async def work() -> None:
        spend = DailySpend(directory, cents(100), now=lambda: NOON)
        spend.checkpoints = False
        monkeypatch.setattr(spending, "GROUP_SECONDS", 60.0)
        first = await call(spend)
        spend.settle(first, Usage(calls=1, tokens_in=10, tokens_out=10))
        assert held() == (1, 1000)
        second = await call(spend)
        assert held() == (1, 1020)
        spend.close()  # which ends the timer of the first call
        monkeypatch.setattr(spending, "GROUP_SECONDS", 0.1)
        spend.settle(second, Usage(calls=1, tokens_in=10, tokens_out=10))
        async with asyncio.timeout(30):
            while held() != (0, 40):  # noqa: ASYNC110 - a timer records it
                await asyncio.sleep(0.01)
        monkeypatch.setattr(spending, "GROUP_SECONDS", 60.0)
        third = await call(spend)
        spend.settle(third, Usage(calls=1, tokens_in=10, tokens_out=10))
        spend.close()
        assert held() == (0, 60)
        assert spend.take_problem() == ""

    asyncio.run(work())


def test_a_database_that_another_run_has_begun_again_is_noticed(directory: Path) -> None:
    """No run goes on with the file that was removed, where its limit would not be held."""
    first = OneRun(directory, cents(2))
    other = OneRun(directory, cents(2))
    first.call(written=100)
    other.call(written=100)
    for path in directory.iterdir():
        path.unlink()
    first.call()
    other.call(written=900)
    assert read_spent(directory, NOON.date())[0].calls == 2
    with pytest.raises(LimitReached):
        other.reserve()


def test_a_database_that_another_process_holds_is_an_error_after_a_bounded_wait(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with the work that is done, and says what is locked."""
    monkeypatch.setattr("conductor_cli.state.spending_file.BUSY_SECONDS", 0.2)
    run = OneRun(directory, cents(1))
    run.call(written=5)
    with closing(sqlite3.connect(directory / FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            LimitReached, match=r"today's limit cannot be enforced: .*: database is locked"
        ):
            run.reserve()
    run.reserve()


@pytest.mark.parametrize("wrong", ["a file", "a directory", "not a database"])
def test_a_limit_that_cannot_be_enforced_is_refused(directory: Path, wrong: str) -> None:
    """Before anything is called, and at the next call if that happens later.

    Without limits there is a notice.
    """
    if wrong == "a file":
        directory.write_text("x")
    elif wrong == "a directory":
        (directory / FILE).mkdir(parents=True)
    else:
        directory.mkdir()
        (directory / FILE).write_text("x" * 4096)
    run = OneRun(directory, cents(1))
    with pytest.raises(ConfigError, match="the limits per day cannot be enforced"):
        run.spend.check()
    with pytest.raises(LimitReached, match="today's limit cannot be enforced"):
        run.reserve()
    free = OneRun(directory, DayLimits())
    free.spend.check()
    free.call()
    assert free.spend.take_problem().startswith("what was spent is not recorded")
    assert free.spend.take_problem() == ""
    if wrong != "a file":
        with pytest.raises(ConfigError, match="cannot be read"):
            read_spent(directory, NOON.date())


def test_beside_many_calls_the_end_of_one_is_recorded_with_the_next_call(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the most that it may have cost counts; beside few calls it is recorded at once."""
    monkeypatch.setattr(spending, "GROUP_SECONDS", 60.0)
    run = OneRun(directory, cents(1000))
    used = Usage(calls=1, tokens_in=10, tokens_out=10)

    async def settle(room: Reservation) -> None:
        run.spend.settle(room, used)

    def open_calls() -> int:
        (row,) = read_spent(directory, NOON.date())
        return row.open

    rooms = [run.reserve() for _ in range(MAX_WRITTEN_AT_ONCE + 2)]
    asyncio.run(settle(rooms.pop()))
    assert open_calls() == len(rooms) + 1
    rooms.append(run.reserve())
    assert open_calls() == len(rooms)
    while rooms:
        asyncio.run(settle(rooms.pop()))
    assert open_calls() == 0


def test_where_calls_are_expected_the_end_of_a_single_one_is_recorded_with_the_next(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch makes one call after the other, and its last one is recorded when it ends."""
    monkeypatch.setattr(spending, "GROUP_SECONDS", 60.0)
    run = OneRun(directory, cents(1000))
    run.spend.expects_calls = True
    used = Usage(calls=1, tokens_in=10, tokens_out=10)

    async def settle(room: Reservation) -> None:
        run.spend.settle(room, used)

    def calls() -> tuple[int, int]:
        (row,) = read_spent(directory, NOON.date())
        return row.open, row.usage.tokens

    first = run.reserve()
    asyncio.run(settle(first))
    assert calls() == (1, first.tokens)
    second = run.reserve()
    assert calls() == (1, used.tokens + second.tokens)
    asyncio.run(settle(second))
    run.spend.close()
    assert calls() == (0, 2 * used.tokens)


@pytest.mark.parametrize("calls", [1, MAX_WRITTEN_AT_ONCE + 1])
def test_the_file_is_not_checked_again_a_moment_after_a_call_was_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    run = OneRun(directory, cents(1000))
    for name in ("GROUP_SECONDS", "CHECKED_SECONDS"):
        monkeypatch.setattr(spending, name, 60.0)
    for _ in range(calls):
        run.reserve()
    monkeypatch.setattr(run.spend, "find_problem", lambda: "the disk is full")
    run.spend.check()
    for name in ("GROUP_SECONDS", "CHECKED_SECONDS"):
        monkeypatch.setattr(spending, name, 0.0)
    with pytest.raises(ConfigError, match="the disk is full"):
        run.spend.check()


class ManyCalls:
    """Calls of one process beside so many others that they are reserved together."""

    def __init__(self, directory: Path, limits: DayLimits) -> None:
        self.run = OneRun(directory, limits)
        self.others = [self.run.reserve(answer=1) for _ in range(MAX_WRITTEN_AT_ONCE + 1)]

    def begin(self, count: int) -> list[asyncio.Task[Reservation | None]]:
        """Begin so many calls, each in a run of its own, at the same moment."""
        return [asyncio.create_task(self._reserve(Ledger(Limits()))) for _ in range(count)]

    async def _reserve(self, ledger: Ledger) -> Reservation | None:
        def decide(today: DayBudget) -> Reservation | None:
            return ledger.reserve(100, 1000, DEAR, today=today)

        return await self.run.spend.reserve(decide, ledger.release, ANN)


def test_calls_that_begin_together_share_a_transaction_and_keep_the_limit(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = list[str]()

    def open_traced(path: Path, *, checkpoints: bool = True) -> sqlite3.Connection:
        database = open_database(path, checkpoints=checkpoints)
        database.set_trace_callback(statements.append)
        return database

    monkeypatch.setattr(spending, "open_database", open_traced)
    calls = ManyCalls(directory, DayLimits(calls=MAX_WRITTEN_AT_ONCE + 11))
    statements.clear()

    async def begin() -> list[Reservation | BaseException | None]:
        return await asyncio.gather(*calls.begin(20), return_exceptions=True)

    outcomes = asyncio.run(begin())
    assert statements.count("COMMIT") == 1
    assert [type(outcome) for outcome in outcomes] == [Reservation] * 10 + [LimitReached] * 10
    assert calls.run.spend.today().calls == MAX_WRITTEN_AT_ONCE + 11


@pytest.mark.parametrize("is_reserved", [False, True])
def test_a_call_that_is_given_up_while_it_waits_holds_nothing(
    directory: Path, *, is_reserved: bool
) -> None:
    """Also where it was reserved in the moment in which it was given up."""
    calls = ManyCalls(directory, cents(1000))
    before = calls.run.spend.today()

    async def give_up() -> None:
        given_up, kept = calls.begin(2)
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)  # both wait now
        if is_reserved:
            loop.call_soon(given_up.cancel)
        else:
            given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert await kept is not None

    asyncio.run(give_up())
    assert calls.run.spend.today().calls == before.calls + 1
    calls.run.spend.close()
    assert read_spent(directory, NOON.date())[0].open == len(calls.others) + 1


def test_calls_that_cannot_be_recorded_together_are_all_refused(directory: Path) -> None:
    """None of them holds room, in its run or on the day."""
    calls = ManyCalls(directory, cents(1000))
    before = calls.run.spend.today()

    async def begin() -> list[Reservation | BaseException | None]:
        return await asyncio.gather(*calls.begin(3), return_exceptions=True)

    refuse = "CREATE TRIGGER full BEFORE INSERT ON calls WHEN (SELECT COUNT(*) FROM calls) > {} "
    refuse += "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    with closing(sqlite3.connect(directory / FILE)) as other, other:
        other.execute(refuse.format(len(calls.others) + 1))
    outcomes = asyncio.run(begin())
    assert {str(outcome).rpartition(": ")[2] for outcome in outcomes} == {"the disk is full"}
    assert calls.run.spend.today() == before
    with closing(sqlite3.connect(directory / FILE)) as other, other:
        other.execute("DROP TRIGGER full")
    assert all(isinstance(outcome, Reservation) for outcome in asyncio.run(begin()))
    assert calls.run.spend.today().calls == before.calls + 3


def test_a_log_that_is_moved_by_its_user_stays_small(directory: Path) -> None:
    """Where a server moves the log, no call does, and moving loses nothing and makes it small."""
    spend = DailySpend(directory, now=lambda: NOON)
    spend.checkpoints = False
    log = directory / f"{FILE}-wal"
    sizes = []
    for _ in range(2):
        for _ in range(600):  # SQLite itself would move 1,000 pages
            room = Reservation(answer=1, tokens=1, cost=Decimal(0), call=True)
            assert asyncio.run(spend.reserve(lambda _: room, lambda _: None)) is room  # noqa: B023
            spend.settle(room, Usage(calls=1, tokens_in=1, tokens_out=1))
        sizes.append(log.stat().st_size)
        checkpoint(directory)
    assert sizes[0] > 1200 * 1024
    assert sizes[1] <= sizes[0] * 1.2
    assert sum(row.usage.calls for row in read_spent(directory, NOON.date())) == 1200
    spend.close()


def test_moving_the_log_creates_no_database(directory: Path) -> None:
    """The next call begins a file that the user removed, readable by its owner only."""
    directory.mkdir()
    checkpoint(directory)
    assert list(directory.iterdir()) == []


def test_a_reservation_adds_up_neither_calls_nor_clients_of_the_day(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of SQLite are counted, after ten calls and after a thousand of as many clients."""
    steps = 0

    def count_step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def open_counted(path: Path, *, checkpoints: bool = True) -> sqlite3.Connection:
        database = open_database(path, checkpoints=checkpoints)
        database.set_progress_handler(count_step, 1)
        return database

    monkeypatch.setattr(spending, "open_database", open_counted)
    run = OneRun(directory, DayLimits(cost=Decimal(1000)))
    for _ in range(10):
        run.call()
    steps = 0
    run.call()
    few = steps
    with closing(sqlite3.connect(directory / FILE)) as other, other:
        insert = "INSERT INTO calls (day, client, worker_call, cost) VALUES (?, ?, 1, 1000)"
        other.executemany(insert, [(str(NOON.date()), f"client{n}") for n in range(990)])
    steps = 0
    run.call()
    assert steps <= few * 1.1
    assert run.spend.today().calls == 1002


def test_calls_of_earlier_versions_count_and_so_does_what_those_write(directory: Path) -> None:
    """A file without totals gets them once; whoever writes it later keeps them."""
    OneRun(directory, DayLimits(), client=Spender(name="phone")).call()
    with closing(sqlite3.connect(directory / FILE)) as earlier:
        for name in ("added", "replaced", "changed", "removed"):
            earlier.execute(f"DROP TRIGGER calls_{name}")
        earlier.execute("DROP TABLE totals")
        earlier.commit()
    spend = OneRun(directory, cents(100)).spend
    before = spend.today()
    assert before.calls == 1
    assert before.cost == sum(row.usage.cost or 0 for row in read_spent(directory, NOON.date()))
    with closing(sqlite3.connect(directory / FILE, isolation_level=None)) as other:
        insert = (
            "INSERT OR REPLACE INTO calls (id, day, worker_call, cost, tokens_in)"
            " VALUES (?, ?, 1, ?, ?)"
        )
        other.execute(insert, (7, str(NOON.date()), 5 * 10**6, 30))
        other.execute(insert, (7, str(NOON.date()), 2 * 10**6, 20))
        now = spend.today()
        assert (now.calls, now.tokens) == (2, before.tokens + 20)
        assert now.cost == before.cost + Decimal("0.002")
        other.execute("DELETE FROM calls WHERE id = 7")
        assert spend.today() == before
    spend.close()


@pytest.mark.parametrize("obstacle", ["2026-11-02.jsonl", "2026-11-02.jsonl.old"])
def test_no_book_of_a_first_version_is_put_away_before_all_are_recorded(
    tmp_path: Path, obstacle: str
) -> None:
    """Where one could not be read, the calls of those before it were lost."""
    line = (
        '{"worker": "w", "provider": "p", "model": "m", "call": 1, "calls": 1, "unpriced": 0, '
        '"tokens_in": 1, "tokens_out": 1, "cost": "1.5"}'
    )
    (tmp_path / obstacle).mkdir()
    for day in ("2026-11-01", "2026-11-02"):
        with suppress(IsADirectoryError):
            (tmp_path / f"{day}.jsonl").write_text(line)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_spent(tmp_path, date(2026, 11, 1))
    (tmp_path / obstacle).rmdir()
    if obstacle.endswith("jsonl"):
        (tmp_path / obstacle).write_text(line)
    spent = read_spent(tmp_path, date(2026, 11, 1))
    assert [(row.day.day, row.usage.cost) for row in spent] == [
        (1, Decimal("1.5")),
        (2, Decimal("1.5")),
    ]
