"""The benchmark of the local conductor, on a tiny model: it forces what it says it forces."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_gguf import Shape, make

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LONG_SHAPE = Shape(merges=220)
"""Reads the benchmark's prompt in fewer tokens than its context holds."""


@pytest.fixture(scope="module")
def load() -> Any:
    """Imports a file of the benchmarks, which import each other by their bare names."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))


def run(script: str, job: Path, *arguments: str) -> Any:
    """What a script of the benchmark found in a process of its own."""
    command = [
        sys.executable,
        str(BENCHMARKS / script),
        str(job),
        str(time.monotonic()),
        *arguments,
    ]
    environ = os.environ | {"PYTHONPATH": str(BENCHMARKS.parent / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, load: Any) -> Path:
    """What the scripts are given, with a tiny model."""
    directory = tmp_path_factory.mktemp("job")
    forced = load("live_conductor")
    model = str(make(directory / "tiny.gguf", shape=LONG_SHAPE))
    given = {
        "model": model,
        "cache": str(directory / "cache"),
        "context": 2 * forced.CONTEXT,
        **forced.naive_job(),
    }
    path = directory / "job.json"
    path.write_text(json.dumps(given))
    return path


@pytest.fixture
def find(load: Any, job: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Any]:
    """As `run` of live_conductor.py, in this process."""
    live = load("live_conductor")
    given = json.loads(job.read_text())
    monkeypatch.setattr(live, "LlamaOptions", partial(live.LlamaOptions, threads=1))
    monkeypatch.setattr(live, "PAIRS", 2)
    return lambda kind, number: asyncio.run(live.main(given, time.monotonic(), kind, number))


def test_a_second_process_takes_the_prefix_from_disk_and_writes_the_forced_plan(
    job: Path, find: Callable[[str, int], Any]
) -> None:
    """The prefix is remembered, the plan is the forced one, and the right token was refused."""
    first = find("plan", 40)
    second = run("live_conductor.py", job, "plan", "40")
    assert first["cached"] == 0
    assert 0 < second["read"] - second["cached"] < 200 < second["cached"]
    assert (second["refusals"], first["draws"][40] > 0) == (1, True)
    assert (
        0
        < second["took"]["import"]
        < second["took"]["load"]
        < second["took"]["step"]
        < second["took"]["plan"]
    )


def test_many_questions_read_only_what_is_their_own(find: Callable[[str, int], Any]) -> None:
    measured = find("live", 4)
    assert len(measured["resident"]) == 4
    assert all(
        0 < read <= own_bytes
        for read, own_bytes in zip(measured["read"][1:], measured["own"][1:], strict=True)
    )


def test_decoding_is_measured_in_turns_and_a_prefix_both_ways(
    find: Callable[[str, int], Any],
) -> None:
    """Every round has both; the whole prefix is computed once and taken from disk several times."""
    decoded = find("decode", 1)
    restored = find("restore", -1)
    assert [len(decoded[name]) for name in ("ours", "theirs")] == [1, 1]
    assert restored["tokens"] > 200
    assert (type(restored["computed"]), len(restored["restored"])) == (float, 2)


def test_the_naive_script_writes_the_plan_in_json(job: Path) -> None:
    """It forces the same five steps through its grammar, and says how long each part took."""
    measured = run("naive_conductor.py", job)
    assert measured["steps"] == 5
    assert (
        0
        < measured["took"]["import"]
        < measured["took"]["load"]
        < measured["took"]["first token"]
        < measured["took"]["plan"]
    )


def test_a_naive_script_that_crashes_is_run_on_weights_as_they_are(
    load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table says which signal ended it; a script that fails otherwise ends the benchmark."""
    bench = load("bench_conductor")
    monkeypatch.setattr(bench, "HERE", tmp_path)
    script = tmp_path / "naive_conductor.py"
    crash = "import os, signal, sys\n'plain' in sys.argv or os.kill(os.getpid(), signal.SIGTERM)\n"
    script.write_text(crash + "print('{\"took\": {}}')\n")
    runs = bench.Runs(tmp_path / "some.gguf", tmp_path)
    assert runs.naive() == {"took": {}, "crash": -15}
    script.write_text("raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"naive_conductor\.py ended with 3"):
        runs.naive()
