"""A run as a tree, for every view that draws one: the terminal, `trace show`, the HTML page. Pure.

The question is the root. Below it are the steps in the order of the plan, each under the last step that it reads: a
chain is deep, and parallel work is wide. Failed attempts, calls of tools, notices and nested runs are branches of
their step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.recovery import FailedAttempt, describe_revised_plan
from conductor_cli.core.trace import ENDED, StepRecord, ToolUse, Trace
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

MOST_BETWEEN: Final = 2
"""So many plans between the first and the last one that was not valid are shown as one."""

NodeKind = Literal["question", "plan", "step", "attempt", "note", "tool"]
NodeState = Literal[
    "planning", "waiting", "running", "retrying", "answering", "done", "failed", "stopped", "skipped", "rejected",
    "note",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One thing that belongs to a run. All texts are as models wrote them: a view makes them safe to show.

    `number` is that of a step, `2`, or `2.1` for step 1 of the run nested in step 2; empty for anything else. `name` is
    who does the step, or the tool. `label` is the question, the subtask, the arguments of a call, or what happened.
    `remark` says what is special about it, `status` what it waits for. `figures` of a step are time, tokens and, where
    some worker has a price, cost; unknown ones are empty. `text` is what a model wrote or a tool returned; with
    `thinking`, only the model's thoughts so far. `answers`: the text is also the answer of the run.
    """

    kind: NodeKind
    state: NodeState
    number: str = ""
    name: str = ""
    label: str = ""
    remark: str = ""
    status: str = ""
    figures: tuple[str, ...] = ()
    text: str = ""
    thinking: bool = False
    answers: bool = False
    children: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """The node and everything below it, from top to bottom."""
        yield self
        for child in self.children:
            yield from child.walk()


class _Run(NamedTuple):
    """A run, and a time by its own clock.

    `outer` stands before the step numbers of a nested run: `2.`. `answer` is that of the outermost run.
    """

    trace: Trace
    now: float
    outer: str
    answer: str

    def nested(self, record: StepRecord, inner: Trace) -> _Run:
        """The run inside a step; its clock started with the step."""
        now = inner.at if record.state in ENDED else self.now - (record.started or 0.0)
        return _Run(inner, now, f"{self.outer}{record.number}.", self.answer)


def run_tree(trace: Trace, now: float | None = None) -> Node:
    """The tree of a run at a time by the run's own clock; without one, at its newest event."""
    state: NodeState = "planning" if trace.state == "planning" else "running"
    if trace.ended:
        state = "failed" if trace.state == "failed" else "done"
    branches = _branches_of_run(_Run(trace, trace.at if now is None else now, "", trace.answer))
    return Node(
        kind="question", state=state, label=trace.question.text, remark=describe_planning(trace),
        children=tuple(branches),
    )  # fmt: skip


def step_node(record: StepRecord, trace: Trace, outer: str = "") -> Node:
    """One step at the newest event, with everything below it. `outer` stands before its number in a nested run."""
    return _step(record, _Run(trace, trace.at, outer, trace.answer))


def find_node(root: Node, number: str) -> Node | None:
    """The node of a step by its number; None when there is none."""
    return next((node for node in root.walk() if node.kind == "step" and node.number == number), None)


def _branches_of_run(run: _Run) -> Iterator[Node]:
    """What hangs at the root of a run."""
    yield from _rejected_plans(run.trace.rejected)
    yield from (_notice(notice.text) for notice in run.trace.notices if not notice.step)
    if run.trace.revised is not None:
        yield _notice(describe_revised_plan(run.trace.revised.step, run.trace.revised.workers))
    if isinstance(run.trace.plan, KeepAnswer):
        yield Node(kind="note", state="done", label="the given answer is kept")
    yield from _steps_below(None, run)
    if run.trace.state == "planning":
        yield _unfinished_plan(run)


def _steps_below(parent: int | None, run: _Run) -> Iterator[Node]:
    """The steps under another one; under the root for None, because a damaged trace may have a step 0."""
    known = {record.number for record in run.trace.steps}
    for record in run.trace.steps:
        read = (item for item in record.step.access if item in known and item < record.number)
        if max(read, default=None) == parent:
            yield _step(record, run)


# The plan


def _unfinished_plan(run: _Run) -> Node:
    """The plan, with the line that is being written."""
    line = run.trace.plan_text.rpartition("\n")[2]
    took = format_duration(run.now, tenths=False)
    return Node(kind="plan", state="planning", label="planning", figures=(took,), text=line)


def _rejected_plans(events: Sequence[ev.PlanRejected]) -> Iterator[Node]:
    """Each plan that is not valid; of many, the first and the last."""
    between = events[1:-1]
    if len(between) < MOST_BETWEEN:
        yield from map(_rejected_plan, events)
        return
    yield _rejected_plan(events[0])
    which = f"plan, attempts {between[0].attempt} to {between[-1].attempt}"
    yield Node(kind="plan", state="rejected", label=f"{which}: not valid either")
    yield _rejected_plan(events[-1])


def _rejected_plan(event: ev.PlanRejected) -> Node:
    """A plan that is not valid, why, and the line with the error."""
    hint = f" ({event.hint})" if event.hint else ""
    label = f"plan, attempt {event.attempt}: {event.problem}{hint}"
    return Node(kind="plan", state="rejected", label=label, text=event.text)


