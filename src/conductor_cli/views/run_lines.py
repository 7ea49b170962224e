"""A run as lines of a screen. The live tree, the plain log and `trace show` print these lines. Pure.

Every line fits the screen's width, and its words say everything that its colours say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.trace import ENDED, StepRecord, Trace
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    describe_decision,
    describe_failure,
    describe_next_attempt,
    describe_setup,
    describe_totals,
    describe_waiting,
    problem_lines,
    tokens_so_far,
)
from conductor_cli.views.text_layout import BLANK, Line, Screen, cells

INDENT: Final = 3
STATE_WIDTH: Final = 9
"""Cells of the state words; the longest is `answering`."""

STREAMED_LINES: Final = (6, 2, 1, 0)
"""How many lines of each unfinished text are shown: the first of these numbers with which everything fits."""


class StepLayout(NamedTuple):
    """The screen, and where on it a run is shown: `depth` counts the runs that it is nested in.

    `now` is the time by the run's own clock. `brief`: a finished step takes one line. `streamed` lines are shown of
    each unfinished text; with 0, an open step takes one line.
    """

    screen: Screen
    now: float
    depth: int = 0
    brief: bool = False
    streamed: int = STREAMED_LINES[0]

    def nested(self, record: StepRecord) -> StepLayout:
        """The layout of a step's nested run, whose clock started with the step."""
        return self._replace(now=self.now - (record.started or 0.0), depth=self.depth + 1)

    @property
    def pad(self) -> str:
        """The space before a step's subtask and text."""
        return " " * (INDENT * (self.depth + 1))

    @property
    def room(self) -> int:
        """The cells after that space."""
        return self.screen.width - len(self.pad)

    def front(self, word: str, number: int = 0) -> Line:
        """A step's number, or blanks, and a state word in its colour."""
        label = str(number) if number else ""
        return (f"{label:>{len(self.pad) - 1}} ", "number"), (f"{word:<{STATE_WIDTH}} ", word)

    def indented(self, text: str, style: str) -> Line:
        """`text`, cropped, under a step's state word."""
        return ((self.pad + self.screen.crop(text, self.room), style),)

    def barred(self, text: str, style: str) -> Line:
        """A line that a model wrote, after a bar."""
        return (f"{self.pad}{self.screen.bar} ", "number"), (text, style)

    def wrapped(self, text: str, style: str, further: int = 0) -> list[Line]:
        """The whole of `text` under a step's state word, or `further` cells to the right of it."""
        pad = self.pad + " " * further
        return [((pad + line, style),) for line in self.screen.wrap(text, self.room - further)]

    def with_state(self, word: str, text: str, number: int = 0) -> Line:
        """`text`, cropped, after a state word."""
        return *self.front(word, number), (self.screen.crop(text, self.room - STATE_WIDTH - 1), "plain")

    def note(self, text: str, number: int = 0) -> list[Line]:
        """The whole of something that the reader should know."""
        first, *rest = self.wrapped(text, "plain", STATE_WIDTH + 1) or [BLANK]
        return [(*self.front("note", number), *((part.lstrip(), style) for part, style in first)), *rest]

    def tail(self, text: str, style: str, count: int) -> list[Line]:
        """The last lines of what a model wrote."""
        return [self.barred(line, style) for line in self.screen.tail(text, self.room - 2, count)]


def line_texts(lines: Iterable[Line]) -> list[str]:
    """Lines without their colours."""
    return ["".join(text for text, _ in line).rstrip() for line in lines]


# The whole run


def header(trace: Trace, screen: Screen) -> list[Line]:
    """The question and who works on it, between blank lines."""
    question: list[Line] = [((line, "question"),) for line in screen.block(trace.question.text, screen.width)]
    setup: Line = ((screen.crop(describe_setup(trace), screen.width), "quiet"),)
    return [BLANK, *question, setup, BLANK]


