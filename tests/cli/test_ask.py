"""`conductor ask` in its normal use, with models on a loopback server.

Also `plan`, `run`, and several files.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from conductor_cli.cli.typer_classes import with_each_file
from conductor_cli.core.errors import UsageError
from conductor_cli.core.events import Event, from_line, text_size_of_event
from conductor_cli.state.trace_file import TraceWriter, read_events
from conductor_cli.system.threads import LARGE_SIZE
from tests.cli.stage import PLANNER, THREE, Stage, says
from tests.cli.test_streams import run_pipeline
from tests.traces.stored import trace_bytes


def question_of(stage: Stage, model: str = "alpha") -> str:
    """What a worker was sent, in one text."""
    return "\n".join(message["content"] for message in stage.asked(model)[-1].json["messages"])


@pytest.mark.parametrize(
    ("words", "given", "question"),
    [
        (("-",), "From a pipe, with ünïcödé ✓\n", "From a pipe, with ünïcödé ✓"),
        (("-c", "2026", "was what?"), "", "2026 was what?"),
        (("--", "-c", "--mode", "is", "what?"), "", "-c --mode is what?"),
    ],
    ids=[
        "a dash reads it from stdin",
        "a number after -c is part of it",
        "two dashes end the flags",
    ],
)
def test_words_and_stdin_make_the_question(
    stage: Stage, words: tuple[str, ...], given: str, question: str
) -> None:
    stage.inside("ask", "first")
    stage.ok("ask", *words, given=given)
    assert question in question_of(stage)


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_standard_input_is_one_file_by_each_of_its_names(stage: Stage, name: str) -> None:
    done = stage.ok("ask", "-m", "alpha", "What?", "-f", name, given="piped text")
    assert done.err == ""
    sent = stage.asked("alpha")[0].json["messages"][-1]["content"]
    assert (sent.count("piped text"), sent.count("<file-")) == (1, 1)


def test_question_stdin_and_files_come_in_this_order(stage: Stage, tmp_path: Path) -> None:
    first = tmp_path / "one.txt"
    second = tmp_path / "two.txt"
    first.write_text("content of one")
    second.write_text("content of two")
    assert (
        stage.inside(
            "ask", "Compare", "these", "-f", first, "--file", second, given="piped text"
        ).code
        == 0
    )
    sent = question_of(stage)
    places = [
        sent.index(text)
        for text in ("Compare these", "piped text", "content of one", "content of two")
    ]
    assert places == sorted(places)
    assert all(name in sent for name in ("stdin", "one.txt", "two.txt"))


def test_jsonl_is_the_trace(stage: Stage) -> None:
    done = stage.inside("ask", "How many?", "--format", "jsonl")
    run = done.events[0]["run"]
    assert list(read_events(stage.traces / f"{run}.jsonl")) == [
        from_line(line) for line in done.out.splitlines()
    ]
    assert (done.events[0]["kind"], done.events[-1]["kind"]) == ("run_started", "run_finished")


def test_large_events_are_written_to_the_trace_beside_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt of a step too, which is as long as the question: else all streams would wait."""
    write = TraceWriter.write
    written = list[tuple[str, bool, bool]]()

    def watched(self: TraceWriter, event: Event) -> None:
        is_beside = threading.current_thread().name.startswith("large")
        written.append((event.kind, text_size_of_event(event) > LARGE_SIZE, is_beside))
        write(self, event)

    monkeypatch.setattr(TraceWriter, "write", watched)
    stage.ok("ask", "-", given="word " * (LARGE_SIZE // 4))
    assert {kind for kind, is_large, _ in written if is_large} >= {"run_started", "step_started"}
    assert [kind for kind, is_large, is_beside in written if is_large != is_beside] == []
    (path,) = stage.traces.glob("*.jsonl")
    assert [event.kind for event in read_events(path)] == [kind for kind, _, _ in written]


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


def test_continue_means_the_run_that_was_begun_last_whatever_the_clock_said(stage: Stage) -> None:
    stage.ok("ask", "-m", "alpha", "the first")
    (file,) = stage.traces.iterdir()
    later = f"2999{file.stem[4:]}"
    lines = trace_bytes(file).replace(file.stem.encode(), later.encode())
    file.with_stem(later).write_bytes(lines)
    file.unlink()
    stage.ok("ask", "-m", "alpha", "the second")
    stage.ok("ask", "-m", "alpha", "--continue", "the third")
    text = stage.asked("alpha")[-1].json["messages"][-1]["content"]
    assert "the second" in text
    assert "the first" not in text


def test_continue_from_takes_a_run_by_the_beginning_of_its_id(stage: Stage) -> None:
    first = stage.inside("ask", "The first one", "--format", "json").json["run"]
    stage.inside("ask", "The second one")
    assert stage.inside("ask", "--continue-from", first[:-2], "go on").code == 0
    assert "The first one" in question_of(stage)
    assert "The second one" not in question_of(stage)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--continue-from", "nope", "go on"), "there is no run 'nope'"),
        (
            ("-c", "20261120-101112-abcdef", "go on"),
            "conductor ask --continue-from 20261120-101112-abcdef",
        ),
        (("-c", "last~2", "go on"), "conductor ask --continue-from last~2"),
        (("-c", "--continue-from", "last", "go on"), "give one of them"),
        (("--continue=nope", "go on"), "option '--continue' does not take a value"),
    ],
)
def test_what_cannot_be_continued_is_never_a_question(
    stage: Stage, words: tuple[str, ...], message: str
) -> None:
    stage.inside("ask", "first")
    stage.server.requests.clear()
    stage.costs_nothing(2, "ask", *words, told=message)


