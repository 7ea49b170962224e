"""Standard streams and disks that are closed, full, or nobody's: the answer, the trace and the exit code."""

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
from conductor_cli.cli.signals import stop_on_signals
from conductor_cli.core.events import Event
from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.models.scripted import ScriptedModel
from conductor_cli.run import Conductor
from tests.cli.stage import COMMAND, TWO, Stage, explained, finished, says, until
from tests.servers import SeenStep, Wire, delta, usage


def piped(stage: Stage, line: str) -> subprocess.CompletedProcess[str]:
    """A shell pipeline; `conductor` in it is the command, and a stage that fails fails all."""
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


def test_a_reader_that_stops_reading_ends_a_command_quietly(stage: Stage) -> None:
    """`config show | head -n 1` ends with 0 and not a word."""
    done = piped(stage, "conductor config show | head -n 1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("SETTING")


def test_a_reader_that_stops_reading_stops_the_run(stage: Stage) -> None:
    """`--format jsonl | head -n 1`: nobody reads on, so the run stops, its trace has an end, 130."""

    async def endless(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        while not wire.gone.is_set():
            await wire.frames(delta("more "))
            await asyncio.sleep(0.01)

    stage.models["alpha"] = endless
    done = piped(stage, "conductor ask hi --format jsonl | head -n 1")
    assert done.returncode == 130
    assert len(done.stderr.splitlines()) <= 3
    assert done.stderr.startswith("conductor: ")
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] in ("failed", "partial")


def test_an_answer_that_nobody_reads_is_in_the_trace(stage: Stage) -> None:
    """`ask | true`: the answer goes nowhere, the trace has it, nothing is told as a fault."""
    done = piped(stage, "conductor ask hi | true")
    assert "fault" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "alpha answers" in stage.inside("trace", "show").out


@pytest.mark.parametrize("form", ["answer", "json", "jsonl"])
def test_a_full_standard_output_is_an_error(stage: Stage, form: str) -> None:
    """Standard output on a full disk: the run has an end in the trace, the error says where, 1 or 130."""
    with Path("/dev/full").open("wb") as full:
        done = stage.run("ask", "hi", "--format", form, stdout=full)
    explained(done)
    assert "standard output cannot be written: No space left on device" in done.err
    assert done.code == (130 if form == "jsonl" else 1)
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] in ("finished", "failed")


def test_a_full_standard_output_of_a_listing_is_an_error(stage: Stage) -> None:
    """A command that lists says what the system refused, 1."""
    with Path("/dev/full").open("wb") as full:
        done = stage.run("config", "show", stdout=full)
    assert done.code == 1
    explained(done)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_nobodys(stage: Stage, closed: str) -> None:
    """With streams closed the run goes well, and no other file takes their place."""
    done = piped(stage, f"conductor ask hi --progress plain {closed}")
    assert done.returncode == 0
    assert done.stdout == ("" if ">&- 2" in closed or closed == ">&-" else "alpha answers\n")
    (file,) = stage.traces.iterdir()
    assert file.read_text().count("\n") == len(file.read_text().splitlines())
    assert stage.inside("trace", "show").code == 0


def limited(blocks: int) -> tuple[str, ...]:
    """Files of the process cannot grow beyond so many KiB, as on a full disk, until the limit is lifted.

    The record of what was spent needs 32 KiB.
    """
    return ("bash", "-c", f'ulimit -S -f {blocks}; exec "$@"', "limited")


def test_a_disk_that_fills_up_costs_the_trace_its_end(stage: Stage) -> None:
    """The answer is printed all the same, the trace reads up to its last whole event, and the exit code is not 0."""
    stage.plan = TWO
    stage.models["alpha"] = says("word " * 20_000)
    done = stage.run("ask", "hi", under=limited(64))
    assert (done.code, done.out) == (1, "beta answers\n")
    explained(done)
    assert "the trace is incomplete" in done.err
    (entry,) = stage.inside("trace", "list", "--json").json
    assert (entry["state"], entry["bytes"]) == ("interrupted", 65536)
    assert "hi" in stage.inside("trace", "show").out


def test_a_disk_that_has_room_again_loses_nothing(stage: Stage) -> None:
    """Events that a full disk refused are written as soon as there is room: the trace is whole."""
    go_on = threading.Event()

    async def slow(seen: SeenStep, wire: Wire) -> None:
        await wire.head()
        await wire.frames(delta("word " * 20_000))
        await asyncio.to_thread(go_on.wait, 20)
        await wire.frames(delta("end"), delta(finish="stop"), usage(), "[DONE]")

    stage.models["alpha"] = slow
    with stage.start("ask", "hi", "--format", "jsonl", under=limited(64)) as process:
        shown = until(process.stdout, "step_delta")
        (file,) = stage.traces.iterdir()
        assert file.stat().st_size == 65536
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        go_on.set()
        done = finished(process)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line) for line in file.read_text().splitlines()] == shown + done.events


def test_a_disk_that_is_full_at_the_start_stops_the_run_before_it_costs(stage: Stage) -> None:
    """Where not even the first event can be stored no worker is asked: 3, and no broken file is left."""
    done = stage.run("ask", "why " * 20_000, under=limited(64))
    assert (done.code, done.out) == (3, "")
    explained(done)
    assert "--no-trace" in done.err
    assert list(stage.traces.iterdir()) == []
    assert stage.asked("alpha") == []


@pytest.fixture
def small_disk(stage: Stage) -> Iterator[tuple[str, ...]]:
    """A file system of 64 KiB for the traces; where nobody may mount one, what sets the same limit for a process."""
    stage.traces.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(stage.traces)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield limited(64)
        return
    yield ()
    subprocess.run(["umount", str(stage.traces)], check=True)


def test_a_disk_that_is_really_full_is_an_error(stage: Stage, small_disk: tuple[str, ...]) -> None:
    """A file system without a free block: the answer comes, the error says why there is no whole trace."""
    stage.models["alpha"] = says("word " * 20_000)
    done = stage.run("ask", "hi", under=small_disk)
    assert done.code == 1
    assert done.out == "word " * 20_000 + "\n"
    explained(done)
    assert ("File too large" if small_disk else "No space left on device") in done.err
    assert stage.inside("trace", "list", "--json").json[0]["state"] == "interrupted"


def test_a_trace_directory_that_cannot_be_made_is_an_error(stage: Stage) -> None:
    """A file in the place of the state directory: 3 before anything is asked; `--no-trace` gets the answer."""
    (stage.home / "state").write_text("in the way")
    done = stage.inside("ask", "hi")
    assert (done.code, done.out) == (3, "")
    explained(done)
    assert stage.asked("alpha") == []
    assert stage.inside("ask", "hi", "--no-trace").out == "alpha answers\n"


def test_a_slow_reader_gets_every_line(stage: Stage) -> None:
    """A reader that takes its time loses nothing: the lines are those of the trace."""
    stage.models["alpha"] = says(*["piece "] * 3000)
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        head = until(process.stdout, "step_delta")
        done = finished(process)
    run = head[0]["run"]
    assert (stage.traces / f"{run}.jsonl").read_text().endswith(done.out)
    assert len(head) + len(done.events) == len((stage.traces / f"{run}.jsonl").read_text().splitlines())


def test_a_bug_in_a_view_ends_the_run_and_is_raised() -> None:
    """A view that breaks must not leave the command waiting for it."""

    class Broken:
        def show(self, _: Event) -> None:
            raise ValueError("a fault of the view")

        def close(self) -> None:
            """Nothing to close."""

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
