"""Learned routers, and a stream whose mix shifts. Their modules import torch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'conductor-llm[train]'")

from conductor_cli.rehearsal.players import REFUSAL
from tests.training.rehearsal.solvers import PROBLEM, Solvers, exercise
from training.rehearsal.operations import SKILLS
from training.rehearsal.rollouts import Found, build_rollouts, followed, gold_plan
from training.rehearsal.routers import FIRST, OTHERS, THEN, Card, Router, Sample, draw_mix, in_pipeline, learned_routers

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

    class OfOneSkill:
        async def member(self, strengths: Mapping[str, float], prompt: str, seed: int) -> str:
            return REFUSAL

    routers = asyncio.run(learned_routers(OfOneSkill(), questions=6, steps=3))
    assert routers.of_question(exercise()) in range(3)
    assert routers.of_step(exercise(), "spell it backwards") in {"member1", "member2", "member3"}


# The mix shifts


def test_the_two_mixes_share_no_skill_and_no_shape() -> None:
    before, after = draw_mix("before", "test", 12, 1), draw_mix("after", "test", 12, 1)
    assert {problem.shape for problem in before} == {"chain2"}
    assert all(problem.hops[0].skill in FIRST and problem.hops[1].skill in THEN for problem in before)
    assert "chain2" not in {problem.shape for problem in after}
    assert {skill for problem in after for skill in problem.skills} <= set(OTHERS)
    assert {*FIRST, *THEN, *OTHERS} == set(SKILLS)


def test_a_fixed_pipeline_sends_steps_by_their_place() -> None:
    """The first to one worker, the others to another, each with the answer before it."""
    item = exercise()
    found = asyncio.run(followed(build_rollouts(Solvers([PROBLEM])), item, gold_plan(item)))
    plan = in_pipeline(found, ("member3", "member1"))
    assert plan is not None
    assert [(step.worker, step.access) for step in plan.steps] == [("member3", ()), ("member1", (1,))]
    assert in_pipeline(replace(found, plan=None), ("member1", "member1")) is None
    assert isinstance(found, Found)
