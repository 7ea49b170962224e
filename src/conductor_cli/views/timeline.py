"""When each step of a run waited, worked and ended, as SVG inside a page. Pure; colours are the page's."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from conductor_cli.core.clean import one_line
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.evals.plots import nice, text_of
from conductor_cli.views import words
from conductor_cli.views.told import placed

WIDTH: Final = 900
LEFT: Final = 190
RIGHT: Final = 20
LINE: Final = 26
BAR: Final = 14
LETTERS: Final = 22
"""Characters of a worker's name beside its bar; the bar's title has the whole."""


def timeline(trace: Trace) -> str:
    """A line for the planning and one for each step, nested ones behind the step that they are in."""
    rows = list(placed(trace))
    latest = max([trace.at, *(begin + end for _, begin, _, end in rows)])
    latest = latest if latest > 0 else 1.0
    ticks = nice(latest)
    scale = (WIDTH - LEFT - RIGHT) / max(latest, ticks[-1])
    height = LINE * (len(rows) + 1) + 40
    body = [_tick(LEFT + tick * scale, height - 26, f"{tick:g} s") for tick in ticks]
    body += [_planning(trace, scale)]
    body += [
        _row(number, index, record, begin, end, scale)
        for index, (number, begin, record, end) in enumerate(rows, start=1)
    ]
    title = "When each step waited and worked"
    inner = "\n".join(body)
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {height}" aria-label="{title}"><title>{title}</title>\n{inner}\n</svg>'
    )


def _tick(x: float, height: float, label: str) -> str:
    line = f'<line class="grid" x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{height:.1f}"/>'
    return f'{line}<text class="tick" x="{x:.1f}" y="{height + 16:.1f}" text-anchor="middle">{label}</text>'


def _planning(trace: Trace, scale: float) -> str:
    """The conductor's line: up to the last step that it planned."""
    end = max((record.planned for record in trace.steps), default=trace.at)
    return _labelled(0, "plan", _bar(0, 0.0, end, scale, "plan", f"planned in {words.seconds(end)}"))


def _row(number: str, index: int, record: StepRecord, begin: float, end: float, scale: float) -> str:  # noqa: PLR0913, PLR0917
    name = one_line(record.worker)
    label = f"{number} {name if len(name) <= LETTERS else f'{name[: LETTERS - 2]}..'}"
    started = end if record.started is None else record.started
    said = f"step {number}, {name}: {record.state}, {words.seconds(record.seconds(end))}"
    marks = list(_waiting(index, begin + record.planned, begin + started, scale))
    if record.started is not None:
        marks.append(_bar(index, begin + started, begin + end, scale, record.state, said))
    return _labelled(index, label, "".join(marks))


def _labelled(index: int, label: str, marks: str) -> str:
    y = LINE * index + 20
    return f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>{marks}'


def _waiting(index: int, start: float, end: float, scale: float) -> Iterator[str]:
    if end > start:
        y, x, to = LINE * index + 20, LEFT + start * scale, LEFT + end * scale
        yield f'<line class="waits" x1="{x:.1f}" y1="{y}" x2="{to:.1f}" y2="{y}"/>'


def _bar(index: int, start: float, end: float, scale: float, state: str, said: str) -> str:  # noqa: PLR0913, PLR0917
    y, x, width = LINE * index + 20 - BAR / 2, LEFT + start * scale, max((end - start) * scale, 2.0)
    return (
        f'<rect class="bar {state}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BAR}" rx="3">'
        f"<title>{text_of(said)}</title></rect>"
    )
