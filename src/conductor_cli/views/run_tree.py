"""A run as a tree, for every view that draws one: the terminal, `trace show`, the HTML page. Pure.

The question is the root. Below it are the steps in the order of the plan, each under the last step
that it reads: a chain is deep, and parallel work is wide. Failed attempts, calls of tools, notices
and nested runs are branches of their step.

As lines of a screen, every line fits the width, and marks say how each step is; a screen without
marks gets words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from conductor_cli.core.events import InputAsked, PlanOffered, PlanRejected, ToolOffered
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import SELF, KeepAnswer
from conductor_cli.core.trace import (
    ENDED,
    FailedAttempt,
    StepRecord,
    ToolRecord,
    Trace,
    describe_approval,
    describe_revised_plan,
)
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    describe_access,
    describe_failure,
    describe_planning,
    describe_reading,
    describe_wait,
    is_reused,
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
        """Yield the node and everything below it, from top to bottom."""
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
        """Return the run inside a step; its clock started with the step."""
        now = self.now - (record.started or 0.0)
        if record.state in ENDED:
            now = inner.at
        return _Run(inner, now, f"{self.outer}{record.number}.", self.answer)


def run_tree(trace: Trace, now: float | None = None) -> Node:
    """Return the tree of a run at a time by its own clock; without one, at its newest event."""
    if now is None:
        now = trace.at
    branches = _branches_of_run(_Run(trace, now, "", trace.answer))
    return Node(
        kind="question",
        state=_state_of_run(trace),
        label=trace.question.text,
        remark=describe_planning(trace),
        children=tuple(branches),
    )


def stored_tree(trace: Trace, *, live: bool) -> Node:
    """Return the tree of a run that is read from its trace; `live` if it still goes on."""
    root = run_tree(trace)
    if live or trace.ended:
        return root
    return _interrupted(root)


def _interrupted(node: Node) -> Node:
    """Return a tree as it is once the process of its run is gone: nothing in it goes on."""
    state = node.state
    status = node.status
    if state in GOING:
        state = "stopped"
        status = "interrupted"
    children = tuple(map(_interrupted, node.children))
    return replace(node, state=state, status=status, children=children)


GOING: Final = frozenset[NodeState]({"planning", "running", "retrying", "answering"})
"""The states of what goes on."""


def _state_of_run(trace: Trace) -> NodeState:
    if trace.state == "planning":
        return "planning"
    if not trace.ended:
        return "running"
    outcome = trace.outcome()
    if outcome == "finished":
        return "done"
    if outcome == "cancelled":
        return "stopped"
    return "failed"


def step_node(record: StepRecord, trace: Trace) -> Node:
    """Return one step at the newest event, with everything below it."""
    return _step(record, _Run(trace, trace.at, "", trace.answer))


def find_node(root: Node, number: str) -> Node | None:
    """Return the node of a step by its number; None when there is none."""
    for node in root.walk():
        if node.kind == "step" and node.number == number:
            return node
    return None


def _branches_of_run(run: _Run) -> Iterator[Node]:
    yield from _rejected_plans(run.trace)
    for notice in run.trace.notices:
        if not notice.step:
            yield _notice(notice.text)
    if run.trace.revised is not None:
        yield _notice(describe_revised_plan(run.trace.revised.step, run.trace.revised.workers))
    if isinstance(run.trace.plan, KeepAnswer):
        yield Node(kind="note", state="done", label="the given answer is kept")
    yield from _steps_below(None, run)
    if run.trace.state == "planning":
        text = run.trace.plan_text.rpartition("\n")[2]
        if run.trace.prompt_read is not None and not run.trace.plan_text:
            text = describe_reading(run.trace.prompt_read)
        took = format_duration(run.now, tenths=False)
        yield Node(
            kind="plan",
            state="planning",
            label="planning",
            figures=(took,),
            text=text,
        )
    if isinstance(run.trace.offer, PlanOffered):
        took = format_duration(run.now - run.trace.offer.at, tenths=False)
        label = f"waits for {describe_approval(run.trace.offer)}"
        yield Node(kind="plan", state="waiting", label=label, figures=(took,))


def _rejected_plans(trace: Trace) -> Iterator[Node]:
    """Yield each plan that is not valid, with the line that has the error.

    Of more than three, the first and the last; one line stands for those between.
    """
    rejected = trace.rejected
    if len(rejected) <= 3:
        yield from map(_rejected_plan, rejected)
        return
    yield _rejected_plan(rejected[0])
    attempts = f"attempts {rejected[1].attempt} to {rejected[-2].attempt}"
    yield Node(kind="plan", state="rejected", label=f"plan, {attempts}: not valid either")
    yield _rejected_plan(rejected[-1])


def _rejected_plan(event: PlanRejected) -> Node:
    label = f"plan, attempt {event.attempt}: {event.problem}"
    if event.hint:
        label += f" ({event.hint})"
    return Node(kind="plan", state="rejected", label=label, text=event.text)


def _steps_below(parent: int | None, run: _Run) -> Iterator[Node]:
    """Yield the steps under another one.

    Under the root for None, because a damaged trace may have a step 0.
    """
    numbers = {record.number for record in run.trace.steps}
    for record in run.trace.steps:
        earlier_reads = []
        for number in record.step.access:
            if number in numbers and number < record.number:
                earlier_reads.append(number)
        if max(earlier_reads, default=None) == parent:
            yield _step(record, run)


def _notice(text: str) -> Node:
    return Node(kind="note", state="note", label=text)


def _step(record: StepRecord, run: _Run) -> Node:
    is_retrying = _is_retrying(record)
    is_thinking = _is_thinking(record)
    text = record.text
    if is_retrying or record.nested is not None:
        # The text of a failed attempt is not valid any more, and the text of a nested run is the
        # text of one of its own steps.
        text = ""
    elif is_thinking:
        text = record.thinking
    state: NodeState = "retrying" if is_retrying else record.state
    return Node(
        kind="step",
        state=state,
        number=f"{run.outer}{record.number}",
        name="review" if record.worker == SELF else record.worker,
        label=record.step.subtask,
        remark=_remark(record, run),
        status=_status(record, run),
        figures=_figures(record, run),
        text=text,
        thinking=is_thinking,
        answers=_is_answer(record, run),
        children=tuple(_branches_of_step(record, run)),
    )


def _is_retrying(record: StepRecord) -> bool:
    return record.state == "running" and record.retry_at is not None


def _is_thinking(record: StepRecord) -> bool:
    """Return whether a step has written only thoughts so far.

    The thoughts before a call of a tool are over while it runs.
    """
    return (
        record.state == "running"
        and bool(record.thinking)
        and not record.text.strip()
        and not running_calls(record)
    )


def _is_answer(record: StepRecord, run: _Run) -> bool:
    """Return whether a step is the last one whose text is the answer of the run."""
    answer = run.answer.strip()
    if not answer:
        return False
    numbers = [step.number for step in run.trace.steps if step.text.strip() == answer]
    return numbers[-1:] == [record.number]


def _remark(record: StepRecord, run: _Run) -> str:
    """Return what is special about a step."""
    parts = list[str]()
    if record.worker != record.step.worker:
        parts.append(f"instead of {record.step.worker}")
    if record.attempt > 1 and record.state not in ENDED:
        attempts = run.trace.limits.attempts
        # The limit is per worker, so a higher number counts the attempts of earlier workers too.
        limit = ""
        if record.attempt <= attempts:
            limit = f" of {attempts}"
        parts.append(f"attempt {record.attempt}{limit}")
    offer = run.trace.offer
    if isinstance(offer, ToolOffered | InputAsked) and offer.step == record.number:
        parts.append(f"waits for {describe_approval(offer)}")
    if _is_thinking(record):
        parts.append("thinking")
    calls = running_calls(record)
    if len(calls) == 1:
        parts.append(f"calls {tool_name(calls[0])}")
    elif calls:
        parts.append(f"calls {format_count(len(calls), 'tool')}")
    if record.step.access:
        parts.append(describe_access(record.step.access))
    return ", ".join(parts)


def _branches_of_step(record: StepRecord, run: _Run) -> Iterator[Node]:
    """Yield what happened, in its order, then the nested run and the steps that read this one."""
    happened = []
    for attempt in record.failed:
        happened.append((attempt.ended, _failed_attempt(attempt, record)))
    for use in record.tools:
        happened.append((use.started, _tool_call(use, record, run)))
    for notice in run.trace.notices:
        if notice.step == record.number:
            happened.append((notice.at, _notice(notice.text)))
    for _, node in sorted(happened, key=lambda item: item[0]):
        yield node
    if record.finish in FINISHES:
        yield _notice(FINISHES[record.finish])
    if record.nested is not None:
        yield from _branches_of_run(run.nested(record, record.nested))
    yield from _steps_below(record.number, run)


def _failed_attempt(attempt: FailedAttempt, record: StepRecord) -> Node:
    label = "not asked"
    if attempt.attempt:
        label = f"attempt {attempt.attempt}"
    if attempt.worker != record.worker:
        label += f", {attempt.worker}"
    if attempt.started is not None:
        label += f", after {format_duration(attempt.ended - attempt.started)}"
    why = attempt.message or describe_failure(attempt.error)
    sequel = _sequel(attempt, record)
    if sequel:
        why = why.rstrip(".")
    return Node(kind="attempt", state="failed", label=f"{label}: {why}{sequel}")


def _sequel(attempt: FailedAttempt, record: StepRecord) -> str:
    """Return what followed a failed attempt, to be written after its reason."""
    if attempt.substitute is not None:
        sequel = f", {attempt.substitute} takes over"
        if attempt.error.hint:
            sequel += f"; hint: {attempt.error.hint}"
        return sequel
    if attempt.retry_in is not None and record.retry_at is None:
        return f", waited {format_duration(attempt.retry_in)}"
    return ""


def _tool_call(use: ToolRecord, record: StepRecord, run: _Run) -> Node:
    state = _state_of_call(use, record)
    status = ""
    figures: tuple[str, ...] = ()
    if use.ended is not None:
        figures = (format_duration(use.ended - use.started),)
    elif state == "running":
        figures = (format_duration(run.now - use.started, tenths=False),)
    else:
        status = "no result"
    return Node(
        kind="tool",
        state=state,
        name=tool_name(use),
        label=use.call.arguments,
        text=use.text,
        status=status,
        figures=figures,
    )


def _state_of_call(use: ToolRecord, record: StepRecord) -> NodeState:
    if use.ended is not None:
        return "failed" if use.error else "done"
    if use in running_calls(record):
        return "running"
    return "stopped"


def _status(record: StepRecord, run: _Run) -> str:
    """Return what a step waits for, or why it ended without an answer."""
    if record.state == "waiting":
        open_steps = {step.number for step in run.trace.steps if step.state not in ENDED}
        missing = [str(number) for number in record.step.access if number in open_steps]
        if not missing:
            return "waiting"
        return f"waits for {', '.join(missing)}"
    if record.state == "running" and record.retry_at is not None:
        return f"again in {round(max(0.0, record.retry_at - run.now))} s"
    if is_reused(record, run.trace):
        return "reused"
    if record.reason is not None:
        return REASONS[record.reason]
    return ""


def _figures(record: StepRecord, run: _Run) -> tuple[str, ...]:
    """Return a step's time and tokens and, where some worker has a price, its cost."""
    is_priced = any(worker.price and not worker.price.is_free for worker in run.trace.pool)
    took = ""
    tokens = ""
    cost = ""
    if record.started is not None and not is_reused(record, run.trace):
        took = format_duration(record.seconds(run.now), tenths=record.state in ENDED)
        tokens = _describe_tokens(record)
        cost = _describe_step_cost(record.usage)
    if not is_priced:
        return took, tokens
    return took, tokens, cost


