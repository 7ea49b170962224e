"""The tree of a run as lines of a screen. Pure.

Every line fits the width. Marks say how each step is; a screen without marks gets words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.trace import ENDED, Trace
from conductor_cli.views.run_tree import Node, NodeState
from conductor_cli.views.text_layout import Line, Screen, cells, cut, text_cells

MARKS: Final[dict[NodeState, str]] = {
    "planning": "\u25cf", "running": "\u25cf", "answering": "\u2193", "waiting": "\u25cb", "retrying": "\u21bb",
    "done": "\u2713", "failed": "\u2717", "rejected": "\u2717", "stopped": "\u2013", "skipped": "\u2013", "note": "!",
}  # fmt: skip

WORDS_THAT_A_STATUS_SAYS: Final = frozenset[NodeState]({"planning", "waiting", "retrying", "answering"})
"""States that need no word of their own beside a status such as `waits for 1`."""

COLUMNS: Final = (8, 15, 9)
"""Cells for time, tokens and cost. A narrow screen has no room for the last ones."""

NARROW: Final = 16
"""Cells for a step's state on a screen with room for its time only: `again in 12 s` with a mark."""

LONGEST_NAME: Final = 16
"""Names of steps side by side are padded to the longest of them, up to so many cells."""


SMALLEST: Final = 24
"""On screens with fewer columns guides and marks alone may be too wide, so every line is cut."""


class Row(NamedTuple):
    """A line of the tree. Where not all rows fit, those of the highest `weight` are left out first; 0 is a step."""

    line: Line
    weight: int = 0


