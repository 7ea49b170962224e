"""What a conductor practises on."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from scripts.rehearsal.exercises import Offer, Phase, RehearsalCurriculum, RehearsalExercise, draw_exercises, rehearsal
from scripts.rehearsal.rollouts import build_rollouts
from scripts.rehearsal.world import draw_problems
from tests.scripts.rehearsal.solvers import solvers

ALL = {"letters", "numbers", "facts", "generalist"}


def drawn(offer: Offer, count: int = 300) -> list[tuple[str, ...]]:
    random = Random(1)
    return [offer.draw(random) for _ in range(count)]


@pytest.mark.parametrize(
    ("offer", "sets"),
    [
        (Offer(), {frozenset(ALL - {"generalist"})}),
        (Offer(specialists=0, everybody=1), {frozenset(ALL)}),
        (Offer(specialists=0, missing=1), {frozenset(ALL - {skill}) for skill in ALL - {"generalist"}}),
    ],
    ids=["specialists", "everybody", "one missing"],
)
def test_a_pool_is_drawn_in_any_order(offer: Offer, sets: set[frozenset[str]]) -> None:
    """The order gives the labels their numbers, so no number may mean a worker."""
    found = drawn(offer)
    assert {frozenset(names) for names in found} == sets
    first = Counter(names[0] for names in found)
    assert min(first.values()) > len(found) / len(first) / 2


def test_an_exercise_is_drawn_by_its_number_and_seed() -> None:
    """The same everywhere, so that a killed training goes on with the very next one."""
    phase = Phase(steps=1, offer=Offer(), hops=(1, 1, 1))
    assert phase.exercise(1, 7) == phase.exercise(1, 7)
    assert len({phase.exercise(seed, number).problem.question for seed in (1, 2) for number in range(20)}) == 40


def test_phases_follow_each_other() -> None:
    """By step; what lies behind the last one belongs to it."""
    only = [Phase(steps=2, offer=Offer(), hops=(0, 0, 0)) for _ in range(2)]
    one, two = (Phase(steps=2, offer=Offer(), hops=hops) for hops in ((1, 0, 0), (0, 0, 1)))
    practice = RehearsalCurriculum(phases=(one, two), prompts=3)
    assert practice.steps == sum(phase.steps for phase in only)
    assert [len(practice.exercise(number).problem.hops) for number in (0, 5, 6, 11, 99)] == [1, 1, 3, 3, 3]


def test_the_first_phase_has_no_generalist() -> None:
    """With it in the pool from the start a conductor sends everything there and never learns who is good at what."""
    practice = rehearsal()
    assert practice.phases[0].offer == Offer()
    assert practice.phases[-1].offer.missing > 0.2
    short = rehearsal(steps=40)
    assert (short.steps, short.falling, practice.falling) == (40, False, True)
    assert rehearsal(seed=2).as_dict() != practice.as_dict()


def test_given_problems_get_drawn_pools() -> None:
    """The same ones for the same seed."""
    asked = draw_problems(10, 1, split="test")
    found = draw_exercises(asked, Offer(), 3)
    assert tuple(item.problem for item in found) == asked
    assert found == draw_exercises(asked, Offer(), 3) != draw_exercises(asked, Offer(), 4)


def test_a_pool_has_the_order_of_its_exercise() -> None:
    """And the cards of the workers."""
    pool, models = solvers()
    drill = RehearsalExercise(problem=draw_problems(1, 1)[0], workers=("facts", "letters"))
    found = build_rollouts(pool, models).conductor_for(drill).pool
    assert found.names == ("facts", "letters")
    assert found["facts"].card == pool["facts"].card
