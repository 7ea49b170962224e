"""Closed or full standard streams and full disks.

What happens to the answer, the trace and the exit code.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import json
import os
import resource
import signal
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from conductor_cli.core.events import to_line
from conductor_cli.state.trace_file import read_events
from conductor_cli.views.plain import PlainProgress
from tests.cli.stage import (
    COMMAND,
    TWO,
    Stage,
    explained,
    finished,
    limit_file_size,
    says,
    stopped,
    until,
)
from tests.cli.terminals import Gate
from tests.servers import SeenRequest, Wire, delta
from tests.traces.stored import trace_bytes


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
    done = run_pipeline(stage, "conductor config show | head -n 1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SETTING")


@pytest.mark.parametrize("words", ["--help", "ask --help"])
def test_help_that_nobody_reads_is_no_error(stage: Stage, words: str) -> None:
    done = run_pipeline(stage, f"conductor {words} | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_pipe_stops_the_run(stage: Stage) -> None:
    async def endless(request: SeenRequest, wire: Wire) -> None:
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
    assert entry["state"] == "cancelled"


def test_unread_answer_is_in_the_trace(stage: Stage) -> None:
    done = run_pipeline(stage, "conductor ask hi | true")
    assert "fault" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "alpha answers" in stage.inside("trace", "show").out


@pytest.mark.parametrize("form", ["answer", "jsonl"])
def test_full_standard_output_is_an_error(stage: Stage, form: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = stage.run("ask", "hi", "--format", form, stdout=full)
    explained(done)
    assert done.err.count("standard output cannot be written: No space left on device") == 1
    assert done.code == (130 if form == "jsonl" else 1)
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] == ("cancelled" if form == "jsonl" else "finished")


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_closed_streams_are_not_reused(stage: Stage, closed: str) -> None:
    done = run_pipeline(stage, f"conductor ask hi --progress plain {closed}")
    assert (done.returncode, done.stdout) == (0, "alpha answers\n")
    (file,) = stage.traces.iterdir()
    assert all(json.loads(line)["kind"] for line in trace_bytes(file).splitlines())
    assert stage.inside("trace", "show").code == 0


CLOSED = (
    "conductor: standard output is closed, so the result cannot be printed\n  to discard it: "
    "> /dev/null\n"
)


def wait_for_pipe(
    pipe: int, process: subprocess.Popen[bytes], wanted: Callable[[int], bool]
) -> None:
    """Wait until a pipe holds as many bytes as wanted, or nobody changes that any more."""
    held = array.array("i", [0])
    while True:
        has_ended = process.poll() is not None
        fcntl.ioctl(pipe, termios.FIONREAD, held)
        if wanted(held[0]) or has_ended:
            return


def test_input_that_does_not_wait_is_read_to_its_end(stage: Stage) -> None:
    """As Node hands it on: what has not come yet is not the end."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"first")
    with stage.start("ask", "-m", "alpha", stdin=reading) as process:
        wait_for_pipe(reading, process, lambda held: held == 0)
        os.close(reading)
        os.write(writing, b" and last")
        os.close(writing)
        assert finished(process).code == 0
    assert stage.asked("alpha")[0].json["messages"][-1]["content"] == "first and last"


def test_output_that_does_not_wait_is_written_to_its_end(stage: Stage) -> None:
    answer = "x" * 300_000
    stage.models["alpha"] = says(answer)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with stage.start("ask", "-m", "alpha", "Hi", stdout=writing) as process:
        os.close(writing)
        wait_for_pipe(reading, process, lambda held: held >= 65_536)
        with open(reading, "rb") as out:  # noqa: PTH123 - a descriptor
            assert out.read().decode() == f"{answer}\n"
        assert finished(process).code == 0


@pytest.mark.parametrize("command", ["ask hi --format jsonl", "run plan.json <&-"])
def test_nothing_is_paid_for_with_a_closed_standard_output(
    stage: Stage, tmp_path: Path, command: str
) -> None:
    plan = {"question": "q", "steps": [{"worker": "alpha", "subtask": "x"}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = run_pipeline(stage, f"cd {tmp_path}; conductor {command} >&-")
    assert (done.returncode, done.stderr) == (1, CLOSED)
    assert stage.server.requests == []
    assert not stage.traces.exists()


@pytest.mark.parametrize("command", ["--version", "config show", "trace replay --speed 0"])
def test_a_result_that_cannot_be_printed_is_an_error(stage: Stage, command: str) -> None:
    if command.startswith("trace"):
        stage.inside("ask", "hi")
    done = run_pipeline(stage, f"conductor {command} >&-")
    assert (done.returncode, done.stderr) == (1, CLOSED)
    done = run_pipeline(stage, f"conductor {command} > /dev/full")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", ["config set limits.cost 2", "keys set openai --insecure-storage"]
)
def test_what_is_stored_is_no_failure_where_that_cannot_be_printed(
    stage: Stage, command: str
) -> None:
    done = run_pipeline(stage, f"echo sk-abcdefghijklmnop | conductor {command} > /dev/full")
    assert done.returncode == 0
    assert "standard output cannot be written: No space left on device" in done.stderr


def test_a_command_without_a_result_needs_no_standard_output(stage: Stage) -> None:
    done = run_pipeline(stage, "conductor trace list >&-")
    assert (done.returncode, done.stderr) == (0, "no runs are stored yet\n")


def test_disk_that_fills_up_truncates_the_trace_only(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["alpha"] = says("word " * 20_000)
    done = stage.run("ask", "hi", under=limit_file_size(64))
    assert (done.code, done.out) == (0, "beta answers\n")
    assert done.err.count("the trace cannot be written any more") == 1
    (entry,) = stage.inside("trace", "list", "--json").json
    assert (entry["state"], entry["bytes"]) == ("interrupted", 65536)
    assert "hi" in stage.inside("trace", "show").out


def test_events_are_written_once_the_disk_has_room_again(stage: Stage) -> None:
    gate = Gate("word " * 20_000, "end")
    stage.models["alpha"] = gate
    gate.let()
    with stage.start("ask", "hi", "--format", "jsonl", under=limit_file_size(64)) as process:
        shown = until(process.stdout, "step_delta")
        (file,) = stage.traces.iterdir()
        assert file.stat().st_size == 65536
        resource.prlimit(
            process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        gate.let()
        done = finished(process)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(to_line(event)) for event in read_events(file)] == shown + done.events


def test_error_in_a_view_ends_the_run_and_is_reported(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault of the view")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(PlainProgress, "show", fail)
    stage.ends(1, "ask", "hi", "--progress", "plain", told="this is a bug in conductor: ValueError")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_server_that_starts_and_ends_logs_nothing(stage: Stage) -> None:
    """Its lines would stand in the screen of a client that `launch` has started."""
    with stage.start("serve", "--port", "0") as server:
        assert server.stdout is not None
        assert b"conductor serves at" in server.stdout.readline()
        assert stopped(server, signal.SIGTERM).err == ""
