"""A run as a tree, for every view that draws one: the terminal, `trace show`, the HTML page. Pure.

The question is the root. Below it are the steps in the order of the plan, each under the last step
that it reads: a chain is deep, and parallel work is wide. Failed attempts, calls of tools, notices
and nested runs are branches of their step.

As lines of a screen, every line fits the width, and marks say how each step is; a screen without
marks gets words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import SELF, KeepAnswer
from conductor_cli.core.trace import (
    ENDED,
    FailedAttempt,
    StepRecord,
    ToolRecord,
    Trace,
    describe_revised_plan,
)
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    describe_access,
    describe_failure,
    describe_planning,
    running_calls,
    tokens_so_far,
    tool_name,
)
from conductor_cli.views.text_layout import Line, Screen, cells, cut, text_cells

NodeKind = Literal["question", "plan", "step", "attempt", "note", "tool"]
NodeState = Literal[
    "planning",
    "waiting",
    "running",
    "retrying",
    "answering",
    "done",
    "failed",
    "stopped",
    "skipped",
    "rejected",
    "note",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One thing that belongs to a run.

    All texts are as models wrote them: a view makes them safe to show.
    """

    kind: NodeKind
    state: NodeState
    number: str = ""  # That of a step, `2`, or `2.1` for step 1 of the run nested in step 2
    name: str = ""  # Who does the step, or the tool
    label: str = ""  # The question, the subtask, the arguments of a call, or what happened
    remark: str = ""  # What is special about it
    status: str = ""  # What it waits for
    # Of a step: time, tokens and, where some worker has a price, cost
    figures: tuple[str, ...] = ()
    text: str = ""  # What a model wrote or a tool returned
    thinking: bool = False  # The text is only the model's thoughts so far
    answers: bool = False  # The text is also the answer of the run
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """The node and everything below it, from top to bottom."""
        yield self
        for child in self.children:
            yield from child.walk()


class _Run(NamedTuple):
    """A run, and a time by its own clock."""

    trace: Trace
    now: float
    outer: str  # What stands before the step numbers of a nested run: `2.`
    answer: str  # That of the outermost run

    def nested(self, record: StepRecord, inner: Trace) -> _Run:
        """The run inside a step; its clock started with the step."""
        now = inner.at if record.state in ENDED else self.now - (record.started or 0.0)
        return _Run(inner, now, f"{self.outer}{record.number}.", self.answer)


def run_tree(trace: Trace, now: float | None = None) -> Node:
    """The tree of a run at a time by the run's own clock; without one, at its newest event."""
    state: NodeState = "planning" if trace.state == "planning" else "running"
    if trace.ended:
        state = "done" if trace.state == "finished" else "stopped" if trace.cancelled else "failed"
    branches = _branches_of_run(_Run(trace, trace.at if now is None else now, "", trace.answer))
    return Node(
        kind="question",
        state=state,
        label=trace.question.text,
        remark=describe_planning(trace),
        children=tuple(branches),
    )


def step_node(record: StepRecord, trace: Trace) -> Node:
    """One step at the newest event, with everything below it."""
    return _step(record, _Run(trace, trace.at, "", trace.answer))


def find_node(root: Node, number: str) -> Node | None:
    """The node of a step by its number; None when there is none."""
    return next(
        (node for node in root.walk() if node.kind == "step" and node.number == number), None
    )


def _branches_of_run(run: _Run) -> Iterator[Node]:
    # Each plan that is not valid, with the line that has the error; of many, the first and the
    # last.
    rejected = run.trace.rejected
    between = rejected[1:-1] if len(rejected) > 3 else ()
    for event in rejected:
        if event not in between:
            hint = f" ({event.hint})" if event.hint else ""
            label = f"plan, attempt {event.attempt}: {event.problem}{hint}"
            yield Node(kind="plan", state="rejected", label=label, text=event.text)
        elif event is between[0]:
            which = f"plan, attempts {event.attempt} to {between[-1].attempt}"
            yield Node(kind="plan", state="rejected", label=f"{which}: not valid either")
    yield from (_notice(notice.text) for notice in run.trace.notices if not notice.step)
    if run.trace.revised is not None:
        yield _notice(describe_revised_plan(run.trace.revised.step, run.trace.revised.workers))
    if isinstance(run.trace.plan, KeepAnswer):
        yield Node(kind="note", state="done", label="the given answer is kept")
    yield from _steps_below(None, run)
    if run.trace.state == "planning":
        # The plan, with the line that is being written.
        line = run.trace.plan_text.rpartition("\n")[2]
        took = format_duration(run.now, tenths=False)
        yield Node(kind="plan", state="planning", label="planning", figures=(took,), text=line)


