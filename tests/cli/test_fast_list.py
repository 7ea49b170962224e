"""The fast path prints what the command prints, or leaves the command line to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conductor_cli.config import app_paths
from conductor_cli.state import run_list
from conductor_cli.state.trace_store import TraceStore
from tests.cli.stage import Stage
from tests.store.test_run_index import put

LOADED = """
import json, sys
from conductor_cli.__main__ import main
sys.argv = ["conductor", *sys.argv[1:]]
main()
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loading(stage: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, and what it has loaded as the last line of standard error."""
    command = [sys.executable, "-c", LOADED, "trace", *arguments]
    return subprocess.run(command, env=stage.environ(), capture_output=True, text=True, check=True)


@pytest.fixture
def filled(home: Path) -> TraceStore:
    store = TraceStore(home / "state/conductor-llm/traces")
    for day in range(1, 26):
        put(store, day, f"question {day}")
    return store


@pytest.mark.parametrize(
    "environ", [{"CONDUCTOR_LLM_STATE_DIR": "/a"}, {"XDG_STATE_HOME": "/b"}, {"XDG_STATE_HOME": ""}]
)
def test_the_fast_path_finds_the_state_directory(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The short rule for Linux finds what platformdirs finds."""
    monkeypatch.delenv("XDG_STATE_HOME")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert run_list.state_directory(environ) == str(app_paths(environ).state)


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"], ["search", "question", "2"], ["search", "QUESTION 7"], ["search", "nothing"], ["names"],
    ],
)  # fmt: skip
def test_the_fast_path_prints_what_the_command_prints(
    filled: TraceStore, stage: Stage, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that has loaded nothing writes what the command writes, on both streams."""
    done = loading(stage, *arguments)
    *said, loaded = done.stderr.splitlines()
    assert {"typer", "rich", "dataclasses", "pathlib"} & {*json.loads(loaded)} <= {"dataclasses", "pathlib"}
    inside = stage.inside("trace", *arguments)
    assert (done.stdout, said) == (inside.out, inside.err.splitlines())


def test_an_existing_index_needs_no_events(filled: TraceStore, stage: Stage) -> None:
    """The second list loads neither the events nor dataclasses."""
    stage.run("trace", "list")
    done = loading(stage, "list")
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert {"dataclasses", "conductor_cli.core.events"}.isdisjoint(loaded)


@pytest.mark.parametrize(
    "words",
    [["list", "--state", "failed"], ["list", "more"], ["search"], ["search", "-h"], ["search", " "],
     ["list", "-n", "3"], ["list", "--json"], ["show"], []],
)  # fmt: skip
def test_other_options_are_left_to_the_command(
    filled: TraceStore, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Options, help and mistakes are not the quick way's; nothing is written then."""
    assert not run_list.print_fast_answer(["trace", *words])
    assert capfd.readouterr() == ("", "")
