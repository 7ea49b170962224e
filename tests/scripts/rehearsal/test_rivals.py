"""Other ways to answer: votes, a loop of single steps, learned routers, a fixed pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from conductor_cli.models.base import ScriptedModel
from conductor_cli.rehearsal.players import ANYTHING, NO, REFUSAL, YES
from scripts.rehearsal.asking import Reply
from scripts.rehearsal.baselines import DOUBTED, mixture, reflection, verifying_prompt, weight_of, weighted_vote
from scripts.rehearsal.evaluate import Found, followed, gold_plan
from scripts.rehearsal.exercises import RehearsalExercise
from scripts.rehearsal.one_at_a_time import Looped, solve_in_turns
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.planning import StoredModel
from scripts.rehearsal.pools import Member
from scripts.rehearsal.rollouts import build_rollouts
from scripts.rehearsal.router import Card, Router, Sample
from scripts.rehearsal.routing import learned_routers
from scripts.rehearsal.shift import FIRST, OTHERS, THEN, draw_mix, draw_team, in_pipeline
from scripts.rehearsal.store import Store
from tests.scripts.rehearsal.solvers import MEMBERS, PROBLEM, Solvers, exercise


def test_a_vote_is_weighed_by_the_verifier() -> None:
    """One answer that the checker believes beats two that it does not. A refusal never wins."""
    weights = [weight_of(Reply(NO, 0.9)), weight_of(Reply(NO, 0.8)), weight_of(Reply(YES, 0.9)), 1.0]
    assert weights == [DOUBTED, DOUBTED, 0.9, 1.0]
    assert weighted_vote(["X", "SIRAP", "X"], [DOUBTED] * 3) == "X"
    assert weighted_vote(["X", "X", "SIRAP", REFUSAL], weights) == "SIRAP"
    assert weighted_vote([REFUSAL], [1.0]) == REFUSAL
    assert verifying_prompt("Capital of France?", "paris.") == "s: capital of FRANCE\na: PARIS\ns: check it\na:"


def test_any_worker_can_reflect() -> None:
    """By default the one with the best card."""
    item = exercise()
    assert {step.worker for step in reflection(item).steps} == {"member1"}
    assert {step.worker for step in reflection(item, "member3").steps} == {"member3"}


def test_a_mixture_of_six_members_is_run() -> None:
    """It has more steps than a conductor may plan."""
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


class Policy(StoredModel):
    """One whose file is no model, so nothing can be written before it is asked."""

    def prepare(self, prompts: Sequence[str]) -> None: ...


def looped(
    path: Path, texts: Sequence[str], answers: Mapping[tuple[str, str], str], item: RehearsalExercise
) -> tuple[Looped, list[str]]:
    path.joinpath("policy.gguf").write_bytes(b"policy")
    model = ScriptedModel([[text] for text in texts])
    with Store() as store:
        policy = Policy(model, path / "policy.gguf", store)
        (found,) = asyncio.run(solve_in_turns(build_rollouts(Known(answers)), policy, [item]))
    return found, [request.messages[0].content for request in model.requests]


CAPITAL = "capital of FRANCE| -| geographyC"


def test_an_answer_takes_the_place_of_its_clause(tmp_path: Path) -> None:
    """So the policy sees it before it writes the next step."""
    answers = {("geography", "capital of FRANCE"): "PARIS", ("spelling", "spell PARIS backwards"): "SIRAP"}
    texts = [f"{CAPITAL}\nspell it backwards| 1| spellingB", "spell PARIS backwards| -| spellingB"]
    found, prompts = looped(tmp_path, texts, answers, exercise())
    assert (found.answer, found.turns, found.calls) == ("SIRAP", 2, 2)
    assert found.tokens > 0
    assert prompts[1].splitlines()[1] == "spell PARIS backwards"


def test_a_step_whose_clause_is_not_in_the_question_is_continued(tmp_path: Path) -> None:
    """The lines so far stand in the prompt, and later steps see their answers."""
    answers = {("geography", "city of FRANCE"): "PARIS", ("spelling", "spell it backwards"): "SIRAP"}
    texts = ["city of FRANCE| -| geographyC\nspell it backwards| 1| spellingB", "spell it backwards| 1| spellingB"]
    found, prompts = looped(tmp_path, texts, answers, exercise())
    assert (found.answer, found.turns) == ("SIRAP", 2)
    assert prompts[1].endswith("backwards\ncity of FRANCE| -| geographyC\n")


def test_after_a_refusal_the_next_worker_of_the_skill_is_asked(tmp_path: Path) -> None:
    """Then the generalist, and then the loop goes on without an answer."""
    members = (*MEMBERS, Member(strengths={ANYTHING: 0.4}))
    found, _ = looped(tmp_path, [CAPITAL], {(ANYTHING, ""): "", ("generalist", "capital of FRANCE"): "LYON"},
                      exercise(members=members))  # fmt: skip
    assert (found.answer, found.calls) == ("LYON", 2)
    found, _ = looped(tmp_path, [CAPITAL], {}, exercise())
    assert (found.answer, found.calls) == (REFUSAL, 1)


@pytest.mark.parametrize("text", ["", "no plan", "a| 0| geographyC", "a| 2| geographyC", "a| -| geographyZ"])
def test_a_line_that_is_no_step_ends_the_loop(tmp_path: Path, text: str) -> None:
    """Without an answer and without a call."""
    found, _ = looped(tmp_path, [text], {}, exercise())
    assert (found.answer, found.calls, found.turns) == (REFUSAL, 0, 1)


# Learned routers


def test_a_router_learns_which_card_suits_a_question() -> None:
    """By the skill that its words need, then by the strength; whatever the place of the card."""
    cards: list[Card] = [{"geography": 1.0}, {"spelling": 1.0}, {"geography": 0.3, "adding": 0.9}]
    samples = []
    for country in ("FRANCE", "PERU", "ITALY", "JAPAN") * 5:
        samples.append(Sample(f"what is the capital of {country}", cards, [True, False, False]))
        samples.append(Sample(f"spell {country} backwards", cards, [False, True, False]))
        samples.append(Sample("nobody knows this", cards, [False, False, False]))
    router = Router(samples)
    assert router.choose("the capital of SPAIN", cards) == 0
    assert router.choose("backwards spell SPAIN", cards) == 1
    assert router.choose("capital of SPAIN", [{"spelling": 1.0}, {"geography": 0.3}, {"geography": 1.0}]) == 2
    assert router.choose("colour of a BANANA", [{"colours": 1.0}, {"colours": 0.5}]) == 0


def test_routers_learn_from_the_answers_of_members() -> None:
    """From whole questions, and from the true steps of some of them."""

    class OfOneSkill:
        async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
            return REFUSAL

    routers = asyncio.run(learned_routers(OfOneSkill(), questions=6, steps=3))
    assert routers.of_question(exercise()) in range(3)
    assert routers.of_step(exercise(), "spell it backwards") in {"member1", "member2", "member3"}


# The mix shifts


def test_the_two_mixes_share_no_skill_and_no_shape() -> None:
    """The first are chains of a fact and its letters."""
    before, after = draw_mix("before", "test", 12, 1), draw_mix("after", "test", 12, 1)
    assert {problem.shape for problem in before} == {"chain2"}
    assert all(problem.hops[0].skill in FIRST and problem.hops[1].skill in THEN for problem in before)
    assert "chain2" not in {problem.shape for problem in after}
    assert {skill for problem in after for skill in problem.skills} <= set(OTHERS)
    assert {*FIRST, *THEN, *OTHERS} == set(SKILLS)


def test_the_team_of_a_stream_has_every_skill() -> None:
    """Once at full strength, and perhaps once more."""
    team = draw_team(Random(1))
    assert team == draw_team(Random(1))
    best = [skill for member in team for skill, strength in member.strengths.items() if strength == 1.0]
    assert sorted(best) == sorted(SKILLS)
    assert all(0 < strength <= 1 for member in team for strength in member.strengths.values())


def test_a_fixed_pipeline_sends_steps_by_their_place() -> None:
    """The first to one worker, the others to another, each with the answer before it."""
    item = exercise()
    found = asyncio.run(followed(build_rollouts(Solvers([PROBLEM])), item, gold_plan(item)))
    plan = in_pipeline(found, ("member3", "member1"))
    assert plan is not None
    assert [(step.worker, step.access) for step in plan.steps] == [("member3", ()), ("member1", (1,))]
    assert in_pipeline(replace(found, plan=None), ("member1", "member1")) is None
    assert isinstance(found, Found)
