"""The plan as a drawing: who sees whom, in boxes that do not overlap."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from conductor_cli.core.plan import Step
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.html import WIDTH, Box, plan_graph


def planned(*access: tuple[int, ...], worker: str = "worker", **fields: object) -> Trace:
    steps = tuple(
        StepRecord(
            number=number, step=Step(worker=worker, subtask="do it", access=seen), last=number == len(access),
            planned=0.0, worker=worker, **fields,  # type: ignore[arg-type]
        )
        for number, seen in enumerate(access, start=1)
    )  # fmt: skip
    return Trace(steps=steps, at=4.0)


PLANS = [
    ((),), ((), (1,), (2,), (3,), (4,)), ((), (), (), (), (1, 2, 3, 4)), ((), (1,), (1, 2), (3,), (1, 4)),
    ((0,), (0, 1)), tuple(() for _ in range(11)),
]  # fmt: skip


def overlap(one: Box, other: Box) -> bool:
    return (
        one.x < other.x + other.width and other.x < one.x + one.width
        and one.y < other.y + other.height and other.y < one.y + one.height
    )  # fmt: skip


@pytest.mark.parametrize("access", PLANS)
def test_boxes_are_in_the_drawing_and_do_not_overlap(access: tuple[tuple[int, ...], ...]) -> None:
    """For deep and for wide plans; arrows stay inside too, and lead downwards."""
    graph = plan_graph(planned(*access, worker="a-worker-with-a-long-name"))
    for box in graph.boxes:
        assert box.x >= 0
        assert box.x + box.width <= WIDTH
        assert box.y + box.height <= graph.height
    assert not any(overlap(one, other) for one, other in combinations(graph.boxes, 2))
    assert len(graph.arrows) == sum(map(len, access))
    for arrow in graph.arrows:
        numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", arrow.path)]
        assert all(0 <= number <= max(WIDTH, graph.height) for number in numbers)
        assert numbers[-1] > numbers[1]


def test_a_step_is_below_what_it_sees() -> None:
    """Steps that see nothing of each other are side by side."""
    graph = plan_graph(planned((), (), (1,), (1, 3)))
    row = {box.number: box.y for box in graph.boxes}
    assert row[1] == row[2] < row[3] < row[4]


def test_an_arrow_goes_around_the_rows_that_it_skips() -> None:
    """It must not look as if it came from a step between."""
    graph = plan_graph(planned((), (1,), (1, 2)))
    middle = next(box for box in graph.boxes if box.number == 2)
    (around,) = [arrow for arrow in graph.arrows if "V" in arrow.path]
    side = re.search(r"([\d.]+) [\d.]+V", around.path)
    assert around.title == "from 1 and 3"
    assert side is not None
    assert not middle.x <= float(side[1]) <= middle.x + middle.width


def test_a_box_names_the_planned_worker_when_another_one_answered() -> None:
    """And the words of the drawing name every step."""
    trace = planned((), worker="gpt")
    (record,) = trace.steps
    changed = Trace(steps=(StepRecord(**{**vars(record), "worker": "claude", "state": "done"}),), at=4.0)
    (box,) = plan_graph(changed).boxes
    assert box.lines == ("1 claude", "for gpt", "✓ done")
    assert plan_graph(changed).words == "step 1, claude, reads question and files only"


def test_a_run_without_steps_has_an_empty_drawing() -> None:
    """The conductor may still be planning."""
    assert plan_graph(Trace()).boxes == ()
