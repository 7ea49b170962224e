"""What a conductor practises on."""

from __future__ import annotations

import json

from conductor_cli.rehearsal.conductor_model import ANYTHING, CHECKING
from conductor_cli.rehearsal.workers import NAMES
from scripts.rehearsal.exercises import EASY, MIXED, STRONG, Phase, RehearsalCurriculum, draw_exercises, rehearsal
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.world import draw_problems


def test_an_exercise_is_drawn_by_its_number_and_seed() -> None:
    """The same everywhere, so that a killed training goes on with the very next one."""
    phase = Phase(steps=1)
    assert phase.exercise(1, 7) == phase.exercise(1, 7)
    assert len({phase.exercise(seed, number).problem.question for seed in (1, 2) for number in range(20)}) == 40


def test_phases_follow_each_other() -> None:
    """By step; what lies behind the last one belongs to it."""
    one, two = Phase(steps=2, shapes={"single": 1}, checked=0), Phase(steps=2, shapes={"chain3": 1}, checked=0)
    practice = RehearsalCurriculum(phases=(one, two), prompts=3)
    assert practice.steps == 4
    assert [len(practice.exercise(number).problem.hops) for number in (0, 5, 6, 11, 99)] == [1, 1, 3, 3, 3]


def test_the_first_phase_has_no_generalist() -> None:
    """With it in the pool from the start a conductor sends everything there and never learns who is good at what."""
    practice = rehearsal()
    assert practice.phases[0].pools == EASY
    found = [practice.phases[0].exercise(1, number) for number in range(60)]
    assert not any(ANYTHING in member.strengths for item in found for member in item.members)
    assert practice.phases[-1].pools == MIXED
    short = rehearsal(steps=40)
    assert (short.steps, short.falling, practice.falling) == (40, False, True)
    assert json.dumps(rehearsal(seed=2).as_dict()) != json.dumps(practice.as_dict())


def test_some_exercises_have_everybody_on_offer() -> None:
    """As many members as the pool that ships, and somebody for each skill, in any order."""
    found = [Phase(steps=1, whole=1.0).exercise(1, number) for number in range(20)]
    assert {len(item.members) for item in found} == {len(NAMES)}
    for item in found:
        skills = {skill for member in item.members for skill in member.strengths}
        assert {*SKILLS, ANYTHING} <= skills <= {*SKILLS, ANYTHING, CHECKING}
    assert len({next(iter(item.members[0].strengths)) for item in found}) > 5
    some = [Phase(steps=1, whole=0.3).exercise(1, number) for number in range(60)]
    assert 8 < sum(len(item.members) == len(NAMES) for item in some) < 30


def test_given_problems_get_drawn_pools() -> None:
    """The same ones for the same seed."""
    asked = draw_problems(10, 1, split="test")
    found = draw_exercises(asked, STRONG, 3)
    assert tuple(item.problem for item in found) == asked
    assert found == draw_exercises(asked, STRONG, 3) != draw_exercises(asked, STRONG, 4)


def test_an_answer_is_compared_as_workers_write_it() -> None:
    """In upper case, on one line, without a full stop."""
    item = draw_exercises(draw_problems(1, 1), STRONG, 1)[0]
    assert item.is_correct(f" {item.problem.answer.lower()}.\n")
    assert not item.is_correct("?")
