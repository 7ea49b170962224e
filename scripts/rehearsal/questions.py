"""Writes the questions that ship with the package: `python -m scripts.rehearsal.questions`.

`held_out.jsonl` are for evaluations: one to three hops, in words and phrasings that no model was trained on.
`practice.jsonl` are for calibrations: one hop, in the phrasings of training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from conductor_cli.evals.cases import Case, GoldStep, write_cases
from scripts.rehearsal.world import Problem, draw_problems

PACKAGE: Final = Path(__file__).parents[2] / "src" / "conductor_cli" / "rehearsal"

HELD_OUT_COUNT: Final = 2000
PRACTICE_COUNT: Final = 1200


def held_out_cases() -> tuple[Case, ...]:
    """The cases of evaluations. Their tags are the skills and the number of hops."""
    problems = draw_problems(HELD_OUT_COUNT, 0, split="test")
    return tuple(_to_case(problem, _hop_tag(len(problem.hops))) for problem in problems)


def practice_cases() -> tuple[Case, ...]:
    """The cases of calibrations. A tag becomes a strength on a card, so they are tagged with their skill only."""
    return tuple(_to_case(problem) for problem in draw_problems(PRACTICE_COUNT, 0, hops=(1,)))


def _hop_tag(count: int) -> str:
    return f"{count} hop{'s' if count > 1 else ''}"


def _to_case(problem: Problem, *more_tags: str) -> Case:
    skills = dict.fromkeys(str(hop.skill) for hop in problem.hops)
    return Case(
        id=problem.id, question=problem.question, answer=problem.answer, tags=(*skills, *more_tags),
        steps=tuple(GoldStep(skill=hop.skill, subtask=hop.subtask, access=hop.access) for hop in problem.hops),
    )  # fmt: skip


if __name__ == "__main__":
    (PACKAGE / "held_out.jsonl").write_text(write_cases(held_out_cases()), encoding="utf-8")
    (PACKAGE / "practice.jsonl").write_text(write_cases(practice_cases()), encoding="utf-8")
