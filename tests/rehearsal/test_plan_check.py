"""What the words of a plan tell: its faults, and who can do its steps."""

from __future__ import annotations

import asyncio
import json

import pytest

from conductor_cli.core.chat import Message, Request
from conductor_cli.core.plan import Step
from conductor_cli.core.question import Question
from conductor_cli.models.base import ScriptedModel
from conductor_cli.rehearsal.players import RulePlanner, find_plan_fault, read_worker_cards, rehearsal_workers
from conductor_cli.rehearsal.words import world
from training.rehearsal.operations import OPERATIONS
from training.rehearsal.shipped import FILE, operations, telling_words

POOL = rehearsal_workers(read_worker_cards())
NO_OPERATION = "step 1 is not one operation with the values that it needs"
BOTH = "the longer of the capital of france and the capital of italy"

CAPITALS = [("capital of FRANCE", (), "geography"), ("capital of ITALY", (), "geography")]

Steps = list[tuple[str, tuple[int, ...], str]]


def fault(question: str, steps: Steps) -> str:
    """The fault of a plan that is written shortly."""
    return find_plan_fault(
        Question(text=question), [Step(worker=worker, subtask=text, access=seen) for text, seen, worker in steps], POOL
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
)  # fmt: skip
def test_a_plan_that_does_what_is_asked_has_no_fault(question: str, steps: Steps) -> None:
    assert fault(question, steps) == ""


@pytest.mark.parametrize(
    ("question", "steps", "expected"),
    [
        ("opposite of war backwards", [("opposite of WAR", (), "opposites")], "no step has the word backwards"),
        (
            "number of letters in the capital of egypt",
            [("number of letters in the capital of EGYPT", (), "counting")], NO_OPERATION,
        ),
        ("symbol for iron", [("symbol for IRON", (), "checker")], "step 1 is nothing that checker can do"),
        ("symbol for iron", [("symbol for IRON", (), "generalist")], "step 1 is nothing that generalist can do"),
        ("half of 7", [("half of 7", (), "multiplying")], NO_OPERATION),
        (
            "double the capital of france",
            [("capital of FRANCE", (), "geography"), ("double it", (1,), "multiplying")],
            "step 2 is not one operation",
        ),
        ("17 + 25", [("17 plus 25 doubled", (), "adding")], NO_OPERATION),
        (
            "capital of peru", [("capital of PERU", (), "geography"), ("reverse it", (1,), "spelling")],
            "the question has no reverse",
        ),
        (BOTH, [*CAPITALS, ("the first and the second", (1, 2), "spelling")],
         "step 3 is not one operation"),
        ("number of august", [("number of AUGUST", (), "counting")], "step 1 is nothing that counting can do"),
        ("divide 54 by two", [("divide 54 by 2", (), "adding")], "step 1 is nothing that adding can do"),
        ("double 4 and check it", [("double 4", (), "multiplying")], "no step checks the answer"),
        (
            "double 4", [("double 4", (), "multiplying"), ("check it", (1,), "checker")],
            "the question asks for no check",
        ),
        ("check double 4", [("check it", (), "checker"), ("double 4", (), "multiplying")], "step 1 checks no answer"),
        (BOTH, [*CAPITALS, ("longer of it and ROME", (1,), "comparing")],
         "no step uses the answer of step 2"),
    ],
)  # fmt: skip
def test_a_fault_is_found(question: str, steps: Steps, expected: str) -> None:
    assert fault(question, steps).startswith(expected)


def test_what_ships_follows_from_the_phrasings() -> None:
    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    assert shipped == {"telling": " ".join(telling_words()), "operations": operations()}


def test_the_shipped_operations_allow_what_can_be_done() -> None:
    values = ("LION", "A", "FRANCE", "PARIS", "FE", "26", "7", "150", "MAY", "PERRO", "X" * 15)
    for operation in world().operations:
        does = OPERATIONS[operation.name].does
        for one in values:
            pairs = [(one,)] if operation.arity == 1 else [(one, other) for other in values]
            for pair in pairs:
                if operation.name != "minus":
                    assert operation.fits(pair) == (does(*pair) is not None), (operation.name, pair)


def test_the_rule_gives_steps_out_by_their_words_to_the_best_by_card() -> None:
    # It divides rightly and routes wrongly.
    cold = ScriptedModel([["capital of FRANCE| -| spellingA\nspell it ", "backwards| 1| geographyA"]])
    asked = "| geographyB9A3| spellingA8| checkingC7\nspell the capital of FRANCE backwards\n"
    request = Request(messages=(Message(role="user", content=asked),), max_tokens=99)

    async def planned() -> str:
        return "".join([chunk.text async for chunk in RulePlanner(cold).stream(request)])

    text = asyncio.run(planned())
    assert text == "capital of FRANCE| -| geographyB\nspell it backwards| 1| spellingA"
