"""The rehearsal's world: its questions, their answers, and what is kept for testing."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.rehearsal.words import find_operands, is_known, normalize
from scripts.rehearsal import world
from scripts.rehearsal.operations import OPERATIONS, SKILLS, UNSEEN
from scripts.rehearsal.trees import STEPS
from scripts.rehearsal.words import CAPITALS, COLOURS, ELEMENTS, MONTHS, OPPOSITES, SPANISH, WORDS
from scripts.rehearsal.world import Problem, ProblemSettings, draw_problems, is_test_word
from tests.scripts.rehearsal.reader import readings

SEEDS = st.integers(0, 10**6)


def test_the_world_has_the_documented_size() -> None:
    """As many facts and words as docs/rehearsal.md says, each once; more than a thousand everyday words."""
    sizes = {"capitals": 89, "elements": 51, "opposites": 79, "Spanish": 277, "colours": 81}
    tables = (CAPITALS, ELEMENTS, OPPOSITES, SPANISH, COLOURS)
    assert [len(table) for table in tables] == list(sizes.values())
    assert len(set(CAPITALS.values())) == len(CAPITALS)
    assert len(set(SPANISH.values())) == len(SPANISH)
    assert len({*WORDS, *SPANISH, *COLOURS}) > 1000
    assert len(WORDS) == len(set(WORDS))
    assert len(SKILLS) == 10


@given(seed=SEEDS, split=st.sampled_from(["train", "test"]))
def test_each_step_says_what_it_asks_for(seed: int, split: str) -> None:
    """Read from its words and the answers that it sees, a step leads to its answer, and to no other."""
    for problem in draw_problems(5, seed, split=split, skills=(*SKILLS, UNSEEN)):
        for hop in problem.hops:
            if hop.skill != "checking":
                seen = [problem.hops[number - 1].answer for number in hop.access]
                # "find out PEA's colour" is made of an order for "it", and no line of the grammar.
                found = readings(hop.subtask, seen) or ({hop.answer} if not hop.access else set())
                assert found == {hop.answer}, (problem.question, hop)


@given(seed=SEEDS, count=st.integers(1, 20))
def test_the_same_seed_gives_the_same_problems(seed: int, count: int) -> None:
    """A seed reproduces; more of them begin with the same ones; no two ask the same."""
    found = draw_problems(count, seed, split="test")
    assert draw_problems(count + 5, seed, split="test")[:count] == found
    assert len({normalize(problem.question) for problem in found}) == count
    assert len({problem.id for problem in found}) == count


def test_a_third_of_the_questions_are_chains_and_a_third_have_a_join() -> None:
    """The mix of shapes; no plan is longer than a plan may be; about one in seven asks for a check."""
    problems = draw_problems(1000, 1)
    shapes = Counter(problem.shape for problem in problems)
    assert 250 < shapes["single"] < 350
    assert 290 < shapes["chain2"] + shapes["chain3"] < 390
    assert 310 < shapes["join"] + shapes["join_then"] + shapes["chain_in_join"] < 410
    assert all(STEPS[problem.shape] <= len(problem.hops) - problem.check <= MAX_STEPS for problem in problems)
    assert max(len(problem.hops) for problem in problems) == MAX_STEPS
    assert 100 < sum(problem.check for problem in problems) < 200


def test_a_join_needs_two_answers() -> None:
    """Some step sees two, in the order of the text; a chain's steps see the one before."""
    for problem in draw_problems(300, 2, checked=0.0):
        needs = [hop.access for hop in problem.hops]
        if problem.shape in {"single", "chain2", "chain3"}:
            assert needs == [(number,) if number else () for number in range(len(needs))]
        else:
            joins = [access for access in needs if len(access) == 2]
            assert len(joins) == 1
            assert joins[0][0] < joins[0][1]


def test_a_check_sees_the_answer_and_what_it_was_made_of() -> None:
    """The last step checks the one before it, and sees what that one saw."""
    for problem in draw_problems(100, 3, checked=1.0):
        if problem.check:
            *_, checked, check = problem.hops
            assert (check.skill, check.answer) == ("checking", "YES")
            assert check.access == (*checked.access, len(problem.hops) - 1)
            assert problem.answer == checked.answer


