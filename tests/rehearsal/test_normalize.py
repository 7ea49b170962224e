"""What people type -> what the models read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor_cli.rehearsal.normalize import CAPABILITIES, find_operands, find_skills, is_known, normalize
from scripts.rehearsal.world import draw_problems

SPELLED = "spell the capital of FRANCE backwards"


@pytest.mark.parametrize(
    "typed",
    [
        "Spell the capital of France backwards.",
        "spell the capital of france backwards",
        "SPELL THE CAPITAL OF FRANCE BACKWARDS!",
        '  Spell the   capital of "France" backwards',
        "spell the capital of 'FRANCE' backwards ?",
        "Spell the capital of ‘France’ backwards…",
        "spell\nthe capital of “france” backwards",
    ],
)
def test_every_way_to_type_a_question_gives_one_text(typed: str) -> None:
    """Case, quotes, stops and spaces carry nothing."""
    assert normalize(typed) == SPELLED


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("What's 12+7?", "what is 12 plus 7"),
        ("what is 12 - 7", "what is 12 minus 7"),
        ("3 x 4", "3 times 4"),
        ("3×4", "3 times 4"),
        ("take Paris - spell it backwards", "take PARIS spell it backwards"),
        ("Spell 'last' backwards", "spell LAST backwards"),
        ("spell LAST backwards", "spell LAST backwards"),
        ("What is France's capital?", "what is FRANCE's capital"),
        ("the symbol of Zinc", "the symbol of ZINC"),
        ("the element with the symbol Fe", "the element with the symbol FE"),
        ("reverse 'Brasília'", "reverse BRASILIA"),
        ("", ""),
        ("東京", ""),
    ],
)  # fmt: skip
def test_operands_are_in_upper_case(typed: str, read: str) -> None:
    """Signs become words, and a word that no phrasing has, or that is quoted, is one to be worked on."""
    assert normalize(typed) == read


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), split=st.sampled_from(["train", "test"]))
def test_a_question_is_read_the_same_however_it_is_typed(seed: int, split: str) -> None:
    """Small, large, without stop, and read twice: always the same text."""
    for problem in draw_problems(10, seed, split=split):  # type: ignore[arg-type]
        read = normalize(problem.question)
        ways = [
            problem.question.lower(),
            problem.question.upper(),
            f"  {problem.question.rstrip('.?')} ",
            read,
            f"{read}?!",
        ]
        assert {normalize(way) for way in ways} == {read}


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_can_be_normalized(text: str) -> None:
    """Whatever is typed, what the models read is plain ASCII on one line, and no longer than four times the text."""
    read = normalize(text)
    assert read.isascii()
    assert "\n" not in read
    assert read == " ".join(read.split())


@pytest.mark.parametrize(
    "typed",
    [
        "How many letters does 'banana' have?", "What's 3 plus 4", "opposite of hot", "Spell Conductor backwards",
        "Which month comes after May?", "What is the capital of Norway, spelled backwards?", "20 - 6",
    ],
)  # fmt: skip
def test_a_question_of_this_world_is_known(typed: str) -> None:
    """Also in words that no phrasing has exactly."""
    assert is_known(typed)


@pytest.mark.parametrize(
    "typed",
    [
        "Who is the president of France?", "What is the meaning of life?", "What is the capital of Atlantis?",
        "Write a poem", "Is 17 prime?", "", "Spell", "What is the opposite of a zebra crossing", "how many letters",
        "Prove that there are infinitely many primes.", "Spell 東京 backwards",
    ],
)  # fmt: skip
def test_a_question_outside_the_world_is_not_known(typed: str) -> None:
    """Such questions are refused."""
    assert not is_known(typed)


def test_the_capabilities_name_each_skill() -> None:
    """They fit into one line of an error message."""
    assert "\n" not in CAPABILITIES
    for word in ("letters", "sums", "capitals"):
        assert word in CAPABILITIES


def test_operands_and_skills_are_found() -> None:
    """The operands, and the skills whose keywords occur."""
    assert find_operands("take FRANCE's capital add 3") == ("FRANCE", "3")
    assert find_skills("Spell the capital of France backwards, then add 3") == ("letters", "numbers", "facts")
