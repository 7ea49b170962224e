from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from conductor_cli.core.plan import Plan, PlanRules, Schedule, check_plan
from tests.core.strategies import plans_for

RULES = PlanRules(workers=("a", "b", "c"))


def test_steps_without_sources_start_at_once_in_order() -> None:
    """As many as there are places, lowest number first."""
    schedule = Schedule(2)
    for number in (3, 1, 2):
        schedule.add(number, "a", ())
    assert schedule.take_ready() == [1, 2]
    assert (schedule.running, schedule.waiting) == ((1, 2), (3,))
    assert schedule.take_ready() == []


def test_a_step_starts_when_all_it_sees_has_ended() -> None:
    """However it ended; item 0 is always there."""
    schedule = Schedule(8)
    schedule.add(1, "a", (0,))
    schedule.add(2, "a", ())
    schedule.add(3, "a", (0, 1, 2))
    assert schedule.take_ready() == [1, 2]
    schedule.mark_ended(1)
    assert schedule.take_ready() == []
    schedule.mark_ended(2)
    assert schedule.take_ready() == [3]


def test_a_worker_has_its_own_bound() -> None:
    """A full worker does not keep others from starting; one without a bound has that of the run."""
    schedule = Schedule(8, {"a": 1})
    for number, worker in enumerate("aabb", start=1):
        schedule.add(number, worker, ())
    assert schedule.take_ready() == [1, 3, 4]
    schedule.mark_ended(1)
    assert schedule.take_ready() == [2]


def test_a_step_that_ended_without_running_is_not_started() -> None:
    """A step of an earlier run ends before it was ever added, or while it waits."""
    schedule = Schedule(8)
    schedule.mark_ended(1)
    schedule.add(2, "a", (1,))
    schedule.add(3, "a", (2,))
    schedule.mark_ended(2)
    assert schedule.waiting == (3,)
    assert schedule.take_ready() == [3]


def test_a_step_may_be_added_while_others_run() -> None:
    """The plan may still be being written."""
    schedule = Schedule(8)
    schedule.add(1, "a", ())
    assert schedule.take_ready() == [1]
    schedule.add(2, "a", (1,))
    assert schedule.take_ready() == []
    schedule.mark_ended(1)
    assert schedule.take_ready() == [2]


@given(plans_for(RULES, st.just("do")), st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_plan_comes_to_its_end(plan: Plan, parallel: int, own: int, draw: random.Random) -> None:
    """Each step starts once, after what it sees, within both bounds, in whatever order the running ones end."""
    check_plan(plan, RULES)
    schedule = Schedule(parallel, {"a": own})
    for number, step in enumerate(plan.steps, start=1):
        schedule.add(number, step.worker, step.access)
    ended: list[int] = []
    while len(ended) < len(plan.steps):
        for number in schedule.take_ready():
            assert set(plan.steps[number - 1].access) <= set(ended)
            assert number not in ended
        assert schedule.running
        assert len(schedule.running) <= parallel
        assert sum(plan.steps[number - 1].worker == "a" for number in schedule.running) <= own
        ended.append(draw.choice(schedule.running))
        schedule.mark_ended(ended[-1])
    assert (schedule.take_ready(), schedule.running, schedule.waiting) == ([], (), ())
    assert sorted(ended) == list(range(1, len(plan.steps) + 1))