def _describe_tokens(record: StepRecord) -> str:
    """Return the tokens of a step; the exact number is known at its end."""
    if record.state in ENDED:
        return format_count(record.usage.tokens_out, "token")
    count = tokens_so_far(record)
    if not count:
        return ""
    return f"~{format_count(count, 'token')}"


def _describe_step_cost(usage: Usage) -> str:
    if usage.cost is not None:
        return format_money(usage.cost)
    if usage.unpriced:
        return "unpriced"
    return ""


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

SAID_BY_STATUS: Final = frozenset({"planning", "waiting", "retrying", "answering"})
"""States that a status such as `waits for 1` says, so that they need no word beside it."""

HAPPENED: Final = frozenset({"attempt", "note", "tool"})
"""Kinds of nodes that say what happened in a step; they stand above its response."""

FIGURE_WIDTHS: Final = (8, 15, 9)
"""Cells for time, tokens and cost. A narrow screen has no room for the last ones."""

NARROW_STATE_WIDTH: Final = 16
"""Cells for a step's state where only its time has room: `again in 12 s` with a mark."""

MAX_WORKER_WIDTH: Final = 16
"""Names of steps side by side are padded to the longest of them, up to so many cells."""

MIN_ROWS_FOR_WHOLE_ERRORS: Final = 20
"""Rows of a screen from which on errors are wrapped while a run goes on."""