def footer(trace: Trace, screen: Screen, *, stored: bool) -> list[Line]:
    """The totals of a run."""
    return [((line, "quiet"),) for line in screen.wrap(describe_totals(trace, stored=stored), screen.width)]


def problems(trace: Trace, screen: Screen, *, stored: bool) -> list[Line]:
    """What went wrong. These lines may be wider than the screen, because a command in them is there to be copied."""
    lines = [screen.line(text) for text in problem_lines(trace, stored=stored)]
    return [((line, "plain" if number else "failed"),) for number, line in enumerate(lines)]


def settled_lines(  # noqa: PLR0911 - one per event
    event: ev.Event, trace: Trace, layout: StepLayout, *, shown: bool = False
) -> list[Line]:
    """What `event` settles, given the trace after it. `shown`: the answering step and its text are on the screen."""
    match event:
        case ev.RunStarted():
            return header(trace, layout.screen)
        case ev.PlanRejected():
            return list(_rejected_plan(event, layout))
        case ev.PlanReady(plan=KeepAnswer()):
            return [_kept_answer(layout)]
        case ev.StepFailed() | ev.StepStopped() | ev.StepFinished():
            record = find_step(trace, event.step)
            if record is None:
                return []
            shown = shown and record.last
            if isinstance(event, ev.StepFailed) and record.state != "failed":
                return [] if shown else list(_failed_attempt(event, layout))
            return list(_settled_step(record, trace, layout, shown=shown))
        case ev.PlanDecided() if event.verdict != "approved":
            return layout.note(describe_decision(event))
        case ev.Notice():
            return layout.note(event.text, event.step)
        case _:
            return []


def log_lines(  # noqa: PLR0911 - one per event
    event: ev.Event, trace: Trace, layout: StepLayout, *, stored: bool
) -> list[Line]:
    """What a log says about `event`, given the trace after it; nothing of streamed texts and no blank lines."""
    record = find_step(trace, getattr(event, "step", 0))
    match event:
        case ev.NestedEvent():
            if record is None or record.nested is None:
                return []
            return log_lines(event.event, record.nested, layout.nested(record), stored=stored)
        case ev.RunStarted() if layout.depth:
            return []
        case ev.StepPlanned() if record is not None:
            return [_step_head(record, trace, layout), *layout.wrapped(record.step.subtask, "plain")]
        case ev.StepStarted() if record is not None:
            return [_step_head(record, trace, layout)]
        case ev.RunFinished() | ev.RunFailed():
            return [] if layout.depth else footer(trace, layout.screen, stored=stored)
        case _:
            # The subtask is in the log already, since the step was planned.
            return [line for line in settled_lines(event, trace, layout._replace(brief=True)) if line != BLANK]


def find_step(trace: Trace, number: int) -> StepRecord | None:
    """The step of this number; None when the trace has none."""
    return next((record for record in trace.steps if record.number == number), None)


def answering_lines(record: StepRecord, trace: Trace, layout: StepLayout) -> list[Line]:
    """The step whose text follows on the same screen."""
    head = _step_head(record, trace, layout, answering=True)
    return [head, layout.indented(record.step.subtask, "plain"), *_nested_run(record, layout)]


def live_lines(trace: Trace, layout: StepLayout) -> list[Line]:
    """What is planned, running and waiting, and the totals so far: at most one line less than the screen has."""
    room = max(0, layout.screen.height - 2)
    for streamed in STREAMED_LINES:
        rows = open_lines(trace, layout._replace(streamed=streamed))
        if len(rows) <= room:
            break
    else:
        kept = max(0, room - 1)
        more: Line = ((f"{' ' * INDENT}{layout.screen.dots} and {len(rows) - kept} more", "quiet"),)
        rows = [*rows[:kept], more][:room]
    return [*rows, _totals_so_far(trace, layout)]


