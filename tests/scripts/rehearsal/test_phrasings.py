"""The rehearsal's phrasings: what is kept for testing, and which of their words could be taken for operands."""

from __future__ import annotations

import pytest

from scripts.rehearsal.operations import subjects
from scripts.rehearsal.phrasings import (
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
from scripts.rehearsal.sentences import _naming
from scripts.rehearsal.words import WORDS

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
    """Nor does training read the held-out words around a phrasing."""
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
    """In "take LION, then ...", the words for LION are replaced, and no others."""
    assert _naming(order, "LION") == named
