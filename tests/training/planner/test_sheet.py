"""The sheet of a judge shows what a user gets of a plan, and nothing of who wrote it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_cli.core.pool import Pool, Worker
from conductor_cli.core.profile import KINDS_PROFILE
from conductor_cli.core.question import Question
from training.planner.questions import QUESTIONS, Examined
from training.planner.sheet import main, read_as_run

if TYPE_CHECKING:
    import pytest

POOL = Pool(workers=(Worker(name="ann", kind="openai"), Worker(name="ben", kind="openai")))
EXAMINED = Examined(kind="several", skill="code", question=Question(text="Write it, and test it."))


def steps_of(text: str) -> list[tuple[str, tuple[int, ...], str]]:
    steps = asyncio.run(read_as_run(text, EXAMINED, POOL, KINDS_PROFILE))
    return [(step.worker, step.access, step.subtask) for step in steps]


def test_a_repeated_step_is_left_out_and_an_unread_one_is_read() -> None:
    text = (
        "Write it. | - | code A\nWrite it. | - | code A\nName a port. | - | facts B\n"
        "Give both. | 1 | code A"
    )
    assert steps_of(text) == [
        ("ann", (), "Write it."),
        ("ben", (), "Name a port."),
        ("ann", (1, 2), "Give both."),
    ]


def test_a_text_that_is_no_plan_becomes_one_step_of_the_first_worker() -> None:
    assert steps_of("I cannot plan this.") == [("ann", (), "Answer the question.")]


def test_the_sheet_shows_workers_questions_and_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {"pool": "3", "number": 0, "text": "Answer the question. | - | facts B"}
    other = {"pool": "8", "number": 1, "text": "Answer the question. | - | facts B"}
    lines = [json.dumps(line) for line in (plan, other)]
    (tmp_path / "plans.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(sys, "argv", ["sheet", "--out", str(tmp_path)])
    assert main() == 0
    sheet = capsys.readouterr().out
    assert QUESTIONS[0].question.text in sheet
    assert QUESTIONS[1].question.text not in sheet
    assert "Answer the question. [sees: none]" in sheet
    assert "0.66" in sheet
    assert str(tmp_path) not in sheet
