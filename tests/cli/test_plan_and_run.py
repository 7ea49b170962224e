"""`conductor plan` and `conductor run`: a plan as a file, through pipes, edited, and wrong."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import THREE, Stage
from tests.cli.test_streams import run_pipeline


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
    edit = shlex.join([sys.executable, "-c", EDIT])
    done = run_pipeline(stage, f'conductor plan "How many?" | {edit} | conductor run -')
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
    stage.configure(conductor=None)
    assert stage.inside("run", file, "--format", "json").json["answer"] == "beta answers"


def test_a_plan_with_a_step_on_the_conductor_needs_one(stage: Stage, tmp_path: Path) -> None:
    file = written(tmp_path)
    stage.configure(conductor=None)
    stage.fails(5, "run", file, "--recursion", "1")


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
    stage.configure(f"[limits]\n{own}", workers={"alpha": "price = { input = 1, output = 1 }"})
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


def written(folder: Path, **more: Any) -> Path:
    plan = {"format": 1, "question": "How many?", "steps": [{"worker": "alpha", "subtask": "Answer.", "access": []}]}
    file = folder / "plan.json"
    file.write_text(json.dumps(plan | more))
    return file


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown worker": ({"steps": [{"worker": "zeta", "subtask": "x"}]}, "zeta"),
    "a later step": ({"steps": [{"worker": "alpha", "subtask": "x", "access": [1]}]}, "itself or a later step"),
    "no steps": ({"steps": []}, "at least one step"),
    "an empty question": ({"question": " "}, "its question is empty"),
    "an unknown limit": ({"limits": {"weight": 1}}, "weight"),
    "a limit out of bounds": ({"limits": {"steps": 99}}, "limits.steps is 99"),
    "a limit of another type": ({"limits": {"cost": "cheap"}}, "limits.cost"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_plan_is_refused_with_the_place(stage: Stage, tmp_path: Path, what: str) -> None:
    change, said = WRONG[what]
    stage.costs_nothing(2, "run", written(tmp_path, **change), told=said)


@pytest.mark.parametrize("text", ["", "no json", "[" * 100_000])
def test_a_file_that_is_not_a_plan_is_refused(stage: Stage, text: str) -> None:
    assert ("stdin is not a plan" if text else "stdin is empty") in stage.fails(2, "run", "-", given=text).err


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_plan_that_cannot_be_read_is_named(stage: Stage, tmp_path: Path, name: str) -> None:
    stage.fails(2, "run", tmp_path / name)
