"""The sheet for a judge: examined plans as a run reads them, without a word of who wrote them.

    python -m training.planner.sheet --out DIR --pool 3 > sheet.md

`DIR` is that of an examination. A run leaves out a step that only repeats an earlier one, and lets
the last step read what no other step reads; so what is judged is what a user gets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.profile import PROFILES, Profile
from conductor_cli.models.base import ScriptedModel
from conductor_cli.run import Orchestra, RunSpec, Team, start_run
from training.planner.examine import pools
from training.planner.questions import QUESTIONS, Examined, read_questions

TASK: Final = """\
A planner gave each question below to some of these workers. Judge each plan by four questions, yes
or no:

needed: is each step needed? sees: does each step see the answers that it needs? (A worker always
reads the whole question, its files, and the answers of the steps that it sees.) worker: is each
worker the best by the cards for its step, or another good one for a check of somebody else's work?
answers: does the last step give what the question asks for?

The cards say which share of questions of a kind a worker got right.
"""
MAX_FILE_CHARS: Final = 1500


async def read_as_run(text: str, examined: Examined, pool: Pool, profile: Profile) -> list[Step]:
    """The steps that a run does for this text of a planner; none for a text that is no plan."""
    team = Team(
        model=ScriptedModel(scripts=[[text]]),
        pool=pool,
        profile=profile,
        constrained=True,
        workers={name: ScriptedModel(scripts=[["Done."]]) for name in pool.names},
    )
    orchestra = Orchestra(team=team, limits=Limits())
    run = start_run(orchestra, RunSpec(question=examined.question, plan_only=True))
    async for _ in run:
        pass
    plan = run.trace.plan
    if not isinstance(plan, Plan):
        return []
    return list(plan.steps)


def _worker_line(worker: Worker) -> str:
    card = ", ".join(f"{tag} {value:.2f}" for tag, value in worker.card.strengths.items())
    return f"- {worker.name} ({worker.model_name}) {worker.about}: {card or worker.card.words}"


def _question_lines(number: int, examined: Examined) -> list[str]:
    lines = [f"\n## Question {number}", examined.question.text]
    for file in examined.question.files:
        lines += [f"[attached {file.name}]", file.text[:MAX_FILE_CHARS]]
    return lines


def _plan_lines(steps: list[Step]) -> list[str]:
    if not steps:
        return ["(no plan)"]
    lines = []
    for number, step in enumerate(steps, start=1):
        seen = ", ".join(map(str, step.access)) or "none"
        lines.append(f"  {number}. {step.worker}: {step.subtask} [sees: {seen}]")
    return lines


def main() -> int:
    """Print the sheet of one pool."""
    parser = argparse.ArgumentParser(prog="python -m training.planner.sheet")
    parser.add_argument("--out", type=Path, required=True, help="the directory of an examination")
    parser.add_argument("--pool", default="3")
    parser.add_argument("--questions", type=Path, help="others than those of questions.jsonl")
    parser.add_argument("--profile", choices=tuple(PROFILES), default="kinds")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    pool = pools(given.seed)[given.pool]
    questions = read_questions(given.questions) if given.questions else QUESTIONS
    print(TASK)
    print("# Workers")
    print("\n".join(map(_worker_line, pool)))
    for line in (given.out / "plans.jsonl").read_text().splitlines():
        plan = json.loads(line)
        if plan["pool"] != given.pool:
            continue
        examined = questions[plan["number"]]
        steps = asyncio.run(read_as_run(plan["text"], examined, pool, PROFILES[given.profile]))
        print("\n".join([*_question_lines(plan["number"] + 1, examined), "Plan:"]))
        print("\n".join(_plan_lines(steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
