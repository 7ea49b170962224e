"""Plan files: written, edited by hand, read again."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.plan_file import format_plan_file, parse_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import File, Question

PLAN = Plan(steps=(Step(worker="ann", subtask="Add."), Step(worker="bob", subtask="Check.", access=(1,))))


def test_a_plan_survives_its_file() -> None:
    question = Question(text="2+2?", files=(File(name="a.txt", text="é"),))
    found = parse_plan_file(format_plan_file(question, PLAN, Limits(steps=3, cost=Decimal("0.5"))), "plan.json")
    assert (found.question, found.plan) == (question, PLAN)
    assert found.limits == {"limits.steps": 3, "limits.cost": Decimal("0.5")}


def test_a_plain_question_is_a_plain_text() -> None:
    data = json.loads(format_plan_file(Question(text="2+2?"), PLAN, Limits()))
    assert (data["question"], data["limits"], list(data)) == ("2+2?", {}, ["format", "question", "steps", "limits"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "question and steps"),
        ('{"question": "q"}', "question and steps"),
        ('{"question": 3, "steps": []}', "question: expected an object, found a number"),
        ('{"question": "q", "steps": {}}', "steps: expected a list"),
        ('{"question": "q", "steps": [{"worker": "a"}]}', "'subtask' is missing"),
        ('{"question": "q", "steps": [{"worker": "a", "subtask": "s", "access": ["1"]}]}', "steps[0].access[0]"),
        ('{"question": "q", "steps": [], "limits": []}', "limits: expected an object"),
        ('{"question": "q", "steps": [], "limits": {"stepz": 1}}', "stepz"),
        ('{"format": 99, "question": "q", "steps": []}', "format 99"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_file_says_where_and_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_plan_file(text, "plan.json")
    assert caught.value.message.startswith("plan.json is not a plan")
    assert said in caught.value.message


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_text_is_a_plan_or_a_usage_error(text: str) -> None:
    try:
        parse_plan_file(text, "plan.json")
    except UsageError:
        return


def test_what_breaks_lines_is_an_escape_in_the_file() -> None:
    question = Question(text="a\u2028b\x1b[31m")
    written = format_plan_file(question, PLAN, Limits())
    assert "\u2028" not in written
    assert "\x1b" not in written
    assert parse_plan_file(written, "plan.json").question == question
