"""Runs in the background: begun, watched, waited for, answered and ended from other processes."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from conductor_cli.cli import attach
from conductor_cli.state.run_messages import RunInbox, RunMessage, is_listening, send_message
from tests.cli.stage import COMMAND, THREE, Stage, finished, limit_file_size, says, stalls
from tests.cli.terminals import Gate, terminal

RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{10}\n")
PATIENCE_SECONDS = 60.0
# The command in a terminal that stays open after its end, as a shell's does
SHELL = ("sh", "-c", '"$@" && read line', "sh", *COMMAND)


@pytest.fixture(autouse=True)
def end_what_goes_on(stage: Stage) -> Iterator[None]:
    """Leave no process behind, also where a test fails."""
    yield
    for path in (stage.home / "state/conductor-llm/messages").glob("*.jsonl"):
        send_message(path.parent, path.stem, RunMessage("cancel"))


def begin(stage: Stage, *arguments: str, **how: object) -> str:
    """Start a question in the background; returns the id of its run."""
    done = stage.run("ask", "--bg", *arguments, **how)  # type: ignore[arg-type]
    assert done.code == 0, done
    assert RUN_ID.fullmatch(done.out), done
    return done.out.strip()


def state_of(stage: Stage, run: str) -> dict[str, object]:
    (row,) = [row for row in stage.ok("trace", "list", "--json").json if row["run"] == run]
    return dict(row)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end


def test_a_run_in_the_background_tells_its_id_and_can_be_waited_for(stage: Stage) -> None:
    stage.configure()
    done = stage.run("ask", "--bg", "How many?")
    assert done.code == 0
    assert RUN_ID.fullmatch(done.out)
    run = done.out.strip()
    for command in ("attach", "wait", "cancel"):
        assert f"conductor trace {command} {run}" in done.err
    waited = stage.ends(0, "trace", "wait", run, told=f"run {run}: finished")
    assert waited.out == ""
    assert f"to read the answer: conductor trace attach {run}" in waited.err
    assert stage.ok("trace", "attach", run).out == "alpha answers\n"
    assert stage.ok("trace", "show", run, "--json").json["answer"] == "alpha answers"


def test_a_background_run_has_the_exit_code_of_the_run_and_reads_a_pipe(stage: Stage) -> None:
    stage.configure()
    stage.models["alpha"] = says("half", finish="length")
    run = begin(stage, "Count these", given=b"one two three", stdin=subprocess.PIPE)
    stage.ends(7, "trace", "wait", run)
    assert "one two three" in str(stage.asked("alpha")[0].json)


def test_the_terminal_that_began_it_rings_when_it_waits_and_ends(stage: Stage) -> None:
    stage.configure()
    with terminal(stage, "ask", "--bg", "--approve", "hi", command=SHELL, TERM="foot") as shown:
        shown.until("conductor trace cancel")
        (path,) = stage.traces.glob("*.jsonl")
        run = path.stem
        shown.until(lambda _: "notify;conductor;conductor waits for approval of" in shown.raw)
        assert "\x1b]2;" not in shown.raw, "the title is that of another program"
        until(lambda: state_of(stage, run)["waits"] == "approval of the plan")
        with terminal(stage, "trace", "attach", run, size=(80, 40)) as other:
            other.until("l: leave it")
            other.program.send("d")
            assert other.end() == 130
        shown.until(lambda _: "conductor cancelled after" in shown.raw)
        shown.program.sendline("")
        assert shown.end() == 0


def test_it_survives_the_terminal_that_began_it(stage: Stage) -> None:
    stage.configure()
    gate = Gate("the answer")
    stage.models["alpha"] = gate
    with stage.start("ask", "--bg", "hi") as process:
        run = finished(process).out.strip()
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, signal.SIGHUP)
    assert state_of(stage, run)["state"] == "running"
    stage.ends(124, "trace", "wait", run, "--timeout", "0.1", told="goes on after 0.1 s")
    gate.let()
    stage.ends(0, "trace", "wait", run)


def test_what_is_wrong_is_told_before_the_command_ends(stage: Stage) -> None:
    stage.configure()
    for code, arguments, message in (
        (2, ("ask", "--bg"), "there is no question"),
        (2, ("ask", "--bg", "hi", "--workers", "nobody"), "nobody"),
        (2, ("ask", "--bg", "hi", "--no-trace"), "--bg needs a trace"),
        (2, ("ask", "--bg", "hi", "--format", "json"), "--bg prints no answer"),
    ):
        done = stage.run(*arguments)
        assert (done.code, done.out) == (code, ""), done
        assert message in done.err


def test_a_run_is_cancelled_from_elsewhere(stage: Stage) -> None:
    stage.configure()
    stage.models["alpha"] = stalls("a beginning")
    run = begin(stage, "hi")
    until(lambda: bool(stage.asked("alpha")))
    done = stage.ok("trace", "cancel", run)
    assert done.out.startswith(f"{run}: cancelled after ")
    assert "0 of 1 step done" in done.out
    assert f"conductor ask --resume {run}" in done.err
    assert state_of(stage, run)["state"] == "cancelled"
    stage.ends(130, "trace", "wait", run)
    stage.fails(2, "trace", "cancel", run, told=f"run {run} has ended already: cancelled")


def test_a_run_whose_process_is_gone_cannot_be_cancelled(stage: Stage) -> None:
    stage.configure()
    stage.models["alpha"] = stalls("a beginning")
    with stage.start("ask", "hi") as process:
        until(lambda: bool(stage.asked("alpha")))
        process.kill()
        process.wait()
    stage.fails(2, "trace", "cancel", "last", told="no process runs")
    stage.ends(1, "trace", "wait", "last")


def test_a_plan_in_the_background_waits_and_is_approved_from_elsewhere(stage: Stage) -> None:
    stage.configure()
    stage.plan = THREE
    run = begin(stage, "--approve", "How many?")
    until(lambda: state_of(stage, run)["waits"] == "approval of the plan")
    assert stage.asked("alpha") == []
    with terminal(stage, "trace", "attach", run, size=(80, 50), command=COMMAND) as shown:
        shown.until("l: leave it for now")
        assert "estimate: 3 calls" in shown.screen
        shown.program.send("l")
        shown.until("goes on waiting")
        shown.program.sendintr()
        assert shown.end() == 0
    with terminal(stage, "trace", "attach", run, size=(80, 50)) as shown:
        shown.until("l: leave it for now")
        shown.program.send("\r")
        assert shown.end() == 0
        assert "alpha answers" in shown.scrolled
    assert state_of(stage, run)["state"] == "finished"


def test_who_reads_what_is_shown_before_a_plan_is_approved_from_elsewhere(
    stage: Stage, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("Forty-two.")
    stage.configure('[policy]\nfiles_only = ["alpha"]')
    stage.plan = "alpha | - | Find it out.\nbeta | - | Guess it.\nalpha | 1 2 | Answer."
    run = begin(stage, "--approve", "How many?", "-f", str(notes))
    until(lambda: state_of(stage, run)["waits"] == "approval of the plan")
    with terminal(stage, "trace", "attach", run, size=(100, 60)) as shown:
        shown.until("f: who reads what")
        shown.program.send("f")
        shown.until(lambda screen: screen.count("f: who reads what") == 2)
        flow = " ".join(shown.screen.partition("l: leave it")[2].split())
        assert "plan: planner the question step 1: alpha the question, file notes.txt" in flow
        assert "step 2: beta the question step 3: alpha" in flow
        assert "the question, file notes.txt, the answer of step 1, the answer of step 2" in flow
        assert "Possible readers:" in flow
        assert stage.asked("alpha") == []
        shown.program.send("d")
        assert shown.end() == 130


def test_a_plan_that_is_asked_about_on_a_terminal_may_be_decided_elsewhere(stage: Stage) -> None:
    stage.configure()
    stage.plan = THREE
    asking = ("ask", "--approve", "How many?")
    with terminal(stage, *asking, size=(80, 40), command=COMMAND) as shown:
        shown.until("d: drop it")
        (path,) = stage.traces.glob("*.jsonl")
        until(lambda: state_of(stage, path.stem)["waits"] == "approval of the plan")
        with terminal(stage, "trace", "attach", "last", size=(80, 40)) as other:
            other.until("l: leave it")
            other.program.send("d")
            assert other.end() == 130
        assert shown.end() == 130
        assert "This was decided elsewhere." in shown.screen
        assert "the plan was dropped" in shown.screen
    assert stage.asked("alpha") == []


def test_a_plan_in_the_background_is_edited_and_planned_again_from_elsewhere(
    stage: Stage, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/alpha/'$(cat \"$0.worker\")'/' \"$1\"\n")
    editor.chmod(0o755)
    worker = tmp_path / "editor.worker"
    worker.write_text("nobody")
    stage.configure()
    stage.plan = "alpha | - | Answer it."
    run = begin(stage, "--approve", "How many?")
    until(lambda: state_of(stage, run)["waits"] == "approval of the plan")
    attach = ("trace", "attach", run)
    with terminal(stage, *attach, size=(100, 60), command=COMMAND, EDITOR=str(editor)) as shown:
        shown.until("l: leave it for now")
        shown.program.send("e")
        shown.until("names a worker that is not in the pool: 'nobody'")
        worker.write_text("beta")
        shown.program.send("p")
        shown.until("What should be different?")
        shown.program.send("Shorter, please.\r")
        until(lambda: len(stage.asked("planner")) == 2)
        shown.until(lambda screen: screen.count("estimate: 1 call") == 2)
        shown.program.send("e")
        shown.until(lambda screen: screen.count("estimate: 1 call") == 3)
        shown.program.send("\r")
        assert shown.end() == 0
        assert "beta answers" in shown.scrolled
    assert "Shorter, please." in stage.asked("planner")[1].json["messages"][-1]["content"]
    assert stage.asked("alpha") == []


def test_what_a_run_cannot_do_with_its_plan_it_says_and_waits(stage: Stage) -> None:
    stage.configure()
    stage.plan = "alpha | - | Answer it."
    run = begin(stage, "--approve", "How many?")
    until(lambda: state_of(stage, run)["waits"] == "approval of the plan")
    trace = stage.traces / f"{run}.jsonl"
    lines = map(json.loads, trace.read_text().splitlines())
    (offered_at,) = [line["at"] for line in lines if line["kind"] == "plan_offered"]
    directory = stage.home / "state/conductor-llm/messages"
    send_message(directory, run, RunMessage("edit", offered_at, "{}"))
    refusal = "an edited plan was not taken: plan.json is not a plan"
    until(lambda: refusal in trace.read_text())
    assert state_of(stage, run)["waits"] == "approval of the plan"


def test_ctrl_c_leaves_the_run_that_is_watched_alone(stage: Stage) -> None:
    stage.configure()
    gate = Gate("the ", "answer")
    stage.models["alpha"] = gate
    run = begin(stage, "hi")
    with terminal(stage, "trace", "attach", run, command=COMMAND) as shown:
        gate.let()
        shown.until("the")
        shown.program.sendintr()
        assert shown.end() == 0
        assert f"run {run} goes on" in " ".join(shown.screen.split())
        assert "interrupted" not in shown.screen
        assert shown.cursor_shown
    assert state_of(stage, run)["state"] == "running"
    gate.let()
    stage.ends(0, "trace", "wait", run)


def test_only_a_run_that_listens_takes_messages(tmp_path: Path) -> None:
    directory = tmp_path / "messages"
    assert not send_message(directory, "r1", RunMessage("cancel"))
    inbox = RunInbox(directory, "r1")
    assert is_listening(directory, "r1")
    assert send_message(directory, "r1", RunMessage("once", 3.25))
    with (directory / "r1.jsonl").open("a") as file:
        file.write('{"act": "rm -rf"}\n[]\nx\n{"act": "no"')
    assert inbox.read() == [RunMessage("once", 3.25)]
    assert inbox.read() == []
    assert (directory.stat().st_mode & 0o777, (directory / "r1.jsonl").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    inbox.close()
    assert not is_listening(directory, "r1")
    assert list(directory.iterdir()) == []


def test_what_a_killed_process_left_takes_no_messages_and_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "r1.jsonl"
    left.write_text("")
    assert not send_message(tmp_path, "r1", RunMessage("cancel"))
    assert not left.exists()
    left.symlink_to(tmp_path / "elsewhere")
    assert not send_message(tmp_path, "r1", RunMessage("cancel"))
    assert not (tmp_path / "elsewhere").exists()


def test_an_answer_to_an_earlier_offer_is_none_to_a_later_one() -> None:
    assert RunMessage("once", 3.2501).is_about(3.25)
    assert not RunMessage("once", 3.25).is_about(9.0)


@pytest.fixture
def full_disk(stage: Stage) -> tuple[str, int]:
    """A run in the background whose trace cannot grow, and its process; the run has its answer."""
    stage.configure()
    gate = Gate("word " * 20_000, "end")
    stage.models["alpha"] = gate
    gate.let()
    run = begin(stage, "How many in the dark?", under=limit_file_size(64))
    (file,) = stage.traces.glob("*.jsonl")
    until(lambda: file.stat().st_size == 64 << 10)
    gate.let()
    return run, process_that_runs("How many in the dark?")


def process_that_runs(question: str) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if question in path.read_text("utf-8", "replace"):
                return int(path.parent.name)
    raise AssertionError(f"no process asks {question}")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="only Linux has it")
def test_an_answer_waits_for_room_on_a_full_disk(stage: Stage, full_disk: tuple[str, int]) -> None:
    run, process = full_disk
    message = f"run {run} goes on after 2 s"
    stage.ends(124, "trace", "wait", run, "--timeout", "2", told=message)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(process, resource.RLIMIT_FSIZE, unlimited)
    stage.ends(0, "trace", "wait", run)
    assert stage.ok("trace", "attach", run).out.endswith("word end\n")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="only Linux has it")
def test_a_run_that_waits_for_room_can_be_ended(stage: Stage, full_disk: tuple[str, int]) -> None:
    run, _ = full_disk
    stage.ends(124, "trace", "wait", run, "--timeout", "1")
    assert f"{run}: interrupted" in stage.ok("trace", "cancel", run).out


def test_whoever_looks_at_a_run_is_told_of_a_full_disk(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.configure()
    stage.models["alpha"] = stalls("half")
    run = begin(stage, "How many?")
    monkeypatch.setattr(attach, "FULL_DISK_BYTES", 1 << 60)
    message = f"free: run {run} keeps what does not fit, and stores it once there is room"
    stage.ends(124, "trace", "wait", run, "--timeout", "0", told=message)
    stage.ok("trace", "cancel", run)
    stage.ends(130, "trace", "attach", run, told=message)
