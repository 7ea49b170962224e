"""Closed or full standard streams and full disks: what happens to the answer, the trace and the exit code."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import resource
import signal
import subprocess
import termios
from pathlib import Path

import pytest

from conductor_cli.cli import output
from conductor_cli.cli.output import print_table, terminal_width, wrap_lines
from conductor_cli.cli.progress import ProgressLines, crop_label
from conductor_cli.core.events import to_line
from conductor_cli.state.trace_file import read_events
from conductor_cli.views.plain import PlainProgress
from tests.cli.stage import COMMAND, TWO, Stage, explained, finished, limit_file_size, says, until
from tests.cli.terminals import Gate
from tests.servers import SeenStep, Wire, delta
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


def test_closed_pipe_stops_the_run(stage: Stage) -> None:
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


CLOSED = "conductor: standard output is closed, so the result cannot be printed\n  to discard it: > /dev/null\n"


@pytest.mark.parametrize("command", ["ask hi --format jsonl", "run plan.json <&-"])
def test_nothing_is_paid_for_with_a_closed_standard_output(stage: Stage, tmp_path: Path, command: str) -> None:
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


@pytest.mark.parametrize("command", ["config set limits.cost 2", "keys set openai --insecure-storage"])
def test_what_is_stored_is_no_failure_where_that_cannot_be_printed(stage: Stage, command: str) -> None:
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
    gate = stage.models["alpha"] = Gate("word " * 20_000, "end")
    gate.let()
    with stage.start("ask", "hi", "--format", "jsonl", under=limit_file_size(64)) as process:
        shown = until(process.stdout, "step_delta")
        (file,) = stage.traces.iterdir()
        assert file.stat().st_size == 65536
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        gate.let()
        done = finished(process)
    assert (done.code, done.err) == (0, "")
    assert [json.loads(to_line(event)) for event in read_events(file)] == shown + done.events


def test_error_in_a_view_ends_the_run_and_is_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a fault of the view")

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(PlainProgress, "show", fail)
    stage.ends(1, "ask", "hi", "--progress", "plain", told="this is a bug in conductor: ValueError")
    assert signal.getsignal(signal.SIGINT) is before


# What is written for a person: broken between words, stacked where a terminal is narrow; and how far a task is


HINT = "  set OPENAI_API_KEY, or store the key in a file: --insecure-storage"
WIDE = ["NAME    SIZE  NOTE", "a-name  12    some words, and then some more", "b             few"]


@pytest.mark.parametrize("width", [20, 30, 40, 60])
def test_a_line_is_broken_between_words_only(width: int) -> None:
    lines = wrap_lines(HINT, width).split("\n")
    assert max(map(len, lines)) <= width
    assert all(line.startswith("  ") for line in lines)
    assert " ".join(line.strip() for line in lines) == HINT.strip()


def test_what_follows_a_label_or_a_number_stays_behind_it() -> None:
    assert wrap_lines("conductor  qwen, mode auto", 20) == "conductor  qwen,\n           mode auto"
    assert wrap_lines("  2. beta  sees 1 and 2  done", 20) == "  2. beta  sees 1\n     and 2  done"


def test_what_fits_or_has_no_width_is_left_as_it_is() -> None:
    assert wrap_lines("a  b\n\n  c", 20) == "a  b\n\n  c"
    assert wrap_lines(HINT * 9, 0) == HINT * 9
    assert wrap_lines("see /a/very-long-path/to-a-file", 20) == "see\n/a/very-long-path/to-a-file"


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (0, WIDE),  # a pipe
        (44, WIDE),
        (40, ["NAME    SIZE  NOTE", "a-name  12    some words, and then some", " " * 14 + "more", "b             few"]),
        (30, ["NAME    SIZE  NOTE", "a-name  12    some words, and", " " * 14 + "then some more", "b             few"]),
    ],
)
def test_a_table_is_as_wide_as_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, lines: list[str]
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda _: width)
    print_table(("NAME", "SIZE", "NOTE"), [("a-name", "12", "some words, and then some more"), ("b", "", "few")])
    assert capsys.readouterr().out.splitlines() == lines


def test_columns_says_how_wide_a_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    user, program = pty.openpty()
    termios.tcsetwinsize(user, (24, 80))
    with os.fdopen(program, "w") as stream:
        widths = []
        for columns in ("", "30"):
            monkeypatch.setenv("COLUMNS", columns)
            widths.append((terminal_width(stream), terminal_width(io.StringIO())))
    os.close(user)
    assert widths == [(80, 0), (30, 0)]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_list_is_wider_than_the_terminal(stage: Stage, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    name = "a-worker-with-quite-a-long-name"
    stage.configure(workers=("alpha", name))
    key = stage.worker("beta", 'key_env = "A_RATHER_LONG_NAME_OF_A_VARIABLE"\ntags = ["cheap", "european"]')
    stage.config.write_text(f'{stage.config.read_text()}{key}\n[pools.both]\nworkers = ["alpha", "{name}"]\n')
    monkeypatch.setenv("A_RATHER_LONG_NAME_OF_A_VARIABLE", "sk-" + "a" * 40)
    assert stage.inside("ask", "Which?").code == 0
    lists = [("workers", "list"), ("keys", "list"), ("trace", "list"), ("cost",), ("config", "show")]
    whole = [stage.inside(*command).out for command in lists]
    monkeypatch.setattr(output, "terminal_width", lambda _: width)
    for command, wide in zip(lists, whole, strict=True):
        lines = stage.inside(*command).out.partition("\n\n")[0].splitlines()  # paths are never broken
        assert "\u2026" not in wide
        assert "not shown here" not in wide
        assert len(lines) <= len(wide.partition("\n\n")[0].splitlines()) + 1
        assert max(map(len, lines)) <= width
    shown = stage.inside("workers", "list").out
    assert "openai-compatible/alpha" in shown or width == 40  # what answers is the last thing to be cropped
    assert "openai-compatible/al" in shown
    assert "not shown here: " in shown


class Clock:
    """A clock that tests set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_task_is_shown_when_it_begins_and_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = ProgressLines("bytes", clock)
    for seconds, done in ((0, 0), (1, 1_000_000), (5, 5_000_000), (6, 6_000_000), (7, 10_000_000)):
        clock.now = 100 + seconds
        display.update("downloading a.gguf", done, 10_000_000)
    assert lines(capsys) == ["downloading a.gguf, 0 bytes of 10.0 MB", "downloading a.gguf, 5.00 MB of 10.0 MB"]


def test_runs_are_counted_to_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    display = ProgressLines("runs", clock)
    display.update("", 0, 1200)
    clock.now += 1
    display.update("", 600, 1200, "2 failed, $0.12")
    display.update("", 1200, 1200, "2 failed, $0.24")
    assert lines(capsys) == ["0 of 1,200 runs", "1,200 of 1,200 runs, 2 failed, $0.24"]


def test_a_label_is_one_safe_line(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressLines("bytes").update("one\ntwo\x1b[2J", 0)
    assert len(lines(capsys)) == 1


@pytest.mark.parametrize(
    ("width", "shown"),
    [(80, "checking model-00001-of-00002.gguf"), (70, "checking …00001-of-00002.gguf"), (20, "checking …02.gguf")],
)
def test_a_long_file_name_keeps_its_end(width: int, shown: str) -> None:
    assert crop_label("checking model-00001-of-00002.gguf", width) == shown
