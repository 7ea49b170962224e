"""A run as lines of a screen: what each event settles for good, and the live part. Pure.

Every line fits the screen's width, and its words say everything that its colours say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.trace import ENDED, StepRecord, Trace, changed
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    conductor_name,
    describe_decision,
    describe_failure,
    describe_next_attempt,
    describe_setup,
    describe_totals,
    describe_waiting,
    problem_lines,
    question_line,
    tokens_so_far,
    tokens_so_far_text,
)
from conductor_cli.views.text_layout import BLANK, COMMON, Line, Screen, cells

INDENT: Final = 3
STATE_WIDTH: Final = 9
"""Cells of the state words; the longest is `answering`."""

HEAD, SUBTASK, TAIL, WAITING, OLD, EARLIER = range(6)
"""What a screen that is too low leaves out: the highest level first.

Levels from `EARLIER` on are the lines before the last one of a streamed text, counted backwards, so that all texts lose
their oldest lines together.
"""

STREAMED_LINES: Final = 6
"""The most lines of a text that is being written."""


class StepLine(NamedTuple):
    """A line, and its level: how soon it is left out."""

    level: int
    line: Line


class StepLayout(NamedTuple):
    """The screen, and where on it a run is shown: `path` has the numbers of the steps that it is nested in.

    `now` is the time by the run's own clock; `clock_starts` says when the clock of each nested run started by the
    outermost one. `brief`: a finished step takes one line.
    """

    screen: Screen
    now: float
    clock_starts: Mapping[tuple[int, ...], float]
    path: tuple[int, ...] = ()
    brief: bool = False

    def nested(self, number: int) -> StepLayout:
        """The layout of step `number`'s nested run."""
        path = (*self.path, number)
        now = self.now + self.clock_starts.get(self.path, 0.0) - self.clock_starts.get(path, 0.0)
        return self._replace(now=now, path=path)

    @property
    def pad(self) -> str:
        """The space before a step's subtask and text."""
        return " " * (INDENT * (len(self.path) + 1))

    @property
    def room(self) -> int:
        """The cells after that space."""
        return self.screen.width - len(self.pad)

    @property
    def slim(self) -> StepLayout:
        """The layout of text that is redrawn: it must also fit after the window has been made smaller."""
        return self._replace(screen=replace(self.screen, width=min(self.screen.width, COMMON[0])))

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


# The whole run


def header(trace: Trace, screen: Screen) -> list[Line]:
    """The question and who works on it, between blank lines."""
    question: Line = ((screen.crop(question_line(trace), screen.width), "question"),)
    named = changed(trace, conductor=conductor_name(trace.conductor))
    setup: Line = ((screen.crop(describe_setup(named), screen.width), "quiet"),)
    return [BLANK, question, setup, BLANK]


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
            record = next((record for record in trace.steps if record.number == event.step), None)
            if record is None:
                return []
            shown = shown and record.last
            if isinstance(event, ev.StepFailed) and record.state != "failed":
                return [] if shown else list(_failed_attempt(event, layout))
            return [row.line for row in _settled_step(record, trace, layout, shown=shown)]
        case ev.PlanDecided() if event.verdict != "approved":
            return layout.note(describe_decision(event))
        case ev.Notice():
            return layout.note(event.text, event.step)
        case _:
            return []


def answering_lines(record: StepRecord, trace: Trace, layout: StepLayout) -> list[Line]:
    """The step whose text follows on the same screen."""
    head = _step_head(record, trace, layout, answering=True)
    nested = [row.line for row in _nested_run(record, layout)]
    return [head, layout.indented(record.step.subtask, "plain"), *nested]


def live_lines(trace: Trace, layout: StepLayout) -> list[Line]:
    """What is planned, running and waiting, and the totals so far: at most one line less than the screen has."""
    rows = [*unsettled_lines(trace, layout), *_planning(trace, layout)]
    return fit_height(rows, _totals_so_far(trace, layout), layout.screen)


def unsettled_lines(trace: Trace, layout: StepLayout) -> list[StepLine]:
    """The steps that have not ended."""
    return [row for record in trace.steps if record.state not in ENDED for row in _open_step(record, trace, layout)]


