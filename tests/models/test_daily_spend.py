"""The day book: limits over all runs of a day, kept by processes side by side, and what was spent read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from conductor_cli.core.errors import ConfigError, LimitReached
from conductor_cli.core.ledger import DayBudget, Ledger, Reservation
from conductor_cli.core.pool import DayLimits, Limits, Worker
from conductor_cli.core.usage import NO_USAGE, Price, Usage, with_cost
from conductor_cli.models.daily_spend import DailySpend
from conductor_cli.models.dayfile import Day, spent

DEAR = Price(input=Decimal(1), output=Decimal(10))
ANN = Worker(name="ann", kind="openai", model="gpt-x", price=DEAR)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


class Desk:
    """A run with its ledger over a book of a day; time stands where it is put."""

    def __init__(self, place: Path, limits: DayLimits, now: datetime = NOON) -> None:
        self.now = now
        self.ledger = Ledger(Limits())
        self.book = DailySpend(place, limits, now=lambda: self.now)

    def reserve(self, read: int = 100, answer: int = 1000) -> Reservation | None:
        def decide(today: DayBudget) -> Reservation | None:
            return self.ledger.reserve(read, answer, DEAR, today=today)

        return self.book.reserve(decide, self.ledger.release)

    def settle(self, reservation: Reservation, written: int) -> None:
        usage = with_cost(Usage(tokens_in=100, tokens_out=written, calls=1), DEAR)
        self.ledger.settle(reservation, usage)
        self.book.settle(reservation, usage, ANN)

    def call(self, written: int = 1000) -> Reservation:
        room = self.reserve()
        assert room is not None
        self.settle(room, written)
        return room


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "spending"


def cents(amount: int) -> DayLimits:
    return DayLimits(cost=Decimal(amount) / 100)


def test_runs_of_a_day_share_its_limit(place: Path) -> None:
    """What one run has spent is missing to the next: the answer is cut to what is left, then nothing is."""
    Desk(place, cents(2)).call()
    later = Desk(place, cents(2))
    assert later.call(written=900).answer == 980
    with pytest.raises(LimitReached, match=r"today's limit of \$0.02 leaves no room for another call") as caught:
        later.reserve()
    assert (caught.value.reason, caught.value.suggested) == ("limit_cost_day", "0.04")


def test_what_others_hold_is_not_there(place: Path) -> None:
    """A call under way in another run holds its most; when it ends, what it did not use is there again."""
    one, other = Desk(place, cents(1)), Desk(place, cents(1))
    room = one.reserve(answer=600)
    assert room is not None
    cut = other.reserve()
    assert cut is not None
    assert cut.answer == 380
    one.settle(room, 10)
    other.settle(cut, 10)
    assert other.book.today().cost == Decimal("0.0004")


def test_a_run_waits_for_its_own_calls_only(place: Path) -> None:
    """Its own call may leave room, so it waits; nobody knows when another run's will end."""
    one, other = Desk(place, cents(1)), Desk(place, cents(1))
    assert one.reserve(answer=950) is not None
    assert one.reserve() is None
    with pytest.raises(LimitReached):
        other.reserve()


def test_tokens_and_calls_have_limits_too(place: Path) -> None:
    """Each is told by its name."""
    Desk(place, DayLimits(tokens=2000)).call()
    with pytest.raises(LimitReached, match="today's limit of 1200 tokens"):
        Desk(place, DayLimits(tokens=1200)).reserve()
    with pytest.raises(LimitReached, match="today's limit of 1 worker calls is reached"):
        Desk(place, DayLimits(calls=1)).reserve()
    desk = Desk(place, DayLimits(calls=2))
    assert desk.reserve() is not None
    with pytest.raises(LimitReached, match="today's limit of 2 worker calls"):
        Desk(place, DayLimits(calls=2)).reserve()


def test_midnight_gives_a_new_day(place: Path) -> None:
    """And a call counts for the day on which it began, wherever it ends."""
    desk = Desk(place, cents(1), NOON.replace(hour=23, minute=59))
    room = desk.reserve(answer=980)
    assert room is not None
    desk.now += timedelta(minutes=2)
    assert desk.reserve(answer=980) is not None
    desk.settle(room, 980)
    rows, _ = spent(place, date(2026, 1, 1))
    assert [(row.day, row.usage.cost) for row in rows] == [(date(2026, 11, 22), Decimal("0.0099"))]


def test_without_limits_a_call_counts_for_its_first_day_too(place: Path) -> None:
    """Midnight comes while it is under way."""
    desk = Desk(place, DayLimits(), NOON.replace(hour=23, minute=59))
    room = desk.reserve()
    assert room is not None
    desk.now += timedelta(minutes=2)
    desk.settle(room, 5)
    assert [path.name for path in place.iterdir()] == ["2026-11-22.jsonl"]


def test_a_clock_that_goes_back_opens_no_new_day(place: Path) -> None:
    """Back over midnight, what was spent after it still counts."""
    desk = Desk(place, cents(1), NOON)
    desk.call(written=980)
    desk.now -= timedelta(hours=13)
    with pytest.raises(LimitReached):
        desk.reserve()
    desk.now -= timedelta(days=1)
    assert desk.reserve() is not None


