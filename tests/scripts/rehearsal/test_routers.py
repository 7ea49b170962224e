"""Learned routers, and a stream whose mix shifts. Their modules import torch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'conductor-llm[train]'")

from conductor_cli.rehearsal.players import REFUSAL
from scripts.rehearsal.evaluate import Found, followed, gold_plan
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.rollouts import build_rollouts
from scripts.rehearsal.router import Card, Router, Sample
from scripts.rehearsal.routing import learned_routers
from scripts.rehearsal.shift import FIRST, OTHERS, THEN, draw_mix, draw_team, in_pipeline
from tests.scripts.rehearsal.solvers import PROBLEM, Solvers, exercise

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
