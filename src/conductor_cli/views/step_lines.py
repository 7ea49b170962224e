"""A run's parts as rows of a screen: the steps, those of nested runs, and what happened to the plan. Pure.

Every row fits the screen's width, and its words say everything that its colours say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from conductor_cli.core.events import PlanRejected, StepFailed
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.trace import ENDED, StepRecord, Trace
from conductor_cli.views.run_text import (
    FINISHES,
    REASONS,
    describe_failure,
    describe_next_attempt,
    describe_waiting,
    tokens_so_far,
)
from conductor_cli.views.text_layout import BLANK, COMMON, Line, Screen, Span, cells

INDENT: Final = 3
WORD: Final = 9
"""Columns of the state words; the longest is `answering`."""

HEAD, SUBTASK, TAIL, WAITING, OLD, EARLIER = range(6)
"""What gives way first on a screen that is too low: the higher, the sooner.

From `EARLIER` on it is the lines before a text's last, by their distance from it: all texts share the room there is.
"""

LINES: Final = 6
"""The most lines of a text that is being written."""


class StepLine(NamedTuple):
    """A line and how soon it gives way."""

    level: int
    line: Line


class StepLayout(NamedTuple):
    """The screen, and where on it a run stands: `path` holds the numbers of the steps that it is nested in.

    `now` is the time by the run's own clock, `zeros` says when the clock of each nested run began by the outermost one.
    `brief`: a step that has ended is one line.
    """

    screen: Screen
    now: float
    zeros: Mapping[tuple[int, ...], float]
    path: tuple[int, ...] = ()
    brief: bool = False

    def inside(self, number: int) -> StepLayout:
        """The page of step `number`'s nested run."""
        path = (*self.path, number)
        now = self.now + self.zeros.get(self.path, 0.0) - self.zeros.get(path, 0.0)
        return self._replace(now=now, path=path)

    @property
    def pad(self) -> str:
        """The space before a step's subtask and text."""
        return " " * (INDENT * (len(self.path) + 1))

    @property
    def room(self) -> int:
        """The cells behind that space."""
        return self.screen.width - len(self.pad)

    @property
    def slim(self) -> StepLayout:
        """The page for texts that are drawn again: no wider than reads well, and than a smaller window is."""
        return self._replace(screen=replace(self.screen, width=min(self.screen.width, COMMON[0])))

    def front(self, word: str, number: int = 0) -> Line:
        """A step's number, or blanks, and a state word in its colour."""
        label = str(number) if number else ""
        return (f"{label:>{len(self.pad) - 1}} ", "number"), (f"{word:<{WORD}} ", word)

    def indented(self, text: str, style: str) -> Line:
        """`text`, cropped, under a step's state word."""
        return ((self.pad + self.screen.crop(text, self.room), style),)

    def barred(self, text: str, style: str) -> Line:
        """A line of what others wrote, behind a bar."""
        return (f"{self.pad}{self.screen.bar} ", "number"), (text, style)

    def wrapped(self, text: str, style: str, further: int = 0) -> list[Line]:
        """The whole of `text` under a step's state word, or `further` cells to the right of it."""
        pad = self.pad + " " * further
        return [((pad + line, style),) for line in self.screen.wrap(text, self.room - further)]

    def said(self, word: str, text: str, number: int = 0) -> Line:
        """`text`, cropped, behind a state word."""
        return *self.front(word, number), (self.screen.crop(text, self.room - WORD - 1), "plain")

    def noted(self, text: str, number: int = 0) -> list[Line]:
        """Something the reader should know, whole."""
        first, *rest = self.wrapped(text, "plain", WORD + 1) or [BLANK]
        return [(*self.front("note", number), *((said.lstrip(), style) for said, style in first)), *rest]


def open_step(record: StepRecord, trace: Trace, page: StepLayout) -> Iterator[StepLine]:
    """A step that waits or works."""
    waits = record.state == "waiting"
    yield StepLine(HEAD, head(record, trace, page))
    subtask = page.slim.indented(record.step.subtask, "quiet" if waits else "plain")
    yield StepLine(WAITING if waits else SUBTASK, subtask)
    if page.screen.narrow and (reads := describe_waiting(record, trace)):
        yield StepLine(WAITING, page.indented(reads, "quiet"))
    if record.retry_at is not None:
        yield StepLine(SUBTASK, _retrying(record, trace, page))
    elif record.nested is not None:
        yield from nested(record, page)
    elif record.state == "running":
        text, style = (record.text, "quiet") if record.text.strip() else (record.thinking, "thinking")
        yield from tail(text, style, LINES if style == "quiet" else 2, page)


def settled_step(record: StepRecord, trace: Trace, page: StepLayout, *, told: bool = False) -> Iterator[StepLine]:
    """A step that has ended. `told`: all but its end is on the screen already, its text as the answer."""
    yield StepLine(OLD, head(record, trace, page))
    if not told and not page.brief:
        yield StepLine(OLD, page.indented(record.step.subtask, "plain"))
        yield from nested(record, page)
    for text, style in _remarks(record):
        yield from (StepLine(OLD, line) for line in page.wrapped(text, style))
    if record.nested is None and not told and not page.brief:
        yield from _gist(record.text, page)


def nested(record: StepRecord, page: StepLayout) -> Iterator[StepLine]:
    """The run that a step is, as a subtree."""
    inner, page = record.nested, page.inside(record.number)
    if inner is None:
        return
    for event in inner.rejected:
        yield from (StepLine(OLD, line) for line in rejected(event, page))
    for note in inner.notices:
        yield from (StepLine(OLD, line) for line in page.noted(note.text, note.step))
    if isinstance(inner.plan, KeepAnswer):
        yield StepLine(OLD, accepted(page))
    for step in inner.steps:
        yield from settled_step(step, inner, page) if step.state in ENDED else open_step(step, inner, page)
    yield from planning(inner, page)


