"""The comparison of counted instructions with those that are stored."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_only_what_takes_a_tenth_more_than_it_did_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    compare = importlib.import_module("instructions").compare
    stored = {"start": 100.0, "delta": 10.0}
    assert compare({"start": 109.0, "delta": 5.0}, stored) == []
    line = (
        "FAIL start takes 20% more instructions than it did, and the bound is 10%; where that is "
        "meant: make instructions ARGS=--update"
    )
    assert compare({"start": 120.0, "request": 7.0}, stored) == [line]


@pytest.mark.parametrize("work", ["requests", "deltas"])
def test_each_work_that_is_counted_can_be_done(work: str) -> None:
    command = [sys.executable, str(BENCHMARKS / "counted.py"), work, "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