class TreeLayout(NamedTuple):
    """The screen, and how much of the texts it gets.

    `running` and `ended` lines are shown of each response: the last ones while it is written, the first ones later.
    `whole`: subtasks and errors are wrapped, not cropped. `answering` is the number of the step whose text follows the
    tree on the same screen. `figures` is how many figures the steps have.
    """

    screen: Screen
    running: int = 6
    ended: int = 2
    whole: bool = True
    answering: str = ""
    figures: int = len(COLUMNS)

    @property
    def columns(self) -> int:
        """How many figures each step has room for."""
        return min(self.figures, 1 + (self.screen.width >= 60) + (self.screen.width >= 80))

    @property
    def state_width(self) -> int:
        """Cells at the right of a step for its state."""
        width = NARROW if self.columns < 2 else sum(COLUMNS[: self.columns]) + 2
        return min(width + (0 if self.screen.marks else 7), self.screen.width // 2)

    def guide(self, *, last: bool, first: bool) -> str:
        """What stands before a branch: before its first line, or before the others."""
        if self.screen.marks:
            return ("\u2514\u2500 " if last else "\u251c\u2500 ") if first else ("   " if last else "\u2502  ")
        return ("`- " if last else "+- ") if first else ("   " if last else "|  ")

    def front(self, guides: str) -> str:
        """The guides before a line, without the outermost ones where they would take more than half the screen."""
        return guides[-(self.screen.width // 2) :] if len(guides) > self.screen.width // 2 else guides


def tree_lines(root: Node, layout: TreeLayout) -> list[Line]:
    """The whole tree."""
    return [row.line for row in tree_rows(root, layout)]


def live_lines(root: Node, trace: Trace, now: float, layout: TreeLayout) -> list[Line]:
    """As much of the tree as the screen holds, and the totals so far: at most one line less than the screen has."""
    rows = list(tree_rows(root, layout._replace(whole=False)))
    return [*_fitting(rows, layout.screen), _totals_so_far(trace, now, layout.screen)]


def _fitting(rows: Sequence[Row], screen: Screen) -> list[Line]:
    """What fits above the totals and the cursor's line: every response gets the same share, and steps go last."""
    room = max(0, screen.height - 2)
    weight = max((row.weight for row in rows), default=0)
    while weight and sum(row.weight <= weight for row in rows) > room:
        weight -= 1
    lines = [row.line for row in rows if row.weight <= weight]
    if len(lines) <= room:
        return lines
    kept = max(0, room - 1)
    more: Line = ((screen.crop(f"{screen.dots} and {len(lines) - kept} more", screen.width), "quiet"),)
    return [*lines[:kept], more][:room]


def _totals_so_far(trace: Trace, now: float, screen: Screen) -> Line:
    done, steps = len(trace.done()), format_count(len(trace.steps), "step")
    progress = f"{done} of {steps} done" if trace.plan is not None else f"{format_count(done, 'step')} done"
    failed = sum(record.state == "failed" for record in trace.steps)
    progress += f", {failed} failed" if failed else ""
    tokens = format_count(trace.usage.tokens, "token")
    texts = (format_duration(now, tenths=False), progress, tokens, format_cost(trace.usage))
    return ((screen.crop(", ".join(filter(None, texts)), screen.width), "quiet"),)


def tree_rows(root: Node, layout: TreeLayout) -> Iterator[Row]:
    """The whole tree, with what may be left out. A step as the root is shown with what is below it."""
    layout = layout._replace(figures=max(len(node.figures) for node in root.walk()))
    if root.kind == "question":
        rows: Iterator[Row] = chain(_question(root, layout), _branches(root.children, layout, _Place()))
    else:
        rows = _node(root, layout, _Place())
    if layout.screen.width >= SMALLEST:
        return rows
    return (row._replace(line=cut(row.line, layout.screen.width)) for row in rows)


class _Place(NamedTuple):
    """Where a node stands: the guides before its first line and before the others, and the weight of its lines.

    `name_width` is that of the longest name side by side with it.
    """

    front: str = ""
    rest: str = ""
    weight: int = 0
    name_width: int = 0


def _question(root: Node, layout: TreeLayout) -> Iterator[Row]:
    """The question, and at the right or below it who plans."""
    screen = layout.screen
    room = max(0, screen.width - 2)
    first, *others = screen.block(root.label, room) or [""]
    remark = screen.crop(root.remark, room)
    gap = room - text_cells(first) - text_cells(remark)
    head: Line = (("? ", "number"), (first, "question"))
    if gap >= 2 and not others:
        yield Row((*head, (" " * gap + remark, "quiet")))
    else:
        yield Row(head)
        yield from (Row((("  " + line, "question"),), 1) for line in others)
        yield Row((("  " + remark, "quiet"),), 1)


def _branches(
    branches: Sequence[Node], layout: TreeLayout, place: _Place, parent: Node | None = None, *, closed: bool = True
) -> Iterator[Row]:
    """Nodes below another one. `closed`: nothing else follows below it. Of calls, the newest ones matter most."""
    calls = sum(child.kind == "tool" for child in branches)
    names = [text_cells(layout.screen.line(child.name)) for child in branches if child.kind == "step"]
    name_width = min(LONGEST_NAME, max(names, default=0))
    for index, child in enumerate(branches):
        last = closed and index == len(branches) - 1
        # What happened inside a step that has ended matters less than the steps of the run.
        inner = parent is not None and parent.state in ENDED and child.number.startswith(f"{parent.number}.")
        calls -= child.kind == "tool"
        weight = place.weight + inner + (calls if child.kind == "tool" else 0)
        front, rest = (place.rest + layout.guide(last=last, first=first) for first in (True, False))
        yield from _node(child, layout, _Place(front, rest, weight, name_width))


def _node(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """A node and everything below it: what happened to it, its response, and the steps that read it."""
    if node.kind == "tool":
        yield from _tool_call(node, layout, place)
        return
    happened = [child for child in node.children if child.kind in ("attempt", "note", "tool")]
    below = [child for child in node.children if child.kind not in ("attempt", "note", "tool")]
    response = list(_response(node, layout, place))
    yield from (_step if node.kind == "step" else _remark)(node, layout, place)
    yield from _branches(happened, layout, place, node, closed=not response and not below)
    yield from response
    yield from _branches(below, layout, place, node)


def _step(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """Number, worker, subtask, what is special, and at the right edge the state; the subtask below if it is long."""
    screen = layout.screen
    front, number = layout.front(place.front), f"{node.number} "
    free = max(0, screen.width - layout.state_width - 1 - len(front) - len(number))
    name, label = screen.line(node.name), screen.line(node.label)
    remark = f"({screen.line(node.remark)})" if node.remark else ""
    padded = name + " " * (place.name_width - text_cells(name))
    head: Line = ((front, "guide"), (number, "number"))
    about: Line = tuple((text, style) for text, style in ((label, _label_style(node)), (remark, "quiet")) if text)
    one_row = (*head, (padded, "worker"), *(((f"  {text}" if not index else f" {text}"), style)
               for index, (text, style) in enumerate(about)))  # fmt: skip
    if cells(one_row) <= len(front) + len(number) + free:
        yield Row(_with_state(one_row, node, layout), place.weight)
        return
    name = screen.crop(name, free)
    beside = remark if text_cells(name) + 2 + text_cells(remark) <= free else ""
    yield Row(_with_state((*head, (name, "worker"), (f"  {beside}", "quiet")), node, layout), place.weight)
    text = label if beside else f"{label} {remark}"
    rest = place.rest + " " * len(number)
    yield from _wrapped(text, _label_style(node), layout, rest, place.weight + (2 if node.state in ENDED else 1))


def _tool_call(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """The tool and its arguments with the state at the right, and below them what it returned, each in one line."""
    screen, front, rest = layout.screen, layout.front(place.front), layout.front(place.rest)
    free = max(0, screen.width - layout.state_width - 1 - len(front))
    name = screen.crop(node.name, free)
    arguments = screen.crop(node.label, max(0, free - text_cells(name) - 1))
    head: Line = ((front, "guide"), (name, "plain"), (f" {arguments}", "quiet"))
    yield Row(_with_state(head, node, layout), place.weight + 1)
    style = "failed" if node.state == "failed" else "quiet"
    if text := screen.crop(node.text, max(0, screen.width - len(rest) - 2)):
        yield Row(((f"{rest}  ", "guide"), (text, style)), place.weight + 2)


def _remark(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """Anything that is not a step: its mark and what happened."""
    screen, front = layout.screen, layout.front(place.front)
    if node.state == "planning":
        yield Row(_with_state(((front, "guide"), (node.label, "planning")), node, layout), place.weight)
        return
    mark = f"{MARKS[node.state] if screen.marks else node.state} "
    first, *others = _wrapped(node.label, "plain", layout, place.rest + " " * len(mark), place.weight + 1)
    yield first._replace(line=((front, "guide"), (mark, node.state), *first.line[1:]))
    yield from others


def _wrapped(text: str, style: str, layout: TreeLayout, rest: str, weight: int) -> list[Row]:
    """A text behind guides; at least one line."""
    screen, rest = layout.screen, layout.front(rest)
    room = max(0, screen.width - len(rest))
    lines = screen.wrap(text, room) if layout.whole else []
    return [Row(((rest, "guide"), (screen.crop(line, room), style)), weight) for line in lines or [text]]


def _response(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """What a model wrote, behind a bar. The answer of the run is shown elsewhere."""
    if node.answers or node.number == layout.answering != "":
        return
    screen = layout.screen
    front = layout.front(place.rest) + screen.bar + " "
    room = screen.width - len(front)
    if node.kind == "plan":
        texts = [(text, 1) for text in screen.tail(node.text, room, min(1, layout.running))]
    elif node.state in ENDED:
        lines = screen.head(node.text, room, layout.ended)
        texts = [(text, 2 + 3 * index) for index, text in enumerate(lines)]
    else:
        lines = screen.tail(node.text, room, min(2, layout.running) if node.thinking else layout.running)
        texts = [(text, len(lines) - index) for index, text in enumerate(lines)]
    style = "thinking" if node.thinking else "quiet"
    for text, extra in texts:
        yield Row(((front, "guide"), (text, style)), place.weight + extra)


def _with_state(line: Line, node: Node, layout: TreeLayout) -> Line:
    """The line with the node's state at the right: a mark or a word, then what it waits for, or its figures."""
    screen = layout.screen
    state: NodeState = "answering" if node.number and node.number == layout.answering else node.state
    status = "answers below" if state == "answering" else node.status
    mark = MARKS[state] if screen.marks else "running" if state == "planning" else state
    if status and not screen.marks and state in WORDS_THAT_A_STATUS_SAYS:
        mark = ""
    figures = () if state == "answering" else node.figures[: layout.columns]
    mark = mark and f"{mark:<{1 if screen.marks else 8}} "[: layout.state_width]
    room = layout.state_width - len(mark)
    if status:
        text = screen.crop(", ".join(filter(None, (status, *figures))), room)
    else:
        columns = zip(figures, COLUMNS, strict=False)
        text = "".join(f"{figure:<{width - 1}} " for figure, width in columns)[:room].rstrip()
    line = cut(line, screen.width - layout.state_width - 1)
    gap = screen.width - layout.state_width - cells(line)
    return (*line, (" " * gap, "plain"), (mark, state), (text, "quiet"))


def _label_style(node: Node) -> str:
    return "quiet" if node.state in ("waiting", "skipped") else "plain"
