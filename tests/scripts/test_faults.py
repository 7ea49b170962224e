"""A small part of the fault campaigns, what they count, and that they see what they look for.

`make faults` runs all of it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from conductor_cli.state.spending import DailySpend
from scripts.faults import books, clocks, crashes
from scripts.faults.crashes import Known, check, learn, live
from scripts.faults.desk import CANARY, Desk, desk, ending_problem
from scripts.faults.kills import kill, prepare
from scripts.faults.prefork import Ended
from scripts.faults.syscalls import SCENES, Disturbed
from scripts.faults.tries import Outcome, OutOfTime, Tries

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module")
def at() -> Iterator[Desk]:
    """A desk for all tests: to make one takes longer than a test."""
    with desk() as made:
        prepare(made)
        yield made


@needs_strace
def test_a_killed_run_is_resumed_and_pays_nothing_twice(at: Desk) -> None:
    for calls, number in (("pwrite64", 1), ("write", 10)):
        assert kill(at, fault=f"{calls}:signal=SIGKILL:when={number}") == Outcome()


@needs_strace
def test_settings_survive_a_system_call_that_fails(at: Desk) -> None:
    """The old or the new settings are there whole, and the error is explained; an untouched command hits nothing."""
    at.reset()
    at.prefork.run(["config", "set", "limits.cost", "0.5"])
    at.save()
    command = Disturbed(SCENES["config"], at, list(SCENES["config"].words))
    for fault in ("write:error=ENOSPC:when=1", "rename:error=EIO:when=1"):
        assert command(fault=fault) == Outcome()
    assert command(fault="write:error=EIO:when=300") == Outcome(hit=False)


def test_the_checks_find_what_they_look_for(at: Desk) -> None:
    """A silent failure, a traceback, a signal, no end, and a key in an output or a file."""
    assert ending_problem(Ended(code=0, out="", err="")) == ""
    assert ending_problem(Ended(code=1, out="", err="")).startswith("it was not explained")
    assert ending_problem(Ended(code=1, out="", err="Traceback")).startswith("it was not explained")
    assert ending_problem(Ended(code=-11, out="", err="")) == "signal 11"
    assert ending_problem(Ended(code=None, out="", err="")) == "it did not end"
    assert at.leak_problem(Ended(code=0, out=CANARY, err="")) == "a key was printed"
    (at.home / "note").write_text(f"the key {CANARY}")
    assert at.leak_problem(Ended(code=0, out="", err="")) == "a key is in note"


def test_a_campaign_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """What was tried is not tried again; a failure keeps its name, and an exception is a failure."""
    tried: list[str] = []

    def check(name: str) -> Outcome:
        tried.append(name)
        if name == "c":
            raise ValueError("no")
        return Outcome(problem="lost" if name == "b" else "", hit=name != "d", weight=3)

    first = Tries("demo", tmp_path, seed=1, minutes=5)
    for name in "ab":
        first.attempt(name, partial(check, name))
    again = Tries("demo", tmp_path, seed=1, minutes=5)
    for name in "abcd":
        again.attempt(name, partial(check, name))
    assert tried == ["a", "b", "c", "d"]
    report = again.report()
    assert (report.tried, report.failed, report.first) == (7, 2, "b: lost")
    with pytest.raises(OutOfTime):
        Tries("demo", tmp_path, seed=1, minutes=-1).attempt("e", partial(check, "e"))


def test_a_book_that_a_server_writes_for_several_keys_is_the_bill(at: Desk) -> None:
    """While other commands open and close it, and after a kill. In this order calls were lost once."""
    at.reset()
    at.stage.models.clear()
    assert books.write_book(at, books.prepare(at), random.Random("1 1")) == Outcome()


def test_what_was_acknowledged_outlives_crashes() -> None:
    """Traces, spending, ratings and settings hold all that processes were told is done, wherever they died."""
    outcome = crashes.try_lives(1, 1)
    assert (outcome.problem, outcome.weight >= 5) == ("", True)


@pytest.mark.parametrize("writes", [1, 2])
def test_a_life_ends_inside_an_operation(tmp_path: Path, writes: int) -> None:
    """The last operation is begun and not acknowledged, and what is half written is not read."""
    said = live(tmp_path, 1, [("begin", 0), ("event", 0), ("rate", 0)], writes)
    known = Known()
    for each in said:
        learn(known, each)
    assert [each["done"][0] for each in said if "done" in each] == ["begin", "event"]
    assert said[-1]["begins"][0] == "rate"
    check(tmp_path, known)


def test_a_lost_event_is_seen(tmp_path: Path) -> None:
    """An event that was acknowledged and is not in the file fails the campaign, with what was lost."""
    known = Known()
    for each in live(tmp_path, 1, [("begin", 0), ("event", 0), ("list", 0)], 0):
        learn(known, each)
    check(tmp_path, known)
    file = next((tmp_path / "traces").glob("*.jsonl"))
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(AssertionError, match="acknowledged were"):
        check(tmp_path, known)


@pytest.mark.parametrize("seed", range(4))
def test_no_jump_of_the_clock_gives_a_day_more_than_its_limit(seed: int) -> None:
    """Back, forward and over midnight, also within calls; back by up to a day opens no new day."""
    assert clocks.walk(seed).problem == ""


@pytest.mark.parametrize("night", clocks.NIGHTS)
def test_a_day_of_daylight_saving_is_one_day(night: str) -> None:
    """Where the clock goes over midnight by it, each day has its limit once, and may use it up."""
    zone = {"spring": "forward over midnight", "autumn": "back over midnight"}[night]
    outcome = clocks.through_a_night(zone, night)
    assert (outcome.hit, outcome.problem) == (True, "")


def test_a_clock_that_opens_new_days_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The campaign can fail: where a call counts for the day that the clock shows, going back gives a new limit."""
    monkeypatch.setattr(DailySpend, "_day", lambda self, database: self._now().date())
    assert any("went back by less than a day" in clocks.walk(seed).problem for seed in range(12))