MIN_WIDTH_UNCUT: Final = 24
"""On screens with fewer columns guides and marks alone may be too wide, so every line is cut."""


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
    figures: int = len(FIGURE_WIDTHS)  # How many figures the steps have

    @property
    def columns(self) -> int:
        """How many figures each step has room for."""
        room = 1
        if self.screen.width >= 60:
            room = 2
        if self.screen.width >= 80:
            room = 3
        return min(self.figures, room)

    @property
    def state_width(self) -> int:
        """Cells at the right of a step for its state."""
        width = NARROW_STATE_WIDTH
        if self.columns > 1:
            width = sum(FIGURE_WIDTHS[: self.columns]) + 2
        if not self.screen.marks:  # A word takes more room than a mark
            width += 7
        return min(width, self.screen.width // 2)

    def first_guide(self, *, is_last: bool) -> str:
        """Return what stands before the first line of a branch."""
        if self.screen.marks:
            return "\u2514\u2500 " if is_last else "\u251c\u2500 "
        return "`- " if is_last else "+- "

    def further_guide(self, *, is_last: bool) -> str:
        """Return what stands before the other lines of a branch."""
        if is_last:
            return "   "
        return "\u2502  " if self.screen.marks else "|  "

    def front(self, guides: str) -> str:
        """Return the guides before a line, cut to half of the screen.

        The outermost ones are left out.
        """
        room = self.screen.width // 2
        if len(guides) > room:
            return guides[-room:]
        return guides


def tree_lines(root: Node, layout: TreeLayout) -> list[Line]:
    """Return the whole tree."""
    return [row.line for row in tree_rows(root, layout)]


def live_lines(root: Node, trace: Trace, now: float, layout: TreeLayout) -> list[Line]:
    """Return as much of the tree as the screen holds, and the totals so far.

    They are at most one line less than the screen has.
    """
    rows = list(tree_rows(root, layout._replace(whole=False)))
    # The last line of the screen is the cursor's, and the one above it has the totals.
    room = max(0, layout.screen.height - 2)
    lines = _fitting_lines(rows, room, layout.screen)
    totals = layout.screen.crop(_describe_progress(trace, now), layout.screen.width)
    return [*lines, ((totals, "quiet"),)]


def _fitting_lines(rows: Sequence[Row], room: int, screen: Screen) -> list[Line]:
    """Return at most `room` lines. Every response gets the same share, and steps go last."""
    weight = max((row.weight for row in rows), default=0)
    lines = [row.line for row in rows]
    while weight and len(lines) > room:
        weight -= 1
        lines = [row.line for row in rows if row.weight <= weight]
    if len(lines) <= room:
        return lines
    kept = max(0, room - 1)
    rest = screen.crop(f"{screen.dots} and {len(lines) - kept} more", screen.width)
    return [*lines[:kept], ((rest, "quiet"),)][:room]


def _describe_progress(trace: Trace, now: float) -> str:
    """Return time, steps, tokens and cost of a run so far."""
    done = len(trace.done())
    if trace.plan is not None:
        progress = f"{done} of {format_count(len(trace.steps), 'step')} done"
    else:
        progress = f"{format_count(done, 'step')} done"
    failed = sum(record.state == "failed" for record in trace.steps)
    if failed:
        progress += f", {failed} failed"
    parts = (
        describe_wait(trace),
        format_duration(now, tenths=False),
        progress,
        format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage),
    )
    return ", ".join(filter(None, parts))


