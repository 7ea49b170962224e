"""Steps that repeat an earlier one are left out of a plan while it arrives, and a planner in a loop
is stopped.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.plan import Plan, PlanRules, Step, check_plan
from conductor_cli.core.plan_formats import ParsedStep
from conductor_cli.run.plan_stream import RepeatFilter

SOLVE = Step(worker="ann", subtask="Solve it.")


def kept(
    *steps: Step, standing: tuple[Step, ...] = (), keep_last: bool = False
) -> tuple[list[Step], list[int]]:
    """The steps of a whole plan that are left, and the numbers of the others."""
    repeats = RepeatFilter(standing, keep_last=keep_last)
    found = list(standing)
    for number, step in enumerate(steps, start=len(standing) + 1):
        item = repeats.renumber_step(
            ParsedStep(number=number, step=step, last=number == len(standing) + len(steps))
        )
        if item is not None:
            found.append(item.step)
            assert item.number == len(found)
    return found, repeats.left_out


@pytest.mark.parametrize("keep_last", [False, True])
def test_a_planner_that_only_repeats_its_newest_step_is_in_a_loop(*, keep_last: bool) -> None:
    repeats = RepeatFilter(keep_last=keep_last)
    check = Step(worker="bob", subtask="Check.")
    seen = []
    for number, step in enumerate(
        [SOLVE, check, SOLVE, SOLVE, SOLVE, check, check, check], start=1
    ):
        repeats.renumber_step(ParsedStep(number=number, step=step, last=False))
        seen.append(repeats.is_loop)
    assert seen == [False] * 7 + [not keep_last]


def test_a_step_that_differs_in_anything_stays() -> None:
    steps = (
        SOLVE,
        Step(worker="bob", subtask="Solve it."),
        Step(worker="ann", subtask="Solve it!"),
        Step(worker="ann", subtask="Solve it.", access=(1,)),
        Step(worker="ann", subtask="Solve it.", access=(2, 1)),
    )
    assert kept(*steps) == ([*steps], [])
    assert kept(*steps, Step(worker="ann", subtask="Solve it.", access=(1, 2)))[1] == [6]


def test_access_lists_follow_the_new_numbers() -> None:
    check = Step(worker="bob", subtask="Check.", access=(1, 2, 3))
    other = Step(worker="bob", subtask="Solve it.")
    assert kept(SOLVE, SOLVE, other, check) == ([SOLVE, other, replace(check, access=(1, 2))], [2])


def test_a_last_step_that_repeats_an_older_one_stays() -> None:
    check = Step(worker="bob", subtask="Check.", access=(1,))
    assert kept(SOLVE, check, SOLVE) == ([SOLVE, check, SOLVE], [])
    assert kept(SOLVE, SOLVE, keep_last=True) == ([SOLVE, SOLVE], [])


def test_steps_that_stand_count_too() -> None:
    check = Step(worker="bob", subtask="Check.", access=(2,))
    assert kept(SOLVE, check, standing=(SOLVE,)) == ([SOLVE, replace(check, access=(1,))], [2])


STEPS = st.lists(
    st.tuples(st.sampled_from(["ann", "bob"]), st.sampled_from("xy"), st.sets(st.integers(1, 4))),
    min_size=1,
)


@given(STEPS, st.booleans())
def test_what_is_left_is_a_valid_plan_without_repetitions(
    rows: list[tuple[str, str, set[int]]], keep_last: bool
) -> None:
    steps = [
        Step(
            worker=worker,
            subtask=subtask,
            access=tuple(sorted(item for item in access if item < number)),
        )
        for number, (worker, subtask, access) in enumerate(rows, start=1)
    ]
    found, left_out = kept(*steps, keep_last=keep_last)
    check_plan(Plan(steps=tuple(found)), PlanRules(workers=("ann", "bob"), steps=len(steps)))
    assert len(found) + len(left_out) == len(steps)
    unique = {(step.worker, step.subtask, frozenset(step.access)) for step in found}
    assert len(unique) >= len(found) - 1