def _steps_below(parent: int | None, run: _Run) -> Iterator[Node]:
    """The steps under another one.

    Under the root for None, because a damaged trace may have a step 0.
    """
    known = {record.number for record in run.trace.steps}
    for record in run.trace.steps:
        read = (item for item in record.step.access if item in known and item < record.number)
        if max(read, default=None) == parent:
            yield _step(record, run)


def _notice(text: str) -> Node:
    return Node(kind="note", state="note", label=text)


def _step(record: StepRecord, run: _Run) -> Node:
    retrying = record.state == "running" and record.retry_at is not None
    calls = running_calls(record)
    # The thoughts before a call of a tool are over while it runs.
    thinking = (
        record.state == "running"
        and bool(record.thinking)
        and not record.text.strip()
        and not calls
    )
    # The text of a nested run is the text of one of its own steps; that of a failed attempt is not
    # valid any more.
    text = (
        ""
        if retrying or record.nested is not None
        else record.thinking
        if thinking
        else record.text
    )
    # The limit is per worker, so a higher number counts the attempts of earlier workers too.
    of = f" of {run.trace.limits.attempts}" if record.attempt <= run.trace.limits.attempts else ""
    parts = (
        f"instead of {record.step.worker}" if record.worker != record.step.worker else "",
        f"attempt {record.attempt}{of}" if record.attempt > 1 and record.state not in ENDED else "",
        "thinking" if thinking else "",
        f"calls {tool_name(calls[0]) if len(calls) == 1 else format_count(len(calls), 'tool')}"
        if calls
        else "",
        describe_access(record.step.access) if record.step.access else "",
    )
    answer = run.answer.strip()
    same = [step.number for step in run.trace.steps if answer and step.text.strip() == answer]
    return Node(
        kind="step",
        state="retrying" if retrying else record.state,
        number=f"{run.outer}{record.number}",
        name="review" if record.worker == SELF else record.worker,
        label=record.step.subtask,
        remark=", ".join(filter(None, parts)),
        status=_status(record, run),
        figures=_figures(record, run),
        text=text,
        thinking=thinking,
        answers=same[-1:] == [record.number],
        children=tuple(_branches_of_step(record, run)),
    )


def _branches_of_step(record: StepRecord, run: _Run) -> Iterator[Node]:
    """Yield what happened, in its order, then the nested run and the steps that read this one."""
    happened = [(attempt.ended, _failed_attempt(attempt, record)) for attempt in record.failed]
    happened += [(use.started, _tool_call(use, record, run)) for use in record.tools]
    happened += [
        (notice.at, _notice(notice.text))
        for notice in run.trace.notices
        if notice.step == record.number
    ]
    yield from (node for _, node in sorted(happened, key=lambda item: item[0]))
    if record.finish in FINISHES:
        yield _notice(FINISHES[record.finish])
    if record.nested is not None:
        yield from _branches_of_run(run.nested(record, record.nested))
    yield from _steps_below(record.number, run)


def _failed_attempt(attempt: FailedAttempt, record: StepRecord) -> Node:
    front = f"attempt {attempt.attempt}" if attempt.attempt else "not asked"
    front += f", {attempt.worker}" if attempt.worker != record.worker else ""
    front += (
        f", after {format_duration(attempt.ended - attempt.started)}"
        if attempt.started is not None
        else ""
    )
    followed = ""
    if attempt.substitute is not None:
        followed = f", {attempt.substitute} takes over"
        followed += f"; hint: {attempt.error.hint}" if attempt.error.hint else ""
    elif attempt.retry_in is not None and record.retry_at is None:
        followed = f", waited {format_duration(attempt.retry_in)}"
    why = attempt.message or describe_failure(attempt.error)
    label = f"{front}: {why.rstrip('.') if followed else why}{followed}"
    return Node(kind="attempt", state="failed", label=label)


def _tool_call(use: ToolRecord, record: StepRecord, run: _Run) -> Node:
    state: NodeState = "stopped"
    if use.ended is not None:
        state = "failed" if use.error else "done"
    elif use in running_calls(record):
        state = "running"
    took = format_duration(
        (run.now if use.ended is None else use.ended) - use.started, tenths=use.ended is not None
    )
    return Node(
        kind="tool",
        state=state,
        name=tool_name(use),
        label=use.call.arguments,
        text=use.text,
        status="no result" if state == "stopped" else "",
        figures=() if state == "stopped" else (took,),
    )