def fit_height(rows: list[StepLine], totals: Line, screen: Screen) -> list[Line]:
    """As many rows as fit above the totals and the cursor's line; the others are counted.

    More than the last line of a text is shown only if everything would still fit a smaller window (`Screen.fits`).
    """
    room = max(0, screen.height - 2)
    # Leave out one level after the other until everything fits, the least important first.
    for level in sorted({row.level for row in rows} - {HEAD}, reverse=True):
        widths = [cells(line) for line in (*(row.line for row in rows), totals)]
        if len(rows) > room or (level >= EARLIER and not screen.fits(widths)):
            rows = [row for row in rows if row.level < level]
    if len(rows) <= room:
        return [*(row.line for row in rows), totals]
    kept = rows[: max(0, room - 1)]
    more: Line = ((f"{' ' * INDENT}{screen.dots} and {len(rows) - len(kept)} more", "quiet"),)
    return [*[*(row.line for row in kept), more][:room], totals]


def _totals_so_far(trace: Trace, layout: StepLayout) -> Line:
    done, steps = len(trace.done()), format_count(len(trace.steps), "step")
    progress = f"{done} of {steps} done" if trace.plan is not None else f"{format_count(done, 'step')} done"
    failed = sum(record.state == "failed" for record in trace.steps)
    progress += f", {failed} failed" if failed else ""
    texts = (format_duration(layout.now, tenths=False), progress, tokens_so_far_text(trace), format_cost(trace.usage))
    parts = [text for text in texts if text]
    # The last figures are the least important ones on a narrow screen.
    while len(parts) > 1 and len(", ".join(parts)) > layout.screen.width:
        parts.pop()
    return ((layout.screen.crop(", ".join(parts), layout.screen.width), "quiet"),)


# The plan


def _planning(trace: Trace, layout: StepLayout) -> list[StepLine]:
    """The line of the plan that is being written; nothing when the plan is complete."""
    if trace.state != "planning" or trace.ended:
        return []
    line = trace.plan_text.rpartition("\n")[2]
    state = layout.with_state("planning", format_duration(layout.now, tenths=False))
    return [StepLine(HEAD, state), *_tail(line, "quiet", 1, layout)]


def _kept_answer(layout: StepLayout) -> Line:
    return layout.with_state("done", "the given answer is kept")


def _rejected_plan(event: ev.PlanRejected, layout: StepLayout) -> Iterator[Line]:
    """A plan that is not valid, why, and the line with the error."""
    yield layout.with_state("rejected", f"the plan, attempt {event.attempt}")
    hint = f" ({event.hint})" if event.hint else ""
    yield from layout.wrapped(f"{event.problem}{hint}", "plain")
    yield from (row.line for row in _tail(event.text, "quiet", 1, layout))


# Steps


def _open_step(record: StepRecord, trace: Trace, layout: StepLayout) -> Iterator[StepLine]:
    """A step that waits or works."""
    waits = record.state == "waiting"
    yield StepLine(HEAD, _step_head(record, trace, layout))
    subtask = layout.slim.indented(record.step.subtask, "quiet" if waits else "plain")
    yield StepLine(WAITING if waits else SUBTASK, subtask)
    if layout.screen.narrow and (waiting := describe_waiting(record, trace)):
        yield StepLine(WAITING, layout.indented(waiting, "quiet"))
    if record.retry_at is not None:
        left = round(max(0.0, record.retry_at - layout.now))
        error = describe_failure(record.error) if record.error else ""
        text = f"again in {left} s, {_attempt(record.attempt + 1, trace)}: {error}"
        yield StepLine(SUBTASK, layout.slim.indented(text, "plain"))
    elif record.nested is not None:
        yield from _nested_run(record, layout)
    elif record.state == "running":
        if record.text.strip():
            yield from _tail(record.text, "quiet", STREAMED_LINES, layout)
        else:
            yield from _tail(record.thinking, "thinking", 2, layout)


def _settled_step(record: StepRecord, trace: Trace, layout: StepLayout, *, shown: bool = False) -> Iterator[StepLine]:
    """A step that has ended. `shown`: everything but its end is on the screen already, its text as the answer."""
    yield StepLine(OLD, _step_head(record, trace, layout))
    detailed = not shown and not layout.brief
    if detailed:
        yield StepLine(OLD, layout.indented(record.step.subtask, "plain"))
        yield from _nested_run(record, layout)
    remarks = [
        (describe_failure(record.error) if record.state == "failed" and record.error is not None else "", "failed"),
        (REASONS[record.reason] if record.reason is not None else "", "plain"),
        (FINISHES.get(record.finish or "", ""), "plain"),
    ]
    for text, style in remarks:
        yield from (StepLine(OLD, line) for line in layout.wrapped(text, style))
    if detailed and record.nested is None:
        # The last line of the text, from its beginning.
        line = layout.screen.crop(record.text.rstrip().rpartition("\n")[2], layout.room - 2)
        if line:
            yield StepLine(EARLIER, layout.barred(line, "quiet"))


