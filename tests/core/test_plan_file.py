"""Plan files: written, edited by hand, read again."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Plan, PlanRules, Step
from conductor_cli.core.plan_file import format_plan_file, parse_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.question import File, Question
from tests.core.strategies import json_values, limits, plans_for, questions

PLAN = Plan(
    steps=(Step(worker="ann", subtask="Add."), Step(worker="bob", subtask="Check.", access=(1,)))
)


def test_a_plan_survives_its_file() -> None:
    question = Question(text="2+2?", files=(File(name="a.txt", text="é"),))
    parsed = parse_plan_file(
        format_plan_file(question, PLAN, Limits(steps=3, cost=Decimal("0.5"))), "plan.json"
    )
    assert (parsed.question, parsed.plan) == (question, PLAN)
    assert parsed.limits == {"limits.steps": 3, "limits.cost": Decimal("0.5")}


def test_a_plain_question_is_a_plain_text() -> None:
    fields = json.loads(format_plan_file(Question(text="2+2?"), PLAN, Limits()))
    assert (fields["question"], fields["limits"], list(fields)) == (
        "2+2?",
        {},
        ["format", "question", "steps", "limits"],
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "question and steps"),
        ('{"question": "q"}', "question and steps"),
        ('{"question": 3, "steps": []}', "question: expected an object, found a number"),
        ('{"question": "q", "steps": {}}', "steps: expected a list"),
        ('{"question": "q", "steps": [{"worker": "a"}]}', "'subtask' is missing"),
        (
            '{"question": "q", "steps": [{"worker": "a", "subtask": "s", "access": ["1"]}]}',
            "steps[0].access[0]",
        ),
        ('{"question": "q", "steps": [], "limits": []}', "limits: expected an object"),
        ('{"question": "q", "steps": [], "limits": {"stepz": 1}}', "stepz"),
        ('{"format": 99, "question": "q", "steps": []}', "format 99"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_file_says_where_and_what_was_expected(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_plan_file(text, "plan.json")
    assert caught.value.message.startswith("plan.json is not a plan")
    assert problem in caught.value.message


RENAMED_LIMIT = {"limits.review": "recursion"}  # How `Limits` calls it

RULES = PlanRules(workers=("ann", "bob", "cyd"))


@st.composite
def plan_files(draw: st.DrawFn) -> dict[str, Any]:
    """What a plan file holds, for any question, plan and limits."""
    plan = draw(plans_for(RULES, st.text(max_size=20)))
    return dict(json.loads(format_plan_file(draw(questions), plan, draw(limits))))


@st.composite
def damaged_plan_files(draw: st.DrawFn) -> dict[str, Any]:
    """A plan file in which a field, or a field of a step, is missing or anything else."""
    damaged = draw(plan_files())
    table = draw(st.sampled_from([damaged, *damaged["steps"]]))
    name = draw(st.sampled_from(sorted(table)))
    if draw(st.booleans()):
        table[name] = draw(json_values)
    else:
        del table[name]
    return damaged


@given(plan_files())
def test_any_plan_that_is_written_is_read_and_written_alike(written: dict[str, Any]) -> None:
    read = parse_plan_file(json.dumps(written), "plan.json")
    names = {name: name.removeprefix("limits.") for name in read.limits} | RENAMED_LIMIT
    kept_limits = Limits(**{names[name]: value for name, value in read.limits.items()})
    assert json.loads(format_plan_file(read.question, read.plan, kept_limits)) == written


@given(damaged_plan_files())
def test_a_damaged_plan_is_a_plan_or_a_usage_error_that_names_the_file(
    damaged: dict[str, Any],
) -> None:
    try:
        read = parse_plan_file(json.dumps(damaged), "plan.json")
    except UsageError as error:
        message = error.message
    else:
        assert len(read.plan.steps) == len(damaged["steps"])
        return
    assert message.startswith("plan.json is not a plan: ")


@given(st.text() | json_values.map(json.dumps))
def test_a_text_that_is_no_object_with_steps_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"^plan\.json is "):
        parse_plan_file(text, "plan.json")


def test_what_breaks_lines_is_an_escape_in_the_file() -> None:
    question = Question(text="a\u2028b\x1b[31m")
    written = format_plan_file(question, PLAN, Limits())
    assert "\u2028" not in written
    assert "\x1b" not in written
    assert parse_plan_file(written, "plan.json").question == question


def test_a_step_of_the_planner_is_called_review_in_the_file() -> None:
    plan = Plan(steps=(Step(worker="self", subtask="Check."),))
    written = format_plan_file(Question(text="2+2?"), plan, Limits(recursion=2), ["ann"])
    fields = json.loads(written)
    assert (fields["steps"][0]["worker"], fields["limits"]) == ("review", {"review": 2})
    read = parse_plan_file(written, "plan.json", ["ann"])
    assert (read.plan, read.limits, read.notices) == (plan, {"limits.review": 2}, ())


def test_earlier_names_in_a_plan_file_work_on_and_are_said() -> None:
    earlier = {
        "question": "2+2?",
        "steps": [{"worker": "self", "subtask": "Check.", "access": []}],
        "limits": {"recursion": 2},
    }
    read = parse_plan_file(json.dumps(earlier), "plan.json")
    assert (read.plan.steps[0].worker, read.limits) == ("self", {"limits.review": 2})
    assert [notice.split(" is called")[0] for notice in read.notices] == [
        "the worker self",
        "the limit recursion",
    ]
    earlier["limits"] = {"recursion": 2, "review": 2}
    with pytest.raises(UsageError, match="both given"):
        parse_plan_file(json.dumps(earlier), "plan.json")


def test_a_worker_that_is_called_review_is_that_worker_in_a_plan_file() -> None:
    review_step = Step(worker="review", subtask="Check.")
    plan = Plan(steps=(review_step, Step(worker="self", subtask="Check again.")))
    written = format_plan_file(Question(text="2+2?"), plan, Limits(), ["review"])
    assert parse_plan_file(written, "plan.json", ["review"]).plan == plan
