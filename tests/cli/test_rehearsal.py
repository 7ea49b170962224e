"""`--rehearsal`: the models that ship with the package do the work, planned by the one that was trained to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.cli.stage import Stage, says

QUESTION: Final = "Find the capital of Japan, then spell it backwards."


def test_the_demo_needs_no_configuration(stage: Stage) -> None:
    done = stage.ok("ask", "--rehearsal", QUESTION, "--format", "json")
    said = json.loads(done.out)
    assert said["answer"] == "OYKOT"
    assert [(step["worker"], step["access"]) for step in said["steps"]] == [("geography", []), ("spelling", [1])]
    assert stage.server.requests == []


@pytest.mark.parametrize("command", ["ask", "plan"])
def test_other_questions_are_refused_with_what_the_demo_can_do(stage: Stage, command: str) -> None:
    done = stage.ends(2, command, "--rehearsal", "Who wrote the Iliad?")
    assert "the demo models only handle letters" in done.err
    assert "conductor setup" in done.err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["-f", "notes.txt"], "read only the question"), (["--system", "Be brief."], "read only the question"),
        (["--mode", "ultra"], "trained to plan"),
    ],
)  # fmt: skip
def test_what_the_demo_models_cannot_do_is_refused(stage: Stage, tmp_path: Path, more: list[str], told: str) -> None:
    (tmp_path / "notes.txt").write_text("Tokyo")
    stage.fails(2, "ask", "--rehearsal", QUESTION, *more, cwd=tmp_path, told=told)


def test_a_stopped_demo_run_is_resumed_by_the_demo_models(stage: Stage) -> None:
    plan = stage.inside("plan", "--rehearsal", QUESTION).out
    stopped = stage.inside("run", "-", "--rehearsal", "--max-calls", "1", given=plan)
    assert (stopped.code, stopped.out.strip()) == (6, "TOKYO")
    assert stage.ok("ask", "--resume", "last").out.strip() == "OYKOT"
    assert stage.server.requests == []


def test_a_worker_that_cannot_do_its_step_says_so(stage: Stage) -> None:
    steps = [{"worker": "opposites", "subtask": "capital of FRANCE", "access": []}]
    plan = json.dumps({"format": 1, "question": "capital of France", "steps": steps})
    said = "no answer: opposites cannot do step 1, 'capital of FRANCE'"
    stage.fails(1, "run", "-", "--rehearsal", given=plan, out="", told=said)


def test_another_conductor_can_plan_for_the_demo_workers(stage: Stage) -> None:
    stage.models["alpha"] = says("E | - | capital of Japan\nA | 1 | spell it backwards")
    assert stage.ok("ask", "--rehearsal", "--conductor", f"{stage.url}", QUESTION).out.strip() == "OYKOT"