def test_no_trace_stores_nothing(stage: Stage) -> None:
    """`--no-trace` stores no trace.

    What was spent is recorded, without the question and the answer.
    """
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


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity"])
def test_a_number_that_no_other_program_reads_is_no_part_of_a_schema(
    stage: Stage, tmp_path: Path, number: str
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(f'{{"properties": {{"a": {{"maximum": {number}}}}}}}')
    done = stage.costs_nothing(2, "ask", "hi", "--schema", schema)
    assert f"is not JSON: {number} is" in done.err


def test_a_schema_that_is_none_is_told_before_anybody_is_asked(
    stage: Stage, tmp_path: Path
) -> None:
    """No answer could be held to it, and each would look as if it was."""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "record", "pattern": "a"}')
    done = stage.costs_nothing(2, "ask", "hi", "--schema", schema)
    assert 'is not a valid JSON Schema: at type: "record" is not valid' in done.err


def test_an_answer_with_a_number_beyond_all_others_keeps_no_bound(
    stage: Stage, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"properties": {"a": {"maximum": 5}}}')
    stage.models["alpha"] = says('{"a": 1e999}')
    told = "1e999 is larger than any number"
    stage.ends(7, "ask", "hi", "-m", "alpha", "--schema", schema, told=told)


def test_the_seed_goes_with_every_call(stage: Stage) -> None:
    stage.inside("ask", "hi", "--seed", "7")
    assert [request.json["seed"] for request in stage.posts] == [7, 7]


