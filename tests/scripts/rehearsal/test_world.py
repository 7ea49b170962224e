"""The rehearsal's world: its questions, their answers, and what is kept for testing."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_cli.rehearsal.normalize import find_operands, is_known, normalize
from scripts.rehearsal.operations import OPERATIONS, SKILLS, facts, of_skill
from scripts.rehearsal.phrasings import WAYS, can_nest, vocabulary
from scripts.rehearsal.words import CAPITALS, ELEMENTS, MONTHS, OPPOSITES, WORDS
from scripts.rehearsal.world import Problem, draw_problems, is_test_word
from tests.scripts.rehearsal.reader import answers

SEEDS = st.integers(0, 10**6)


def test_the_world_has_the_documented_size() -> None:
    """There are at least 40 capitals, 36 elements, 12 months, and every word is worked on by one table only."""
    assert len(CAPITALS) >= 40
    assert len(ELEMENTS) >= 36
    assert len(MONTHS) == 12
    names = [*CAPITALS, *(name for name, _, _ in ELEMENTS), *MONTHS, *(word for pair in OPPOSITES for word in pair)]
    assert len(names) == len(set(names))
    assert not set(WORDS) & {*names, *CAPITALS.values()}
    assert len(WORDS) == len(set(WORDS))


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_has_at_least_eight_phrasings_and_some_are_held_out(skill: str) -> None:
    """Each skill is asked for in eight ways and more; each operation has held-out ones, which no known one equals."""
    ways = [WAYS[operation.name] for operation in of_skill(skill)]  # type: ignore[arg-type]
    assert sum(len(way.nouns + way.asks + way.orders) for way in ways) >= 8
    for way in ways:
        held = way.held_nouns + way.held_orders
        assert way.held_nouns
        assert way.held_orders
        assert not set(held) & {*way.nouns, *way.asks, *way.orders}
        assert any(can_nest(phrasing) for phrasing in way.held_nouns)
        assert any(can_nest(phrasing) for phrasing in way.nouns)


def test_no_operand_is_a_word_of_a_phrasing() -> None:
    """A question can be read without quotes: what a phrasing is made of is never worked on."""
    worked = {*WORDS, *(word for operation in OPERATIONS.values() for word in operation.starts)}
    assert not {word.lower() for word in worked} & vocabulary()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, split=st.sampled_from(["train", "test"]), count=st.integers(1, 25))
def test_the_answer_is_what_the_text_asks_for(seed: int, split: str, count: int) -> None:
    """Read from its text alone, a question leads to its answer, and to no other."""
    for problem in draw_problems(count, seed, split=split):  # type: ignore[arg-type]
        assert answers(normalize(problem.question)) == {problem.answer}, problem.question


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 30))
def test_the_same_seed_gives_the_same_problems(seed: int, count: int) -> None:
    """A seed reproduces; more of them begin with the same ones; no two ask the same."""
    found = draw_problems(count, seed, split="test")
    assert draw_problems(count, seed, split="test") == found
    assert draw_problems(count + 5, seed, split="test")[:count] == found
    assert len({normalize(problem.question) for problem in found}) == count
    assert len({problem.id for problem in found}) == count


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, count=st.integers(1, 40))
def test_at_least_half_are_multi_hop(seed: int, count: int) -> None:
    """However many are drawn, at least half take more than one hop, and none more than three."""
    hops = [len(problem.hops) for problem in draw_problems(count, seed)]
    assert sum(number > 1 for number in hops) * 2 >= count
    assert set(hops) <= {1, 2, 3}


def drawn(split: str, phrasings: str, seeds: range, count: int) -> list[Problem]:
    return [item for seed in seeds for item in draw_problems(count, seed, split=split, phrasings=phrasings)]  # type: ignore[arg-type]


def test_test_questions_are_never_training_questions() -> None:
    """No question of a test is one of training's, whichever phrasings it is drawn from; nor is a letters' word."""
    trained = drawn("train", "known", range(8), 400)
    tested = [item for phrasings in ("known", "held", "all") for item in drawn("test", phrasings, range(2), 400)]
    texts = {normalize(problem.question) for problem in trained}
    assert not texts & {normalize(problem.question) for problem in tested}
    chains = {path(problem) for problem in trained if len(problem.hops) > 1}
    assert not chains & {path(problem) for problem in tested if len(problem.hops) > 1}
    words = {word for problem in trained for word in re.findall("[A-Z]+", normalize(problem.question)) if word in WORDS}
    assert words
    assert not any(is_test_word(word) for word in words)


def path(problem: Problem) -> tuple[str, ...]:
    """What a chain starts with, and what is done."""
    start = list(find_operands(problem.hops[0].subtask))
    if problem.hops[0].amount:
        start.remove(str(problem.hops[0].amount))
    return (*start, *(f"{hop.op} {hop.amount}" for hop in problem.hops))


def test_all_skills_and_operations_are_drawn() -> None:
    """A set of five hundred uses every operation, as the only hop of a question and within a chain."""
    mix = draw_problems(500, 1, split="test")
    assert {hop.op for problem in mix for hop in problem.hops} == set(OPERATIONS)
    assert {problem.hops[0].op for problem in mix if len(problem.hops) == 1} == set(OPERATIONS)


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_can_be_drawn_alone(skill: str) -> None:
    """Five hundred different one-hop questions of one skill exist."""
    found = draw_problems(500, 3, split="test", hops=(1,), skills=(skill,))  # type: ignore[arg-type]
    assert {hop.skill for problem in found for hop in problem.hops} == {skill}
    assert {len(problem.hops) for problem in found} == {1}


def test_asking_for_too_many_problems_is_an_error() -> None:
    """A set that cannot be filled with different questions says so."""
    with pytest.raises(ValueError, match="there are no 20000 different problems"):
        draw_problems(20_000, 1, split="test", hops=(1,), skills=("facts",))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_a_subtask_uses_the_words_of_the_question(seed: int) -> None:
    """Subtasks are made of the question's words and "it"; each hop needs the one before it and no other."""
    for problem in draw_problems(10, seed, split="test"):
        words = {*normalize(problem.question).replace("'s", "").split(), "it", "its", "'s"}
        for number, hop in enumerate(problem.hops):
            assert {*hop.subtask.replace("'s", "").split()} <= words, (problem.question, hop.subtask)
            assert hop.access == ((number,) if number else ())
            assert ("it" in re.findall("[a-z]+", hop.subtask) or number == 0 or "its" in hop.subtask
                    or "{x}" not in hop.phrasing)  # fmt: skip
        assert problem.hops[-1].answer == problem.answer


def test_december_is_followed_by_january() -> None:
    """After the last month comes the first, and before the first the last."""
    after, before = OPERATIONS["after"], OPERATIONS["before"]
    assert [(after.does(one, 0), before.does(two, 0)) for one, two in pairwise(MONTHS)] == list(
        zip(MONTHS[1:], MONTHS[:-1], strict=True)
    )
    assert after.does("DECEMBER", 0) == "JANUARY"
    assert before.does("JANUARY", 0) == "DECEMBER"


def test_every_drawn_question_is_known() -> None:
    """What the world asks is a question of this world."""
    asked = [*draw_problems(300, 5), *draw_problems(300, 5, split="test")]
    assert [problem.question for problem in asked if not is_known(problem.question)] == []
    assert facts()
