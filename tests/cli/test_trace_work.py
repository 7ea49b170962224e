"""`conductor trace` diff, rerun, export, prune; filters of list."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import THREE, TWO, Stage, explained, finished, says, stalls, until
from tests.cli.test_terminal import terminal


def asked(stage: Stage, question: str = "How many?", plan: str = THREE) -> str:
    stage.plan = plan
    return str(stage.inside("ask", question, "--format", "json").json["run"])


def test_list_is_filtered(stage: Stage) -> None:
    """By state, worker, mode, time and text; what matches nothing says so."""
    one = asked(stage, "first", "alpha | - | Answer it.")
    two = asked(stage, "second", TWO)
    for options, runs in (
        (["--worker", "beta"], [two]), (["--worker", "alpha"], [two, one]), (["--state", "failed"], []),
        (["--text", "FIRST"], [one]), (["--mode", "auto"], [two, one]), (["--since", "1h"], [two, one]),
        (["--since", "2999-01-01"], []), (["--state", "finished", "--state", "failed", "-n", "1"], [two]),
    ):  # fmt: skip
        assert [entry["run"] for entry in stage.inside("trace", "list", *options, "--json").json] == runs, options
    assert stage.inside("trace", "list", "--state", "failed").err == "no matching runs\n"


@pytest.mark.parametrize(
    "options", [["--state", "odd"], ["--since", "soon"], ["--since", "30m"], ["--text", " "], ["--mode", "best"]]
)
def test_filters_that_cannot_be_are_told(stage: Stage, options: list[str]) -> None:
    """An unknown state, mode or time, and an empty text: 2, with what there is. `30m` may mean minutes or months."""
    done = stage.inside("trace", "list", *options)
    assert done.code == 2
    explained(done)


def test_search_says_where(stage: Stage) -> None:
    """A line for each text that holds what was looked for; `--json` has the same."""
    run = asked(stage)
    out = stage.inside("trace", "search", "another", "WAY").out
    assert run in out
    assert "    subtask 2: Find it out in another way." in out
    (entry,) = stage.inside("trace", "search", "alpha answers", "--json").json
    assert {hit["in"] for hit in entry["hits"]} == {"answer 1", "answer 3"}


def test_show_has_prompts_where_they_are_wanted(stage: Stage) -> None:
    """`--prompts` adds what each worker was sent, to the page and to the JSON."""
    asked(stage)
    assert "prompt (user):" not in stage.inside("trace", "show").out
    out = stage.inside("trace", "show", "--prompts").out
    assert out.count("prompt (user):") == 3
    steps = stage.inside("trace", "show", "--prompts", "--json").json["steps"]
    assert all(step["prompt"][-1]["content"] for step in steps)


@pytest.mark.parametrize("columns", ["40", "100"])
def test_two_runs_are_compared(stage: Stage, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side where there is room, one under the other where not; what is the same is told apart."""
    one, two = asked(stage), asked(stage, plan=TWO)
    monkeypatch.setenv("COLUMNS", columns)
    lines = stage.inside("trace", "diff", one, two).out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert [line for line in lines if line.startswith("STEP")] == ["STEP 1", "STEP 2", "STEP 3"]
    if columns == "100":
        assert any("alpha, sees question and files only" in line and " | " not in line for line in lines)
        assert any("beta, sees question and files only" in line and " | beta, sees 1" in line for line in lines)
    else:
        assert {
            "  = alpha, sees question and files only",
            "  < beta, sees question and files only",
            "  > beta, sees 1",
        } <= {*lines}


def test_a_comparison_as_json(stage: Stage) -> None:
    """Both runs, and for each step and the whole what is the same."""
    one, two = asked(stage), asked(stage, plan=TWO)
    data = stage.inside("trace", "diff", one, two, "--json").json
    assert [run["run"] for run in data["runs"]] == [one, two]
    assert data["same"] == {"question": True, "mode": True, "conductor": True, "plan": False, "answer": False}
    assert data["steps"][0]["same"] == dict.fromkeys(("worker", "subtask", "access", "text"), True)
    assert [step["same"]["worker"] for step in data["steps"]] == [True, True, False]