def _nested_run(record: StepRecord, layout: StepLayout) -> Iterator[StepLine]:
    """The run inside a step, as a subtree."""
    trace, layout = record.nested, layout.nested(record.number)
    if trace is None:
        return
    for event in trace.rejected:
        yield from (StepLine(OLD, line) for line in _rejected_plan(event, layout))
    for notice in trace.notices:
        yield from (StepLine(OLD, line) for line in layout.note(notice.text, notice.step))
    if isinstance(trace.plan, KeepAnswer):
        yield StepLine(OLD, _kept_answer(layout))
    for step in trace.steps:
        yield from _settled_step(step, trace, layout) if step.state in ENDED else _open_step(step, trace, layout)
    yield from _planning(trace, layout)


def _failed_attempt(event: ev.StepFailed, layout: StepLayout) -> Iterator[Line]:
    """A failed attempt that is followed by another one."""
    yield layout.with_state("failed", f"attempt {event.attempt}; {describe_next_attempt(event)}", event.step)
    yield from layout.wrapped(describe_failure(event.error), "failed")


def _step_head(record: StepRecord, trace: Trace, layout: StepLayout, *, answering: bool = False) -> Line:
    """Number, state, worker and what it sees; at the right edge time, tokens and cost."""
    word = "retrying" if record.retry_at is not None and record.state == "running" else record.state
    front = layout.front("answering" if answering else word, record.number)
    free = layout.screen.width - cells(front) - 1
    # Figures are shown only if the worker's name still has some room beside them.
    figures = "" if answering else _figures(record, trace, layout)
    right = figures if free - len(figures) > STATE_WIDTH else ""
    room = free - len(right)
    worker: Line = ((layout.screen.crop(record.worker, room), "worker"),)
    detail = layout.screen.crop(_detail(record, trace, layout), max(0, room - cells(worker) - 2))
    line: Line = (*front, *worker, *([(f"  {detail}", "quiet")] if detail else []))
    gap = " " * (layout.screen.width - cells(line) - len(right))
    return (*line, (gap + right.rstrip(), "quiet")) if right else line


def _detail(record: StepRecord, trace: Trace, layout: StepLayout) -> str:
    """What follows a worker's name: whom it replaces, the attempt, what it sees."""
    parts = []
    if record.worker != record.step.worker:
        parts.append(f"for {record.step.worker}")
    if record.attempt > 1:
        parts.append(f"attempt {record.attempt}" if layout.screen.narrow else _attempt(record.attempt, trace))
    if record.state == "running" and record.thinking and not record.text.strip():
        parts.append("thinking")
    if not layout.screen.narrow and (waiting := describe_waiting(record, trace)):
        parts.append(waiting)
    detail = ", ".join(parts)
    if layout.brief and record.state in ENDED:
        return f"{detail}: {record.step.subtask}" if detail else record.step.subtask
    return detail


def _attempt(number: int, trace: Trace) -> str:
    """`attempt 2 of 3`. The limit is per worker, so a higher number counts the attempts of earlier workers too."""
    return f"attempt {number}{f' of {trace.limits.attempts}' if number <= trace.limits.attempts else ''}"


def _figures(record: StepRecord, trace: Trace, layout: StepLayout) -> str:
    """Time, tokens, and cost where some worker has a price."""
    if record.started is None:
        return ""
    if record.state in ENDED:
        took, tokens = format_duration(record.seconds(layout.now)), format_count(record.usage.tokens_out, "token")
    else:
        guess = tokens_so_far(record)
        took = format_duration(record.seconds(layout.now), tenths=False)
        tokens = f"~{format_count(guess, 'token')}" if guess else ""
    if layout.screen.narrow:
        return f"{took} {tokens.replace('tokens', 'tok').replace('token', 'tok')}".rstrip()
    if not any(worker.price and any(worker.price.amounts()) for worker in trace.pool):
        return f"{took:>8}  {tokens:>13}"
    cost = "unpriced" if record.usage.unpriced else ""
    cost = cost if record.usage.cost is None else format_money(record.usage.cost)
    return f"{took:>8}  {tokens:>13}  {cost:>8}"


def _tail(text: str, style: str, count: int, layout: StepLayout) -> list[StepLine]:
    """The last lines of `text`, after a bar."""
    lines = layout.screen.tail(text, layout.slim.room - 2, count)
    # The last line has the level TAIL; each line before it is left out a little sooner.
    levels = [*range(EARLIER + len(lines) - 2, EARLIER - 1, -1), TAIL]
    return [StepLine(level, layout.barred(line, style)) for level, line in zip(levels, lines, strict=False)]
