"""A run as lines: what is said once and for all after an event, and what is going on just now. Pure."""

from __future__ import annotations

from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.trace import ENDED, StepRecord, Trace, changed
from conductor_cli.views import step_lines
from conductor_cli.views.run_text import (
    compare_single_workers,
    conductor_name,
    describe_decision,
    describe_setup,
    describe_totals,
    problem_lines,
    question_line,
    tokens_so_far_text,
)
from conductor_cli.views.step_lines import StepLayout, StepLine
from conductor_cli.views.text_layout import BLANK, Line, Screen, cells

STYLES: Final[dict[str, str]] = {
    "question": "bold", "number": "dim", "worker": "bold", "plain": "", "quiet": "dim", "thinking": "dim italic",
    "waiting": "dim", "skipped": "dim", "planning": "cyan", "running": "cyan", "answering": "cyan",
    "done": "green", "retrying": "yellow", "stopped": "yellow", "note": "yellow", "rejected": "yellow", "failed": "red",
}  # fmt: skip


def header(trace: Trace, screen: Screen) -> list[Line]:
    """The question and who works on it, between blank lines."""
    question: Line = ((screen.crop(question_line(trace), screen.width), "question"),)
    shown = changed(trace, conductor=conductor_name(trace.conductor))
    setting: Line = ((screen.crop(describe_setup(shown), screen.width), "quiet"),)
    return [BLANK, question, setting, BLANK]


def footer(trace: Trace, screen: Screen, *, kept: bool) -> list[Line]:
    """The totals of a run and what one worker alone would have cost, in as many lines as they need."""
    texts = [text for text in (describe_totals(trace, kept=kept), compare_single_workers(trace)) if text]
    return [((line, "quiet"),) for text in texts for line in screen.wrap(text, screen.width)]


def trouble(trace: Trace, screen: Screen, *, kept: bool) -> list[Line]:
    """What went wrong. These lines may be longer than the screen is wide: a command in them is there to be copied."""
    lines = [screen.line(text) for text in problem_lines(trace, kept=kept)]
    return [((line, "plain" if number else "failed"),) for number, line in enumerate(lines)]


def settled(event: ev.Event, trace: Trace, page: StepLayout, *, told: bool = False) -> list[Line]:
    """What `event` settles, given the trace after it. `told`: the answering step is on the screen, its text too."""
    lines: list[Line] = []
    match event:
        case ev.RunStarted():
            lines = header(trace, page.screen)
        case ev.PlanRejected():
            lines = list(step_lines.rejected(event, page))
        case ev.PlanReady(plan=KeepAnswer()):
            lines = [step_lines.accepted(page)]
        case ev.StepFailed() | ev.StepStopped() | ev.StepFinished():
            records = [record for record in trace.steps if record.number == event.step]
            lines = [line for record in records for line in _step(event, record, trace, page, told and record.last)]
        case ev.PlanDecided() if event.verdict != "approved":
            lines = page.noted(describe_decision(event))
        case ev.Notice():
            lines = page.noted(event.text, event.step)
        case _:
            pass
    return lines


def _step(event: ev.Event, record: StepRecord, trace: Trace, page: StepLayout, told: bool) -> list[Line]:  # noqa: FBT001
    if isinstance(event, ev.StepFailed) and record.state != "failed":
        return [] if told else list(step_lines.failed_attempt(event, page))
    return [row.line for row in step_lines.settled_step(record, trace, page, told=told)]


def answering(record: StepRecord, trace: Trace, page: StepLayout) -> list[Line]:
    """The step whose text comes next on the same screen."""
    head = step_lines.head(record, trace, page, answering=True)
    return [head, page.indented(record.step.subtask, "plain"), *(row.line for row in step_lines.nested(record, page))]


def going_on(trace: Trace, page: StepLayout) -> list[Line]:
    """What is planned, running and waiting, and the totals so far: at most one line less than the screen has."""
    return fit([*unsettled(trace, page), *step_lines.planning(trace, page)], _so_far(trace, page), page.screen)


def unsettled(trace: Trace, page: StepLayout) -> list[StepLine]:
    """The steps that have not ended."""
    return [
        row for record in trace.steps if record.state not in ENDED for row in step_lines.open_step(record, trace, page)
    ]


def fit(lines: list[StepLine], totals: Line, screen: Screen) -> list[Line]:
    """As many rows as the screen holds above the totals and the cursor's line; what is left out is counted.

    More than a line of each text stands there only where all of it would still fit a smaller window (`Screen.fits`).
    """
    room = max(0, screen.height - 2)
    for level in sorted({row.level for row in lines} - {step_lines.HEAD}, reverse=True):
        widths = [cells(line) for line in (*(row.line for row in lines), totals)]
        if len(lines) > room or (level >= step_lines.EARLIER and not screen.fits(widths)):
            lines = [row for row in lines if row.level < level]
    if len(lines) <= room:
        return [*(row.line for row in lines), totals]
    kept = lines[: max(0, room - 1)]
    more: Line = ((f"{' ' * step_lines.INDENT}{screen.dots} and {len(lines) - len(kept)} more", "quiet"),)
    return [*[*(row.line for row in kept), more][:room], totals]


def _so_far(trace: Trace, page: StepLayout) -> Line:
    done, steps = len(trace.done()), format_count(len(trace.steps), "step")
    progress = f"{done} of {steps} done" if trace.plan is not None else f"{format_count(done, 'step')} done"
    failed = sum(record.state == "failed" for record in trace.steps)
    progress += f", {failed} failed" if failed else ""
    parts = [
        format_duration(page.now, tenths=False),
        progress,
        tokens_so_far_text(trace),
        format_cost(trace.usage),
    ]
    said = [part for part in parts if part]
    while len(said) > 1 and len(", ".join(said)) > page.screen.width:
        said.pop()
    return ((page.screen.crop(", ".join(said), page.screen.width), "quiet"),)
