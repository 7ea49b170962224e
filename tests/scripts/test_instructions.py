"""The comparison of counted instructions with those that are stored."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_only_what_takes_three_percent_more_than_it_did_fails(load: Callable[[str], Any]) -> None:
    compare = load("instructions").compare
    stored = {"start": 100.0, "token": 10.0}
    assert compare({"start": 102.0, "token": 5.0}, stored) == []
    line = (
        "FAIL start takes 20.0% more instructions than it did, and the bound is 3%; where that is "
        "meant: make instructions ARGS=--update"
    )
    assert compare({"start": 120.0, "request": 7.0}, stored) == [line]


def test_without_valgrind_nothing_is_counted_and_a_line_says_so(
    load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert load("instructions").main([]) == 0
    assert capsys.readouterr().out == ("instructions: skipped, because valgrind is not installed\n")


def test_a_build_of_python_without_figures_is_skipped_unless_they_are_stored(
    load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    instructions = load("instructions")
    monkeypatch.setattr(instructions.shutil, "which", lambda _: "/usr/bin/valgrind")
    monkeypatch.setattr(instructions, "build_of_python", lambda: "Python 9")
    monkeypatch.setattr(instructions, "measure", lambda: pytest.fail("something was counted"))
    assert instructions.main([]) == 0
    assert capsys.readouterr().out == (
        "instructions: skipped, because instructions.json has no figures for Python 9; to store "
        "them: make instructions ARGS=--update\n"
    )


def test_a_stream_without_connections_can_be_counted() -> None:
    command = [sys.executable, str(BENCHMARKS / "counted.py"), "driver", "2", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_server_is_driven_token_by_token(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_CONFIG_DIR", str(tmp_path))
    lockstep = load("lockstep")
    rounds: list[int] = []

    async def drive() -> None:
        async with lockstep.Upstream().listening() as upstream:
            (tmp_path / "config.toml").write_text(
                f'[conductor]\nmodel = "{upstream.url}#planner"\n[workers.alpha]\n'
                f'kind = "openai-compatible"\nbase_url = "{upstream.url}"\nmodel = "alpha"\n'
                f"parallel = {lockstep.STREAMS}\n",
                encoding="utf-8",
            )
            command = [str(BENCHMARKS / "counted.py"), "server", "--port", "0"]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *command, stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            address = line.split()[-1].removeprefix("http://")
            await lockstep.ask(address, 0, 2)
            marks = {number: lambda number=number: rounds.append(number) for number in (1, 3)}
            await lockstep.stream(address, upstream, 3, marks)
            process.terminate()
            await process.wait()

    asyncio.run(drive())
    assert rounds == [1, 3]