def open_lines(trace: Trace, layout: StepLayout) -> list[Line]:
    """The steps that have not ended, and the plan that is being written."""
    steps = [line for record in trace.steps if record.state not in ENDED for line in _open_step(record, trace, layout)]
    return [*steps, *_planning(trace, layout)]


def run_lines(trace: Trace, layout: StepLayout) -> Iterator[Line]:
    """All steps of a run as they are now, with what was noted about them."""
    for event in trace.rejected:
        yield from _rejected_plan(event, layout)
    for notice in trace.notices:
        yield from layout.note(notice.text, notice.step)
    if isinstance(trace.plan, KeepAnswer):
        yield _kept_answer(layout)
    for step in trace.steps:
        yield from step_lines(step, trace, layout)
    yield from _planning(trace, layout)


def step_lines(record: StepRecord, trace: Trace, layout: StepLayout) -> Iterator[Line]:
    """One step as it is now, with its nested run."""
    return (_settled_step if record.state in ENDED else _open_step)(record, trace, layout)


def _totals_so_far(trace: Trace, layout: StepLayout) -> Line:
    done, steps = len(trace.done()), format_count(len(trace.steps), "step")
    progress = f"{done} of {steps} done" if trace.plan is not None else f"{format_count(done, 'step')} done"
    failed = sum(record.state == "failed" for record in trace.steps)
    progress += f", {failed} failed" if failed else ""
    tokens = format_count(trace.usage.tokens, "token")
    texts = (format_duration(layout.now, tenths=False), progress, tokens, format_cost(trace.usage))
    return ((layout.screen.crop(", ".join(filter(None, texts)), layout.screen.width), "quiet"),)


# The plan


def _planning(trace: Trace, layout: StepLayout) -> list[Line]:
    """The line of the plan that is being written; nothing when the plan is complete."""
    if trace.state != "planning" or trace.ended:
        return []
    line = trace.plan_text.rpartition("\n")[2]
    state = layout.with_state("planning", format_duration(layout.now, tenths=False))
    return [state, *layout.tail(line, "quiet", min(1, layout.streamed))]


def _kept_answer(layout: StepLayout) -> Line:
    return layout.with_state("done", "the given answer is kept")


def _rejected_plan(event: ev.PlanRejected, layout: StepLayout) -> Iterator[Line]:
    """A plan that is not valid, why, and the line with the error."""
    yield layout.with_state("rejected", f"the plan, attempt {event.attempt}")
    hint = f" ({event.hint})" if event.hint else ""
    yield from layout.wrapped(f"{event.problem}{hint}", "plain")
    yield from layout.tail(event.text, "quiet", 1)


# Steps


def _open_step(record: StepRecord, trace: Trace, layout: StepLayout) -> Iterator[Line]:
    """A step that waits or works."""
    yield _step_head(record, trace, layout)
    if not layout.streamed:
        return
    yield layout.indented(record.step.subtask, "quiet" if record.state == "waiting" else "plain")
    if record.retry_at is not None:
        left = round(max(0.0, record.retry_at - layout.now))
        error = describe_failure(record.error) if record.error else ""
        yield layout.indented(f"again in {left} s, {_attempt(record.attempt + 1, trace)}: {error}", "plain")
    elif record.nested is not None:
        yield from _nested_run(record, layout)
    elif record.state == "running" and record.text.strip():
        yield from layout.tail(record.text, "quiet", layout.streamed)
    elif record.state == "running":
        yield from layout.tail(record.thinking, "thinking", min(2, layout.streamed))


def _settled_step(record: StepRecord, trace: Trace, layout: StepLayout, *, shown: bool = False) -> Iterator[Line]:
    """A step that has ended. `shown`: everything but its end is on the screen already, its text as the answer."""
    yield _step_head(record, trace, layout)
    detailed = not shown and not layout.brief
    if detailed:
        yield layout.indented(record.step.subtask, "plain")
        yield from _nested_run(record, layout)
    if record.state == "failed" and record.error is not None:
        yield from layout.wrapped(describe_failure(record.error), "failed")
    for remark in (REASONS[record.reason] if record.reason is not None else "", FINISHES.get(record.finish or "", "")):
        yield from layout.wrapped(remark, "plain")
    # The last line of the text, from its beginning.
    line = layout.screen.crop(record.text.rstrip().rpartition("\n")[2], layout.room - 2)
    if detailed and record.nested is None and line:
        yield layout.barred(line, "quiet")


