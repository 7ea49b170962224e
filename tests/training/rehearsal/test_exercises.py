"""What a conductor practises on, with pools that are drawn for each question."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

from conductor_cli.core.plan import Step
from conductor_cli.core.profile import SeenStep
from conductor_cli.core.question import Question
from conductor_cli.rehearsal.players import ANYTHING, CHECKING, NAMES, NO, find_plan_fault
from conductor_cli.rehearsal.players import render_for_worker as render
from conductor_cli.rehearsal.words import VOCABULARY, normalize
from training.rehearsal.exercises import (
    EASY,
    MIXED,
    STRONG,
    WHOLE,
    Member,
    Phase,
    PoolSettings,
    RehearsalCurriculum,
    draw_exercises,
    draw_members,
    luck,
    pool_of,
    rehearsal,
)
from training.rehearsal.operations import SKILLS
from training.rehearsal.rollouts import gold_plan
from training.rehearsal.world import draw_problems


def test_an_exercise_is_drawn_by_its_number_and_seed() -> None:
    """The same everywhere, so that a killed training goes on with the very next one."""
    phase = Phase(steps=1)
    assert phase.exercise(1, 7) == phase.exercise(1, 7)
    assert len({phase.exercise(seed, number).problem.question for seed in (1, 2) for number in range(20)}) == 40


def test_phases_follow_each_other() -> None:
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


def test_a_second_round_can_be_won_by_asking_somebody_else() -> None:
    """Only the worker that is named failed, and another one with its skill does not."""
    phase = Phase(steps=1, second=1.0)
    found = [item for number in range(80) if (item := phase.exercise(3, number)).given]
    assert len(found) > 10
    for item in found:
        failed, check = item.given
        last = next(hop for hop in reversed(item.problem.hops) if hop.skill != CHECKING)
        assert (failed.subtask, check.answer) == (last.subtask, NO)
        members = dict(zip(pool_of(item.members).names, item.members, strict=True))
        seen = [SeenStep(number=at, worker="", subtask=hop.subtask, answer=hop.answer)
                for at in last.access for hop in [item.problem.hops[at - 1]]]  # fmt: skip
        text = render(Question(text=item.question), Step(worker="", subtask=last.subtask), seen)
        does = {
            name: luck(member.files, text, item.seed).random() < member.strengths[last.skill]
            for name, member in members.items()
            if last.skill in member.strengths
        }
        assert not does[failed.worker]
        assert any(does.values())


def test_loose_phrasings_are_those_of_training() -> None:
    found = [Phase(steps=1, loose=1.0).exercise(2, number) for number in range(200)]
    words = {word for item in found for word in normalize(item.question).split() if word.islower()}
    assert words <= VOCABULARY | {"table"}  # the periodic one
    faults = [
        find_plan_fault(Question(text=item.question), gold_plan(item).steps, pool_of(item.members)) for item in found
    ]
    assert sum(map(bool, faults)) < 10


def test_an_answer_is_compared_as_workers_write_it() -> None:
    item = draw_exercises(draw_problems(1, 1), STRONG, 1)[0]
    assert item.is_correct(f" {item.problem.answer.lower()}.\n")
    assert not item.is_correct("?")


NEEDED = ("geography", "spelling", CHECKING)


def drawn(settings: PoolSettings, count: int = 300) -> list[tuple[Member, ...]]:
    random = Random(1)
    return [draw_members(random, NEEDED, SKILLS, settings) for _ in range(count)]


def test_somebody_has_every_skill_that_a_question_needs() -> None:
    """Unless the generalist is there to stand in, and then only in a share of the pools."""
    for settings in (EASY, STRONG, WHOLE):
        for members in drawn(settings):
            assert set(NEEDED) <= {skill for member in members for skill in member.strengths}
    missing = drawn(replace(MIXED, generalist=1.0, missing=1.0))
    assert all(any(ANYTHING in member.strengths for member in members) for members in missing)
    left_out = [set(NEEDED) - {skill for member in members for skill in member.strengths} for members in missing]
    assert all(len(skills) == 1 and CHECKING not in skills for skills in left_out)


def test_a_member_is_known_by_its_card_and_its_files() -> None:
    """A name means nothing. The generalist has a file of its own, and so has the checker."""
    member = Member(strengths={"spelling": 0.5, CHECKING: 0.9}, price=3)
    (worker,) = pool_of([member])
    assert (worker.name, worker.card.strengths) == ("member1", member.strengths)
    assert worker.price is not None
    assert worker.price.input == 3
    assert member.files == {"spelling": 0.5, "checker": 0.9}
    assert Member(strengths={ANYTHING: 0.4}).files == {"generalist": 1.0}
