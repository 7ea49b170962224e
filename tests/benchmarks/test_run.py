"""The summary of the benchmarks.

It names every bound that does not hold, last and with its values.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def run() -> Iterator[Any]:
    """The module that runs all benchmarks.

    The files of the benchmarks import each other by name.
    """
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("run")
    sys.path.remove(str(BENCHMARKS))


def table_of(run: Any, *values: float) -> Any:
    """A table with a bound of 20 ms for each value."""
    figures = importlib.import_module("figures")
    rows = [figures.Figure(f"row {value}", value, "ms", bound=0.02) for value in values]
    return figures.Table("speed", "Made up.", [*rows, figures.Figure("for comparison", 9.0, "s")])


def test_bounds_that_do_not_hold_are_printed_last_with_both_values_and_give_exit_code_1(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.md"
    assert run.judged([table_of(run, 0.01, 0.03)], ["# Results"], results) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "- **FAIL** speed: row 0.03: 30 ms, and the bound is at most 20 ms"
    written = results.read_text(encoding="utf-8")
    assert "**FAIL**: 1 of 2 bounds do not hold" in written
    assert written.count("**FAIL**") == 3  # the summary, its row, and the row of the table


def test_where_all_bounds_hold_the_summary_says_how_many_there_are(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.md"
    assert run.judged([table_of(run, 0.01, 0.02)], ["# Results"], results) == 0
    assert capsys.readouterr().out == "All bounds hold: 2 of 2.\n"
    assert "FAIL" not in results.read_text(encoding="utf-8")


def test_a_benchmark_that_does_not_finish_is_a_failure_and_the_others_are_still_run(
    run: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends() -> Any:
        raise SystemExit("llm is not installed")

    monkeypatch.setattr(run, "TABLES", {"start": ends, "chat": lambda: table_of(run, 0.01)})
    assert run.main(["start", "chat"]) == 1
    last_lines = capsys.readouterr().out.splitlines()[-3:]
    assert last_lines[-1] == "- **FAIL** start: it did not finish: llm is not installed"
    assert last_lines[0] == "**FAIL**: 1 of 1 bounds do not hold, or could not be measured:"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no clock for a process")
def test_the_processor_time_of_another_process_is_read_to_the_nanosecond(run: Any) -> None:
    """Steps of 10 ms, which `ps` has, are a thirtieth of what many figures compare."""
    assert run
    figures = importlib.import_module("figures")
    before = time.process_time()
    read = [figures.cpu_of(os.getpid()) for _ in range(100)]
    after = time.process_time()
    assert before <= read[0] < read[-1] <= after
    assert len(set(read)) == 100
    with pytest.raises(OSError, match="No such process"):
        figures.cpu_of(2**22 + 1)
