"""The rehearsal's world: its questions, their answers, its phrasings, and what is kept for testing."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.plan import MAX_STEPS
from conductor_cli.evals.cases import write_cases
from conductor_cli.rehearsal.words import VOCABULARY, find_operands, is_known, normalize
from conductor_cli.rehearsal.words import world as shipped_world
from tests.training.rehearsal.reader import readings
from training.rehearsal.operations import OPERATIONS, SKILLS, STEPS, UNSEEN, subjects
from training.rehearsal.phrasings import (
    CHECKS,
    FRAMES,
    OPENINGS,
    PAIRS,
    WAYS,
    PhrasingForm,
    expand,
    lines_of,
    vocabulary,
)
from training.rehearsal.sentences import _naming
from training.rehearsal.shipped import PACKAGE, held_out_cases, practice_cases
from training.rehearsal.words import CAPITALS, COLOURS, ELEMENTS, OPPOSITES, SPANISH, WORDS
from training.rehearsal.world import Problem, ProblemSettings, draw_problems, is_test_word

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


def drawn(split: str, phrasings: str, seeds: range, count: int) -> list[Problem]:
    wanted = ProblemSettings(split=split, phrasings=phrasings)  # type: ignore[arg-type]
    return [item for seed in seeds for item in draw_problems(count, seed, wanted)]


def test_test_questions_are_never_training_questions() -> None:
    """No question of a test is one of training's in held-out phrasings; nor is a word for letters in any."""
    trained = drawn("train", "known", range(2), 300)
    tested = drawn("test", "held", range(1), 300)
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


@given(seed=SEEDS)
def test_a_subtask_uses_the_words_of_the_question(seed: int) -> None:
    stand = {"it", "its", "the", "first", "second", "that", "result", "check"}
    for problem in draw_problems(10, seed, split="test"):
        words = {*normalize(problem.question).replace("'s", "").split(), *stand}
        for hop in problem.hops:
            assert {*hop.subtask.replace("'s", "").split()} <= words, (problem.question, hop.subtask)


def test_an_operation_declines_what_does_not_fit() -> None:
    """Numbers out of range, words for numbers and numbers for words, and words that are too long have no answer."""
    declined = {"plus": ("60", "60"), "minus": ("3", "4"), "half": ("7",), "times": ("13", "2"), "reverse": ("12",),
                "longer": ("CAT", "DOG"), "larger": ("5", "5"), "joined": ("ELEPHANT", "CROCODILE"),
                "capital": ("LION",), "double": ("LION",), "letters": ("A" * 15,)}  # fmt: skip
    assert {name: OPERATIONS[name].does(*values) for name, values in declined.items()} == dict.fromkeys(declined)


def test_every_drawn_question_is_known() -> None:
    asked = [*draw_problems(150, 5), *draw_problems(150, 5, split="test")]
    assert [problem.question for problem in asked if not is_known(problem.question)] == []


FORMS: tuple[PhrasingForm, ...] = ("noun", "ask", "order", "then")
FRAME_TEXTS = {"checks": CHECKS, "frames": FRAMES, "openings": OPENINGS, "pairs": PAIRS}


def texts_of(lines: str, form: PhrasingForm) -> tuple[set[str], set[str]]:
    """What the known and the held-out lines of a form expand to, held-out ones only where there are some."""
    every, known = (lines_of(lines, form, which) for which in ("all", "known"))
    held = lines_of(lines, form, "held") if set(every) - set(known) else ()
    return {text for line in known for text in expand(line)}, {text for line in held for text in expand(line)}


@pytest.mark.parametrize("operation", WAYS)
def test_no_known_phrasing_is_a_held_out_one(operation: str) -> None:
    """Training reads no text that an operation keeps for testing, in whichever form it stands."""
    pairs = [texts_of(WAYS[operation], form) for form in FORMS]
    known = set[str]().union(*(texts for texts, _ in pairs))
    held = set[str]().union(*(texts for _, texts in pairs))
    assert held
    assert known & held == set()


@pytest.mark.parametrize("name", FRAME_TEXTS)
def test_no_known_frame_is_a_held_out_one(name: str) -> None:
    for form in FORMS:
        known, held = texts_of(FRAME_TEXTS[name], form)
        assert known & held == set()


def test_no_word_of_a_phrasing_is_one_to_work_on() -> None:
    """A word that is both would be lost: a question about it could not be told from its phrasing."""
    assert vocabulary() & {word.lower() for word in (*WORDS, *subjects())} == set()


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ("get the number of letters in it", "get the number of letters in LION"),
        ("get the number of that month", "get the number of LION"),
        ("get the country of that city", "get the country of LION"),
        ("say what the month that follows it is", "say what the month that follows LION is"),
        ("find the number of its letters", "find the number of LION's letters"),
        ("double the result", "double LION"),
    ],
)
def test_a_step_names_its_word_in_the_place_of_the_pronoun(order: str, named: str) -> None:
    assert _naming(order, "LION") == named


def test_the_shipped_questions_are_those_of_the_generator() -> None:
    assert (PACKAGE / "held_out.jsonl").read_text("utf-8") == write_cases(held_out_cases())
    assert (PACKAGE / "practice.jsonl").read_text("utf-8") == write_cases(practice_cases())


def test_the_word_lists_are_those_of_the_generator() -> None:
    """The package tells words of phrasings from operands, and known facts from others, as the generator does."""
    assert vocabulary() == VOCABULARY
    assert subjects() == shipped_world().subjects
