"""Questions in words that mean nothing: subtasks can still be copied from them."""

from __future__ import annotations

import re
from random import Random

from conductor_cli.rehearsal.words import normalize
from scripts.rehearsal.syntax_noise import Clauses, clauses_of, garble, name_skill
from scripts.rehearsal.world import Problem, ProblemSettings, draw_problem

OPERANDS = re.compile(r"\b(?:[A-Z]+|[0-9]+)\b")


def problem(seed: int) -> Problem:
    return draw_problem(Random(seed), ProblemSettings(checked=0.0))


def test_a_clause_is_changed_the_same_in_question_and_subtask() -> None:
    """So that every word that is put in can be copied, and no operand is touched."""
    changed = 0
    for seed in range(200):
        plain, random = problem(seed), Random(seed)
        text = clauses_of(plain)
        for at in range(len(plain.hops)):
            garble(random, text, at)
        changed += text.asked != normalize(plain.question).split()
        for words, hop in zip(text.subtasks, plain.hops, strict=True):
            assert set(words) - set(hop.subtask.split()) <= set(text.asked)
        assert OPERANDS.findall(" ".join(text.asked)) == OPERANDS.findall(normalize(plain.question))
    assert changed > 150


def test_a_step_can_name_a_made_up_skill() -> None:
    """The words that tell its real skill are gone from the question and from the subtask."""
    named = 0
    for seed in range(200):
        plain = problem(seed)
        text = clauses_of(plain)
        skill = name_skill(Random(seed), text, 0, plain.hops[0].skill)
        if skill:
            named += 1
            assert any(word[:2] == skill[:2] and word in text.asked for word in text.subtasks[0])
    assert named > 120


def test_a_word_that_could_be_meant_twice_is_left_alone() -> None:
    """Unless its neighbours say which one it is."""
    text = Clauses(["the", "sum", "of", "3", "and", "the", "sum", "of", "4"], [["sum", "of", "3"], ["sum", "of", "4"]])
    assert text.spots(0) == [1]
    text.exchange(0, 1, ["for"])
    assert text.asked == ["the", "sum", "for", "3", "and", "the", "sum", "of", "4"]
    assert text.subtasks == [["sum", "for", "3"], ["sum", "of", "4"]]
