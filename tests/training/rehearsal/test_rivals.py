"""Other ways to answer: votes, a loop of single steps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from conductor_cli.models.base import ScriptedModel
from conductor_cli.rehearsal.players import ANYTHING, NO, REFUSAL, YES
from tests.training.rehearsal.solvers import MEMBERS, PROBLEM, Solvers, exercise
from training.rehearsal.asking import Reply, Store, StoredModel
from training.rehearsal.exercises import Member, RehearsalExercise
from training.rehearsal.rivals import (
    DOUBTED,
    Looped,
    mixture,
    reflection,
    solve_in_turns,
    verifying_prompt,
    weight_of,
    weighted_vote,
)
from training.rehearsal.rollouts import build_rollouts, followed


def test_a_vote_is_weighed_by_the_verifier() -> None:
    """One answer that the checker believes beats two that it does not. A refusal never wins."""
    weights = [weight_of(Reply(NO, 0.9)), weight_of(Reply(NO, 0.8)), weight_of(Reply(YES, 0.9)), 1.0]
    assert weights == [DOUBTED, DOUBTED, 0.9, 1.0]
    assert weighted_vote(["X", "SIRAP", "X"], [DOUBTED] * 3) == "X"
    assert weighted_vote(["X", "X", "SIRAP", REFUSAL], weights) == "SIRAP"
    assert weighted_vote([REFUSAL], [1.0]) == REFUSAL
    assert verifying_prompt("Capital of France?", "paris.") == "s: capital of FRANCE\na: PARIS\ns: check it\na:"


def test_any_worker_can_reflect() -> None:
    item = exercise()
    assert {step.worker for step in reflection(item).steps} == {"member1"}
    assert {step.worker for step in reflection(item, "member3").steps} == {"member3"}


def test_a_mixture_of_six_members_is_run() -> None:
    item = exercise(members=MEMBERS * 2)
    found = asyncio.run(followed(build_rollouts(Solvers([PROBLEM])), item, mixture(item)))
    assert (found.outcome.valid, found.outcome.calls, len(found.answers)) == (True, 7, 7)


# One step at a time


class Known:
    """Answers by the last line of the prompt that a member with a skill reads; all others refuse."""

    def __init__(self, answers: Mapping[tuple[str, str], str]) -> None:
        self.answers = answers

    async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
        del seed
        subtask = prompt.splitlines()[-2].removeprefix("s: ")
        return next(
            (text for (skill, asked), text in self.answers.items() if skill in strengths and asked == subtask), ""
        )


def looped(
    path: Path, texts: Sequence[str], answers: Mapping[tuple[str, str], str], item: RehearsalExercise
) -> tuple[Looped, list[str]]:
    path.joinpath("policy.gguf").write_bytes(b"policy")
    model = ScriptedModel([[text] for text in texts])
    with Store() as store:
        policy = StoredModel(model, path / "policy.gguf", store)
        (found,) = asyncio.run(solve_in_turns(build_rollouts(Known(answers)), policy, [item]))
    return found, [request.messages[0].content for request in model.requests]


CAPITAL = "capital of FRANCE| -| geographyC"


def test_an_answer_takes_the_place_of_its_clause(tmp_path: Path) -> None:
    answers = {("geography", "capital of FRANCE"): "PARIS", ("spelling", "spell PARIS backwards"): "SIRAP"}
    texts = [f"{CAPITAL}\nspell it backwards| 1| spellingB", "spell PARIS backwards| -| spellingB"]
    found, prompts = looped(tmp_path, texts, answers, exercise())
    assert (found.answer, found.turns, found.calls) == ("SIRAP", 2, 2)
    assert found.tokens > 0
    assert prompts[1].splitlines()[1] == "spell PARIS backwards"


def test_a_step_whose_clause_is_not_in_the_question_is_continued(tmp_path: Path) -> None:
    answers = {("geography", "city of FRANCE"): "PARIS", ("spelling", "spell it backwards"): "SIRAP"}
    texts = ["city of FRANCE| -| geographyC\nspell it backwards| 1| spellingB", "spell it backwards| 1| spellingB"]
    found, prompts = looped(tmp_path, texts, answers, exercise())
    assert (found.answer, found.turns) == ("SIRAP", 2)
    assert prompts[1].endswith("backwards\ncity of FRANCE| -| geographyC\n")


def test_after_a_refusal_the_next_worker_of_the_skill_is_asked(tmp_path: Path) -> None:
    members = (*MEMBERS, Member(strengths={ANYTHING: 0.4}))
    found, _ = looped(tmp_path, [CAPITAL], {(ANYTHING, ""): "", ("generalist", "capital of FRANCE"): "LYON"},
                      exercise(members=members))  # fmt: skip
    assert (found.answer, found.calls) == ("LYON", 2)
    found, _ = looped(tmp_path, [CAPITAL], {}, exercise())
    assert (found.answer, found.calls) == (REFUSAL, 1)


@pytest.mark.parametrize("text", ["", "no plan", "a| 0| geographyC", "a| 2| geographyC", "a| -| geographyZ"])
def test_a_line_that_is_no_step_ends_the_loop(tmp_path: Path, text: str) -> None:
    found, _ = looped(tmp_path, [text], {}, exercise())
    assert (found.answer, found.calls, found.turns) == (REFUSAL, 0, 1)
