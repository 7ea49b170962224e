"""The plan of a run as a drawing: a box for each step, and an arrow to each step that reads its answer. Pure.

Steps that read no other are at the top, and each other step is one row below those that it reads. The drawing is
as wide as a phone, so that it can be read there without scrolling; wider screens only enlarge it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from conductor_cli.core.formatting import format_duration, format_list
from conductor_cli.core.plan import GIVEN
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.table import crop_text
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.run_text import describe_access

WIDTH: Final = 368
SIDE: Final = 22
"""Room at both sides, where arrows pass by the rows that they skip."""
GAP: Final = 8
"""Between two boxes of a row."""
WIDEST_BOX: Final = 156
ROW_GAP: Final = 34
LINE: Final = 17
PADDING: Final = 9
LETTER: Final = 7.6
"""About the width of a letter in a box."""
PER_ROW: Final = 3
"""Boxes in a row; the names in narrower ones could not be read."""

MARKS: Final = {"done": "✓", "failed": "✗", "stopped": "■", "skipped": "–", "running": "●", "waiting": "○"}
"""What stands for each state of a step, always beside its word."""


class Box(NamedTuple):
    """A step: the corner and the size of its box, the lines in it, and what it says in full."""

    number: int
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    state: str
    title: str

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    def baseline(self, index: int) -> float:
        """Where one of its lines is written; all of them together are in the middle."""
        return self.y + (self.height - LINE * len(self.lines)) / 2 + LINE * index + 13


class Arrow(NamedTuple):
    """An SVG path from one step to another that reads its answer, and the path of its head."""

    path: str
    head: str
    title: str


class PlanGraph(NamedTuple):
    """The drawing; `words` say what it shows."""

    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    words: str


def plan_graph(trace: Trace) -> PlanGraph:
    """The graph of all steps that are planned so far."""
    access = {record.number: record.step.access for record in trace.steps}
    records = {record.number: record for record in trace.steps}
    if any(GIVEN in seen for seen in access.values()):
        access = {GIVEN: (), **access}
    rows = _rows(access)
    lines = {number: _box_lines(records.get(number), trace) for number in access}
    height = 2 * PADDING + LINE * max((len(found) for found in lines.values()), default=0)
    boxes: dict[int, Box] = {}
    for index, row in enumerate(rows):
        width = min(WIDEST_BOX, (WIDTH - 2 * SIDE - GAP * (len(row) - 1)) / len(row))
        left = (WIDTH - width * len(row) - GAP * (len(row) - 1)) / 2
        for place, number in enumerate(row):
            boxes[number] = Box(
                number, left + place * (width + GAP), 2 + index * (height + ROW_GAP), width, height,
                tuple(crop_text(line, int((width - PADDING) / LETTER)) for line in lines[number]),
                records[number].state if number in records else "given", " ".join(lines[number]),
            )  # fmt: skip
    row_of = {number: index for index, row in enumerate(rows) for number in row}
    arrows = [
        _arrow(boxes[seen], boxes[number], _landing(place, len(known)),
               [boxes[other] for row in rows[row_of[seen] + 1 : row_of[number]] for other in row])
        for number in access
        for known in [[seen for seen in access[number] if seen in boxes]]
        for place, seen in enumerate(known)
    ]  # fmt: skip
    words = "; ".join(
        f"step {one.number}, {one_line(one.worker)}, {describe_access(one.step.access)}" for one in trace.steps
    )
    return PlanGraph(len(rows) * (height + ROW_GAP) - ROW_GAP + 4, tuple(boxes.values()), tuple(arrows), words)


def _rows(access: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """The numbers of each row, from the top. A level with many steps takes several rows."""
    level: dict[int, int] = {}
    for number, seen in access.items():
        level[number] = 1 + max((level[other] for other in seen if other in level), default=-1)
    levels = [
        [number for number in access if level[number] == wanted]
        for wanted in range(max(level.values(), default=-1) + 1)
    ]
    return [found[start : start + PER_ROW] for found in levels for start in range(0, len(found), PER_ROW)]


def _box_lines(record: StepRecord | None, trace: Trace) -> tuple[str, ...]:
    """Number and worker, the planned worker if another one took over, and how it went."""
    if record is None:
        return ("given answer",)
    worker, planned = one_line(record.worker), one_line(record.step.worker)
    took = format_duration(record.seconds(trace.at)) if record.started is not None else ""
    # That a step is done is the rule, and its box may have no room for the word.
    how = took if took and record.state == "done" else f"{record.state} {took}".rstrip()
    instead = (f"for {planned}",) if worker != planned else ()
    return (f"{record.number} {worker}", *instead, f"{MARKS[record.state]} {how}")


def _landing(place: int, count: int) -> float:
    """How far from the middle of its box the one of several arrows ends."""
    return 12 * (place - (count - 1) / 2)


def _arrow(source: Box, target: Box, landing: float, between: Sequence[Box]) -> Arrow:
    """A curve from below one box to the top of another, around the boxes of the rows `between` them."""
    x, y = source.middle, source.y + source.height
    end, top = target.middle + landing, target.y - 1
    bend = ROW_GAP / 2
    if between:
        right = x + end >= 2 * (WIDTH / 2)
        edge = max(box.x + box.width for box in between) + 10 if right else min(box.x for box in between) - 10
        side = min(max(edge, 4), WIDTH - 4)
        first, last = between[0].y, between[-1].y + between[-1].height
        path = (
            f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {side:.1f} {first - bend:.1f} {side:.1f} {first:.1f}"
            f"V{last:.1f}C{side:.1f} {last + bend:.1f} {end:.1f} {top - bend:.1f} {end:.1f} {top:.1f}"
        )
    else:
        path = f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {end:.1f} {top - bend:.1f} {end:.1f} {top:.1f}"
    head = f"M{end - 4:.1f} {top - 6:.1f}L{end:.1f} {top:.1f}L{end + 4:.1f} {top - 6:.1f}"
    names = format_list([str(source.number or "the given answer"), str(target.number)])
    return Arrow(path, head, f"from {names}")