def _status(record: StepRecord, run: _Run) -> str:
    """Return what a step waits for, or why it ended without an answer."""
    if record.state == "waiting":
        open_steps = {step.number for step in run.trace.steps if step.state not in ENDED}
        missing = [str(item) for item in record.step.access if item in open_steps]
        return f"waits for {', '.join(missing)}" if missing else "waiting"
    if record.state == "running" and record.retry_at is not None:
        return f"again in {round(max(0.0, record.retry_at - run.now))} s"
    if _is_reused(record, run):
        return "reused"
    return REASONS[record.reason] if record.reason is not None else ""


def _is_reused(record: StepRecord, run: _Run) -> bool:
    """Return whether an earlier run, which this one goes on with, had done the step.

    Nobody was called.
    """
    return (
        bool(run.trace.resumed)
        and record.state == "done"
        and not record.usage.calls
        and record.nested is None
    )


def _figures(record: StepRecord, run: _Run) -> tuple[str, ...]:
    priced = any(worker.price and any(worker.price.amounts()) for worker in run.trace.pool)
    if record.started is None or _is_reused(record, run):
        return ("",) * (3 if priced else 2)
    ended = record.state in ENDED
    took = format_duration(record.seconds(run.now), tenths=ended)
    # The exact number of tokens is known at the end.
    count = record.usage.tokens_out if ended else tokens_so_far(record)
    tokens = f"{'' if ended else '~'}{format_count(count, 'token')}" if ended or count else ""
    if not priced:
        return took, tokens
    cost = "unpriced" if record.usage.unpriced else ""
    return took, tokens, cost if record.usage.cost is None else format_money(record.usage.cost)


MARKS: Final[dict[NodeState, str]] = {
    "planning": "\u25cf",
    "running": "\u25cf",
    "answering": "\u2193",
    "waiting": "\u25cb",
    "retrying": "\u21bb",
    "done": "\u2713",
    "failed": "\u2717",
    "rejected": "\u2717",
    "stopped": "\u2013",
    "skipped": "\u2013",
    "note": "!",
}

# Cells for time, tokens and cost. A narrow screen has no room for the last ones.
COLUMNS: Final = (8, 15, 9)
# Cells for a step's state on a screen with room for its time only: `again in 12 s` with a mark
NARROW: Final = 16
# Names of steps side by side are padded to the longest of them, up to so many cells
MAX_WORKER_WIDTH: Final = 16
ROOMY: Final = 20  # Rows of a screen from which on errors are wrapped while a run goes on
# On screens with fewer columns guides and marks alone may be too wide, so every line is cut
SMALLEST: Final = 24


class Row(NamedTuple):
    """A line of the tree.

    Where not all rows fit, those of the highest `weight` are left out first; 0 is a step.
    """

    line: Line
    weight: int = 0


