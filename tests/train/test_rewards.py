"""What a run was worth: a pure function of its trace."""

from __future__ import annotations

from typing import Any

import pytest

from conductor_cli.core import events as ev
from conductor_cli.core.plan import Plan, Step
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import NO_USAGE
from conductor_cli.train.rollouts import compute_reward, has_failed, is_valid

STEP = Step(worker="ann", subtask="do it")
PLAN = Plan(steps=(STEP,))


def record(**changes: Any) -> StepRecord:
    return StepRecord(
        **{"number": 1, "step": STEP, "last": True, "planned": 0.0, "state": "done", "worker": "ann", **changes}
    )


def trace(**changes: Any) -> Trace:
    return Trace(**{"state": "finished", "plan": PLAN, "steps": (record(),), "answer": "42", **changes})


def rejected() -> ev.PlanRejected:
    return ev.PlanRejected(at=0.0, attempt=1, text="", problem="no plan", hint="", usage=NO_USAGE)


@pytest.mark.parametrize(("answer", "worth"), [("42", 1.0), ("41", 0.5), ("", 0.5)])
def test_a_valid_plan_earns_a_half_and_a_correct_answer_one(answer: str, worth: float) -> None:
    """Only the answer decides whether it is correct."""
    assert compute_reward(trace(answer=answer), lambda text: text == "42") == worth


def test_an_invalid_text_earns_nothing_even_if_the_answer_is_correct() -> None:
    """A run repairs plans, or uses the best worker without one; neither is to the credit of the text."""
    assert compute_reward(trace(rejected=(rejected(),)), lambda _: True) == 0.0
    assert compute_reward(trace(plan=None, steps=(), state="failed"), lambda _: True) == 0.0
    assert not is_valid(trace(rejected=(rejected(),)))


@pytest.mark.parametrize(
    "broken",
    [
        {"steps": (record(state="failed"),), "state": "failed"},
        {"steps": (record(worker="bob"),)},
        {"state": "failed"},
    ],
    ids=["the worker failed", "another took its place", "the run failed"],
)
def test_a_failed_worker_is_not_the_plans_fault(broken: dict[str, Any]) -> None:
    """Such a run has no reward at all, not a bad one."""
    assert has_failed(trace(**broken))
    assert compute_reward(trace(**broken), lambda _: True) is None
