"""Writes the questions that ship with the package: `python -m scripts.rehearsal.questions`.

`held_out.jsonl` are for evaluations: one to five steps, in words and phrasings that no model was trained on.
`practice.jsonl` are for calibrations: one step, in the phrasings of training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from conductor_cli.evals.cases import Case, GoldStep, write_cases
from scripts.rehearsal.operations import SKILLS, UNSEEN
from scripts.rehearsal.world import Problem, ProblemSettings, draw_problems

PACKAGE: Final = Path(__file__).parents[2] / "src" / "conductor_cli" / "rehearsal"

HELD_OUT_COUNT: Final = 2000
PRACTICE_COUNT: Final = 1200


def held_out_cases() -> tuple[Case, ...]:
    """The cases of evaluations. Their tags are the skills and the shape, and "check" where one is asked for."""
    return tuple(_to_case(problem, problem.shape) for problem in draw_problems(HELD_OUT_COUNT, 0, split="test"))


def practice_cases() -> tuple[Case, ...]:
    """The cases of calibrations. A tag becomes a strength on a card, so they are tagged with their skill only."""
    single = ProblemSettings(skills=(*SKILLS, UNSEEN), shapes={"single": 1.0}, checked=0.0)
    return tuple(_to_case(problem) for problem in draw_problems(PRACTICE_COUNT, 0, single))


def _to_case(problem: Problem, *more_tags: str) -> Case:
    check = ("check",) if problem.check else ()
    return Case(
        id=problem.id, question=problem.question, answer=problem.answer,
        tags=(*(skill for skill in problem.skills if skill != "checking"), *more_tags, *check),
        steps=tuple(GoldStep(skill=hop.skill, subtask=hop.subtask, access=hop.access) for hop in problem.hops),
    )  # fmt: skip


if __name__ == "__main__":
    (PACKAGE / "held_out.jsonl").write_text(write_cases(held_out_cases()), encoding="utf-8")
    (PACKAGE / "practice.jsonl").write_text(write_cases(practice_cases()), encoding="utf-8")