def tree_rows(root: Node, layout: TreeLayout) -> Iterator[Row]:
    """Yield the whole tree, with what may be left out.

    A step as the root is shown with what is below it.
    """
    layout = layout._replace(figures=max(len(node.figures) for node in root.walk()))
    if root.kind == "question":
        rows = [*_question_rows(root, layout.screen)]
        rows += _branches(root.children, layout, _Position())
    else:
        rows = [*_node(root, layout, _Position())]
    width = layout.screen.width
    for row in rows:
        if width < MIN_WIDTH_UNCUT:
            yield row._replace(line=cut(row.line, width))
        else:
            yield row


def _question_rows(root: Node, screen: Screen) -> Iterator[Row]:
    """Yield the question, with who plans at the right of it or below it."""
    room = max(0, screen.width - 2)
    first, *others = screen.block(root.label, room) or [""]
    remark = screen.crop(root.remark, room)
    gap = room - text_cells(first) - text_cells(remark)
    head: Line = (("? ", "number"), (first, "question"))
    if gap >= 2 and not others:
        yield Row((*head, (" " * gap + remark, "quiet")))
        return
    yield Row(head)
    for line in others:
        yield Row((("  " + line, "question"),), 1)
    yield Row((("  " + remark, "quiet"),), 1)


class _Position(NamedTuple):
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
    position: _Position,
    parent: Node | None = None,
    *,
    closed: bool = True,
) -> Iterator[Row]:
    """Yield nodes below another one. `closed`: nothing else follows below it.

    Of calls, the newest ones matter most.
    """
    later_calls = sum(child.kind == "tool" for child in branches)
    name_width = _name_width(branches, layout.screen)
    for index, child in enumerate(branches):
        weight = position.weight
        if parent is not None and _is_inside_ended_step(child, parent):
            weight += 1
        if child.kind == "tool":
            later_calls -= 1
            weight += later_calls
        is_last = closed and index == len(branches) - 1
        front = position.rest + layout.first_guide(is_last=is_last)
        rest = position.rest + layout.further_guide(is_last=is_last)
        yield from _node(child, layout, _Position(front, rest, weight, name_width))