def test_a_run_is_run_again_from_a_step_on(stage: Stage) -> None:
    """Earlier steps are not called; the step goes to the other worker; the new run names the old one."""
    one = asked(stage)
    calls = len(stage.server.requests)
    stage.models["beta"] = says("beta answers anew")
    done = stage.inside("trace", "rerun", one, "--from", "3", "--worker", "beta", "--format", "json")
    assert (done.code, done.json["answer"]) == (0, "beta answers anew")
    assert len(stage.server.requests) == calls + 1
    assert "beta answers" in str(stage.server.requests[-1].json)
    assert done.json["run"] != one
    assert [step["worker"] for step in done.json["steps"]] == ["alpha", "beta", "beta"]
    assert f"reusing finished steps 1, 2 of run {one}" in str(done.json["notices"])
    assert stage.inside("trace", "show", one, "--json").json["answer"] == "alpha answers"


def test_a_run_that_takes_steps_over_says_from_which(stage: Stage) -> None:
    """Every way of looking at it tells the first run: fields in JSON, words elsewhere."""
    one = asked(stage)
    again = stage.inside("trace", "rerun", "--from", "3", "--format", "json").json
    assert again["resumed"] == one
    assert [entry["resumed"] for entry in stage.inside("trace", "list", "--json").json] == [one, None]
    assert "again: How many" in stage.inside("trace", "list").out
    assert f"resumes    {one}" in stage.inside("trace", "show").out
    assert f"resumes {one}" in stage.inside("trace", "diff", one, "last").out
    assert f"resumes run {one}" in stage.inside("trace", "export").out
    assert one in stage.inside("trace", "export", "--format", "markdown").out.replace("\\", "")


def test_a_run_is_run_again_under_rules(stage: Stage) -> None:
    """A worker that may not be asked any more is not; another takes its step."""
    one = asked(stage)
    calls = len(stage.asked("beta"))
    done = stage.inside("trace", "rerun", one, "--deny", "beta", "--yes", "--format", "json")
    assert (done.code, len(stage.asked("beta"))) == (0, calls)
    assert {step["worker"] for step in done.json["steps"]} == {"alpha"}


@pytest.mark.parametrize("options", [["--from", "4"], ["--from", "0"], ["--worker", "nobody"], ["--from", "two"]])
def test_what_cannot_be_run_again_is_told_before_anything_is_called(stage: Stage, options: list[str]) -> None:
    """No such step, no such worker: 2, and nobody was asked."""
    one = asked(stage)
    calls = len(stage.server.requests)
    done = stage.inside("trace", "rerun", one, *options)
    explained(done)
    assert (done.code, len(stage.server.requests)) == (2, calls)


