"""The rules of a plan.

Which step breaks one, which operands it must name, and in which order its steps start.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.errors import PlanError
from conductor_cli.core.plan import (
    GIVEN,
    Plan,
    PlanRules,
    Schedule,
    Step,
    check_plan,
    check_step,
    lost_operand,
)
from tests.core.strategies import plans_for

RULES = PlanRules(workers=("ann", "bob", "cyd"))


@pytest.mark.parametrize(
    ("step", "number", "fault"),
    [
        (
            Step(worker="eve", subtask="do"),
            1,
            "step 1 names a worker that is not in the pool: 'eve'",
        ),
        (Step(worker="ann", subtask=" \n\u2028"), 2, "step 2 has an empty subtask"),
        (
            Step(worker="ann", subtask="do", access=(2,)),
            2,
            "step 2 cannot see itself or a later step: 2",
        ),
        (
            Step(worker="ann", subtask="do", access=(0,)),
            2,
            "step 2 cannot see a step that does not exist: 0",
        ),
        (
            Step(worker="ann", subtask="do", access=(1, 1)),
            2,
            "step 2 names a step twice in its access list",
        ),
        (Step(worker="ann", subtask="do"), 6, "step 6 exceeds the limit of 5 steps"),
    ],
)
def test_a_step_that_breaks_a_rule_is_named(step: Step, number: int, fault: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_step(step, number, RULES)
    assert caught.value.message == fault


def test_a_plan_needs_a_step() -> None:
    with pytest.raises(PlanError, match="at least one step"):
        check_plan(Plan(steps=()), RULES)


def numbers(text: str) -> list[str]:
    return [word for word in text.split() if word.isdecimal()]


@pytest.mark.parametrize(
    ("subtasks", "lost"),
    [
        (("7 plus 3", "it minus 3"), ""),
        (("7 plus 3",), "3"),
        (("3 plus 3",), "7"),
        (("3 3", "7"), ""),
        ((), "7"),
    ],
)
def test_each_operand_is_named_as_often_as_in_the_question(
    subtasks: tuple[str, ...], lost: str
) -> None:
    steps = [Step(worker="ann", subtask=subtask) for subtask in subtasks]
    assert lost_operand("7 plus 3 minus 3", steps, numbers) == lost


def test_what_was_given_may_hold_an_operand() -> None:
    assert (
        lost_operand(
            "7 plus 3", [Step(worker="ann", subtask="double it", access=(GIVEN,))], numbers
        )
        == ""
    )


def test_steps_without_sources_start_at_once_in_order() -> None:
    schedule = Schedule(2)
    for number in (3, 1, 2):
        schedule.add(number, "a", ())
    assert schedule.take_ready() == [1, 2]
    assert (schedule.running, schedule.waiting) == ((1, 2), (3,))
    assert schedule.take_ready() == []


def test_a_step_that_ended_without_running_is_not_started() -> None:
    schedule = Schedule(8)
    schedule.mark_ended(1)
    schedule.add(2, "a", (1,))
    schedule.add(3, "a", (2,))
    schedule.mark_ended(2)
    assert schedule.waiting == (3,)
    assert schedule.take_ready() == [3]


@given(
    plans_for(RULES, st.just("do")),
    st.integers(1, 4),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_every_plan_comes_to_its_end(
    plan: Plan, parallel: int, ann_parallel: int, draw: random.Random
) -> None:
    check_plan(plan, RULES)
    schedule = Schedule(parallel, {"ann": ann_parallel})
    for number, step in enumerate(plan.steps, start=1):
        schedule.add(number, step.worker, step.access)
    ended: list[int] = []
    while len(ended) < len(plan.steps):
        for number in schedule.take_ready():
            assert set(plan.steps[number - 1].access) <= set(ended)
            assert number not in ended
        assert schedule.running
        assert len(schedule.running) <= parallel
        assert (
            sum(plan.steps[number - 1].worker == "ann" for number in schedule.running)
            <= ann_parallel
        )
        ended.append(draw.choice(schedule.running))
        schedule.mark_ended(ended[-1])
    assert (schedule.take_ready(), schedule.running, schedule.waiting) == ([], (), ())
    assert sorted(ended) == list(range(1, len(plan.steps) + 1))