def _name_width(branches: Sequence[Node], screen: Screen) -> int:
    widths = [text_cells(screen.line(child.name)) for child in branches if child.kind == "step"]
    return min(MAX_WORKER_WIDTH, max(widths, default=0))


def _is_inside_ended_step(child: Node, parent: Node) -> bool:
    """Return whether a node is of a run inside a step that has ended.

    It matters less than the steps of the run.
    """
    return parent.state in ENDED and child.number.startswith(f"{parent.number}.")


def _node(node: Node, layout: TreeLayout, position: _Position) -> Iterator[Row]:
    """Yield a node and everything below it.

    What happened to it, its response, and the steps that read it.
    """
    if node.kind == "tool":
        yield from _tool_call_line(node, layout, position)
        return
    if node.kind == "step":
        yield from _step_lines(node, layout, position)
    else:
        yield from _remark_line(node, layout, position)
    happened = []
    below = []
    for child in node.children:
        if child.kind in HAPPENED:
            happened.append(child)
        else:
            below.append(child)
    response = list(_response(node, layout, position))
    is_closed = not response and not below
    yield from _branches(happened, layout, position, node, closed=is_closed)
    yield from response
    yield from _branches(below, layout, position, node)


def _step_lines(node: Node, layout: TreeLayout, position: _Position) -> Iterator[Row]:
    """Yield number, worker, subtask, what is special, and at the right edge the state.

    The subtask stands below if it is long.
    """
    screen = layout.screen
    number = f"{node.number} "
    head: Line = ((layout.front(position.front), "guide"), (number, "number"))
    free = max(0, screen.width - layout.state_width - 1 - sum(len(text) for text, _ in head))
    name = screen.line(node.name)
    label = screen.line(node.label)
    remark = ""
    if node.remark:
        remark = f"({screen.line(node.remark)})"
    style = "quiet" if node.state in ("waiting", "skipped") else "plain"
    beside = _beside_name(name, label, remark, style, position.name_width)
    if cells(beside) <= free:
        yield Row(_with_state((*head, *beside), node, layout), position.weight)
        return
    name = screen.crop(name, free)
    below = f"{label} {remark}"
    if text_cells(name) + 2 + text_cells(remark) <= free:
        below = label
    else:
        remark = ""
    first = (*head, (name, "worker"), (f"  {remark}", "quiet"))
    yield Row(_with_state(first, node, layout), position.weight)
    rest = position.rest + " " * len(number)
    weight = position.weight + 1
    if node.state in ENDED:
        weight += 1
    yield from _wrapped(below, style, layout, rest, weight)


