"""A small part of the fault campaigns, and what they count. `make faults` runs all of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from scripts.faults import books
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


def test_a_book_that_a_server_writes_for_several_keys_is_the_bill() -> None:
    """While other commands open and close it, and after a kill. In this order calls were lost once."""
    with desk() as own:
        assert books.write_book(own, books.prepare(own), random.Random("1 1")) == Outcome()


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
