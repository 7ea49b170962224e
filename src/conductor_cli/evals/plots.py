"""Plots of a summary as SVG, to stand inside a page: no script, no resource, colours by the page's style. Pure.

Systems are known by their numbers, 1 and up, in the order of the table; every mark has a title that says its figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Final

from conductor_cli.core.html import axis_ticks, html_text
from conductor_cli.core.sanitize import one_line
from conductor_cli.evals.statistics import Point
from conductor_cli.evals.summary import Summary, SystemSummary, Unit
from conductor_cli.evals.table import limits, percent

WIDTH: Final = 760
LEFT: Final = 210
RIGHT: Final = 70
LINE: Final = 26
"""Units between two systems."""

HEIGHT: Final = 380
FOOT: Final = 44
MARGIN: Final = 60
CLOSE: Final = 16
"""Units between two marks below which their numbers could not be read apart."""

LETTERS: Final = 30
"""The most characters of a name beside a plot; its title has the whole."""


def accuracy(summary: Summary) -> str:
    """Each system's share of right answers with its 95 % interval, from 0 to 100 %."""
    rows = [(number, row) for number, row in enumerate(summary.rows, start=1) if row.score.n]
    height = LINE * len(rows) + 34
    body = [_gridline(_across(tick / 100), height - 26, f"{tick} %") for tick in range(0, 101, 20)]
    body += [_whisker(number, row, index, row.name in summary.fixed) for index, (number, row) in enumerate(rows)]
    return _svg(height, "Share of right answers by system, with 95 % intervals", body)


def _across(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _gridline(x: float, height: float, label: str) -> str:
    line = f'<line class="grid" x1="{x:.1f}" y1="4" x2="{x:.1f}" y2="{height:.1f}"/>'
    return f'{line}<text class="tick" x="{x:.1f}" y="{height + 16:.1f}" text-anchor="middle">{label}</text>'


def _whisker(number: int, row: SystemSummary, index: int, fixed: bool) -> str:  # noqa: FBT001 - a column of the table
    y, (low, high) = LINE * index + 18, row.score.interval
    share = row.score.value or 0.0
    name = one_line(row.name)
    shown = name if len(name) <= LETTERS else f"{name[: LETTERS - 2]}.."
    said = f"{row.name}: {percent(share)} % ({limits(row.score.interval)}), {row.score.right} of {row.score.n}"
    return (
        f'<g class="{_class(fixed)}"><title>{html_text(said)}</title>'
        f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{number} {escape(shown)}</text>'
        f'<line class="limits" x1="{_across(low):.1f}" y1="{y}" x2="{_across(high):.1f}" y2="{y}"/>'
        f'<circle cx="{_across(share):.1f}" cy="{y}" r="5"/>'
        f'<text class="value" x="{WIDTH - RIGHT + 12}" y="{y + 4}">{percent(share)}</text></g>'
    )


def _class(fixed: bool) -> str:  # noqa: FBT001 - a column of the table
    return "fixed" if fixed else "plans"


def against_cost(summary: Summary) -> str:
    """Accuracy against what a question costs, with the frontier of the systems that do not plan; empty without any."""
    points = [
        (number, row, point)
        for number, row in enumerate(summary.rows, start=1)
        if (point := row.point(summary.unit)) is not None
    ]
    if not points:
        return ""
    most = max(point.cost for _, _, point in points) or 1.0
    ticks = axis_ticks(most)
    scale = _Scale(max(most, ticks[-1]))
    body = [_column(scale.x(tick), _amount(tick, summary.unit)) for tick in ticks]
    body += [_level(scale.y(tick / 100), f"{tick} %") for tick in range(0, 101, 20)]
    body += _frontier(summary.corners(), scale)
    body += [_mark(row, scale, point, summary) for _, row, point in points]
    body += _labels([(number, scale.x(point.cost), scale.y(point.accuracy)) for number, _, point in points])
    what = "US dollars" if summary.unit == "usd" else "tokens"
    label = f"{what} a question"
    body.append(f'<text class="tick" x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>')
    return _svg(HEIGHT, f"Share of right answers against {what} a question, with the frontier", body)


class _Scale:
    """From cost and share to places in the plot. The costs are drawn evenly, so that mixtures lie on straight lines."""

    def __init__(self, most: float) -> None:
        self.most = most

    def x(self, cost: float) -> float:
        return MARGIN + cost / self.most * (WIDTH - MARGIN - RIGHT)

    def y(self, share: float) -> float:
        return 14 + (1 - share) * (HEIGHT - FOOT - 14)


def _amount(value: float, unit: Unit) -> str:
    return f"${value:.3g}" if unit == "usd" else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _column(x: float, label: str) -> str:
    line = f'<line class="grid" x1="{x:.1f}" y1="14" x2="{x:.1f}" y2="{HEIGHT - FOOT}"/>'
    return f'{line}<text class="tick" x="{x:.1f}" y="{HEIGHT - FOOT + 16}" text-anchor="middle">{label}</text>'


def _level(y: float, label: str) -> str:
    line = f'<line class="grid" x1="{MARGIN}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
    return f'{line}<text class="tick" x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _frontier(corners: Sequence[Point], scale: _Scale) -> Iterable[str]:
    """The hull, and on from its best system at the same height: nobody has to spend more."""
    ends = [*corners, Point(scale.most, corners[-1].accuracy)] if corners else []
    for first, last in pairwise(ends):
        yield (
            f'<line class="frontier" x1="{scale.x(first.cost):.1f}" y1="{scale.y(first.accuracy):.1f}" '
            f'x2="{scale.x(last.cost):.1f}" y2="{scale.y(last.accuracy):.1f}"/>'
        )


def _labels(marks: Sequence[tuple[int, float, float]]) -> Iterable[str]:
    """The numbers of the systems; those that lie on each other share one label."""
    groups: list[list[tuple[int, float, float]]] = []
    for mark in marks:
        for group in groups:
            if math.dist(group[0][1:], mark[1:]) < CLOSE:
                group.append(mark)
                break
        else:
            groups.append([mark])
    for group in groups:
        numbers = ", ".join(str(number) for number, _, _ in group)
        yield f'<text class="value" x="{group[0][1] + 8:.1f}" y="{group[0][2] - 7:.1f}">{numbers}</text>'


def _mark(row: SystemSummary, scale: _Scale, point: Point, summary: Summary) -> str:
    x, y = scale.x(point.cost), scale.y(point.accuracy)
    low, high = row.score.interval
    said = f"{row.name}: {percent(point.accuracy)} % at {_amount(point.cost, summary.unit)}"
    return (
        f'<g class="{_class(row.name in summary.fixed)}"><title>{html_text(said)}</title>'
        f'<line class="limits" x1="{x:.1f}" y1="{scale.y(low):.1f}" x2="{x:.1f}" y2="{scale.y(high):.1f}"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/></g>'
    )


def _svg(height: float, title: str, body: Iterable[str]) -> str:
    inner = "\n".join(body)
    view = f"0 0 {WIDTH} {height}"
    return (
        f'<svg role="img" viewBox="{view}" aria-label="{escape(title)}"><title>{escape(title)}</title>\n{inner}\n</svg>'
    )