def drawn(split: str, phrasings: str, seeds: range, count: int) -> list[Problem]:
    wanted = ProblemSettings(split=split, phrasings=phrasings)  # type: ignore[arg-type]
    return [item for seed in seeds for item in draw_problems(count, seed, wanted)]


def test_test_questions_are_never_training_questions() -> None:
    """No question of a test is one of training's in held-out phrasings; nor is a word for letters in any."""
    trained = drawn("train", "known", range(4), 300)
    tested = drawn("test", "held", range(2), 300)
    texts = {normalize(problem.question) for problem in trained}
    assert not texts & {normalize(problem.question) for problem in tested}
    several = {steps(problem) for problem in trained if problem.shape != "single"}
    assert not several & {steps(problem) for problem in tested if problem.shape != "single"}
    words = {word for problem in trained for word in re.findall("[A-Z]+", normalize(problem.question))}
    assert not any(is_test_word(word) for word in words)
    assert any(is_test_word(word) for problem in tested for word in find_operands(normalize(problem.question)))


def steps(problem: Problem) -> tuple[object, ...]:
    """What is done with what."""
    hops = [hop for hop in problem.hops if hop.skill != "checking"]
    return tuple((hop.op, hop.access, tuple(sorted(find_operands(hop.subtask)))) for hop in hops)


def test_all_operations_are_drawn() -> None:
    """A set of fifteen hundred uses every operation but those of the unseen skill; a set that needs it has it."""
    mix = draw_problems(1500, 1, split="test")
    seen = {hop.op for problem in mix for hop in problem.hops} - {"check"}
    assert seen == {name for name, operation in OPERATIONS.items() if operation.skill in SKILLS}
    unseen = draw_problems(50, 1, split="test", skills=(*SKILLS, UNSEEN), needs=UNSEEN)
    assert all(UNSEEN in problem.skills for problem in unseen)


def test_asking_for_too_many_problems_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that cannot be filled with different questions says so."""
    few = draw_problems(3, 1)
    monkeypatch.setattr(world, "draw_problem", lambda random, *_, **__: replace(random.choice(few)))
    assert len(draw_problems(3, 2)) == 3
    with pytest.raises(ValueError, match="there are no 4 different problems"):
        draw_problems(4, 2)


@given(seed=SEEDS)
def test_a_subtask_uses_the_words_of_the_question(seed: int) -> None:
    """Subtasks are made of the question's words, and of words for earlier answers."""
    stand = {"it", "its", "the", "first", "second", "that", "result", "check"}
    for problem in draw_problems(10, seed, split="test"):
        words = {*normalize(problem.question).replace("'s", "").split(), *stand}
        for hop in problem.hops:
            assert {*hop.subtask.replace("'s", "").split()} <= words, (problem.question, hop.subtask)


def test_december_is_followed_by_january() -> None:
    """After the last month comes the first, and before the first the last."""
    after, before = OPERATIONS["month_after"], OPERATIONS["month_before"]
    assert [(after.does(one), before.does(two)) for one, two in pairwise(MONTHS)] == list(
        zip(MONTHS[1:], MONTHS[:-1], strict=True)
    )
    assert after.does("DECEMBER") == "JANUARY"
    assert before.does("JANUARY") == "DECEMBER"


def test_an_operation_declines_what_does_not_fit() -> None:
    """Numbers out of range, words for numbers and numbers for words, and words that are too long have no answer."""
    declined = {"plus": ("60", "60"), "minus": ("3", "4"), "half": ("7",), "times": ("13", "2"), "reverse": ("12",),
                "longer": ("CAT", "DOG"), "larger": ("5", "5"), "joined": ("ELEPHANT", "CROCODILE"),
                "capital": ("LION",), "double": ("LION",), "letters": ("A" * 15,)}  # fmt: skip
    assert {name: OPERATIONS[name].does(*values) for name, values in declined.items()} == dict.fromkeys(declined)


def test_every_drawn_question_is_known() -> None:
    """What the world asks is a question of this world."""
    asked = [*draw_problems(500, 5), *draw_problems(500, 5, split="test")]
    assert [problem.question for problem in asked if not is_known(problem.question)] == []
