"""Where nothing can be stored: a read-only home, a full disk, a file in the way.

What still works, and what is said.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import conductor_cli
from conductor_cli.core.errors import ConfigError
from tests.cli.billing import questions
from tests.cli.stage import Stage, explained, limit_file_size, refuses, says
from tests.servers import SeenRequest, Wire

NOTHING_STORED = "no trace and no daily total can be kept of this run"
LIMITED = "[limits]\nattempts = 1\ncalls_day = 5"
REQUIRED = '[limits]\nattempts = 1\n[traces]\nkeep = "always"'


@pytest.fixture
def blocked(stage: Stage) -> Stage:
    """A file is where the state directory should be."""
    (stage.home / "state").write_text("in the way")
    return stage


@pytest.fixture
def read_only(stage: Stage) -> Iterator[tuple[str, ...]]:
    """One run is stored, and the disk is read-only since.

    Where mounting is not allowed, a prefix with this effect.
    """
    directory = stage.home / "state"
    directory.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "none", str(directory)]
    mounted = (
        shutil.which("mount") is not None
        and not subprocess.run(mount, capture_output=True, check=False).returncode
    )
    assert stage.inside("ask", "hi").code == 0
    if not mounted:
        yield limit_file_size(0)
        return
    subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
    yield ()
    subprocess.run(["umount", str(directory)], check=True)


def test_a_question_is_answered_all_the_same(blocked: Stage) -> None:
    done = blocked.ok("ask", "hi", out="alpha answers\n")
    assert (
        done.err == f"conductor: note: {NOTHING_STORED}: {blocked.traces.parent}: Not a directory\n"
    )


def test_json_names_the_file_of_a_trace(stage: Stage) -> None:
    report = stage.inside("ask", "hi", "--format", "json").json
    assert Path(report["trace"]) == stage.traces / f"{report['run']}.jsonl"
    assert stage.inside("trace", "show", "--json").json["trace"] == report["trace"]
    assert (
        stage.inside("trace", "replay", "--speed", "0", "--format", "json").json["trace"]
        == report["trace"]
    )
    assert stage.inside("ask", "hi", "--format", "json", "--no-trace").json["trace"] is None


def test_no_command_is_shown_that_needs_the_trace(blocked: Stage) -> None:
    blocked.models = dict.fromkeys(("alpha", "beta"), refuses(500))
    done = blocked.ends(8, "ask", "hi", "--progress", "plain", told=NOTHING_STORED)
    assert "--resume" not in done.err
    assert ", trace " not in done.err


def test_without_a_trace_only_the_total_is_missing(blocked: Stage) -> None:
    done = blocked.ok("ask", "hi", "--no-trace", out="alpha answers\n")
    assert done.err.startswith("conductor: note: what was spent is not recorded: ")
    assert len(done.err.splitlines()) == 1


def test_a_disk_that_is_full_at_the_start(stage: Stage) -> None:
    done = stage.run("ask", "why " * 20_000, under=limit_file_size(64))
    assert (done.code, done.out) == (0, "alpha answers\n")
    assert "no trace can be kept of this run" in done.err
    assert list(stage.traces.iterdir()) == []
    assert stage.inside("cost", "--json").json


def test_a_run_on_a_read_only_disk_goes_on_without_a_trace(
    stage: Stage, read_only: tuple[str, ...]
) -> None:
    """New runs go on without a trace.

    What was stored before can be listed, shown, replayed and run again.
    """
    done = stage.run("ask", "hi", under=read_only)
    assert (done.code, done.out) == (0, "alpha answers\n")
    assert f"{NOTHING_STORED}: {stage.traces.parent}: " in done.err
    assert len(stage.run("trace", "list", "--json", under=read_only).json) == 1
    assert "alpha answers" in stage.run("trace", "show", under=read_only).out
    assert stage.run("trace", "replay", "--speed", "0", under=read_only).out == "alpha answers\n"
    again = stage.run("trace", "rerun", "last", "--from", "1", under=read_only)
    assert (again.code, again.out) == (0, "alpha answers\n")
    assert NOTHING_STORED in again.err
    assert stage.run("cost", under=read_only).code == 0


@pytest.mark.parametrize("keep", ["auto", "always"])
def test_a_limit_of_the_day_that_cannot_be_kept_stops_the_run(blocked: Stage, keep: str) -> None:
    blocked.configure(f'{LIMITED}\n[traces]\nkeep = "{keep}"')
    done = blocked.fails(3, "ask", "hi")
    assert done.err.startswith("conductor: the limits per day cannot be enforced: ")
    assert "trace" not in done.err
    assert blocked.asked("planner") == blocked.asked("alpha") == []


def test_a_required_trace_that_cannot_be_begun_stops_the_run(blocked: Stage) -> None:
    blocked.configure(REQUIRED)
    blocked.fails(3, "ask", "hi", told="the trace cannot be stored in")
    assert blocked.posts == []


@pytest.mark.parametrize(
    ("settings", "question", "blocks"),
    [(LIMITED, "hi", 0), (REQUIRED, "hi", 0), (REQUIRED, "why " * 20_000, 64)],
    ids=["a limit of the day", "a required trace", "a required trace that finds no room"],
)
def test_a_full_disk_costs_nothing(stage: Stage, settings: str, question: str, blocks: int) -> None:
    stage.configure(settings)
    done = stage.run("ask", question, under=limit_file_size(blocks))
    assert (done.code, done.out) == (3, "")
    explained(done)
    assert list(stage.traces.glob("*")) == []
    assert stage.asked("planner") == stage.asked("alpha") == []


def test_a_required_trace_that_breaks_off_is_an_error(stage: Stage) -> None:
    stage.configure(REQUIRED)
    done = stage.run("ask", "why " * 7_000, under=limit_file_size(32))
    assert (done.code, done.out) == (1, "alpha answers\n")
    assert "the trace is incomplete" in done.err


def test_a_required_trace_cannot_be_left_out(stage: Stage) -> None:
    stage.configure(REQUIRED)
    stage.fails(3, "ask", "hi", "--no-trace", told="traces.keep is always")
    with pytest.raises(ConfigError, match=r"traces\.keep is always"):
        conductor_cli.open(store=False)
    assert stage.inside("ask", "hi").code == 0


def test_python_gets_the_notice_of_a_trace_that_is_not_stored(blocked: Stage) -> None:
    with conductor_cli.open() as orchestra:
        run = orchestra.ask("hi")
        started, notice, *_ = list(run)
    assert isinstance(started, conductor_cli.events.RunStarted)
    assert isinstance(notice, conductor_cli.events.Notice)
    assert (notice.reason, run.trace.stored, run.answer) == (
        "trace_not_stored",
        False,
        "alpha answers",
    )
    assert run.trace.notices == (notice,)


def test_an_evaluation_that_cannot_be_stored_costs_nothing(blocked: Stage, tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "a", "question": "1 + 1?", "answer": "2"}\n')
    blocked.costs_nothing(
        3,
        "eval",
        str(cases),
        "--yes",
        told=("the evaluation cannot be stored in", "CONDUCTOR_LLM_STATE_DIR"),
    )


def test_what_only_reads_works_where_nothing_can_be_stored(blocked: Stage) -> None:
    assert blocked.inside("plan", "hi").code == 0
    assert blocked.inside("trace", "list").code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("workers", "add", "up", "--kind", "command", "--", "true"),
        ("serve", "keys", "add", "laptop"),
        ("config", "set", "limits.calls", "9"),
    ],
    ids=" ".join,
)
def test_settings_and_keys_need_a_place(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, command: Sequence[str]
) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_CONFIG_DIR", "/proc/nowhere")
    stage.fails(3, *command, told="/proc/nowhere")


def test_cards_that_cannot_be_stored_cost_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDUCTOR_LLM_DATA_DIR", "/proc/nowhere")
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "a", "question": "1 + 1?", "answer": "2", "tags": ["sums"]}\n')
    stage.costs_nothing(
        3, "workers", "calibrate", str(cases), "--yes", told="the cards cannot be stored in"
    )


@pytest.fixture
def container() -> tuple[str, ...]:
    """A prefix of commands: a read-only root, and a user whom the system does not know."""
    program = shutil.which("bwrap")
    if program is None:
        pytest.skip("bubblewrap is not installed")
    mounts = ("--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--tmpfs", "/tmp")
    prefix = (program, *mounts, "--unshare-user", "--uid", "12345", "--gid", "12345")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    return prefix


@pytest.mark.parametrize("home", [(), ("HOME=",), ("HOME=relative",)], ids=["none", "empty", "odd"])
@pytest.mark.parametrize(
    ("words", "out"),
    [
        (("ask", "--demo", "find the capital of FRANCE, then spell it backwards"), "SIRAP\n"),
        (("config", "show", "conductor.mode"), "auto\n"),
    ],
    ids=["ask", "config"],
)
def test_a_user_whom_the_system_does_not_know_is_answered(
    container: tuple[str, ...], home: tuple[str, ...], words: tuple[str, ...], out: str
) -> None:
    python = (sys.executable, "-P", "-m", "conductor_cli")
    done = subprocess.run(
        [*container, "env", "-i", f"PATH={os.environ['PATH']}", *home, *python, *words],
        capture_output=True,
        text=True,
        cwd="/",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, out), done.stderr
    assert "the system has no home for user 12345" in done.stderr


def test_without_a_home_a_program_is_told_what_to_set(container: tuple[str, ...]) -> None:
    asks = "from conductor_cli.config.settings import app_paths; app_paths({})"
    done = subprocess.run(
        [*container, "env", "-i", sys.executable, "-c", asks],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert "ConfigError: this user has no home directory" in done.stderr


def test_too_few_open_files_are_told_as_that(stage: Stage, tmp_path: Path) -> None:
    """A connection that the system refuses does not look like a server that is off."""
    failures = tmp_path / "a.failed.jsonl"

    async def slowly(request: SeenRequest, wire: Wire) -> None:
        # All connections that the system allows are open until one is refused
        while not failures.exists() and not wire.gone.is_set():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        await says("done")(request, wire)

    stage.configure("[limits]\nattempts = 1", workers={"alpha": "parallel = 64\n"})
    stage.models["alpha"] = slowly
    command = ("batch", questions(tmp_path / "q.jsonl", 80), "-o", tmp_path / "a.jsonl", "--yes")
    few_files = ("bash", "-c", 'ulimit -n 40; exec "$@"', "limited")
    done = stage.run(*command, "--parallel", "64", under=few_files)
    assert done.code in {5, 7}, done
    printed = done.err + failures.read_text()
    assert "the system allows no further open file" in printed
    assert "nothing on this machine answers there" not in printed