def _beside_name(name: str, label: str, remark: str, style: str, name_width: int) -> Line:
    """Return a step's name, its subtask and its remark side by side."""
    spans = [(name + " " * (name_width - text_cells(name)), "worker")]
    if label:
        spans.append((f"  {label}", style))
    if remark:
        gap = " " if label else "  "
        spans.append((gap + remark, "quiet"))
    return tuple(spans)


def _tool_call_line(node: Node, layout: TreeLayout, position: _Position) -> Iterator[Row]:
    """Yield the tool and its arguments, with the state at the right, and below what it returned.

    Each is one line.
    """
    screen = layout.screen
    front = layout.front(position.front)
    rest = layout.front(position.rest)
    free = max(0, screen.width - layout.state_width - 1 - len(front))
    name = screen.crop(node.name, free)
    arguments = screen.crop(node.label, max(0, free - text_cells(name) - 1))
    head: Line = ((front, "guide"), (name, "plain"), (f" {arguments}", "quiet"))
    yield Row(_with_state(head, node, layout), position.weight + 1)
    result = screen.crop(node.text, max(0, screen.width - len(rest) - 2))
    if result:
        style = "failed" if node.state == "failed" else "quiet"
        yield Row(((f"{rest}  ", "guide"), (result, style)), position.weight + 2)


