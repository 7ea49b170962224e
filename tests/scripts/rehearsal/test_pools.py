"""Pools that are drawn for a question."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

from conductor_cli.rehearsal.players import ANYTHING, CHECKING
from scripts.rehearsal.exercises import EASY, MIXED, STRONG, UNSEEN_POOLS
from scripts.rehearsal.operations import SKILLS
from scripts.rehearsal.pools import Member, PoolSettings, draw_members, pool_of

NEEDED = ("geography", "spelling", CHECKING)


def drawn(settings: PoolSettings, count: int = 300) -> list[tuple[Member, ...]]:
    random = Random(1)
    return [draw_members(random, NEEDED, SKILLS, settings) for _ in range(count)]


def test_somebody_has_every_skill_that_a_question_needs() -> None:
    """Unless the generalist is there to stand in, and then only in a share of the pools."""
    for settings in (EASY, STRONG, UNSEEN_POOLS):
        for members in drawn(settings):
            assert set(NEEDED) <= {skill for member in members for skill in member.strengths}
    missing = drawn(replace(MIXED, generalist=1.0, missing=1.0))
    assert all(any(ANYTHING in member.strengths for member in members) for members in missing)
    left_out = [set(NEEDED) - {skill for member in members for skill in member.strengths} for members in missing]
    assert all(len(skills) == 1 and CHECKING not in skills for skills in left_out)


def test_sizes_places_and_strengths_are_drawn() -> None:
    """So no letter means a skill, and a high grade is not always the first one that is listed."""
    pools = drawn(MIXED)
    assert {len(members) for members in pools} >= {2, 3, 4, 5}
    threes = [members for members in pools if len(members) == 3]
    places = Counter(at for members in threes for at, member in enumerate(members) if "spelling" in member.strengths)
    assert min(places[at] for at in range(3)) > max(places.values()) / 3
    assert len({strength for members in pools for member in members for strength in member.strengths.values()}) > 40


def test_a_sure_check_is_never_wrong_by_chance() -> None:
    """The best checker of such a pool has the strength 1, whatever the others have."""
    settings = PoolSettings(sure=0.0, sure_check=True)
    for seed in range(40):
        members = draw_members(Random(seed), ["adding", CHECKING], ["spelling"], settings)
        assert max(member.strengths.get(CHECKING, 0.0) for member in members) == 1.0
        assert max(member.strengths.get("adding", 0.0) for member in members) < 1.0


def test_there_are_always_two_members() -> None:
    """With one worker on offer, a plan may have only one step."""
    random = Random(3)
    for _ in range(200):
        members = draw_members(random, ("spelling",), random.choice((SKILLS, ())), EASY)
        assert len(members) > 1
        assert all(member.strengths for member in members)


def test_a_strong_pool_has_a_perfect_member_for_each_needed_skill() -> None:
    """Best routing there is limited by the files alone."""
    for members in drawn(STRONG):
        for skill in NEEDED:
            assert max(member.strengths.get(skill, 0) for member in members) == 1.0


def test_a_member_is_known_by_its_card_and_its_files() -> None:
    """A name means nothing. The generalist has a file of its own, and so has the checker."""
    member = Member(strengths={"spelling": 0.5, CHECKING: 0.9}, price=3)
    (worker,) = pool_of([member])
    assert (worker.name, worker.card.strengths) == ("member1", member.strengths)
    assert worker.price is not None
    assert worker.price.input == 3
    assert member.files == {"spelling": 0.5, "checker": 0.9}
    assert Member(strengths={ANYTHING: 0.4}).files == {"generalist": 1.0}
