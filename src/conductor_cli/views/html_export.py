"""A run as one self-contained HTML file: no scripts, no other files, no network. Pure.

Workers may write anything, so control characters are removed from every value, and the template engine escapes it. The
page's own policy forbids scripts, forms and fetches in case one is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from conductor_cli.core.formatting import axis_ticks, format_cost, format_count, format_duration
from conductor_cli.core.plan import Plan
from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.run_text import (
    describe_access,
    describe_failure,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    question_line,
    quote_text,
)

TIMELINE_WIDTH: Final = 97.0
"""Per cent of the width up to the last tick, whose label needs some room."""

LONGEST_NAME: Final = 40
"""Characters of a worker's name above its bar; the bar's title has the whole name."""


def html_page(trace: Trace, *, live: bool = False) -> str:
    """The whole file: question, answer, timeline, steps with prompts and answers, notices."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and only pages need it

    environment = Environment(
        loader=PackageLoader("conductor_cli"), autoescape=True, undefined=StrictUndefined, finalize=_finalize,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["line"] = one_line
    facts = [describe_totals(trace, stored=True), f"{describe_setup(trace)}; started {trace.time}"]
    if trace.resumed:
        facts.append(f"resumes run {trace.resumed}")
    ticks, rows = _timeline(trace)
    return environment.get_template("run.html.j2").render(
        title=one_line(question_line(trace)[:120] or trace.run), trace=trace, facts=facts,
        state="partial" if trace.partial else trace.state if trace.ended else "interrupted",
        outcome=describe_outcome(trace, live=live), ticks=ticks, rows=rows,
        reasoning=trace.plan.reasoning if isinstance(trace.plan, Plan) else "",
        describe_step=_describe_step, describe_failure=describe_failure,
    )  # fmt: skip


def _finalize(value: object) -> object:
    """What the template prints for a value. Markup, which is a subclass of `str`, is what a macro has rendered."""
    if type(value) is str:
        return sanitize(value)
    return f"{value:.2f}" if isinstance(value, float) else value


def _describe_step(record: StepRecord, now: float) -> str:
    usage = record.usage
    facts = (
        describe_worker(record), describe_access(record.step.access), format_duration(record.seconds(now)),
        format_count(usage.tokens, "token"), format_cost(usage),
    )  # fmt: skip
    return f"{record.number}. {', '.join(filter(None, facts))}: {quote_text(record.step.subtask)}"


class TimelineRow(NamedTuple):
    """A name and the bar below it. Times are per cent of the width; `state` is empty if there is no bar."""

    label: str
    planned: float
    start: float
    end: float
    state: str
    title: str


def _timeline(trace: Trace) -> tuple[list[tuple[float, str]], list[TimelineRow]]:
    """The ticks, and one row for the planning and one for each step, those of a nested run after their step."""
    steps = list(timed_steps(trace))
    latest = max([trace.at, *(start + end for _, start, _, end in steps)])
    latest = latest if latest > 0 else 1.0
    ticks = axis_ticks(latest)
    scale = TIMELINE_WIDTH / max(latest, ticks[-1])
    planned = max((record.planned for record in trace.steps), default=trace.at)
    rows = [TimelineRow("plan", 0.0, 0.0, planned * scale, "plan", f"planned in {format_duration(planned)}")]
    for number, start, record, end in steps:
        name = one_line(record.worker)
        label = f"{number} {name if len(name) <= LONGEST_NAME else f'{name[: LONGEST_NAME - 2]}..'}"
        began = end if record.started is None else record.started
        state = "" if record.started is None else record.state
        title = f"step {number}, {name}: {record.state}, {format_duration(record.seconds(end))}"
        waits, begins, ends = ((start + moment) * scale for moment in (record.planned, began, end))
        rows.append(TimelineRow(label, waits, begins, ends, state, title))
    return [(tick * scale, f"{tick:g} s") for tick in ticks], rows


def timed_steps(trace: Trace, start: float = 0.0, path: str = "") -> Iterator[tuple[str, float, StepRecord, float]]:
    """Every step: its number, `2.1` in a nested run; when its run started, by the outermost clock; and its end.

    A step without an end ends at the newest moment of its run.
    """
    for record in trace.steps:
        number = f"{path}{record.number}"
        yield number, start, record, trace.at if record.ended is None else record.ended
        if record.nested is not None:
            yield from timed_steps(record.nested, start + (record.started or 0.0), f"{number}.")
