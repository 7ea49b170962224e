"""When each step of a run waited, worked and ended, as SVG inside a page. Pure; colours are the page's.

Places along the time are shares of the width and everything else is in pixels, so that it is as readable on a phone.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from conductor_cli.core.formatting import format_duration
from conductor_cli.core.html import axis_ticks, html_text
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import StepRecord, Trace

SPAN: Final = 97.0
"""Per cent of the width up to the last mark: what stands under it needs some room, too."""

LINE: Final = 40
"""Pixels for a name and the bar below it."""

BAR: Final = 14
LETTERS: Final = 40
"""Characters of a worker's name over its bar; the bar's title has the whole."""


def timeline(trace: Trace) -> str:
    """A line for the planning and one for each step, nested ones behind the step that they are in."""
    rows = list(placed(trace))
    latest = max([trace.at, *(begin + end for _, begin, _, end in rows)])
    latest = latest if latest > 0 else 1.0
    ticks = axis_ticks(latest)
    scale = SPAN / max(latest, ticks[-1])
    bottom = LINE * (len(rows) + 1) + 8
    body = [_tick(tick * scale, bottom, f"{tick:g} s") for tick in ticks]
    body += [_planning(trace, scale)]
    body += [
        _row(number, index, record, begin, end, scale)
        for index, (number, begin, record, end) in enumerate(rows, start=1)
    ]
    title = "When each step waited and worked"
    inner = "\n".join(body)
    return f'<svg role="img" height="{bottom + 22}" aria-label="{title}"><title>{title}</title>\n{inner}\n</svg>'


def placed(trace: Trace, begin: float = 0.0, path: str = "") -> Iterator[tuple[str, float, StepRecord, float]]:
    """Every step: its number, `2.1` in a nested run, when its run began in the outermost one's seconds, and its end.

    The end of a step that has none is the newest moment of its run.
    """
    for record in trace.steps:
        number = f"{path}{record.number}"
        yield number, begin, record, trace.at if record.ended is None else record.ended
        if record.nested is not None:
            yield from placed(record.nested, begin + (record.started or 0.0), f"{number}.")


def _tick(x: float, bottom: int, label: str) -> str:
    line = f'<line class="grid" x1="{x:.2f}%" y1="4" x2="{x:.2f}%" y2="{bottom}"/>'
    anchor = "middle" if x else "start"
    return f'{line}<text class="tick" x="{x:.2f}%" y="{bottom + 16}" text-anchor="{anchor}">{label}</text>'


def _planning(trace: Trace, scale: float) -> str:
    """The conductor's line: up to the last step that it planned."""
    end = max((record.planned for record in trace.steps), default=trace.at)
    return _labelled(0, "plan", _bar(0, 0.0, end, scale, "plan", f"planned in {format_duration(end)}"))


def _row(number: str, index: int, record: StepRecord, begin: float, end: float, scale: float) -> str:  # noqa: PLR0913, PLR0917
    name = one_line(record.worker)
    label = f"{number} {name if len(name) <= LETTERS else f'{name[: LETTERS - 2]}..'}"
    started = end if record.started is None else record.started
    said = f"step {number}, {name}: {record.state}, {format_duration(record.seconds(end))}"
    marks = list(_waiting(index, begin + record.planned, begin + started, scale))
    if record.started is not None:
        marks.append(_bar(index, begin + started, begin + end, scale, record.state, said))
    return _labelled(index, label, "".join(marks))


def _labelled(index: int, label: str, marks: str) -> str:
    return f'<text x="4" y="{LINE * index + 20}">{escape(label)}</text>{marks}'


def _waiting(index: int, start: float, end: float, scale: float) -> Iterator[str]:
    if end > start:
        y = LINE * index + 26 + BAR // 2
        yield f'<line class="waits" x1="{start * scale:.2f}%" y1="{y}" x2="{end * scale:.2f}%" y2="{y}"/>'


def _bar(index: int, start: float, end: float, scale: float, state: str, said: str) -> str:  # noqa: PLR0913, PLR0917
    x, width = start * scale, max((end - start) * scale, 0.3)
    return (
        f'<rect class="bar {state}" x="{x:.2f}%" y="{LINE * index + 26}" width="{width:.2f}%" height="{BAR}" rx="3">'
        f"<title>{html_text(said)}</title></rect>"
    )
