from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import MAX_STEPS, Plan, PlanRules, Step, check_plan, check_step
from tests.core.strategies import any_plans, plans_for

RULES = PlanRules(workers=("ann", "bob"))


def plan(*steps: Step) -> Plan:
    return Plan(steps=steps)


def test_a_plan_of_one_to_five_steps_is_fine() -> None:
    """Each step may see any of those before it."""
    steps = [Step(worker="ann", subtask="do", access=tuple(range(1, number))) for number in range(1, MAX_STEPS + 1)]
    for count in range(1, MAX_STEPS + 1):
        check_plan(plan(*steps[:count]), RULES)


@pytest.mark.parametrize(
    ("step", "number", "said"),
    [
        (Step(worker="eve", subtask="do"), 1, "step 1 names a worker that is not in the pool: 'eve'"),
        (Step(worker="Ann", subtask="do"), 1, "step 1 names a worker that is not in the pool: 'Ann'"),
        (Step(worker="ann", subtask=""), 2, "step 2 has an empty subtask"),
        (Step(worker="ann", subtask=" \n\u2028"), 2, "step 2 has an empty subtask"),
        (Step(worker="ann", subtask="do", access=(2,)), 2, "step 2 cannot see itself or a later step: 2"),
        (Step(worker="ann", subtask="do", access=(3,)), 2, "step 2 cannot see itself or a later step: 3"),
        (Step(worker="ann", subtask="do", access=(0,)), 2, "step 2 cannot see a step that does not exist: 0"),
        (Step(worker="ann", subtask="do", access=(-1,)), 2, "step 2 cannot see a step that does not exist: -1"),
        (Step(worker="ann", subtask="do", access=(1, 1)), 2, "step 2 names a step twice in its access list"),
        (Step(worker="ann", subtask="do"), 6, "step 6 exceeds the limit of 5 steps"),
    ],
)
def test_a_step_that_breaks_a_rule_is_named(step: Step, number: int, said: str) -> None:
    """By its number and what is wrong."""
    with pytest.raises(PlanError) as caught:
        check_step(step, number, RULES)
    assert caught.value.message == said


def test_an_unknown_worker_lists_the_known_ones() -> None:
    """The hint is for whoever edits a plan file."""
    with pytest.raises(PlanError) as caught:
        check_plan(plan(Step(worker="eve", subtask="do")), RULES)
    assert caught.value.hint == "known: ann, bob"


def test_item_0_exists_only_where_something_was_given() -> None:
    """It is what a nested run was given."""
    given_rules = replace(RULES, given=True)
    check_plan(plan(Step(worker="ann", subtask="do", access=(0,))), given_rules)
    with pytest.raises(PlanError, match="a step that does not exist"):
        check_plan(plan(Step(worker="ann", subtask="do", access=(0,))), RULES)


def test_a_plan_needs_a_step() -> None:
    """It would have no answer."""
    with pytest.raises(PlanError, match="at least one step"):
        check_plan(plan(), RULES)


@given(any_plans.filter(lambda drawn: isinstance(drawn, Plan)), st.booleans())
def test_any_plan_is_valid_or_raises_a_plan_error(drawn: Plan, has_given: bool) -> None:
    """Nothing but `PlanError` comes out, and what passes is what the rules say."""
    rules = replace(RULES, given=has_given)
    try:
        check_plan(drawn, rules)
    except PlanError:
        return
    assert 1 <= len(drawn.steps) <= MAX_STEPS
    for number, step in enumerate(drawn.steps, start=1):
        assert step.worker in rules.workers
        assert all((0 if has_given else 1) <= item < number for item in step.access)


@given(plans_for(replace(RULES, steps=3, given=True), st.text(min_size=1).filter(str.strip)))
def test_what_obeys_the_rules_passes(drawn: Plan) -> None:
    """Whatever its subtasks say."""
    check_plan(drawn, replace(RULES, steps=3, given=True))
