"""`conductor trace` rerun, export, rm, and the filters of list."""

from __future__ import annotations

import os

import pytest

from tests.cli.stage import THREE, TWO, Stage, explained, says
from tests.cli.terminals import terminal


def asked(stage: Stage, question: str = "How many?", plan: str = THREE) -> str:
    stage.plan = plan
    return str(stage.inside("ask", question, "--format", "json").json["run"])


def test_list_can_be_filtered(stage: Stage) -> None:
    """By state, worker and time; no match is reported."""
    one = asked(stage, "first", "alpha | - | Answer it.")
    two = asked(stage, "second", TWO)
    for options, runs in (
        (["--worker", "beta"], [two]), (["--worker", "alpha"], [two, one]), (["--state", "failed"], []),
        (["--since", "1h"], [two, one]),
        (["--since", "2999-01-01"], []), (["--state", "finished", "-n", "1"], [two]),
    ):  # fmt: skip
        assert [entry["run"] for entry in stage.inside("trace", "list", *options, "--json").json] == runs, options
    assert stage.inside("trace", "list", "--state", "failed").err == "no matching runs\n"


@pytest.mark.parametrize("options", [["--state", "odd"], ["--since", "soon"], ["--since", "30m"]])
def test_invalid_filters_are_usage_errors(stage: Stage, options: list[str]) -> None:
    stage.fails(2, "trace", "list", *options)


def test_search_shows_the_matching_texts(stage: Stage) -> None:
    run = asked(stage)
    out = stage.inside("trace", "list", "another", "WAY").out
    assert run in out
    assert "    subtask 2: Find it out in another way." in out
    (entry,) = stage.inside("trace", "list", "alpha answers", "--json").json
    assert {hit["in"] for hit in entry["hits"]} == {"answer 1", "answer 3"}
    assert stage.inside("trace", "list", " ").code == 2


def test_show_can_include_prompts(stage: Stage) -> None:
    """`--prompts` adds what each worker was sent to the text and to the JSON."""
    asked(stage)
    assert "prompt (user):" not in stage.inside("trace", "show").out
    out = stage.inside("trace", "show", "--prompts").out
    assert out.count("prompt (user):") == 3
    steps = stage.inside("trace", "show", "--prompts", "--json").json["steps"]
    assert all(step["prompt"][-1]["content"] for step in steps)


def test_rerun_starts_at_a_step(stage: Stage) -> None:
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
    shown = stage.ok("trace", "show", done.json["run"]).out
    assert (shown.count("✓ reused"), shown.count("0.0 s   0 tokens")) == (2, 0)
    assert stage.inside("trace", "show", one, "--json").json["answer"] == "alpha answers"


def test_a_rerun_names_the_first_run(stage: Stage) -> None:
    one = asked(stage)
    again = stage.inside("trace", "rerun", "--from", "3", "--format", "json").json
    assert again["resumed"] == one
    assert [entry["resumed"] for entry in stage.inside("trace", "list", "--json").json] == [one, None]
    assert "again: How many" in stage.inside("trace", "list").out
    assert f"resumes    {one}" in stage.inside("trace", "show").out
    assert f"resumes run {one}" in stage.inside("trace", "export").out


def test_rerun_follows_policy_rules(stage: Stage) -> None:
    """Another worker takes the step of one that is now denied."""
    one = asked(stage)
    calls = len(stage.asked("beta"))
    done = stage.inside("trace", "rerun", one, "--deny", "beta", "--no-approve", "--format", "json")
    assert (done.code, len(stage.asked("beta"))) == (0, calls)
    assert {step["worker"] for step in done.json["steps"]} == {"alpha"}


@pytest.mark.parametrize("options", [["--from", "4"], ["--from", "0"], ["--worker", "nobody"], ["--from", "two"]])
def test_an_invalid_rerun_calls_nobody(stage: Stage, options: list[str]) -> None:
    one = asked(stage)
    calls = len(stage.server.requests)
    done = stage.inside("trace", "rerun", one, *options)
    explained(done)
    assert (done.code, len(stage.server.requests)) == (2, calls)


def test_a_run_can_be_exported(stage: Stage) -> None:
    asked(stage)
    assert stage.inside("trace", "export").out.startswith("<!doctype html>")


def test_old_runs_are_deleted_by_age_and_number(stage: Stage) -> None:
    """By age and number. A dry run deletes nothing, and without a terminal `--yes` is needed."""
    runs = [asked(stage, str(number), "alpha | - | Answer it.") for number in range(4)]
    assert stage.inside("trace", "rm", "--older-than", "1d", "--yes").out == "deleted 0 runs\n"
    dry = stage.inside("trace", "rm", "--keep", "2", "--dry-run").out.splitlines()
    assert [line.split()[0] for line in dry] == [runs[1], runs[0], "would"]
    refused = stage.inside("trace", "rm", "--keep", "2")
    explained(refused)
    assert (refused.code, len(list(stage.traces.iterdir()))) == (2, 4)
    assert stage.inside("trace", "rm", "--keep", "2", "--yes").out == "deleted 2 runs\n"
    assert {file.stem for file in stage.traces.iterdir()} == {*runs[2:]}
    assert [entry["run"] for entry in stage.inside("trace", "list", "--json").json] == [runs[3], runs[2]]


def test_a_removal_names_runs_or_says_which_are_old(stage: Stage) -> None:
    wrong: list[list[str]] = [[], ["last", "--keep", "1"], ["last", "--dry-run"]]
    for options in (*wrong, ["--older-than", "old"], ["--older-than", "1m"], ["--keep", "-1"]):
        stage.fails(2, "trace", "rm", *options)


def test_traces_can_be_shown_with_broken_settings(stage: Stage) -> None:
    asked(stage)
    stage.config.write_text("no = [toml")
    for arguments in (["list"], ["list", "many"], ["show"], ["export"]):
        done = stage.inside("trace", *arguments)
        assert (done.code, "many" in done.out) == (0, True), arguments
    for options in (["--speed", "0"], ["--speed", "0", "--progress", "none"]):  # the quick way and the ordinary one
        assert stage.ok("trace", "replay", *options).out == "alpha answers\n"


def test_a_file_in_place_of_the_directory_is_an_error(stage: Stage) -> None:
    stage.traces.parent.mkdir(parents=True)
    stage.traces.write_text("in the way")
    for arguments in (["list"], ["list", "x"], ["show"], ["rm", "--keep", "1"]):
        stage.fails(2, "trace", *arguments, told="traces")
    assert os.listdir(stage.traces.parent) == ["traces"]  # noqa: PTH208 - names


def test_a_removal_of_old_runs_asks_on_a_terminal(stage: Stage) -> None:
    asked(stage)
    for answer, left in (("n", 1), ("y", 0)):
        with terminal(stage, "trace", "rm", "--keep", "0") as shown:
            shown.until("Delete 1 run")
            shown.program.sendline(answer)
            assert shown.end() == 0
        assert len(list(stage.traces.iterdir())) == left