def _remark_line(node: Node, layout: TreeLayout, position: _Position) -> Iterator[Row]:
    """Yield anything that is not a step: its mark and what happened."""
    screen = layout.screen
    front = layout.front(position.front)
    if node.state == "planning":
        head: Line = ((front, "guide"), (node.label, "planning"))
        yield Row(_with_state(head, node, layout), position.weight)
        return
    mark = f"{node.state} "
    if screen.marks:
        mark = f"{MARKS[node.state]} "
    # What went wrong is told whole while a run goes on, too, if there is room for it.
    has_room = screen.height >= MIN_ROWS_FOR_WHOLE_ERRORS
    first, *others = _wrapped(
        node.label,
        "plain",
        layout._replace(whole=layout.whole or has_room),
        position.rest + " " * len(mark),
        position.weight + 1,
    )
    yield first._replace(line=((front, "guide"), (mark, node.state), *first.line[1:]))
    for row in others:
        yield row._replace(weight=row.weight + 1)


def _wrapped(text: str, style: str, layout: TreeLayout, rest: str, weight: int) -> list[Row]:
    """Return a text behind guides; at least one line."""
    screen = layout.screen
    rest = layout.front(rest)
    room = max(0, screen.width - len(rest))
    lines = [text]
    if layout.whole:
        lines = screen.wrap(text, room) or [text]
    return [Row(((rest, "guide"), (screen.crop(line, room), style)), weight) for line in lines]


def _response(node: Node, layout: TreeLayout, position: _Position) -> Iterator[Row]:
    """Yield what a model wrote, behind a bar. The answer of the run is shown elsewhere."""
    if node.answers or _is_answering(node, layout):
        return
    front = layout.front(position.rest) + layout.screen.bar + " "
    style = "thinking" if node.thinking else "quiet"
    for text, weight in _response_lines(node, layout, layout.screen.width - len(front)):
        yield Row(((front, "guide"), (text, style)), position.weight + weight)


def _response_lines(node: Node, layout: TreeLayout, room: int) -> Iterator[tuple[str, int]]:
    """Yield the lines of a response that are shown, each with its weight."""
    screen = layout.screen
    if node.kind == "plan":
        for text in screen.tail(node.text, room, min(1, layout.running)):
            yield text, 1
    elif node.state in ENDED:
        for index, text in enumerate(screen.head(node.text, room, layout.ended)):
            yield text, 2 + 3 * index
    else:
        count = min(2, layout.running) if node.thinking else layout.running
        lines = screen.tail(node.text, room, count)
        for index, text in enumerate(lines):
            yield text, len(lines) - index


def _is_answering(node: Node, layout: TreeLayout) -> bool:
    """Return whether the text of this step follows the tree on the same screen."""
    return bool(node.number) and node.number == layout.answering


def _with_state(line: Line, node: Node, layout: TreeLayout) -> Line:
    """Return the line with the node's state at the right.

    It is a mark or a word, then what the node waits for, or its figures.
    """
    screen = layout.screen
    state = node.state
    status = node.status
    figures = node.figures[: layout.columns]
    if _is_answering(node, layout):
        state = "answering"
        status = "answers below"
        figures = ()
    mark = _mark(state, status, screen)[: layout.state_width]
    room = layout.state_width - len(mark)
    if status:
        text = screen.crop(_with_fitting_figures(status, figures, room), room)
    else:
        text = ""
        for figure, width in zip(figures, FIGURE_WIDTHS, strict=False):
            text += f"{figure:<{width - 1}} "
        text = text[:room].rstrip()
    line = cut(line, screen.width - layout.state_width - 1)
    gap = screen.width - layout.state_width - cells(line)
    return (*line, (" " * gap, "plain"), (mark, state), (text, "quiet"))


def _mark(state: NodeState, status: str, screen: Screen) -> str:
    """Return the mark of a state with a space after it, or its word in a column of its own."""
    if screen.marks:
        return f"{MARKS[state]} "
    if status and state in SAID_BY_STATUS:
        return ""
    word = "running" if state == "planning" else state
    return f"{word:<8} "


def _with_fitting_figures(status: str, figures: Sequence[str], room: int) -> str:
    """Return a status and as many figures as fit whole, from the left."""
    text = status
    for figure in filter(None, figures):
        longer = f"{text}, {figure}"
        if text_cells(longer) > room:
            break
        text = longer
    return text
