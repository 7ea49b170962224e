"""`conductor trace`.

What is stored, shown (in a browser, too), replayed, verified, run again and removed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cli.stage import THREE, TWO, Stage, explained, says
from tests.cli.terminals import terminal
from tests.traces.stored import unpack


def run_of(stage: Stage, question: str = "How many?", plan: str = THREE) -> str:
    stage.plan = plan
    return str(stage.inside("ask", question, "--format", "json").json["run"])


def test_list_shows_runs_newest_first(stage: Stage) -> None:
    for question in ("first", "second", "third"):
        stage.inside("ask", question)
    done = stage.inside("trace", "list", "-n", "2")
    head, *lines = [line.split() for line in done.out.splitlines()]
    assert head == ["RUN", "WHEN", "RESULT", "PLANNER", "WORKERS", "COST", "TOOK", "QUESTION"]
    assert [[*line[1:5], line[-1]] for line in lines] == [
        ["now", "finished", "openai-compatible/planner", "alpha", "third"],
        ["now", "finished", "openai-compatible/planner", "alpha", "second"],
    ]
    assert done.err == "for more runs: -n 4\n"
    assert [entry["question"] for entry in stage.inside("trace", "list", "--json").json] == [
        "third",
        "second",
        "first",
    ]


def test_show_of_one_step_has_its_whole_prompt(stage: Stage) -> None:
    run = run_of(stage)
    out = stage.inside("trace", "show", run[:-1], "--step", "3").out
    assert "PROMPT (user)" in out
    assert "Compare and answer." in out
    assert out.rstrip().endswith("alpha answers")
    assert stage.inside("trace", "show", "--step", "3", "--json").json["worker"] == "alpha"
    stage.fails(2, "trace", "show", "--step", "9")


def test_replay_uses_no_network(stage: Stage) -> None:
    """It writes what the run wrote, where every use of a socket fails."""

    def refuse(*_: object) -> None:
        raise RuntimeError("a socket while replaying")

    stage.plan = THREE
    first = stage.inside("ask", "How many?", "--format", "jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", refuse)
        assert stage.inside("trace", "list").code == 0
        done = stage.inside("trace", "replay", "last", "--speed", "0", "--format", "jsonl")
    assert (done.code, done.out, done.err) == (0, first.out, "")


def test_replay_pauses_as_the_run_did(stage: Stage) -> None:
    from conductor_cli.cli.trace import replay_events
    from conductor_cli.state.trace_store import TraceStore
    from conductor_cli.views.base import Stdout
    from conductor_cli.views.json_output import JsonLinesOutput
    from tests.views.terminals import Sink

    run = run_of(stage)
    events = list(TraceStore(stage.traces).events(run))
    for speed, length in ((1.0, events[-1].at), (4.0, events[-1].at / 4), (0.0, 0.0)):
        slept: list[float] = []
        assert (
            replay_events(iter(events), JsonLinesOutput(Stdout(Sink())), speed, slept.append) == 0
        )
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
    stage.ends(2, "trace", "replay", "nobody")
    dry = stage.ok("trace", "rm", runs[0], "last", "--dry-run").out
    assert dry == f"{runs[0]}\n{runs[2]}\nwould delete 2 runs\n"
    assert len(list(stage.traces.iterdir())) == 3
    assert (
        stage.inside("trace", "rm", runs[0], runs[0][:-1], "last").out
        == f"removed {runs[0]}\nremoved {runs[2]}\n"
    )
    assert [file.stem for file in stage.traces.iterdir()] == [runs[1]]


def test_a_trace_with_an_incomplete_last_line_is_shown_and_resumed(stage: Stage) -> None:
    run = run_of(stage)
    path = unpack(stage.traces / f"{run}.jsonl")
    path.write_bytes(path.read_bytes()[:-20])
    (entry,) = stage.inside("trace", "list", "--json").json
    assert entry["state"] == "interrupted"
    assert "the run was interrupted" in stage.inside("trace", "show").out
    assert stage.inside("ask", "--resume", "last").out == "alpha answers\n"


@pytest.mark.parametrize(
    "command", [["trace", "show"], ["trace", "replay"], ["ask", "--resume"], ["ask", "hi", "-c"]]
)
def test_a_foreign_file_is_named(stage: Stage, command: list[str]) -> None:
    run = "20261120-101112-abcdef"
    stage.traces.mkdir(parents=True)
    (stage.traces / f"{run}.jsonl").write_text("hello\n")
    assert stage.inside("trace", "list").code == 0
    stage.fails(2, *command, run, told=run)


def test_verify_names_the_lines_and_repair_keeps_the_rest(stage: Stage) -> None:
    run = run_of(stage)
    assert stage.ok("trace", "verify").out.split(",")[0] == f"{run}: whole"
    path = unpack(stage.traces / f"{run}.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\0\0\n", *lines[3:]]))
    assert (
        stage.ends(1, "trace", "verify", run).out
        == f"{run}: not whole\n  line 3 was changed: it has NUL bytes\n"
    )
    assert "line 3 is incomplete or left out" in stage.inside("trace", "show").out
    assert (
        stage.ok("trace", "verify", "--all", "--repair").out.splitlines()[-1]
        == "1 run, 0 not whole"
    )
    assert path.with_name(f"{run}.jsonl.damaged-1").read_bytes().count(b"\0") == 2
    assert stage.inside("trace", "verify", "--json").json[0]["whole"] is True
    assert "the trace was repaired: line 3 was set aside" in stage.inside("trace", "show").out
    assert stage.inside("trace", "list").out.splitlines()[1].split()[2:4] == [
        "finished,",
        "damaged",
    ]


def test_every_reader_of_a_damaged_trace_reads_on(stage: Stage) -> None:
    run = run_of(stage)
    path = unpack(stage.traces / f"{run}.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    line_index = next(number for number, line in enumerate(lines) if b"step_delta" in line)
    path.write_bytes(b"".join([*lines[:line_index], b"?" * 50 + b"\n", *lines[line_index + 1 :]]))
    stage.inside("ask", "And pears?")
    message = f"line {line_index + 1} is incomplete or left out"
    for words in (
        ["show", run],
        ["show", run, "--json"],
        ["replay", run, "--speed", "0", "--format", "jsonl"],
        ["export", run],
        ["export", run, "--markdown"],
    ):
        done = stage.inside("trace", *words)
        assert (done.code, message in done.out, "alpha answers" in done.out) == (0, True, True), (
            words
        )
    for words in (
        ["ask", "--continue-from", run, "Why?"],
        ["ask", "--resume", run],
        ["trace", "rerun", run],
    ):
        done = stage.inside(*words)
        assert (done.code, message in done.err) == (0, True), words


def test_a_run_is_exported_as_markdown(stage: Stage) -> None:
    """For an issue or notes: question, answer, plan and steps.

    What a worker wrote does nothing there.
    """
    stage.models["beta"] = says("**Done** <img src=x>")
    run = run_of(stage, "Is it *so*?", TWO)
    text = stage.ok("trace", "export", run, "--markdown").out
    assert text.startswith("# Is it *so*?\n\nfinished\n\n- 2 steps, ")
    for part in (
        "## Question\n\n```text\nIs it *so*?\n```",
        "## Answer\n\n**Done** &lt;img src=x>",
        "## Plan\n\n```text",
        "### 1. alpha, done",
        "```text\nalpha answers\n```",
        "| total |",
    ):
        assert part in text


def test_a_conversation_is_exported_from_its_runs(stage: Stage) -> None:
    stage.ok("ask", "First?")
    stage.ok("ask", "-c", "Second?")
    last = stage.ok("ask", "-c", "Third?", "--format", "json").json["run"]
    text = stage.ok("trace", "export", "--conversation").out
    assert text.startswith(f"# Conversation of run {last}\n")
    places = [
        text.index(f"```text\n{question}\n```") for question in ("First?", "Second?", "Third?")
    ]
    assert places == sorted(places)
    assert text.count("alpha answers") == 3
    # What a run was sent stands for the runs before it that are gone
    stage.ok("trace", "rm", "last~2")
    assert stage.ok("trace", "export", "--conversation").out == text


def test_an_exported_conversation_says_which_answers_are_not_whole(stage: Stage) -> None:
    stage.models["alpha"] = says("Half of", finish="length")
    stage.ends(7, "ask", "First?")
    stage.models["alpha"] = says("All of it.")
    stage.ok("ask", "-c", "Second?")
    text = stage.ok("trace", "export", "--conversation").out
    assert "## Answer 1\n\n(partial answer" in text
    assert text.endswith("## Answer 2\n\nAll of it.\n")


def test_list_can_be_filtered(stage: Stage) -> None:
    first_run = run_of(stage, "first", "alpha | - | Answer it.")
    second_run = run_of(stage, "second", TWO)
    for options, runs in (
        (["--worker", "beta"], [second_run]),
        (["--worker", "alpha"], [second_run, first_run]),
        (["--state", "failed"], []),
        (["--since", "1h"], [second_run, first_run]),
        (["--since", "2999-01-01"], []),
        (["--state", "finished", "-n", "1"], [second_run]),
    ):
        assert [
            entry["run"] for entry in stage.inside("trace", "list", *options, "--json").json
        ] == runs, options
    assert stage.inside("trace", "list", "--state", "failed").err == "no matching runs\n"


@pytest.mark.parametrize(
    "line",
    [
        "list --state odd",
        "list --since soon",
        "list --since 30m",
        "rm",
        "rm last --keep 1",
        "rm --older-than old",
        "rm --older-than 1m",
        "rm --keep -1",
    ],
)
def test_runs_that_are_not_named_as_they_can_be_are_a_usage_error(stage: Stage, line: str) -> None:
    stage.fails(2, "trace", *line.split())


def test_search_shows_the_matching_texts(stage: Stage) -> None:
    run = run_of(stage)
    out = stage.inside("trace", "list", "another", "WAY").out
    assert run in out
    assert "    subtask 2: Find it out in another way." in out
    (entry,) = stage.inside("trace", "list", "alpha answers", "--json").json
    assert {hit["in"] for hit in entry["hits"]} == {"answer 1", "answer 3"}
    assert stage.inside("trace", "list", " ").code == 2


def test_show_can_include_prompts(stage: Stage) -> None:
    run_of(stage)
    assert "prompt (user):" not in stage.inside("trace", "show").out
    out = stage.inside("trace", "show", "--prompts").out
    assert out.count("prompt (user):") == 3
    steps = stage.inside("trace", "show", "--prompts", "--json").json["steps"]
    assert all(step["prompt"][-1]["content"] for step in steps)


def test_rerun_starts_at_a_step(stage: Stage) -> None:
    first_run = run_of(stage)
    calls = len(stage.server.requests)
    stage.models["beta"] = says("beta answers anew")
    done = stage.inside(
        "trace", "rerun", first_run, "--from", "3", "--worker", "beta", "--format", "json"
    )
    assert (done.code, done.json["answer"]) == (0, "beta answers anew")
    assert len(stage.server.requests) == calls + 1
    assert "beta answers" in str(stage.server.requests[-1].json)
    assert done.json["run"] != first_run
    assert [step["worker"] for step in done.json["steps"]] == ["alpha", "beta", "beta"]
    assert f"reusing finished steps 1, 2 of run {first_run}" in str(done.json["notices"])
    shown = stage.ok("trace", "show", done.json["run"]).out
    assert (shown.count("✓ reused"), shown.count("0.0 s   0 tokens")) == (2, 0)
    assert stage.inside("trace", "show", first_run, "--json").json["answer"] == "alpha answers"


def test_a_rerun_names_the_first_run(stage: Stage) -> None:
    first_run = run_of(stage)
    again = stage.inside("trace", "rerun", "--from", "3", "--format", "json").json
    assert again["resumed"] == first_run
    assert [entry["resumed"] for entry in stage.inside("trace", "list", "--json").json] == [
        first_run,
        None,
    ]
    assert "again: How many" in stage.inside("trace", "list").out
    assert f"resumes    {first_run}" in stage.inside("trace", "show").out
    assert f"resumes run {first_run}" in stage.inside("trace", "export").out


@pytest.mark.parametrize(
    "options", [["--from", "4"], ["--from", "0"], ["--worker", "nobody"], ["--from", "two"]]
)
def test_an_invalid_rerun_calls_nobody(stage: Stage, options: list[str]) -> None:
    run = run_of(stage)
    calls = len(stage.server.requests)
    done = stage.inside("trace", "rerun", run, *options)
    explained(done)
    assert (done.code, len(stage.server.requests)) == (2, calls)


def test_old_runs_are_deleted_by_age_and_number(stage: Stage) -> None:
    """A dry run deletes nothing, and without a terminal `--yes` is needed."""
    runs = [run_of(stage, str(number), "alpha | - | Answer it.") for number in range(4)]
    assert stage.inside("trace", "rm", "--older-than", "1d", "--yes").out == "deleted 0 runs\n"
    dry = stage.inside("trace", "rm", "--keep", "2", "--dry-run").out.splitlines()
    assert [line.split()[0] for line in dry] == [runs[1], runs[0], "would"]
    refused = stage.inside("trace", "rm", "--keep", "2")
    explained(refused)
    assert (refused.code, len(list(stage.traces.iterdir()))) == (2, 4)
    assert stage.inside("trace", "rm", "--keep", "2", "--yes").out == "deleted 2 runs\n"
    assert {file.stem for file in stage.traces.iterdir()} == {*runs[2:]}
    assert [entry["run"] for entry in stage.inside("trace", "list", "--json").json] == [
        runs[3],
        runs[2],
    ]


def test_traces_can_be_shown_with_broken_settings(stage: Stage) -> None:
    run_of(stage)
    stage.config.write_text("no = [toml")
    for arguments in (["list"], ["list", "many"], ["show"], ["export"]):
        done = stage.inside("trace", *arguments)
        assert (done.code, "many" in done.out) == (0, True), arguments
    # The quick way and the ordinary one
    for options in (["--speed", "0"], ["--speed", "0", "--progress", "none"]):
        assert stage.ok("trace", "replay", *options).out == "alpha answers\n"


def test_a_file_in_place_of_the_directory_is_an_error(stage: Stage) -> None:
    stage.traces.parent.mkdir(parents=True)
    stage.traces.write_text("in the way")
    for arguments in (["list"], ["list", "x"], ["show"], ["rm", "--keep", "1"]):
        stage.fails(2, "trace", *arguments, told="traces")
    assert os.listdir(stage.traces.parent) == ["traces"]  # noqa: PTH208 - names


def test_a_removal_of_old_runs_asks_on_a_terminal(stage: Stage) -> None:
    run_of(stage)
    for answer, left in (("n", 1), ("y", 0)):
        with terminal(stage, "trace", "rm", "--keep", "0") as shown:
            shown.until("Delete 1 run")
            shown.program.sendline(answer)
            assert shown.end() == 0
        assert len(list(stage.traces.iterdir())) == left


PAGE = (
    "import pathlib, sys, urllib.request as r; "
    "pathlib.Path(sys.argv[1]).write_bytes(r.urlopen(sys.argv[2]).read())"
)


@pytest.fixture
def browser(stage: Stage) -> tuple[dict[str, str], Path]:
    """Variables by which a browser is found that stores the page in the file."""
    script = stage.home / "browser.py"
    page = stage.home / "page.html"
    script.write_text(PAGE)
    return {"BROWSER": f"{sys.executable} {script} {page} %s"}, page


def test_a_run_is_shown_in_the_browser(stage: Stage, browser: tuple[dict[str, str], Path]) -> None:
    variables, page = browser
    stage.ok("ask", "How are you?")
    # Its end waits for that of the browser
    done = stage.run("trace", "show", "--open", env=variables)
    assert (done.code, done.out, done.err) == (0, "", "")
    assert "alpha answers" in page.read_text()


def test_without_a_browser_the_file_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(stage.home))
    stage.ok("ask", "How are you?")
    file = Path(stage.ok("trace", "show", "last", "--open").out.strip())
    assert "alpha answers" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_serve_prints_the_address_of_its_page_and_opens_it(
    stage: Stage, browser: tuple[dict[str, str], Path]
) -> None:
    variables, page = browser
    os.mkfifo(page)  # what reads it waits for the browser
    with stage.start(
        "serve", "--port", "0", "--open", env=variables, stdout=subprocess.PIPE
    ) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline().decode() for _ in range(5)]
            address = lines[0].split()[-1]
            assert f"  the page, to ask and to look at runs: {address}/\n" in lines
            assert "<title>conductor</title>" in page.read_text()
        finally:
            server.terminate()
