"""`conductor ask` in its normal use: a real process, models on a loopback server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conductor_cli.core.events import from_line
from conductor_cli.state.trace_file import read_events
from tests.cli.stage import Stage
from tests.traces.stored import trace_bytes


def question_of(stage: Stage, model: str = "alpha") -> str:
    """What a worker was sent, in one text."""
    return "\n".join(message["content"] for message in stage.asked(model)[-1].json["messages"])


def test_a_dash_reads_the_question_from_stdin(stage: Stage) -> None:
    assert stage.inside("ask", "-", given="From a pipe, with ünïcödé ✓\n").code == 0
    assert "From a pipe, with ünïcödé ✓" in question_of(stage)


def test_question_stdin_and_files_come_in_this_order(stage: Stage, tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("content of one")
    two.write_text("content of two")
    assert stage.inside("ask", "Compare", "these", "-f", one, "--file", two, given="piped text").code == 0
    sent = question_of(stage)
    places = [sent.index(text) for text in ("Compare these", "piped text", "content of one", "content of two")]
    assert places == sorted(places)
    assert all(name in sent for name in ("stdin", "one.txt", "two.txt"))


def test_jsonl_is_the_trace(stage: Stage) -> None:
    done = stage.inside("ask", "How many?", "--format", "jsonl")
    run = done.events[0]["run"]
    assert list(read_events(stage.traces / f"{run}.jsonl")) == [from_line(line) for line in done.out.splitlines()]
    assert (done.events[0]["kind"], done.events[-1]["kind"]) == ("run_started", "run_finished")


def test_a_conversation_keeps_its_files_and_its_system_text(stage: Stage, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("content of the note")
    stage.inside("ask", "What does it say?", "-f", note, "--system", "Be brief.")
    stage.inside("ask", "-c", "and why?", "-f", note)
    sent = json.dumps(stage.asked("alpha")[-1].json)
    assert sent.count("content of the note") == 1
    assert "Be brief." in sent
    stage.inside("ask", "-c", "once more", "--system", "Be long.")
    sent = json.dumps(stage.asked("alpha")[-1].json)
    assert "Be long." in sent
    assert "Be brief." not in sent


def test_continue_from_takes_a_run_by_the_beginning_of_its_id(stage: Stage) -> None:
    first = stage.inside("ask", "The first one", "--format", "json").json["run"]
    stage.inside("ask", "The second one")
    assert stage.inside("ask", "--continue-from", first[:-2], "go on").code == 0
    assert "The first one" in question_of(stage)
    assert "The second one" not in question_of(stage)


def test_a_number_after_continue_is_part_of_the_question(stage: Stage) -> None:
    stage.inside("ask", "first")
    stage.inside("ask", "-c", "2026", "was what?")
    assert "2026 was what?" in question_of(stage)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--continue-from", "nope", "go on"), "there is no run 'nope'"),
        (("-c", "20261120-101112-abcdef", "go on"), "conductor ask --continue-from 20261120-101112-abcdef"),
        (("-c", "last~2", "go on"), "conductor ask --continue-from last~2"),
        (("-c", "--continue-from", "last", "go on"), "give one of them"),
        (("--continue=nope", "go on"), "option '--continue' does not take a value"),
    ],
)
def test_a_run_that_cannot_be_continued_is_never_asked_as_a_question(
    stage: Stage, words: tuple[str, ...], said: str
) -> None:
    stage.inside("ask", "first")
    stage.server.requests.clear()
    done = stage.inside("ask", *words)
    assert (done.code, stage.server.requests) == (2, [])
    assert said in done.err


def test_two_dashes_end_the_flags(stage: Stage) -> None:
    assert stage.inside("ask", "--", "-c", "--mode", "is", "what?").code == 0
    assert "-c --mode is what?" in question_of(stage)


def test_no_trace_stores_nothing(stage: Stage) -> None:
    """`--no-trace` stores no trace; what was spent is recorded, without the question and the answer."""
    assert "trace" not in stage.inside("ask", "hi there", "--no-trace", "--progress", "plain").err
    assert list(stage.home.rglob("*.jsonl")) == []
    files = [path for path in (stage.home / "state").rglob("*") if path.is_file()]
    assert files
    stored = b"".join(map(trace_bytes, files))
    assert not [text for text in (b"hi there", b"alpha answers") if text in stored]


def test_an_answer_that_is_not_json_exits_7(stage: Stage, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text("{}")
    stage.ends(7, "ask", "hi", "--schema", schema, told="not JSON")


def test_the_seed_goes_with_every_call(stage: Stage) -> None:
    stage.inside("ask", "hi", "--seed", "7")
    assert [seen.json["seed"] for seen in stage.posts] == [7, 7]


def test_a_disabled_worker_is_not_offered(stage: Stage) -> None:
    stage.configure("[limits]\nattempts = 1\n" + stage.worker("gamma", "enabled = false"))
    stage.inside("ask", "hi")
    assert "gamma" not in json.dumps(stage.asked("planner")[0].json["messages"])
    stage.ends(3, "ask", "hi", "--workers", "gamma", told="disabled")