class TreeLayout(NamedTuple):
    """The screen, and how much of the texts it gets."""

    screen: Screen
    running: int = 6  # The last lines that are shown of a response while it is written
    ended: int = 2  # Its first lines, later
    whole: bool = True  # Subtasks are wrapped, not cropped
    answering: str = ""  # The number of the step whose text follows the tree on the same screen
    figures: int = len(COLUMNS)  # How many figures the steps have

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
        """Return what stands before a branch: before its first line, or before the others."""
        if self.screen.marks:
            return (
                ("\u2514\u2500 " if last else "\u251c\u2500 ")
                if first
                else ("   " if last else "\u2502  ")
            )
        return ("`- " if last else "+- ") if first else ("   " if last else "|  ")

    def front(self, guides: str) -> str:
        """The guides before a line, without the outermost ones where they would take more than half
        the screen.
        """
        return (
            guides[-(self.screen.width // 2) :] if len(guides) > self.screen.width // 2 else guides
        )


def tree_lines(root: Node, layout: TreeLayout) -> list[Line]:
    """The whole tree."""
    return [row.line for row in tree_rows(root, layout)]


def live_lines(root: Node, trace: Trace, now: float, layout: TreeLayout) -> list[Line]:
    """As much of the tree as the screen holds, and the totals so far.

    At most one line less than the screen has.
    """
    rows = list(tree_rows(root, layout._replace(whole=False)))
    done = len(trace.done())
    steps = format_count(len(trace.steps), "step")
    progress = (
        f"{done} of {steps} done"
        if trace.plan is not None
        else f"{format_count(done, 'step')} done"
    )
    failed = sum(record.state == "failed" for record in trace.steps)
    progress += f", {failed} failed" if failed else ""
    tokens = format_count(trace.usage.tokens, "token")
    texts = (format_duration(now, tenths=False), progress, tokens, format_cost(trace.usage))
    totals: Line = (
        (layout.screen.crop(", ".join(filter(None, texts)), layout.screen.width), "quiet"),
    )
    # Above the totals and the cursor's line, every response gets the same share, and steps go last.
    screen = layout.screen
    room = max(0, layout.screen.height - 2)
    weight = max((row.weight for row in rows), default=0)
    while weight and sum(row.weight <= weight for row in rows) > room:
        weight -= 1
    lines = [row.line for row in rows if row.weight <= weight]
    if len(lines) > room:
        kept = max(0, room - 1)
        more: Line = (
            (screen.crop(f"{screen.dots} and {len(lines) - kept} more", screen.width), "quiet"),
        )
        lines = [*lines[:kept], more][:room]
    return [*lines, totals]


def tree_rows(root: Node, layout: TreeLayout) -> Iterator[Row]:
    """The whole tree, with what may be left out.

    A step as the root is shown with what is below it.
    """
    layout = layout._replace(figures=max(len(node.figures) for node in root.walk()))
    screen = layout.screen
    rows = list[Row]()
    if root.kind == "question":  # with who plans at the right of it or below it
        room = max(0, screen.width - 2)
        first, *others = screen.block(root.label, room) or [""]
        remark = screen.crop(root.remark, room)
        gap = room - text_cells(first) - text_cells(remark)
        head: Line = (("? ", "number"), (first, "question"))
        if gap >= 2 and not others:
            rows.append(Row((*head, (" " * gap + remark, "quiet"))))
        else:
            rows += [Row(head), *(Row((("  " + line, "question"),), 1) for line in others)]
            rows.append(Row((("  " + remark, "quiet"),), 1))
        rows += _branches(root.children, layout, _Place())
    else:
        rows += _node(root, layout, _Place())
    # Guides and marks alone may be too wide for the smallest screens.
    return (
        row if screen.width >= SMALLEST else row._replace(line=cut(row.line, screen.width))
        for row in rows
    )


class _Place(NamedTuple):
    """Where a node stands.

    The guides before its first line and before the others, and the weight of its lines.
    """

    front: str = ""
    rest: str = ""
    weight: int = 0
    name_width: int = 0  # That of the longest name side by side with it


def _branches(
    branches: Sequence[Node],
    layout: TreeLayout,
    place: _Place,
    parent: Node | None = None,
    *,
    closed: bool = True,
) -> Iterator[Row]:
    """Nodes below another one. `closed`: nothing else follows below it.

    Of calls, the newest ones matter most.
    """
    calls = sum(child.kind == "tool" for child in branches)
    names = [
        text_cells(layout.screen.line(child.name)) for child in branches if child.kind == "step"
    ]
    name_width = min(MAX_WORKER_WIDTH, max(names, default=0))
    for index, child in enumerate(branches):
        last = closed and index == len(branches) - 1
        # What happened inside a step that has ended matters less than the steps of the run.
        inner = (
            parent is not None
            and parent.state in ENDED
            and child.number.startswith(f"{parent.number}.")
        )
        calls -= child.kind == "tool"
        weight = place.weight + inner + (calls if child.kind == "tool" else 0)
        front, rest = (place.rest + layout.guide(last=last, first=first) for first in (True, False))
        yield from _node(child, layout, _Place(front, rest, weight, name_width))


def _node(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """A node and everything below it.

    What happened to it, its response, and the steps that read it.
    """
    if node.kind == "tool":
        yield from _tool_call_line(node, layout, place)
        return
    happened = [child for child in node.children if child.kind in ("attempt", "note", "tool")]
    below = [child for child in node.children if child.kind not in ("attempt", "note", "tool")]
    response = list(_response(node, layout, place))
    yield from (_step_lines if node.kind == "step" else _remark_line)(node, layout, place)
    yield from _branches(happened, layout, place, node, closed=not response and not below)
    yield from response
    yield from _branches(below, layout, place, node)


def _step_lines(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """Number, worker, subtask, what is special, and at the right edge the state.

    The subtask below if it is long.
    """
    screen = layout.screen
    front = layout.front(place.front)
    number = f"{node.number} "
    free = max(0, screen.width - layout.state_width - 1 - len(front) - len(number))
    name = screen.line(node.name)
    label = screen.line(node.label)
    remark = f"({screen.line(node.remark)})" if node.remark else ""
    padded = name + " " * (place.name_width - text_cells(name))
    head: Line = ((front, "guide"), (number, "number"))
    plain = "quiet" if node.state in ("waiting", "skipped") else "plain"
    about: Line = tuple(
        (text, style) for text, style in ((label, plain), (remark, "quiet")) if text
    )
    one_row = (
        *head,
        (padded, "worker"),
        *(
            ((f"  {text}" if not index else f" {text}"), style)
            for index, (text, style) in enumerate(about)
        ),
    )
    if cells(one_row) <= len(front) + len(number) + free:
        yield Row(_with_state(one_row, node, layout), place.weight)
        return
    name = screen.crop(name, free)
    beside = remark if text_cells(name) + 2 + text_cells(remark) <= free else ""
    yield Row(
        _with_state((*head, (name, "worker"), (f"  {beside}", "quiet")), node, layout), place.weight
    )
    text = label if beside else f"{label} {remark}"
    rest = place.rest + " " * len(number)
    yield from _wrapped(text, plain, layout, rest, place.weight + (2 if node.state in ENDED else 1))


def _tool_call_line(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """The tool and its arguments with the state at the right, and below them what it returned, each
    in one line.
    """
    screen = layout.screen
    front = layout.front(place.front)
    rest = layout.front(place.rest)
    free = max(0, screen.width - layout.state_width - 1 - len(front))
    name = screen.crop(node.name, free)
    arguments = screen.crop(node.label, max(0, free - text_cells(name) - 1))
    head: Line = ((front, "guide"), (name, "plain"), (f" {arguments}", "quiet"))
    yield Row(_with_state(head, node, layout), place.weight + 1)
    style = "failed" if node.state == "failed" else "quiet"
    if text := screen.crop(node.text, max(0, screen.width - len(rest) - 2)):
        yield Row(((f"{rest}  ", "guide"), (text, style)), place.weight + 2)


def _remark_line(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """Anything that is not a step: its mark and what happened."""
    screen = layout.screen
    front = layout.front(place.front)
    if node.state == "planning":
        yield Row(
            _with_state(((front, "guide"), (node.label, "planning")), node, layout), place.weight
        )
        return
    mark = f"{MARKS[node.state] if screen.marks else node.state} "
    # What went wrong is told whole while a run goes on, too, if there is room for it.
    whole = layout._replace(whole=layout.whole or screen.height >= ROOMY)
    first, *others = _wrapped(
        node.label, "plain", whole, place.rest + " " * len(mark), place.weight + 1
    )
    yield first._replace(line=((front, "guide"), (mark, node.state), *first.line[1:]))
    yield from (row._replace(weight=row.weight + 1) for row in others)


def _wrapped(text: str, style: str, layout: TreeLayout, rest: str, weight: int) -> list[Row]:
    """A text behind guides; at least one line."""
    screen = layout.screen
    rest = layout.front(rest)
    room = max(0, screen.width - len(rest))
    lines = screen.wrap(text, room) if layout.whole else []
    return [
        Row(((rest, "guide"), (screen.crop(line, room), style)), weight) for line in lines or [text]
    ]


def _response(node: Node, layout: TreeLayout, place: _Place) -> Iterator[Row]:
    """Yield what a model wrote, behind a bar. The answer of the run is shown elsewhere."""
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
        lines = screen.tail(
            node.text, room, min(2, layout.running) if node.thinking else layout.running
        )
        texts = [(text, len(lines) - index) for index, text in enumerate(lines)]
    style = "thinking" if node.thinking else "quiet"
    for text, extra in texts:
        yield Row(((front, "guide"), (text, style)), place.weight + extra)


def _with_state(line: Line, node: Node, layout: TreeLayout) -> Line:
    """The line with the node's state at the right.

    A mark or a word, then what it waits for, or its figures.
    """
    screen = layout.screen
    state: NodeState = (
        "answering" if node.number and node.number == layout.answering else node.state
    )
    status = "answers below" if state == "answering" else node.status
    mark = MARKS[state] if screen.marks else "running" if state == "planning" else state
    if status and not screen.marks and state in ("planning", "waiting", "retrying", "answering"):
        mark = ""  # a status such as `waits for 1` says it
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
