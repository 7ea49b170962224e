"""The questions and word lists that ship with the package are those of the generator."""

from __future__ import annotations

from conductor_cli.evals.cases import write_cases
from conductor_cli.rehearsal.words import VOCABULARY, world
from scripts.rehearsal.operations import subjects
from scripts.rehearsal.phrasings import vocabulary
from scripts.rehearsal.questions import PACKAGE, held_out_cases, practice_cases


def test_the_shipped_questions_are_those_of_the_generator() -> None:
    """`python -m scripts.rehearsal.questions` would change nothing."""
    assert (PACKAGE / "held_out.jsonl").read_text("utf-8") == write_cases(held_out_cases())
    assert (PACKAGE / "practice.jsonl").read_text("utf-8") == write_cases(practice_cases())


def test_the_word_lists_are_those_of_the_generator() -> None:
    """The package tells words of phrasings from operands, and known facts from others, as the generator does."""
    assert vocabulary() == VOCABULARY
    assert subjects() == world().subjects
