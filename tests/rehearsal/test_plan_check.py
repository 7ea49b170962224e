"""What people type, as the demo's models read it; and what the words of a plan tell.

Its faults, who can do it.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.question import Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.rehearsal.players import (
    RulePlanner,
    find_plan_fault,
    read_worker_cards,
    rehearsal_workers,
)
from conductor_cli.rehearsal.words import KEYWORDS, is_known, normalize, world
from training.rehearsal.operations import OPERATIONS, SKILLS, UNSEEN, subjects
from training.rehearsal.shipped import FILE, operations, telling_words
from training.rehearsal.words import WORDS
from training.rehearsal.world import draw_problems

POOL = rehearsal_workers(read_worker_cards())
NO_OPERATION = "step 1 is not one operation with the values that it needs"
BOTH = "the longer of the capital of france and the capital of italy"

CAPITALS = [("capital of FRANCE", (), "geography"), ("capital of ITALY", (), "geography")]

Steps = list[tuple[str, tuple[int, ...], str]]


def fault(question: str, steps: Steps) -> str:
    """The fault of a plan that is written shortly."""
    return find_plan_fault(
        Question(text=question),
        [Step(worker=worker, subtask=text, access=access) for text, access, worker in steps],
        POOL,
    )


@pytest.mark.parametrize(
    ("question", "steps"),
    [
        ("17 + 25", [("17 plus 25", (), "adding")]),
        ("please reverse 'first'", [("reverse FIRST", (), "spelling")]),
        ("how many letters in butterfly", [("how many letters in BUTTERFLY", (), "counting")]),
        (BOTH, [*CAPITALS, ("longer of the first and the second", (1, 2), "comparing")]),
        (
            "double 4, then double check it",
            [("double 4", (), "multiplying"), ("check it", (1,), "checker")],
        ),
    ],
)
def test_a_plan_that_does_what_is_asked_has_no_fault(question: str, steps: Steps) -> None:
    assert fault(question, steps) == ""


@pytest.mark.parametrize(
    ("question", "steps", "expected"),
    [
        (
            "opposite of war backwards",
            [("opposite of WAR", (), "opposites")],
            "no step has the word backwards",
        ),
        (
            "number of letters in the capital of egypt",
            [("number of letters in the capital of EGYPT", (), "counting")],
            NO_OPERATION,
        ),
        (
            "symbol for iron",
            [("symbol for IRON", (), "checker")],
            "step 1 is nothing that checker can do",
        ),
        (
            "symbol for iron",
            [("symbol for IRON", (), "generalist")],
            "step 1 is nothing that generalist can do",
        ),
        ("half of 7", [("half of 7", (), "multiplying")], NO_OPERATION),
        (
            "double the capital of france",
            [("capital of FRANCE", (), "geography"), ("double it", (1,), "multiplying")],
            "step 2 is not one operation",
        ),
        ("17 + 25", [("17 plus 25 doubled", (), "adding")], NO_OPERATION),
        (
            "capital of peru",
            [("capital of PERU", (), "geography"), ("reverse it", (1,), "spelling")],
            "the question has no reverse",
        ),
        (
            BOTH,
            [*CAPITALS, ("the first and the second", (1, 2), "spelling")],
            "step 3 is not one operation",
        ),
        (
            "number of august",
            [("number of AUGUST", (), "counting")],
            "step 1 is nothing that counting can do",
        ),
        (
            "divide 54 by two",
            [("divide 54 by 2", (), "adding")],
            "step 1 is nothing that adding can do",
        ),
        ("double 4 and check it", [("double 4", (), "multiplying")], "no step checks the answer"),
        (
            "double 4",
            [("double 4", (), "multiplying"), ("check it", (1,), "checker")],
            "the question asks for no check",
        ),
        (
            "check double 4",
            [("check it", (), "checker"), ("double 4", (), "multiplying")],
            "step 1 checks no answer",
        ),
        (
            BOTH,
            [*CAPITALS, ("longer of it and ROME", (1,), "comparing")],
            "no step uses the answer of step 2",
        ),
    ],
)
def test_a_plan_that_does_something_else_has_its_fault_named(
    question: str, steps: Steps, expected: str
) -> None:
    assert fault(question, steps).startswith(expected)


def test_what_ships_follows_from_the_phrasings() -> None:
    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    assert shipped == {"telling": " ".join(telling_words()), "operations": operations()}


def test_the_shipped_operations_allow_what_can_be_done() -> None:
    values = ("LION", "A", "FRANCE", "PARIS", "FE", "26", "7", "150", "MAY", "PERRO", "X" * 15)
    for operation in world().operations:
        does = OPERATIONS[operation.name].does
        for first in values:
            pairs = [(first,)] if operation.arity == 1 else [(first, second) for second in values]
            for pair in pairs:
                if operation.name != "minus":
                    assert operation.fits(pair) == (does(*pair) is not None), (operation.name, pair)


def test_the_rule_gives_steps_out_by_their_words_to_the_best_by_card() -> None:
    # It divides rightly and routes wrongly.
    cold = ScriptedModel(
        [["capital of FRANCE| -| spellingA\nspell it ", "backwards| 1| geographyA"]]
    )
    prompt = "| geographyB9A3| spellingA8| checkingC7\nspell the capital of FRANCE backwards\n"
    request = Request(messages=(Message(role="user", content=prompt),), max_tokens=99)

    async def planned() -> str:
        return "".join([chunk.text async for chunk in RulePlanner(cold).stream(request)])

    text = asyncio.run(planned())
    assert text == "capital of FRANCE| -| geographyB\nspell it backwards| 1| spellingA"


SPELLED = "spell the capital of FRANCE backwards"


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        # Every way to type a question gives one text.
        ("Spell the capital of France backwards.", SPELLED),
        ("SPELL THE CAPITAL OF FRANCE BACKWARDS!", SPELLED),
        ("spell the   capital of 'FRANCE' backwards ?", SPELLED),
        ("Spell the capital of ‘France’ backwards…", SPELLED),
        ("spell\nthe capital of “france” backwards", SPELLED),
        # Operands are in upper case.
        ("What's 12+7?", "what is 12 plus 7"),
        ("what's 6x7", "what is 6 times 7"),
        ("3×4", "3 times 4"),
        ("the letters in lion - 3", "the letters in LION minus 3"),
        ("take Paris - spell it backwards", "take PARIS spell it backwards"),
        ("Spell 'last' backwards", "spell LAST backwards"),
        ("What is France's capital?", "what is FRANCE's capital"),
        ("the element with the symbol Fe", "the element with the symbol FE"),
        ("reverse 'Brasília'", "reverse BRASILIA"),
        ("whats the color of a banana pls", "what is the colour of a BANANA please"),
        ("the place of iron in the periodic table", "the place of IRON in the periodic table"),
        ("reverse table", "reverse TABLE"),
        ("what's left if you take 3 from 9", "what remains if you take 3 from 9"),
        ("the opposite of left", "the opposite of LEFT"),
        ("", ""),
        ("東京", ""),
        # Number words become digits where they count.
        ("five plus three", "5 plus 3"),
        ("what's two and three", "what is 2 and 3"),
        ("twenty five minus one", "25 minus 1"),
        ("Twenty-five minus 3", "25 minus 3"),
        ("thirty-29", "30 minus 29"),
        ("half of sixteen", "half of 16"),
        ("the larger one of 3 and two", "the larger one of 3 and 2"),
        ("which one is longer, dog or cat", "which one is longer DOG or CAT"),
        ("find both and add the two", "find both and add the two"),
        ("how many letters are in the word seven", "how many letters are in the word SEVEN"),
        ("spell 'two' backwards", "spell TWO backwards"),
        # A slip in a word of a question is corrected.
        ("the captial of france", "the capital of FRANCE"),
        ("the oposite of hot", "the opposite of HOT"),
        ("how many lettters are in lion", "how many letters are in LION"),
        ("spell 'captial' backwards", "spell CAPTIAL backwards"),
        ("spell CAPTIAL backwards", "spell CAPTIAL backwards"),
    ],
)
def test_a_question_is_read_in_one_way_of_writing(typed: str, read: str) -> None:
    assert normalize(typed) == read


def test_no_word_of_the_world_is_taken_for_a_slip() -> None:
    assert [word for word in (*WORDS, *subjects()) if normalize(word.lower()) != word] == ["U"]
    assert normalize("the element with symbol u") == "the element with symbol U"


@given(seed=st.integers(0, 10**6), split=st.sampled_from(["train", "test"]))
def test_a_question_is_read_the_same_however_it_is_typed(seed: int, split: str) -> None:
    for problem in draw_problems(10, seed, split=split):
        read = normalize(problem.question)
        ways = [f"  {problem.question.rstrip('.?')} ", read, f"{read}?!"]
        assert {normalize(way) for way in ways} == {read}


@given(text=st.text(max_size=80))
def test_any_text_can_be_normalized(text: str) -> None:
    read = normalize(text)
    assert read.isascii()
    assert "#" not in read
    assert read == " ".join(read.split())


@pytest.mark.parametrize(
    "typed",
    [
        "How many letters does 'banana' have?",
        "What's 3 plus 4",
        "opposite of hot",
        "Spell Conductor backwards",
        "Which month comes after May?",
        "What is the capital of Norway, spelled backwards?",
        "20 - 6",
        "what's 6x7",
        "five plus three",
        "reverse the word planet",
        "what colour is a banana",
        "do you know the symbol for gold",
        "sum of 3 and 4, check it",
    ],
)
def test_a_question_of_this_world_is_known(typed: str) -> None:
    assert is_known(typed)


@pytest.mark.parametrize(
    "typed",
    [
        "Who is the president of France?",
        "What is the meaning of life?",
        "What is the capital of Atlantis?",
        "Write a poem",
        "Is 17 prime?",
        "",
        "Spell",
        "What is the opposite of a zebra crossing",
        "how many letters",
        "Prove that there are infinitely many primes.",
        "Spell 東京 backwards",
        "10/2",
        "3.5 plus 2",
        "-5 plus 3",
        "what is 1000 plus 3",
        f"{'9' * 5000} minus 3",
        "capital of New Zealand",
        "Is Paris the capital of France?",
        "how old is Madonna",
        "5 plus -3",
        "what's the weather tomorrow",
        "50% of 10",
        "https://example.com spelled backwards",
    ],
)
def test_a_question_outside_the_world_is_not_known(typed: str) -> None:
    assert not is_known(typed)


def test_each_skill_has_keywords() -> None:
    assert set(KEYWORDS) == {*SKILLS, UNSEEN}
