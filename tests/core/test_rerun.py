"""A run to be run again from a step on."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.core.errors import UsageError
from conductor_cli.core.follow_up import reset_from_step
from conductor_cli.core.plan import Plan
from conductor_cli.core.trace import Trace
from conductor_cli.state.trace_store import TraceStore

FOLDER = Path(__file__).parents[1] / "traces"


@pytest.fixture
def parallel() -> Trace:
    """Three steps: the last one sees the others."""
    return TraceStore(FOLDER).trace("parallel")


def states(trace: Trace) -> list[str]:
    return [record.state for record in trace.steps]


def test_from_a_step_on_everything_is_still_to_do(parallel: Trace) -> None:
    """Earlier steps keep their answers; step and plan name the worker that was asked for; there is no answer yet."""
    number = len(parallel.steps)
    again = reset_from_step(parallel, number, "other")
    assert states(again) == ["done"] * (number - 1) + ["waiting"]
    assert isinstance(again.plan, Plan)
    assert again.plan.steps[-1].worker == again.steps[-1].step.worker == again.steps[-1].worker == "other"
    assert (again.answer, again.ended, again.steps[0]) == ("", False, parallel.steps[0])
    assert states(reset_from_step(parallel, 1)) == ["waiting"] * number


def test_of_a_step_only_what_sees_it_is_done_again(parallel: Trace) -> None:
    """A step that does not see the one that is done again keeps its answer."""
    first, second, *rest = states(reset_from_step(parallel, 2, only_dependents=True))
    assert (first, second, rest[-1]) == ("done", "waiting", "waiting")


def test_a_step_that_does_not_exist_is_an_error(parallel: Trace) -> None:
    """The number of steps is named."""
    for number in (0, 9):
        with pytest.raises(UsageError, match=f"no step {number}"):
            reset_from_step(parallel, number)