def test_a_run_is_exported(stage: Stage, tmp_path: Path) -> None:
    """As a page, Markdown or JSON, by the format, by the name of the file, or to stdout."""
    run = asked(stage)
    page = stage.inside("trace", "export").out
    assert page.startswith("<!doctype html>")
    for name, begins in (("a.html", "<!doctype"), ("a.md", "# How many"), ("a.json", "{")):
        done = stage.inside("trace", "export", run, "--out", tmp_path / name)
        assert (done.code, done.out, done.err) == (0, "", f"wrote {tmp_path / name}\n")
        assert (tmp_path / name).read_text().startswith(begins)
    assert stage.inside("trace", "export", "--format", "html", "--out", tmp_path / "b").code == 0
    assert (tmp_path / "b").read_text() == (tmp_path / "a.html").read_text()
    data = json.loads(stage.inside("trace", "export", "--format", "json").out)
    assert (data["run"], data["question"]["text"], len(data["steps"][0]["prompt"])) == (run, "How many?", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.json", "a.md", "b"]


def test_an_export_that_cannot_be_is_told(stage: Stage, tmp_path: Path) -> None:
    """An unknown extension and a missing directory are usage errors."""
    asked(stage)
    for path in (tmp_path / "a.pdf", tmp_path / "no" / "a.html"):
        done = stage.inside("trace", "export", "--out", path)
        assert done.code == 2
        explained(done)


def test_old_runs_are_pruned(stage: Stage) -> None:
    """By age and number; a dry run deletes nothing, and without a terminal only `--yes` does; what is freed is said."""
    runs = [asked(stage, str(number), "alpha | - | Answer it.") for number in range(4)]
    sizes = [(stage.traces / f"{run}.jsonl").stat().st_size for run in runs]
    assert stage.inside("trace", "prune", "--older-than", "1d", "--yes").out == "deleted 0 runs, 0 bytes\n"
    dry = stage.inside("trace", "prune", "--keep", "2", "--dry-run", "--json").json
    assert [entry["run"] for entry in dry["runs"]] == [runs[1], runs[0]]
    assert (dry["bytes"], dry["deleted"]) == (sizes[0] + sizes[1], False)
    refused = stage.inside("trace", "prune", "--keep", "2")
    explained(refused)
    assert (refused.code, len(list(stage.traces.iterdir()))) == (2, 4)
    assert stage.inside("trace", "prune", "--keep", "2", "--yes").out.startswith("deleted 2 runs, ")
    assert {file.stem for file in stage.traces.iterdir()} == {*runs[2:]}
    assert [entry["run"] for entry in stage.inside("trace", "list", "--json").json] == [runs[3], runs[2]]


def test_pruning_needs_to_know_what_is_old(stage: Stage) -> None:
    """Without an option, and with a time that is none: 2."""
    for options in ([], ["--older-than", "old"], ["--older-than", "1m"], ["--keep", "-1"]):
        done = stage.inside("trace", "prune", *options)
        explained(done)
        assert done.code == 2


def test_a_run_that_goes_on_is_never_pruned(stage: Stage) -> None:
    """It stays, and the command says so."""
    asked(stage, "old", "alpha | - | Answer it.")
    stage.models["alpha"] = stalls("half")
    with stage.start("ask", "hi", "--format", "jsonl") as process:
        until(process.stdout, "step_delta")
        done = stage.inside("trace", "prune", "--keep", "0", "--yes")
        assert "kept 1 run still running\n" in done.err
        assert done.out.startswith("deleted 1 run, ")
        assert [entry["state"] for entry in stage.inside("trace", "list", "--json").json] == ["running"]
        process.terminate()
        finished(process)


def test_names_are_ids_for_a_shell(stage: Stage) -> None:
    """`last` and the newest ids; nothing where nothing is stored."""
    assert stage.inside("trace", "names").out == ""
    run = asked(stage)
    assert stage.inside("trace", "names").out == f"last\n{run}\n"


def test_traces_can_be_looked_at_whatever_the_settings_say(stage: Stage) -> None:
    """A settings file that cannot be read keeps nobody from their runs."""
    run = asked(stage)
    stage.config.write_text("no = [toml")
    for arguments in (["list"], ["search", "many"], ["show"], ["export", "--format", "markdown"]):
        done = stage.inside("trace", *arguments)
        assert (done.code, "many" in done.out) == (0, True), arguments
    assert stage.inside("trace", "path", run).code == 0
    for options in (["--speed", "0"], ["--speed", "0", "--progress", "none"]):  # the quick way and the ordinary one
        done = stage.run("trace", "replay", *options)
        assert (done.code, done.out) == (0, "alpha answers\n")


def test_a_directory_that_is_a_file_is_told(stage: Stage) -> None:
    """Every command that reads the traces names what stands in the way: 2, and no index is made of it."""
    stage.traces.parent.mkdir(parents=True)
    stage.traces.write_text("in the way")
    for arguments in (["list"], ["search", "x"], ["show"], ["prune", "--keep", "1"], ["diff", "last", "last~1"]):
        done = stage.inside("trace", *arguments)
        explained(done)
        assert (done.code, "traces" in done.err) == (2, True)
    assert os.listdir(stage.traces.parent) == ["traces"]  # noqa: PTH208 - names


def test_pruning_asks_on_a_terminal(stage: Stage) -> None:
    """What would go is named; a no keeps it, a yes deletes it."""
    run = asked(stage)
    for answer, left in (("n", 1), ("y", 0)):
        with terminal(stage, "trace", "prune", "--keep", "0") as shown:
            shown.until("Delete 1 run")
            assert run in shown.screen
            shown.program.sendline(answer)
            assert shown.end() == 0
        assert len(list(stage.traces.iterdir())) == left


def test_found_texts_stand_out_on_a_terminal(stage: Stage) -> None:
    """They are bold and underlined there, and plain where no colour is wanted; a list fits the terminal."""
    asked(stage)
    looks: tuple[tuple[dict[str, Any], bool], ...] = (({}, True), ({"NO_COLOR": "1"}, False))
    for env, marked in looks:
        with terminal(stage, "trace", "search", "another", **env) as shown:
            assert shown.end() == 0
            assert ("\x1b[1;4manother\x1b[0m" in shown.raw, "another" in shown.screen) == (marked, True)
    with terminal(stage, "trace", "list", size=(40, 12)) as shown:
        assert shown.end() == 0
        assert "    How many?" in shown.screen.splitlines()
