"""How a run or a conversation goes on.

Which steps are done again, and how much of what was said goes along.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor_cli.core.continuation import first_turn_to_send, reset_from_step
from conductor_cli.core.errors import UsageError
from conductor_cli.core.plan import Plan
from conductor_cli.core.question import PastTurn
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import CHARS_PER_TOKEN
from conductor_cli.state.trace_store import TraceStore


@pytest.mark.parametrize(
    ("tokens", "first", "sent"),
    [
        ([40, 40], 0, 0),
        ([40, 40, 20, 20], 0, 2),
        ([40, 40, 20, 20, 40], 2, 2),
        ([10, 500], 0, 1),
        ([500], 0, 0),
    ],
)
def test_a_conversation_that_is_too_long_is_cut_to_half(
    tokens: list[int], first: int, sent: int
) -> None:
    """The last turn goes along however long it is."""
    turns = [PastTurn(question="", answer="x" * int(count * CHARS_PER_TOKEN)) for count in tokens]
    assert first_turn_to_send(turns, first, 100) == sent


FOLDER = Path(__file__).parents[1] / "traces"


@pytest.fixture
def parallel() -> Trace:
    """Three steps: the last one sees the others."""
    return TraceStore(FOLDER).trace("parallel")


def states(trace: Trace) -> list[str]:
    return [record.state for record in trace.steps]


def test_from_a_step_on_everything_is_still_to_do(parallel: Trace) -> None:
    number = len(parallel.steps)
    again = reset_from_step(parallel, number, "other")
    assert states(again) == ["done"] * (number - 1) + ["waiting"]
    assert isinstance(again.plan, Plan)
    assert (
        again.plan.steps[-1].worker
        == again.steps[-1].step.worker
        == again.steps[-1].worker
        == "other"
    )
    assert (again.answer, again.ended, again.steps[0]) == ("", False, parallel.steps[0])
    assert states(reset_from_step(parallel, 1)) == ["waiting"] * number


def test_of_a_step_only_what_sees_it_is_done_again(parallel: Trace) -> None:
    first, second, *rest = states(reset_from_step(parallel, 2, only_dependents=True))
    assert (first, second, rest[-1]) == ("done", "waiting", "waiting")


def test_a_step_that_does_not_exist_is_an_error(parallel: Trace) -> None:
    for number in (0, 9):
        with pytest.raises(UsageError, match=f"no step {number}"):
            reset_from_step(parallel, number)
