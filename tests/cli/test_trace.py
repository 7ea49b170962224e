"""`conductor trace`: list, search, show, replay, path, rm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.stage import THREE, Stage, says
from tests.traces.stored import unpack

GUARD = """
import sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"{event} while replaying")
sys.addaudithook(refuse)
"""


def asked(stage: Stage) -> str:
    stage.plan = THREE
    return str(stage.inside("ask", "How many?", "--format", "json").json["run"])


def test_list_shows_runs_newest_first(stage: Stage) -> None:
    for question in ("first", "second", "third"):
        stage.inside("ask", question)
    done = stage.inside("trace", "list", "-n", "2")
    head, *lines = [line.split() for line in done.out.splitlines()]
    assert head == ["RUN", "WHEN", "RESULT", "PLANNER", "WORKERS", "COST", "TOOK", "QUESTION"]
    assert [[*line[1:5], line[-1]] for line in lines] == [
        ["now", "finished", "openai-compatible/planner", "alpha", "third"],
        ["now", "finished", "openai-compatible/planner", "alpha", "second"],
    ]  # fmt: skip
    assert done.err == "for more runs: -n 4\n"
    assert [entry["question"] for entry in stage.inside("trace", "list", "--json").json] == ["third", "second", "first"]


def test_without_runs_the_list_is_empty(stage: Stage) -> None:
    assert stage.inside("trace", "list", "--json").json == []
    done = stage.inside("trace", "list")
    assert (done.code, done.out, done.err) == (0, "", "no runs are stored yet\n")


def test_show_has_question_plan_steps_and_answer(stage: Stage) -> None:
    asked(stage)
    out = stage.inside("trace", "show").out
    for part in (
        "How many?",
        "├─ 1 alpha  ",
        "└─ 2 beta   ",
        "   └─ 3 alpha  ",
        "(reads 1 and 2)",
        "ANSWER  (finished)",
        "4 calls",
    ):
        assert part in out


def test_show_of_one_step_has_its_whole_prompt(stage: Stage) -> None:
    run = asked(stage)
    out = stage.inside("trace", "show", run[:-1], "--step", "3").out
    assert "PROMPT (user)" in out
    assert "Compare and answer." in out
    assert out.rstrip().endswith("alpha answers")
    assert stage.inside("trace", "show", "--step", "3", "--json").json["worker"] == "alpha"
    stage.fails(2, "trace", "show", "--step", "9")


def test_replay_uses_no_network(stage: Stage, tmp_path: Path) -> None:
    """It writes what the run wrote, in a process in which every use of a socket fails."""
    stage.plan = THREE
    first = stage.inside("ask", "How many?", "--format", "jsonl")
    (tmp_path / "sitecustomize.py").write_text(GUARD)
    guarded = {"PYTHONPATH": f"{tmp_path}:{stage.environ()['PYTHONPATH']}"}
    assert stage.run("trace", "list", env=guarded).code == 0
    done = stage.run("trace", "replay", "last", "--speed", "0", "--format", "jsonl", env=guarded)
    assert (done.code, done.out, done.err) == (0, first.out, "")
    assert "while replaying" in stage.run("ask", "hi", env=guarded).err


def test_replay_pauses_as_the_run_did(stage: Stage) -> None:
    from conductor_cli.state.trace_store import TraceStore
    from conductor_cli.views.base import Stdout
    from conductor_cli.views.json_output import JsonLinesOutput
    from conductor_cli.views.replay import replay_events
    from tests.views.terminals import Sink

    run = asked(stage)
    events = list(TraceStore(stage.traces).events(run))
    for speed, length in ((1.0, events[-1].at), (4.0, events[-1].at / 4), (0.0, 0.0)):
        slept: list[float] = []
        assert replay_events(iter(events), JsonLinesOutput(Stdout(Sink())), speed, slept.append) == 0
        assert sum(slept) == pytest.approx(length)


def test_replay_of_a_failed_run_repeats_the_error(stage: Stage) -> None:
    stage.models = dict.fromkeys(("alpha", "beta"), says(""))
    failed = stage.inside("ask", "hi")
    done = stage.inside("trace", "replay", "--speed", "0")
    assert (failed.code, done.code) == (1, 0)
    assert done.err == failed.err


def test_rm_removes_the_named_runs(stage: Stage) -> None:
    runs = [stage.inside("ask", str(number), "--format", "json").json["run"] for number in range(3)]
    stage.ends(2, "trace", "rm", runs[0], "nobody")
    assert len(list(stage.traces.iterdir())) == 3
    assert stage.inside("trace", "rm", runs[0], runs[0][:-1], "last").out == f"removed {runs[0]}\nremoved {runs[2]}\n"
    assert [file.stem for file in stage.traces.iterdir()] == [runs[1]]


def test_a_trace_with_an_incomplete_last_line_is_shown_and_resumed(stage: Stage) -> None:
    run = asked(stage)
    path = unpack(stage.traces / f"{run}.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] == "interrupted"
    assert "the run was interrupted" in stage.inside("trace", "show").out
    assert stage.inside("ask", "--resume", "last").out == "alpha answers\n"


@pytest.mark.parametrize("content", ["hello\n", '{"kind":"run_started"}\n', "\x00\x01"])
@pytest.mark.parametrize("command", [["trace", "show"], ["trace", "replay"], ["ask", "--resume"], ["ask", "hi", "-c"]])
def test_a_foreign_file_is_named(stage: Stage, content: str, command: list[str]) -> None:
    run = "20261120-101112-abcdef"
    stage.traces.mkdir(parents=True)
    (stage.traces / f"{run}.jsonl").write_text(content)
    assert stage.inside("trace", "list").code == 0
    stage.fails(2, *command, run, told=run)


def test_unknown_and_ambiguous_ids_are_usage_errors(stage: Stage) -> None:
    for arguments in (["show"], ["show", "nope"], ["replay", "nope"], ["rm", "nope"]):
        stage.fails(2, "trace", *arguments)


def test_verify_names_the_lines_and_repair_keeps_the_rest(stage: Stage) -> None:
    run = asked(stage)
    done = stage.inside("trace", "verify")
    assert (done.code, done.out.split(",")[0]) == (0, f"{run}: whole")
    path = unpack(stage.traces / f"{run}.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\0\0\n", *lines[3:]]))
    assert stage.ends(1, "trace", "verify", run).out == f"{run}: not whole\n  line 3 was changed: it has NUL bytes\n"
    assert "line 3 is incomplete or left out" in stage.inside("trace", "show").out
    done = stage.inside("trace", "verify", "--all", "--repair")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 run, 0 not whole")
    assert path.with_name(f"{run}.jsonl.damaged-1").read_bytes().count(b"\0") == 2
    assert stage.inside("trace", "verify", "--json").json[0]["whole"] is True
    assert "the trace was repaired: line 3 was set aside" in stage.inside("trace", "show").out
    assert stage.inside("trace", "list").out.splitlines()[1].split()[2:4] == ["finished,", "damaged"]


def test_every_reader_of_a_damaged_trace_reads_on(stage: Stage) -> None:
    run = asked(stage)
    path = unpack(stage.traces / f"{run}.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    place = next(number for number, line in enumerate(lines) if b"step_delta" in line)
    path.write_bytes(b"".join([*lines[:place], b"?" * 50 + b"\n", *lines[place + 1 :]]))
    stage.inside("ask", "And pears?")
    said = f"line {place + 1} is incomplete or left out"
    for words in (
        ["show", run], ["show", run, "--json"], ["replay", run, "--speed", "0", "--format", "jsonl"],
        ["export", run],
    ):  # fmt: skip
        done = stage.inside("trace", *words)
        assert (done.code, said in done.out, "alpha answers" in done.out) == (0, True, True), words
    for words in (["ask", "--continue-from", run, "Why?"], ["ask", "--resume", run], ["trace", "rerun", run]):
        done = stage.inside(*words)
        assert (done.code, said in done.err) == (0, True), words