def test_a_disabled_worker_is_not_offered(stage: Stage) -> None:
    stage.configure("[limits]\nattempts = 1\n" + stage.worker("gamma", "enabled = false"))
    stage.inside("ask", "hi")
    assert "gamma" not in json.dumps(stage.asked("planner")[0].json["messages"])
    stage.ends(3, "ask", "hi", "--workers", "gamma", told="disabled")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files, one with a space in its name, and a directory."""
    directory = tmp_path / "folder"
    (directory / "docs").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "my notes.md", "make"):
        directory.joinpath(name).write_text(f"in {name}")
    monkeypatch.chdir(directory)
    return directory


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("Compare -f a.txt b.txt", "Compare -f a.txt -f b.txt"),
        (
            "-f a.txt 'my notes.md' 'Which is better?'",
            "-f a.txt -f 'my notes.md' 'Which is better?'",
        ),
        ("--file a.txt b.txt --mode mini", "--file a.txt --file b.txt --mode mini"),
        ("-f a.txt make it shorter", "-f a.txt -f make it shorter"),
        ("-f a.txt -- make it shorter", "-f a.txt -- make it shorter"),
        ("-f a.txt -", "-f a.txt -"),
        ("-f a.txt is b.txt better", "-f a.txt is b.txt better"),
        ("Compare a.txt b.txt", "Compare a.txt b.txt"),
        ("-- -f a.txt b.txt", "-- -f a.txt b.txt"),
        ("-f a.txt https://example.com/x Why?", "-f a.txt -f https://example.com/x Why?"),
    ],
)
def test_files_after_a_file_are_files(folder: Path, given: str, meant: str) -> None:
    assert with_each_file(shlex.split(given), ("-f", "--file")) == shlex.split(meant)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("-f a.txt c.txt", "there is no file c.txt"),
        ("-f a.txt *.rst", "there is no file *.rst"),
        ("-f a.txt src/main", "there is no file src/main"),
        ("-f a.txt docs", "docs is a directory"),
    ],
)
def test_what_looks_like_a_file_and_is_none_is_refused(
    folder: Path, given: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        with_each_file(given.split(), ("-f",))
    assert error.value.message == message
    assert "words of the question go before -f, or after --" in error.value.hint


def test_words_that_name_files_are_told(stage: Stage, folder: Path) -> None:
    stderr = stage.inside("ask", "Compare", "a.txt", "b.txt", "make", "docs", "c.txt").err
    assert stderr.startswith(
        "a.txt, b.txt are read as a part of the question; to attach a file: -f a.txt\n"
    )
    assert stage.inside("ask", "what is make?").err == ""
    assert stage.inside("ask", "Compare", "-f", "a.txt", "b.txt", "-q").err == ""
    many = [str(shutil.copy("a.txt", f"{number}.txt")) for number in range(6)]
    assert (
        "6 files are attached: 0.txt, 1.txt, 2.txt, 3.txt and 2 more\n"
        in stage.inside("ask", "?", "-f", *many).err
    )


def test_a_missing_file_asks_nobody(stage: Stage, folder: Path) -> None:
    stage.costs_nothing(2, "ask", "Compare", "-f", "a.txt", "c.txt")


def test_plan_writes_a_plan_file_and_calls_no_worker(stage: Stage) -> None:
    stage.plan = THREE
    done = stage.ok("plan", "How many?")
    assert done.json["question"] == "How many?"
    assert [(s["worker"], s["access"]) for s in done.json["steps"]] == [
        ("alpha", []),
        ("beta", []),
        ("alpha", [1, 2]),
    ]
    assert done.err.startswith("PLAN  3 steps\n")
    assert "estimate: 3 calls, " in done.err
    assert stage.asked("alpha") == stage.asked("beta") == []


def test_quiet_leaves_the_estimate_out(stage: Stage) -> None:
    done = stage.inside("--quiet", "plan", "hi")
    assert (done.code, done.err) == (0, "")
    assert done.json["steps"]


EDIT = """import json, sys
plan = json.load(sys.stdin)
plan['steps'] = [plan['steps'][1] | {'access': []}]
json.dump(plan, sys.stdout)
"""


def test_a_plan_goes_through_a_pipe(stage: Stage) -> None:
    stage.plan = "alpha | - | Find it out.\nbeta | 1 | Answer."  # the answer must wait for both
    edit = shlex.join([sys.executable, "-c", EDIT])
    done = run_pipeline(stage, f'conductor plan "How many?" | {edit} | conductor run -')
    assert (done.returncode, done.stdout) == (0, "beta answers\n")
    assert stage.asked("alpha") == []
    assert len(stage.asked("planner")) == 1


def test_a_plan_runs_for_another_question_and_other_files(stage: Stage, tmp_path: Path) -> None:
    plan = {
        "question": {
            "text": "How many?",
            "system": "Be brief.",
            "files": [{"name": "old.txt", "text": "old text"}],
        },
        "steps": [{"worker": "beta", "subtask": "Answer."}],
    }
    file = written(tmp_path, **plan)
    (tmp_path / "new.txt").write_text("new text")
    assert stage.inside("run", file, "How", "few?", "-f", tmp_path / "new.txt").code == 0
    assert stage.inside("run", file, "-", given="piped text").code == 0
    replaced, piped = (json.dumps(request.json["messages"]) for request in stage.asked("beta"))
    assert all(text in replaced for text in ("How few?", "new text", "new.txt", "Be brief."))
    assert not any(text in replaced for text in ("old text", "How many?"))
    assert all(text in piped for text in ("How many?", "piped text"))
    assert "old text" not in piped


def test_stdin_is_either_the_plan_or_a_file(stage: Stage) -> None:
    done = stage.ends(2, "run", "-", "-", given=json.dumps({"question": "q", "steps": []}))
    assert "stdin cannot be the plan and a file" in done.err


def test_run_takes_a_file_and_needs_no_conductor_model(stage: Stage, tmp_path: Path) -> None:
    file = written(tmp_path, steps=[{"worker": "beta", "subtask": "Answer."}])
    stage.configure(conductor=None)
    assert stage.inside("run", file, "--format", "json").json["answer"] == "beta answers"


def test_a_plan_with_a_step_on_the_conductor_needs_one(stage: Stage, tmp_path: Path) -> None:
    file = written(tmp_path)
    stage.configure(conductor=None)
    stage.fails(5, "run", file, "--review", "1")


THREE_STEPS = [
    {"worker": "alpha", "subtask": f"part {number}", "access": list(range(1, number))}
    for number in (1, 2, 3)
]


@pytest.mark.parametrize(
    ("own_limit", "plan", "code", "calls"),
    [
        ("calls = 2", {"calls": 1000}, 6, 2),
        ('cost = "0.00001"', {"cost": "1000"}, 6, 0),
        ('cost = "0.00001"', {"cost": 1000.0}, 6, 0),
        ("tokens = 300", {"tokens": 10**9}, 6, 0),
        ("calls = 3", {"calls": 2}, 6, 2),
        ("calls = 3", {"calls": None}, 0, 3),
        ("attempts = 1", {"attempts": 50, "parallel": 500, "review": 3}, 0, 3),
    ],
    ids=["calls", "cost", "cost as a number", "tokens", "lower", "none", "without flags"],
)
def test_a_plan_file_cannot_raise_a_limit(
    stage: Stage, tmp_path: Path, own_limit: str, plan: dict[str, Any], code: int, calls: int
) -> None:
    stage.configure(
        f"[limits]\n{own_limit}", workers={"alpha": "price = { input = 1, output = 1 }"}
    )
    done = stage.inside("run", written(tmp_path, steps=THREE_STEPS, limits=plan))
    assert (done.code, len(stage.asked("alpha"))) == (code, calls)
    questions = [f"asks for limits.{name} = " for name in plan]
    lines = [line for line in questions if line in done.err]
    assert lines == ([] if plan in ({"calls": 2}, {"calls": None}) else questions)


def test_a_plan_that_asks_for_more_names_the_option_that_allows_it(
    stage: Stage, tmp_path: Path
) -> None:
    stage.configure("[limits]\ncalls = 2\nattempts = 1")
    file = written(tmp_path, steps=THREE_STEPS, limits={"calls": 9, "attempts": 5})
    done = stage.inside("run", file)
    assert (
        f"{file} asks for limits.calls = 9; yours is 2 and stays. To allow it: --max-calls 9\n"
        in done.err
    )
    assert "To allow it: conductor config set limits.attempts 5\n" in done.err
    assert stage.ok("-q", "run", file, "--max-calls", "9").err == ""


def written(folder: Path, **fields: Any) -> Path:
    plan = {
        "format": 1,
        "question": "How many?",
        "steps": [{"worker": "alpha", "subtask": "Answer.", "access": []}],
    }
    file = folder / "plan.json"
    file.write_text(json.dumps(plan | fields))
    return file


WRONG_PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown worker": ({"steps": [{"worker": "zeta", "subtask": "x"}]}, "zeta"),
    "a later step": (
        {"steps": [{"worker": "alpha", "subtask": "x", "access": [1]}]},
        "itself or a later step",
    ),
    "no steps": ({"steps": []}, "at least one step"),
    "an empty question": ({"question": " "}, "its question is empty"),
    "an unknown limit": ({"limits": {"weight": 1}}, "weight"),
    "a limit out of bounds": ({"limits": {"steps": 99}}, "limits.steps is 99"),
    "a limit of another type": ({"limits": {"cost": "cheap"}}, "limits.cost"),
}


@pytest.mark.parametrize("case_name", WRONG_PLANS)
def test_a_wrong_plan_is_refused_with_the_place(
    stage: Stage, tmp_path: Path, case_name: str
) -> None:
    change, message = WRONG_PLANS[case_name]
    stage.costs_nothing(2, "run", written(tmp_path, **change), told=message)


@pytest.mark.parametrize("text", ["", "no json", "[" * 100_000])
def test_a_file_that_is_not_a_plan_is_refused(stage: Stage, text: str) -> None:
    assert ("stdin is not a plan" if text else "stdin is empty") in stage.fails(
        2, "run", "-", given=text
    ).err


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_plan_that_cannot_be_read_is_named(stage: Stage, tmp_path: Path, name: str) -> None:
    stage.fails(2, "run", tmp_path / name)


@pytest.mark.parametrize("flags", [("--workers", "beta"), ("--workers", "beta", "--mode", "mini")])
def test_a_single_worker_is_asked_once_and_nothing_is_planned(
    stage: Stage, flags: tuple[str, ...]
) -> None:
    stage.configure(conductor=None)
    stage.ok("ask", "Why?", *flags, out="beta answers\n")
    [request] = stage.posts
    assert request.json["model"] == "beta"


@pytest.mark.parametrize("flags", [("--review", "1"), ("--mode", "ultra")])
def test_one_worker_is_planned_for_where_more_thought_is_asked_for(
    stage: Stage, flags: tuple[str, ...]
) -> None:
    stage.ok("ask", "Why?", "--workers", "alpha", *flags)
    assert stage.asked(PLANNER) != []


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "text"}',
        '{"type": "string", "minLength": "x"}',
        '{"$ref": "https://example.com/answer.json"}',
        '{"type": "string", "pattern": "("}',
    ],
)
def test_a_schema_that_is_none_is_refused_before_any_call(
    stage: Stage, tmp_path: Path, schema: str
) -> None:
    """Nothing could be checked by it, so any JSON would pass."""
    path = tmp_path / "schema.json"
    path.write_text(schema)
    stage.fails(2, "ask", "hi", "--schema", path, told="is not a valid JSON Schema")
    assert stage.posts == []


def test_the_schema_of_a_template_that_is_none_is_refused(stage: Stage) -> None:
    templates = stage.config.parent / "templates"
    templates.mkdir(parents=True)
    (templates / "t.toml").write_text('question = "hi"\n[schema]\ntype = "text"\n')
    stage.fails(2, "ask", "-t", "t", told="is not a valid JSON Schema")
    assert stage.posts == []
