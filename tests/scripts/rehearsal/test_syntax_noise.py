"""Garbled questions: subtasks that can be copied, and nothing that is kept for testing."""

from __future__ import annotations

import re
from random import Random

from conductor_cli.rehearsal.normalize import normalize
from scripts.rehearsal.phrasings import HELD_FRAMES, HELD_OPENINGS, WAYS, PhrasingForm
from scripts.rehearsal.syntax_noise import add_syntax_noise
from scripts.rehearsal.words import WORDS
from scripts.rehearsal.world import Problem, ProblemSettings, draw_problem, is_test_word

FORMS: tuple[PhrasingForm, ...] = ("noun", "ask", "order")


def problem(seed: int, hops: int = 3) -> Problem:
    return draw_problem(Random(seed), ProblemSettings(), hops)


def test_a_clause_is_changed_the_same_in_question_and_subtask() -> None:
    """So that what is written can always be copied from what is read."""
    changed = 0
    for seed in range(300):
        plain = problem(seed, 1 + seed % 3)
        asked, subtasks = add_syntax_noise(Random(seed), plain)
        changed += asked != normalize(plain.question)
        for subtask, hop in zip(subtasks, plain.hops, strict=True):
            new = set(subtask.split()) - set(normalize(hop.subtask).split())
            assert new <= set(asked.split())
    assert 0.5 < changed / 300 < 0.75


def test_operands_stay_unchanged() -> None:
    """Words and numbers to be worked on are those of the plain question, in its order."""
    for seed in range(200):
        plain = problem(seed)
        operands = re.compile(r"\b(?:[A-Z]+|[0-9]+)\b")
        assert operands.findall(add_syntax_noise(Random(seed), plain)[0]) == operands.findall(normalize(plain.question))


def test_a_noun_phrase_can_be_nested_in_another() -> None:
    """With an article inside: the subtask has one more than the plain hop ever has."""
    found = [add_syntax_noise(Random(seed), problem(seed, 1))[1][0] for seed in range(300)]
    assert any(re.match(r"[a-z]+ (of|in|for|that has) the [a-z]+ ", text) for text in found)


def test_no_held_out_opening_is_trained() -> None:
    """Not even by words that are put before a question and say nothing."""
    frames = [text for frames in (*HELD_FRAMES.values(), HELD_OPENINGS) for text in frames]
    held = tuple(text.partition("{")[0].rstrip() for text in frames)
    for seed in range(400):
        plain = problem(seed)
        made = add_syntax_noise(Random(seed), plain)[0]
        assert made.startswith(held) <= normalize(plain.question).startswith(held)


def test_nothing_held_out_is_trained() -> None:
    """Neither words nor phrasings, nor by chance a garbled clause that is a held-out phrasing."""
    held = {word for word in WORDS if is_test_word(word)}
    ways = [text for ways in WAYS.values() for form in FORMS for text in ways.of(form, "held")]
    phrasings = {text.removeprefix("the ") for text in ways}
    for seed in range(2000):
        plain = problem(seed)
        asked, subtasks = add_syntax_noise(Random(seed), plain)
        assert not held & set(asked.split())
        for at, hop in enumerate(plain.hops):
            made = re.sub(r"\bit\b|\b[A-Z]+\b", "{x}", subtasks[at])
            assert made.replace(str(hop.amount), "{k}") not in phrasings
