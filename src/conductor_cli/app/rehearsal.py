"""The demo models (`--demo`) as the application uses them.

Planner, workers with their cards, cases.
"""

from __future__ import annotations

import lzma
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.core.pool import Limits, Pool, Worker
from conductor_cli.core.question import Question
from conductor_cli.rehearsal import players
from conductor_cli.rehearsal.words import CAPABILITIES, is_known

if TYPE_CHECKING:
    from conductor_cli.core.trace import Trace
    from conductor_cli.evals.cases import Case
    from conductor_cli.evals.systems import RunSetup
    from conductor_cli.models.base import Model
    from conductor_cli.run import Team

NAME: Final = "rehearsal"  # The name of the built-in set of cases on the command line
EVAL_CASES: Final = 500  # Cases of an evaluation if no number is given

DEMO_QUESTION: Final = "find the capital of FRANCE, then spell it backwards"
"""A question that the demo models answer in two steps."""

DEMO_ANSWER: Final = f"""[simulated answer: conductor's demo]

This client reaches the server, and no model was asked: the server was started with --demo. \
Its tiny models read
one question and nothing else: {CAPABILITIES}. They cannot read or write code or files, and call \
no tools, so nothing
was done.

- To see a plan, steps and an answer of theirs, ask: {DEMO_QUESTION}
- For your own models: conductor setup, then the same without --demo"""
"""What `serve --demo` answers where the demo models cannot."""


def demo_question(question: Question) -> Question | None:
    """Return what the demo models can read of a coding client's question.

    None where they do not know it.
    """
    if not is_known(question.text):
        return None
    return Question(text=question.text, schema=question.schema)


def check_question(question: Question) -> None:
    """Raise `UsageError` for a question that the demo models were not trained on."""
    if question.files or question.system:
        hint = "leave out --file, --system and piped input; in a chat, `/detach` removes files"
        raise UsageError(
            "the demo models read only the question: no files and no system prompt", hint=hint
        )
    if not is_known(question.text):
        hint = "for other questions: conductor setup"
        raise UsageError(f"the demo models only handle {CAPABILITIES}", hint=hint)


def is_rehearsal_run(trace: Trace) -> bool:
    """Return whether all workers of a run are demo models, by the ends of their paths.

    The package may have moved.
    """
    return bool(trace.pool.names) and all(map(_is_demo_model, trace.pool))


def _is_demo_model(worker: Worker) -> bool:
    return Path(worker.model).parts[-3:] == players.model_path(worker.name).parts[-3:]


def with_rehearsal_profiles(team: Team, planner: Worker | None) -> Team:
    """Return the team with the prompts that the demo models were trained on.

    Raises `UsageError` for a mode that the demo planner was not trained for.
    """
    is_demo = planner is not None and planner == players.rehearsal_conductor()
    if is_demo and team.mode == "ultra":
        hint = "leave out --mode ultra, or choose another model: --planner"
        raise UsageError("the demo planner was trained to plan, not to reason", hint=hint)
    # Whoever made the plan, the checker's verdict is no answer.
    profile = replace(team.profile, verdicts=players.PROFILE.verdicts)
    if is_demo:
        profile = players.CHECKED
    return replace(
        team, profile=profile, worker_profile=players.WORKER_PROFILE, max_steps=MAX_STEPS
    )


def rehearsal_limits(limits: Limits) -> Limits:
    """Return the limits for the demo models.

    They work at temperature 0, so a second attempt would give the same answer.
    """
    return replace(limits, attempts=1)


RULE: Final = "rule"
"""The rival in evaluations of the demo: steps of the planner before its rewards, which a rule gives
out.
"""


def given_out_by_rule(setup: RunSetup, model: Model) -> RunSetup:
    """Return a set-up whose plans are those of `model` with the workers of the rule.

    They are not checked.
    """
    planner = players.RulePlanner(model)
    team = replace(setup.team, model=planner, mode="auto", profile=players.PROFILE, notices=())
    return replace(setup, team=team)


def rehearsal_pool() -> Pool:
    """Return the demo workers."""
    return players.rehearsal_workers(players.read_worker_cards())


def held_out_cases(count: int, seed: int) -> tuple[Case, ...]:
    """Return questions of one to five steps, in words and phrasings that no model was trained on.

    Each seed takes the next block of the 10,000 questions; after the last block they start over.
    """
    from conductor_cli.evals.cases import parse_case  # a question needs none

    lines = lzma.decompress(
        Path(players.__file__).with_name("held_out.jsonl.xz").read_bytes()
    ).splitlines()
    if count > len(lines):
        raise UsageError(
            f"--n {count}: the demo has {len(lines):,} questions", hint="ask for fewer"
        )
    start = seed * count % len(lines)
    cases = []
    for line in (lines + lines)[start : start + count]:
        cases.append(parse_case(line.decode(), "held_out.jsonl.xz"))
    return tuple(cases)
