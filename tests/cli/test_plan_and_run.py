"""`conductor plan` and `conductor run`: a plan as a file, through pipes, edited, and wrong."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import COMMAND, THREE, TWO, Stage


def test_plan_writes_a_plan_file_and_calls_no_worker(stage: Stage) -> None:
    stage.plan = THREE
    done = stage.ok("plan", "How many?")
    assert done.json["question"] == "How many?"
    assert [(s["worker"], s["access"]) for s in done.json["steps"]] == [("alpha", []), ("beta", []), ("alpha", [1, 2])]
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
    setting = f'set -o pipefail; conductor() {{ {shlex.join(COMMAND)} "$@"; }}'
    script = f'{setting}; conductor plan "How many?" | {shlex.join([sys.executable, "-c", EDIT])} | conductor run -'
    done = subprocess.run(
        ["bash", "-c", script],
        env=stage.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "beta answers\n")
    assert stage.asked("alpha") == []
    assert len(stage.asked("planner")) == 1


def test_a_plan_runs_for_another_question_and_other_files(stage: Stage, tmp_path: Path) -> None:
    plan = {
        "question": {"text": "How many?", "system": "Be brief.", "files": [{"name": "old.txt", "text": "old text"}]},
        "steps": [{"worker": "beta", "subtask": "Answer."}],
    }
    file = written(tmp_path, **plan)
    (tmp_path / "new.txt").write_text("new text")
    assert stage.inside("run", file, "How", "few?", "-f", tmp_path / "new.txt").code == 0
    assert stage.inside("run", file, "-", given="piped text").code == 0
    replaced, piped = (json.dumps(seen.json["messages"]) for seen in stage.asked("beta"))
    assert all(text in replaced for text in ("How few?", "new text", "new.txt", "Be brief."))
    assert not any(text in replaced for text in ("old text", "How many?"))
    assert all(text in piped for text in ("How many?", "piped text"))
    assert "old text" not in piped


def test_stdin_is_either_the_plan_or_a_file(stage: Stage) -> None:
    done = stage.ends(2, "run", "-", "-", given=json.dumps({"question": "q", "steps": []}))
    assert "stdin cannot be the plan and a file" in done.err


def test_run_takes_a_file_and_needs_no_conductor_model(stage: Stage, tmp_path: Path) -> None:
    file = written(tmp_path, steps=[{"worker": "beta", "subtask": "Answer."}])
    stage.configure(conductor="-")
    stage.config.write_text(stage.config.read_text().replace('model = "-"', 'model = ""'))
    assert stage.inside("run", file, "--format", "json").json["answer"] == "beta answers"


def test_a_plan_with_a_step_on_the_conductor_needs_one(stage: Stage, tmp_path: Path) -> None:
    file = written(tmp_path)
    stage.config.write_text(stage.config.read_text().replace("[conductor]\nmodel", "[conductor]\n#"))
    stage.fails(5, "run", file, "--recursion", "1")


def test_a_plan_is_reviewed_once(stage: Stage) -> None:
    stage.configure("[limits]\nrecursion = 1")
    stage.plan = TWO
    plan = stage.inside("plan", "hi")
    assert [step["worker"] for step in plan.json["steps"]] == ["alpha", "beta"]
    done = stage.inside("run", "-", "--format", "json", given=plan.out)
    assert [step["worker"] for step in done.json["steps"]] == ["alpha", "beta", "self"]


def test_limits_of_a_plan_file_hold_and_flags_win(stage: Stage, tmp_path: Path) -> None:
    steps = [{"worker": "alpha", "subtask": "x"}, {"worker": "beta", "subtask": "y", "access": [1]}]
    file = written(tmp_path, steps=steps, limits={"calls": 1})
    assert stage.inside("run", file).code == 6
    assert stage.inside("run", file, "--max-calls", "2").code == 0


THREE_STEPS = [
    {"worker": "alpha", "subtask": f"part {number}", "access": list(range(1, number))} for number in (1, 2, 3)
]


@pytest.mark.parametrize(
    ("own", "plan", "code", "calls"),
    [
        ("calls = 2", {"calls": 1000}, 6, 2),
        ('cost = "0.00001"', {"cost": "1000"}, 6, 0),
        ('cost = "0.00001"', {"cost": 1000.0}, 6, 0),
        ("tokens = 300", {"tokens": 10**9}, 6, 0),
        ("calls = 3", {"calls": 2}, 6, 2),
        ("calls = 3", {"calls": None}, 0, 3),
        ("attempts = 1", {"attempts": 50, "parallel": 500, "recursion": 3}, 0, 3),
    ],
    ids=["calls", "cost", "cost as a number", "tokens", "lower", "none", "without flags"],
)
def test_a_plan_file_cannot_raise_a_limit(
    stage: Stage, tmp_path: Path, own: str, plan: dict[str, Any], code: int, calls: int
) -> None:
    stage.configure(f"[limits]\n{own}", workers=())
    priced = stage.worker("alpha", "price = { input = 1, output = 1 }\n")
    stage.config.write_text(stage.config.read_text() + priced)
    done = stage.inside("run", written(tmp_path, steps=THREE_STEPS, limits=plan))
    assert (done.code, len(stage.asked("alpha"))) == (code, calls)
    asked = [f"asks for limits.{name} = " for name in plan]
    told = [line for line in asked if line in done.err]
    assert told == ([] if plan in ({"calls": 2}, {"calls": None}) else asked)


def test_how_to_allow_what_a_plan_asks_for(stage: Stage, tmp_path: Path) -> None:
    stage.configure("[limits]\ncalls = 2\nattempts = 1")
    file = written(tmp_path, steps=THREE_STEPS, limits={"calls": 9, "attempts": 5})
    done = stage.inside("run", file)
    assert f"{file} asks for limits.calls = 9; yours is 2 and stays. To allow it: --max-calls 9\n" in done.err
    assert "To allow it: conductor config set limits.attempts 5\n" in done.err
    assert stage.ok("-q", "run", file, "--max-calls", "9").err == ""


def test_the_question_of_a_plan_keeps_its_files(stage: Stage, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("content of the note")
    plan = stage.inside("plan", "What does it say?", "-f", note, "--system", "Be brief.")
    stage.inside("run", "-", given=plan.out)
    sent = json.dumps(stage.asked("alpha")[0].json)
    assert "content of the note" in sent
    assert "Be brief." in sent


def written(folder: Path, **more: Any) -> Path:
    plan = {"format": 1, "question": "How many?", "steps": [{"worker": "alpha", "subtask": "Answer.", "access": []}]}
    file = folder / "plan.json"
    file.write_text(json.dumps(plan | more))
    return file


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown worker": ({"steps": [{"worker": "zeta", "subtask": "x"}]}, "zeta"),
    "a later step": ({"steps": [{"worker": "alpha", "subtask": "x", "access": [1]}]}, "itself or a later step"),
    "an empty subtask": ({"steps": [{"worker": "alpha", "subtask": " "}]}, "empty subtask"),
    "no steps": ({"steps": []}, "at least one step"),
    "six steps": ({"steps": [{"worker": "alpha", "subtask": "x"}] * 6}, "limit of 5"),
    "steps that are none": ({"steps": "alpha"}, "steps: expected a list"),
    "an empty question": ({"question": " "}, "its question is empty"),
    "another format": ({"format": 2}, "format 2"),
    "an unknown limit": ({"limits": {"weight": 1}}, "weight"),
    "a limit out of bounds": ({"limits": {"steps": 99}}, "limits.steps is 99"),
    "a limit of another type": ({"limits": {"cost": "cheap"}}, "limits.cost"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_plan_is_refused_with_the_place(stage: Stage, tmp_path: Path, what: str) -> None:
    change, said = WRONG[what]
    stage.fails(2, "run", written(tmp_path, **change), told=said)
    assert stage.server.requests == []


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", '{"a": 1}', "null", "[" * 100_000, '{"steps": 1, "question": 2}']
)
def test_a_file_that_is_not_a_plan_is_refused(stage: Stage, text: str) -> None:
    assert ("stdin is not a plan" if text else "stdin is empty") in stage.fails(2, "run", "-", given=text).err


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_plan_that_cannot_be_read_is_named(stage: Stage, tmp_path: Path, name: str) -> None:
    stage.fails(2, "run", tmp_path / name)