def _nested_run(record: StepRecord, layout: StepLayout) -> Iterator[Line]:
    """The run inside a step, as a subtree."""
    if record.nested is not None:
        yield from run_lines(record.nested, layout.nested(record))


def _failed_attempt(event: ev.StepFailed, layout: StepLayout) -> Iterator[Line]:
    """A failed attempt that is followed by another one."""
    what = f"attempt {event.attempt}" if event.attempt else "not asked"
    yield layout.with_state("failed", f"{what}; {describe_next_attempt(event)}", event.step)
    yield from layout.wrapped(describe_failure(event.error), "failed")


def _step_head(record: StepRecord, trace: Trace, layout: StepLayout, *, answering: bool = False) -> Line:
    """Number, state, worker and what it sees; at the right edge time, tokens and cost."""
    word = "retrying" if record.retry_at is not None and record.state == "running" else record.state
    front = layout.front("answering" if answering else word, record.number)
    free = layout.screen.width - cells(front) - 1
    figures = [] if answering else _figures(record, trace, layout)
    # The worker's name needs some room beside the figures, of which the last are the least important.
    while figures and free - len("".join(figures)) <= STATE_WIDTH:
        figures.pop()
    right = "".join(figures)
    room = free - len(right)
    worker: Line = ((layout.screen.crop(record.worker, room), "worker"),)
    detail = layout.screen.crop(_detail(record, trace, layout), max(0, room - cells(worker) - 2))
    line: Line = (*front, *worker, *([(f"  {detail}", "quiet")] if detail else []))
    gap = " " * (layout.screen.width - cells(line) - len(right))
    return (*line, (gap + right.rstrip(), "quiet")) if right else line


def _detail(record: StepRecord, trace: Trace, layout: StepLayout) -> str:
    """What follows a worker's name: whom it replaces, the attempt, what it sees."""
    thinks = record.state == "running" and record.thinking and not record.text.strip()
    parts = (
        f"for {record.step.worker}" if record.worker != record.step.worker else "",
        _attempt(record.attempt, trace) if record.attempt > 1 else "",
        "thinking" if thinks else "",
        describe_waiting(record, trace),
        record.step.subtask if layout.brief and record.state in ENDED else "",
    )
    return ", ".join(filter(None, parts))


def _attempt(number: int, trace: Trace) -> str:
    """`attempt 2 of 3`. The limit is per worker, so a higher number counts the attempts of earlier workers too."""
    return f"attempt {number}{f' of {trace.limits.attempts}' if number <= trace.limits.attempts else ''}"


def _figures(record: StepRecord, trace: Trace, layout: StepLayout) -> list[str]:
    """Time, tokens, and cost where some worker has a price, as cells of a fixed width."""
    if record.started is None:
        return []
    ended = record.state in ENDED
    took = format_duration(record.seconds(layout.now), tenths=ended)
    # The exact number of tokens is known at the end.
    count = record.usage.tokens_out if ended else tokens_so_far(record)
    tokens = f"{'' if ended else '~'}{format_count(count, 'token')}" if ended or count else ""
    if not any(worker.price and any(worker.price.amounts()) for worker in trace.pool):
        return [f"{took:>8}", f"{tokens:>15}"]
    cost = "unpriced" if record.usage.unpriced else ""
    cost = cost if record.usage.cost is None else format_money(record.usage.cost)
    return [f"{took:>8}", f"{tokens:>15}", f"{cost:>10}"]
