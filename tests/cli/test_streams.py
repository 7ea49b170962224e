"""Closed or full standard streams and full disks: what happens to the answer, the trace and the exit code."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conductor_cli.app.run_session import drive
from conductor_cli.cli.terminal_input import stop_on_signals
from conductor_cli.core.events import Event, to_line
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Conductor
from conductor_cli.state.trace_file import read_events
from tests.cli.stage import COMMAND, TWO, Stage, explained, finished, limit_file_size, says, until
from tests.servers import SeenStep, Wire, delta, usage


def run_pipeline(stage: Stage, line: str) -> subprocess.CompletedProcess[str]:
    """Run a shell pipeline with `conductor` in it; if any part fails, the pipeline fails."""
    script = f'set -o pipefail; conductor() {{ {" ".join(COMMAND)} "$@"; }}; {line}'
    return subprocess.run(
        ["bash", "-c", script],
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_closed_pipe_ends_a_command_quietly(stage: Stage) -> None:
    """`config show | head -n 1` exits with 0 and prints nothing on stderr."""
    done = run_pipeline(stage, "conductor config show | head -n 1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SETTING")


def test_closed_pipe_stops_the_run(stage: Stage) -> None:
    """`--format jsonl | head -n 1` closes the pipe: the run stops, its trace is complete; exit code 130."""

    async def endless(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        while not wire.gone.is_set():
            await wire.frames(delta("more "))
            await asyncio.sleep(0.01)

    stage.models["alpha"] = endless
    done = run_pipeline(stage, "conductor ask hi --format jsonl | head -n 1")
    assert done.returncode == 130
    assert len(done.stderr.splitlines()) <= 3
    assert done.stderr.startswith("conductor: ")
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] in ("failed", "partial")


def test_unread_answer_is_in_the_trace(stage: Stage) -> None:
    """With `ask | true` the answer is lost but stored in the trace, and no error is printed."""
    done = run_pipeline(stage, "conductor ask hi | true")
    assert "fault" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "alpha answers" in stage.inside("trace", "show").out


@pytest.mark.parametrize("form", ["answer", "json", "jsonl"])
def test_full_standard_output_is_an_error(stage: Stage, form: str) -> None:
    """With stdout on a full disk the trace is complete and the error names the run; exit code 1 or 130."""
    with Path("/dev/full").open("wb") as full:
        done = stage.run("ask", "hi", "--format", form, stdout=full)
    explained(done)
    assert done.err.count("standard output cannot be written: No space left on device") == 1
    assert done.code == (130 if form == "jsonl" else 1)
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] in ("finished", "failed")


def test_full_standard_output_of_a_listing_is_an_error(stage: Stage) -> None:
    """A command that lists reports the error of the system; exit code 1."""
    with Path("/dev/full").open("wb") as full:
        done = stage.run("config", "show", stdout=full)
    assert done.code == 1
    explained(done)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_streams_are_not_reused(stage: Stage, closed: str) -> None:
    """With closed streams the run succeeds, and no other file gets their descriptors."""
    done = run_pipeline(stage, f"conductor ask hi --progress plain {closed}")
    assert (done.returncode, done.stdout) == (0, "alpha answers\n")
    (file,) = stage.traces.iterdir()
    assert file.read_text().count("\n") == len(file.read_text().splitlines())
    assert stage.inside("trace", "show").code == 0


CLOSED = "conductor: standard output is closed, so the result cannot be printed\n  to discard it: > /dev/null\n"


@pytest.mark.parametrize("command", ["ask hi --format jsonl", "plan hi", "run plan.json <&-"])
def test_nothing_is_paid_for_with_a_closed_standard_output(stage: Stage, tmp_path: Path, command: str) -> None:
    """Nobody would get the answer: one message, exit code 1, nobody is called and nothing is stored."""
    plan = {"question": "q", "steps": [{"worker": "alpha", "subtask": "x"}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = run_pipeline(stage, f"cd {tmp_path}; conductor {command} >&-")
    assert (done.returncode, done.stderr) == (1, CLOSED)
    assert stage.server.requests == []
    assert not stage.traces.exists()


@pytest.mark.parametrize(
    "command",
    ["--version", "--help", "config show", "trace list", "trace names", "trace replay --speed 0"],
)
def test_a_result_that_cannot_be_printed_is_an_error(stage: Stage, command: str) -> None:
    """With standard output closed, or on a full disk: exit code 1 and a message, also of the forms with a short way."""
    if command.startswith("trace"):
        stage.inside("ask", "hi")
    done = run_pipeline(stage, f"conductor {command} >&-")
    assert (done.returncode, done.stderr) == (1, CLOSED)
    done = run_pipeline(stage, f"conductor {command} > /dev/full")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_without_a_result_needs_no_standard_output(stage: Stage) -> None:
    """What it has to say goes to standard error."""
    done = run_pipeline(stage, "conductor trace list >&-")
    assert (done.returncode, done.stderr) == (0, "no runs are stored yet\n")


def test_disk_that_fills_up_truncates_the_trace_only(stage: Stage) -> None:
    """The answer is printed with one warning, and the trace is readable up to its last whole event."""
    stage.plan = TWO
    stage.models["alpha"] = says("word " * 20_000)
    done = stage.run("ask", "hi", under=limit_file_size(64))
    assert (done.code, done.out) == (0, "beta answers\n")
    assert done.err.count("the trace cannot be written any more") == 1
    (entry,) = stage.inside("trace", "list", "--json").json
    assert (entry["state"], entry["bytes"]) == ("interrupted", 65536)
    assert "hi" in stage.inside("trace", "show").out


def test_events_are_written_once_the_disk_has_room_again(stage: Stage) -> None:
    """Events that a full disk refused are written as soon as there is room, so the trace is complete."""
    go_on = threading.Event()

    async def slow(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta("word " * 20_000))
        await asyncio.to_thread(go_on.wait, 20)
        await wire.frames(delta("end"), delta(finish="stop"), usage(), "[DONE]")

    stage.models["alpha"] = slow
    with stage.start("ask", "hi", "--format", "jsonl", under=limit_file_size(64)) as process:
        shown = until(process.stdout, "step_delta")
        (file,) = stage.traces.iterdir()
        assert file.stat().st_size == 65536
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        go_on.set()
        done = finished(process)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(to_line(event)) for event in read_events(file)] == shown + done.events


@pytest.fixture
def small_disk(stage: Stage) -> Iterator[tuple[str, ...]]:
    """A 64 KiB file system for the traces; where mounting is not allowed, a prefix that sets the same limit."""
    stage.traces.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(stage.traces)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield limit_file_size(64)
        return
    yield ()
    subprocess.run(["umount", str(stage.traces)], check=True)


def test_full_file_system_costs_only_the_trace(stage: Stage, small_disk: tuple[str, ...]) -> None:
    """On a full file system the answer is printed, and a warning says why the trace is incomplete."""
    stage.models["alpha"] = says("word " * 20_000)
    done = stage.run("ask", "hi", under=small_disk)
    assert done.code == 0
    assert done.out == "word " * 20_000 + "\n"
    explained(done)
    assert ("File too large" if small_disk else "No space left on device") in done.err
    assert stage.inside("trace", "list", "--json").json[0]["state"] == "interrupted"


def test_slow_reader_gets_every_line(stage: Stage) -> None:
    """A slow reader loses no line: the output equals the trace."""
    stage.models["alpha"] = says(*["piece "] * 3000)
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        head = until(process.stdout, "step_delta")
        done = finished(process)
    run = head[0]["run"]
    assert [json.loads(to_line(event)) for event in read_events(stage.traces / f"{run}.jsonl")] == head + done.events


def test_error_in_a_view_ends_the_run_and_is_raised() -> None:
    """An exception in a view is raised to the caller, and nothing waits for the view."""

    class Broken:
        def show(self, _: Event) -> None:
            raise ValueError("a fault of the view")

        def close(self) -> None:
            """Do nothing."""

    pool = Pool(workers=(Worker(name="ann", kind="scripted"),))
    conductor = Conductor(model=ScriptedModel([["A | - | one"]]), pool=pool, workers={"ann": ScriptedModel([["yes"]])})

    async def go() -> int:
        run = conductor.run(Question(text="q"))
        with stop_on_signals(run):
            return (await drive(run, Broken())).exit_code

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="a fault of the view"):
        asyncio.run(asyncio.wait_for(go(), 20))
    assert signal.getsignal(signal.SIGINT) is before
