"""Ctrl-C, SIGTERM, SIGHUP and SIGKILL sent to a real process.

What is kept, and how a run is resumed.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from conductor_cli.cli import signals
from conductor_cli.cli.keypress import keep_typed_text, restore_terminal
from tests.cli.stage import TWO, Stage, explained, finished, stalls, stopped, until
from tests.cli.terminals import Gate

if TYPE_CHECKING:
    from conductor_cli.run import Run


def test_ctrl_c_prints_the_partial_answer(stage: Stage) -> None:
    stage.plan = TWO
    stage.models["beta"] = stalls()
    with stage.start("ask", "hi", "--progress", "plain") as process:
        assert process.stderr is not None
        assert any(b"step 2 of 2 started" in line for line in process.stderr)
        done = stopped(process)
    assert (done.code, done.out) == (130, "alpha answers\n")
    assert "resume: conductor ask --resume" in done.err


def test_a_run_that_ctrl_c_ends_while_it_is_planned_is_cancelled(stage: Stage) -> None:
    stage.models["planner"] = stalls("alp")
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        until(process.stdout, "plan_delta")
        done = stopped(process)
    assert done.code == 130
    assert done.events[-1]["kind"] == "run_failed"
    explained(done)
    assert "ask it again: conductor ask --resume 2" in done.err
    assert [entry["state"] for entry in stage.inside("trace", "list", "--json").json] == [
        "cancelled"
    ]
    assert stage.ok("trace", "show", "--json").json["state"] == "cancelled"
    assert "(cancelled: interrupted)" in stage.ok("trace", "show").out


def test_second_ctrl_c_ends_the_process_at_once(stage: Stage) -> None:
    with stage.start("ask", "-", "--fit", "--format", "jsonl", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"long " * 100_000)
        process.stdin.close()
        process.stdin = None
        assert process.stdout.read(1) == b"{"
        sent = 0
        while process.poll() is None and sent < 20:
            os.killpg(process.pid, signal.SIGINT)
            sent += 1
            try:
                process.wait(0.3)
            except subprocess.TimeoutExpired:
                continue
        done = finished(process)
    assert done.code == 130
    assert sent >= 2
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("chat", "seconds", "ends"),
    [(False, 3600, True), (False, -1, False), (True, 3600, False), (True, -1, True)],
)
def test_second_ctrl_c_in_a_chat_ends_the_process_only_if_the_run_did_not_stop(
    monkeypatch: pytest.MonkeyPatch, chat: bool, seconds: float, ends: bool
) -> None:
    ended = list[bool]()
    stopped = list[str]()
    monkeypatch.setattr(signals, "_end_process", lambda: ended.append(True))
    monkeypatch.setattr(signals, "SECOND_INTERRUPT_SECONDS", seconds)

    async def go() -> None:
        with signals.stop_on_signals(cast("Run", SimpleNamespace(stop=stopped.append)), chat=chat):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0.01)

    asyncio.run(go())
    assert (bool(ended), stopped[:1]) == (ends, ["cancelled"])


def test_process_that_ends_at_once_leaves_the_terminal_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user, program = os.openpty()
    before = termios.tcgetattr(program)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: program))
    with keep_typed_text(echo=False):
        assert termios.tcgetattr(program) != before
        os.write(user, b"typed during the run\n")
        assert select.select([program], [], [], 5)[0]
        restore_terminal()
        assert termios.tcgetattr(program) == before
        assert not select.select([program], [], [], 0)[0]
    for file in (user, program):
        os.close(file)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_before_the_run_ends_it_quietly(
    stage: Stage, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with stage.start("ask", "hi", "-f", pipe) as process, pipe.open("wb"):
        done = stopped(process, number)
    assert (done.code, done.out, done.err) == (code, "", "")
    assert not stage.traces.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_complete_the_trace(stage: Stage, number: signal.Signals) -> None:
    stage.plan = TWO
    stage.models["beta"] = stalls()
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        until(process.stdout, "step_started", 2)
        done = stopped(process, number)
    assert done.code == 143
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] == "cancelled"


def test_run_under_nohup_survives_a_hangup(stage: Stage) -> None:
    gate = Gate("wise ", "words")
    stage.models["alpha"] = gate
    with stage.start("ask", "hi", "--format", "jsonl", under=["nohup"]) as process:
        until(process.stdout, "step_started")
        os.killpg(process.pid, signal.SIGHUP)
        gate.let(2)
        done = finished(process)
    assert done.code == 0
    assert done.events[-1]["kind"] == "run_finished"


MOMENTS = {
    "while planning": (
        "planner",
        stalls("alpha | - | Find it out.\nbeta | 1 | Check"),
        "step_planned",
    ),
    "in the first step": ("alpha", stalls("half"), "step_delta"),
    "between the steps": ("beta", stalls(), "step_finished"),
    "in the last step": ("beta", stalls("half"), "step_delta"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_run_is_listed_as_interrupted_and_can_be_resumed(stage: Stage, moment: str) -> None:
    model, script, kind = MOMENTS[moment]
    stage.plan = TWO
    # A step starts as soon as it is planned, so its worker must not answer before the process is
    # killed.
    stage.models = {"alpha": stalls(), model: script} if model == "planner" else {model: script}
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        events = until(process.stdout, kind, 2 if moment == "in the last step" else 0)
        if model != "planner" and "plan_ready" not in [event["kind"] for event in events]:
            events += until(process.stdout, "plan_ready")
        process.kill()
        rest = finished(process)
    assert rest.code == 137
    (entry,) = stage.inside("trace", "list", "--json").json
    assert (entry["state"], entry["question"]) == ("interrupted", "hi")
    stored = read_lines(stage, entry["run"])
    # Pieces of text wait up to a second for each other.
    while events[-1]["kind"].endswith("_delta"):
        events.pop()
    assert stored[: len(events)] == events
    stage.models = {}
    stage.plan = "beta | 1 | Check it and answer." if moment == "while planning" else TWO
    done = stage.inside("ask", "--resume", entry["run"], "--format", "json")
    assert (done.code, done.json["answer"]) == (0, "beta answers")
    assert [step["usage"]["calls"] for step in done.json["steps"]] == [
        0 if model == "beta" else 1,
        1,
    ]


def read_lines(stage: Stage, run: str) -> list[dict[str, Any]]:
    return stage.inside("trace", "replay", run, "--format", "jsonl", "--speed", "0").events


def test_run_in_progress_is_listed_as_running(stage: Stage) -> None:
    stage.models["alpha"] = stalls("half")
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        until(process.stdout, "step_delta")
        (entry,) = stage.inside("trace", "list", "--json").json
        commands = (
            ["trace", "rm", entry["run"]],
            ["ask", "--resume", "last"],
            ["ask", "-c", "and then?"],
        )
        refused = [stage.inside(*command) for command in commands]
        assert "the run is still going on" in stage.inside("trace", "show").out
        assert stage.inside("trace", "rm", "--keep", "0", "--yes").out == "deleted 0 runs\n"
        process.kill()
        finished(process)
    assert entry["state"] == "running"
    for done in refused:
        assert done.code == 2
        explained(done)


def test_resume_replaces_a_missing_worker_and_reports_it(stage: Stage) -> None:
    stage.plan = "alpha | - | Find it out.\ngamma | 1 | Answer."
    stage.configure(workers=("alpha", "beta", "gamma"))
    assert stage.inside("ask", "hi", "--max-calls", "1").code == 6
    stage.configure()
    assert "gamma" in json.dumps(
        stage.ok("ask", "--resume", "last", "--format", "json").json["notices"]
    )


def test_resume_of_a_finished_run_says_so_and_names_one_that_was_stopped(stage: Stage) -> None:
    stage.plan = "alpha | - | Find it out.\nbeta | 1 | Answer."
    stage.configure()
    assert stage.inside("ask", "first", "--max-calls", "1").code == 6
    stopped = stage.inside("trace", "list", "--json").json[0]["run"]
    stage.ok("ask", "second")
    count = len(stage.posts)
    done = stage.ok("ask", "--resume", "last")
    assert "is finished already, so no worker is asked again" in done.err
    assert f"conductor ask --resume {stopped}" in done.err
    assert len(stage.posts) == count


@pytest.mark.parametrize(
    "words",
    [["a question"], ["-c", "last"], ["-f", "x.txt"], ["--system", "x"], ["--schema", "x.json"]],
)
def test_resume_rejects_a_question(stage: Stage, words: list[str]) -> None:
    for arguments in (["ask", "--resume", "last", *words], ["ask", *words, "--resume", "last"]):
        stage.fails(2, *arguments)