def planning(trace: Trace, page: StepLayout) -> list[StepLine]:
    """The line of the plan that is being written; nothing once the plan is whole."""
    if trace.state != "planning" or trace.ended:
        return []
    line = trace.plan_text.rpartition("\n")[2]
    return [
        StepLine(HEAD, page.said("planning", format_duration(page.now, tenths=False))),
        *tail(line, "quiet", 1, page),
    ]


def accepted(page: StepLayout) -> Line:
    """The conductor's word that the answer at hand stands."""
    return page.said("done", "accept: the given answer stands")


def rejected(event: PlanRejected, page: StepLayout) -> Iterator[Line]:
    """A plan that is none, why, and the line at fault."""
    yield page.said("rejected", f"the plan, attempt {event.attempt}")
    hint = f" ({event.hint})" if event.hint else ""
    yield from page.wrapped(f"{event.problem}{hint}", "plain")
    yield from (row.line for row in tail(event.text, "quiet", 1, page))


def failed_attempt(event: StepFailed, page: StepLayout) -> Iterator[Line]:
    """An attempt after which there is another."""
    yield page.said("failed", f"attempt {event.attempt}; {describe_next_attempt(event)}", event.step)
    yield from page.wrapped(describe_failure(event.error), "failed")


def head(record: StepRecord, trace: Trace, page: StepLayout, *, answering: bool = False) -> Line:
    """Number, state, worker and what it sees; at the right edge seconds and tokens."""
    word = "retrying" if record.retry_at is not None and record.state == "running" else record.state
    front = page.front("answering" if answering else word, record.number)
    free = page.screen.width - cells(front) - 1
    figures = "" if answering else _figures(record, trace, page)
    right = figures if free - len(figures) > WORD else ""
    room = free - len(right)
    worker: Line = ((page.screen.crop(record.worker, room), "worker"),)
    detail = page.screen.crop(_detail(record, trace, page), max(0, room - cells(worker) - 2))
    line: Line = (*front, *worker, *([(f"  {detail}", "quiet")] if detail else []))
    gap = " " * (page.screen.width - cells(line) - len(right))
    return (*line, (gap + right.rstrip(), "quiet")) if right else line


def tail(text: str, style: str, count: int, page: StepLayout) -> list[StepLine]:
    """The last lines of `text`, behind a bar."""
    lines = page.screen.tail(text, page.slim.room - 2, count)
    levels = [*range(EARLIER + len(lines) - 2, EARLIER - 1, -1), TAIL]
    return [StepLine(level, page.barred(line, style)) for level, line in zip(levels, lines, strict=False)]


def _gist(text: str, page: StepLayout) -> list[StepLine]:
    """The last line that says something, from its beginning."""
    line = page.screen.crop(text.rstrip().rpartition("\n")[2], page.room - 2)
    return [StepLine(EARLIER, page.barred(line, "quiet"))] if line else []


def _retrying(record: StepRecord, trace: Trace, page: StepLayout) -> Line:
    left = round(max(0.0, (record.retry_at or 0.0) - page.now))
    error = describe_failure(record.error) if record.error else ""
    text = f"again in {left} s, {_attempt(record.attempt + 1, trace)}: {error}"
    return page.slim.indented(text, "plain")


def _attempt(number: int, trace: Trace) -> str:
    """The limit is each worker's own: a number beyond it counts those of the workers before, too."""
    return f"attempt {number}{f' of {trace.limits.attempts}' if number <= trace.limits.attempts else ''}"


def _remarks(record: StepRecord) -> Iterator[Span]:
    if record.state == "failed" and record.error is not None:
        yield describe_failure(record.error), "failed"
    if record.reason is not None:
        yield REASONS[record.reason], "plain"
    if record.finish in FINISHES:
        yield FINISHES[record.finish], "plain"


def _detail(record: StepRecord, trace: Trace, page: StepLayout) -> str:
    parts = []
    if record.worker != record.step.worker:
        parts.append(f"for {record.step.worker}")
    if record.attempt > 1:
        parts.append(f"attempt {record.attempt}" if page.screen.narrow else _attempt(record.attempt, trace))
    if record.state == "running" and record.thinking and not record.text.strip():
        parts.append("thinking")
    if not page.screen.narrow and (reads := describe_waiting(record, trace)):
        parts.append(reads)
    said = ", ".join(parts)
    return f"{said and f'{said}: '}{record.step.subtask}" if page.brief and record.state in ENDED else said


def _figures(record: StepRecord, trace: Trace, page: StepLayout) -> str:
    if record.started is None:
        return ""
    if record.state in ENDED:
        took, tokens = format_duration(record.seconds(page.now)), format_count(record.usage.tokens_out, "token")
    else:
        guess = tokens_so_far(record)
        took, tokens = (
            format_duration(record.seconds(page.now), tenths=False),
            f"~{format_count(guess, 'token')}" if guess else "",
        )
    if page.screen.narrow:
        return f"{took} {tokens.replace('tokens', 'tok').replace('token', 'tok')}".rstrip()
    if not any(worker.price and any(worker.price.amounts()) for worker in trace.pool):
        return f"{took:>8}  {tokens:>13}"
    paid = record.usage.cost is not None or record.usage.unpriced
    money = "" if not paid else "unpriced" if record.usage.cost is None else format_money(record.usage.cost)
    return f"{took:>8}  {tokens:>13}  {money:>8}"