def _notice(text: str) -> Node:
    return Node(kind="note", state="note", label=text)


# Steps


def _step(record: StepRecord, run: _Run) -> Node:
    """A step with everything below it."""
    retrying = record.state == "running" and record.retry_at is not None
    thinking = _is_thinking(record)
    # The text of a nested run is the text of one of its own steps; that of a failed attempt is not valid any more.
    text = "" if retrying or record.nested is not None else record.thinking if thinking else record.text
    return Node(
        kind="step", state="retrying" if retrying else record.state, number=f"{run.outer}{record.number}",
        name=record.worker, label=record.step.subtask, remark=_remark(record, run.trace), status=_status(record, run),
        figures=_figures(record, run), text=text, thinking=thinking, answers=_gives_answer(record, run),
        children=tuple(_branches_of_step(record, run)),
    )  # fmt: skip


def _branches_of_step(record: StepRecord, run: _Run) -> Iterator[Node]:
    """What happened, in the order in which it came about, then the nested run and the steps that read this one."""
    happened = [(attempt.ended, _failed_attempt(attempt, record)) for attempt in record.failed]
    happened += [(use.started, _tool_call(use, record, run)) for use in record.tools]
    happened += [(notice.at, _notice(notice.text)) for notice in run.trace.notices if notice.step == record.number]
    yield from (node for _, node in sorted(happened, key=lambda item: item[0]))
    if record.finish in FINISHES:
        yield _notice(FINISHES[record.finish])
    if record.nested is not None:
        yield from _branches_of_run(run.nested(record, record.nested))
    yield from _steps_below(record.number, run)


def _failed_attempt(attempt: FailedAttempt, record: StepRecord) -> Node:
    """Which attempt failed, why, and what followed."""
    front = f"attempt {attempt.attempt}" if attempt.attempt else "not asked"
    front += f", {attempt.worker}" if attempt.worker != record.worker else ""
    front += f", after {format_duration(attempt.ended - attempt.started)}" if attempt.started is not None else ""
    followed = ""
    if attempt.substitute is not None:
        followed = f", {attempt.substitute} takes over"
        followed += f"; hint: {attempt.error.hint}" if attempt.error.hint else ""
    elif attempt.retry_in is not None and record.retry_at is None:
        followed = f", waited {format_duration(attempt.retry_in)}"
    label = f"{front}: {attempt.message or describe_failure(attempt.error)}{followed}"
    return Node(kind="attempt", state="failed", label=label)


def _tool_call(use: ToolUse, record: StepRecord, run: _Run) -> Node:
    """Which tool was called with what, and what it returned."""
    state: NodeState = "stopped"
    if use.ended is not None:
        state = "failed" if use.error else "done"
    elif use in running_calls(record):
        state = "running"
    took = format_duration((run.now if use.ended is None else use.ended) - use.started, tenths=use.ended is not None)
    return Node(
        kind="tool", state=state, name=tool_name(use), label=use.call.arguments, text=use.text,
        status="no result" if state == "stopped" else "", figures=() if state == "stopped" else (took,),
    )  # fmt: skip


def _is_thinking(record: StepRecord) -> bool:
    """Whether a step has thoughts and no text yet. The thoughts before a call of a tool are over while it runs."""
    return record.state == "running" and bool(record.thinking) and not record.text.strip() and not running_calls(record)


def _remark(record: StepRecord, trace: Trace) -> str:
    """Whom the worker replaces, the attempt, whether it thinks or waits for a tool, and what it reads."""
    # The limit is per worker, so a higher number counts the attempts of earlier workers too.
    of = f" of {trace.limits.attempts}" if record.attempt <= trace.limits.attempts else ""
    parts = (
        f"instead of {record.step.worker}" if record.worker != record.step.worker else "",
        f"attempt {record.attempt}{of}" if record.attempt > 1 and record.state not in ENDED else "",
        "thinking" if _is_thinking(record) else "",
        _calling(record),
        describe_access(record.step.access) if record.step.access else "",
    )
    return ", ".join(filter(None, parts))


def _calling(record: StepRecord) -> str:
    """`calls files.read_file`, `calls 3 tools`: what the step waits for."""
    calls = running_calls(record)
    return f"calls {tool_name(calls[0]) if len(calls) == 1 else format_count(len(calls), 'tool')}" if calls else ""


def _status(record: StepRecord, run: _Run) -> str:
    """What a step waits for, or why it ended without an answer."""
    if record.state == "waiting":
        open_steps = {step.number for step in run.trace.steps if step.state not in ENDED}
        missing = [str(item) for item in record.step.access if item in open_steps]
        return f"waits for {', '.join(missing)}" if missing else "waiting"
    if record.state == "running" and record.retry_at is not None:
        return f"again in {round(max(0.0, record.retry_at - run.now))} s"
    return REASONS[record.reason] if record.reason is not None else ""


def _figures(record: StepRecord, run: _Run) -> tuple[str, ...]:
    """Time, tokens, and cost where some worker has a price."""
    priced = any(worker.price and any(worker.price.amounts()) for worker in run.trace.pool)
    if record.started is None:
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


def _gives_answer(record: StepRecord, run: _Run) -> bool:
    """Whether the answer of the outermost run is this step's text; of two with the same text, the later one's."""
    answer = run.answer.strip()
    same = [step.number for step in run.trace.steps if answer and step.text.strip() == answer]
    return same[-1:] == [record.number]