HOLDER = """
import sys
from decimal import Decimal
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.models.test_daily_spend import Desk, cents
desk = Desk(Path(sys.argv[1]), cents(1))
assert desk.reserve(answer=980) is not None
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds nearly all of a cent."""
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", HOLDER, str(place), root]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_what_a_killed_process_held_is_free_again(place: Path, holder: subprocess.Popen[bytes]) -> None:
    """As long as it lives its room is taken; when it is killed nobody has to tidy up."""
    with pytest.raises(LimitReached):
        Desk(place, cents(1)).reserve()
    holder.kill()
    holder.wait()
    assert Desk(place, cents(1)).reserve(answer=980) is not None


SPENDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from conductor_cli.core.errors import LimitReached
from tests.models.test_daily_spend import Desk, cents
desk = Desk(Path(sys.argv[1]), cents(5))
sys.stdin.readline()
try:
    while True:
        room = desk.reserve(answer=300)
        desk.settle(room, room.answer)
except LimitReached:
    pass
"""


def test_processes_at_once_never_overspend(place: Path) -> None:
    """Three that spend all they may, at the same time, stay within the limit together, and use it up."""
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", SPENDER, str(place), root]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    today = Desk(place, cents(5)).book.today()
    assert Decimal("0.045") < today.cost <= Decimal("0.05")
    assert today.calls >= 15


def test_without_limits_calls_are_written_down_all_the_same(place: Path) -> None:
    """By worker and provider, with no lock and no hold; what was never called leaves nothing."""
    desk = Desk(place, DayLimits())
    desk.call(written=5)
    room = desk.reserve()
    assert room is not None
    desk.book.settle(room, NO_USAGE, ANN)
    (row,), damaged = spent(place, NOON.date())
    assert (row.day, row.provider, row.worker, row.model, damaged) == (NOON.date(), "openai", "ann", "gpt-x", 0)
    assert (row.usage.tokens_in, row.usage.tokens_out, row.usage.cost) == (100, 5, Decimal("0.00015"))
    assert [path.name for path in place.iterdir()] == ["2026-11-22.jsonl"]


def test_a_closed_book_leaves_no_lock_behind(place: Path) -> None:
    """But the one that all share."""
    desk = Desk(place, cents(1))
    desk.call(written=5)
    desk.book.close()
    assert sorted(path.name for path in place.iterdir()) == [".lock", "2026-11-22.jsonl"]


DAMAGE = [
    "{", "[]", "null", "7", '"x"', "[" * 100_000, '{"holds": "x"}', '{"worker": "ann"}',
    '{"holds":"a.1","cost":"-5","tokens":1,"call":true}', '{"holds":"a.1","cost":"NaN","tokens":1,"call":true}',
    '{"worker":"a","provider":"b","model":"c","call":true,"calls":1,"unpriced":0,"tokens_in":-9,"tokens_out":1,"cost":"0"}',
    '{"worker":"a","provider":"b","model":"c","call":true,"calls":1,"unpriced":0,"tokens_in":9,"tokens_out":1,"cost":"9e999999"}',
]  # fmt: skip


@pytest.mark.parametrize("line", DAMAGE)
def test_a_damaged_line_spoils_no_other(place: Path, line: str) -> None:
    """It does not count, is counted as damaged, and what stands around it counts."""
    desk = Desk(place, DayLimits())
    desk.call(written=5)
    with (place / "2026-11-22.jsonl").open("a") as file:
        file.write(f"\n{line}")
    desk.call(written=5)
    rows, damaged = spent(place, NOON.date())
    assert ([row.usage.tokens_out for row in rows], damaged) == ([10], 1)
    assert Desk(place, cents(100)).book.today().tokens == 210


def test_a_line_that_is_still_being_written_waits(place: Path) -> None:
    """A reader that met half of it reads it when it is whole."""
    Desk(place, DayLimits()).call(written=5)
    path = place / "2026-11-22.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    day = Day(path)
    day.read()
    assert (day.tokens, day.damaged) == (0, 0)
    path.write_bytes(whole)
    day.read()
    day.read()
    assert (day.tokens, day.damaged) == (105, 0)


def test_a_file_that_was_taken_away_is_forgotten(place: Path) -> None:
    """What is no longer there does not count."""
    desk = Desk(place, cents(1))
    desk.call(written=980)
    (place / "2026-11-22.jsonl").unlink()
    assert desk.reserve() is not None


@pytest.mark.parametrize("wrong", ["a file", "a directory"])
def test_a_limit_that_cannot_be_kept_is_refused(place: Path, wrong: str) -> None:
    """Before anything is called, and at the next call where it comes to that later. Without limits it is only told."""
    if wrong == "a file":
        place.write_text("x")
    else:
        (place / "2026-11-22.jsonl").mkdir(parents=True)
    desk = Desk(place, cents(1))
    with pytest.raises(ConfigError, match="the limits of a day cannot be kept"):
        desk.book.check()
    with pytest.raises(LimitReached, match="today's limit cannot be kept"):
        desk.reserve()
    free = Desk(place, DayLimits())
    free.book.check()
    free.call()
    assert free.book.problem.startswith("what was spent is not written down")


def test_owners_are_no_paths(place: Path) -> None:
    """A line that names a file elsewhere as its owner's does not have it looked at."""
    (place.parent / "x.life").parent.mkdir(exist_ok=True)
    (place.parent / "x.life").write_text("")
    Desk(place, DayLimits()).call(written=5)
    hold = json.dumps({"holds": "/../x.1", "cost": "9", "tokens": 9, "call": True})
    with (place / "2026-11-22.jsonl").open("a") as file:
        file.write(f"\n{hold}")
    assert Desk(place, cents(1)).book.today().tokens == 105
    assert os.listdir(place.parent).count("x.life") == 1  # noqa: PTH208 - only whether it is there
