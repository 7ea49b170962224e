"""`make rehearsal-plot`: the curve of the conductor's training as a picture, drawn as evaluations draw theirs.

It has a background of its own, so it can be read on light and dark pages. Each figure is drawn twice: pale as it was in
every step, and strong as the mean of the steps around.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil
from pathlib import Path
from typing import Any, Final

from conductor_cli.core.pages import nice
from conductor_cli.train.curve import read

CURVE: Final = Path("benchmarks/rehearsal-curve.jsonl")
PLOT: Final = Path("docs/rehearsal-curve.svg")

WIDTH, HEIGHT = 900, 690
AROUND: Final = 5
"""Steps before and after whose mean is drawn, too."""

BLUE, GREEN, ORANGE, PURPLE, GREY = "#0072b2", "#00805d", "#c24e00", "#a8528a", "#5f6770"

STYLE: Final = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-weight: 600 } .tick { font-size: 11px; fill: #57606a } .note { font-size: 11px; fill: #57606a }
.name { font-size: 12px; font-weight: 600; text-anchor: end; paint-order: stroke; stroke: #fff; stroke-width: 4px }
.grid { stroke: #d8dee4 } .axis { stroke: #8c959f } .phase { stroke: #8c959f; stroke-dasharray: 3 3 }
.each { fill: none; stroke-width: 1; opacity: .28 } .mean { fill: none; stroke-width: 2.2; stroke-linejoin: round }
"""

Line = Mapping[str, Any]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One figure: its name, colour, and value in a line of the curve, None where it has none.

    `dots`: it was looked at now and then, and each look is a dot.
    """

    name: str
    colour: str
    value: Callable[[Line], float | None]
    dots: bool = False

    def points(self, lines: Sequence[Line]) -> Points:
        found = [(line["step"], self.value(line)) for line in lines]
        return [(float(step), float(value)) for step, value in found if value is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One of the plots, at a place in the picture; `most` is the top of its scale."""

    title: str
    series: tuple[Series, ...]
    left: float
    top: float
    width: float
    height: float
    most: float = 1.0


def at(*names: str) -> Callable[[Line], float | None]:
    """The value under these names, one inside the other."""

    def value(line: Line) -> float | None:
        found: Any = line
        for name in names:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) else None

    return value


SKILLS: Final = (("letters", BLUE), ("numbers", ORANGE), ("facts", GREEN))

PANELS: Final = (
    Panel(
        title="What plans are worth", left=50, top=66, width=830, height=250,
        series=(
            Series(name="valid plans", colour=GREY, value=at("valid")),
            Series(name="reward", colour=BLUE, value=at("reward")),
            Series(name="right, of the valid ones", colour=GREEN, value=at("right_given_valid")),
            Series(name="right, held-out questions", colour=ORANGE, value=at("held", "right"), dots=True),
        ),
    ),
    Panel(
        title="Subtasks with a fitting worker", left=50, top=392, width=240, height=210,
        series=tuple(Series(name=skill, colour=colour, value=at("fitting", skill)) for skill, colour in SKILLS),
    ),
    Panel(
        title="Held out: right, by hops", left=345, top=392, width=240, height=210,
        series=tuple(
            Series(name=hops, colour=colour, value=at("held", "by_hops", hops), dots=True)
            for hops, colour in (("1", BLUE), ("2", ORANGE), ("3", PURPLE))
        ),
    ),
    Panel(
        title="Routing entropy, bits", left=640, top=392, width=240, height=210, most=2.0,
        series=(Series(name="over kinds of workers", colour=PURPLE, value=at("routing_entropy")),),
    ),
)  # fmt: skip


def plot(lines: Sequence[Line]) -> str:
    """The picture, as SVG."""
    last = max(int(line["step"]) for line in lines)
    phase = next((int(line["step"]) for line in lines[1:] if "any" in line.get("routes", {})), None)
    phase = None if "any" in lines[0].get("routes", {}) else phase
    title = f"Training the rehearsal's conductor by reward: {last} steps"
    body = [
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff" stroke="#d8dee4"/>',
        f'<text class="title" x="20" y="30" style="font-size: 16px">{escape(title)}</text>',
        *(piece for panel in PANELS for piece in _panel(panel, lines, last, phase)),
        *(_note(HEIGHT - 34 + 18 * row, text) for row, text in enumerate(_notes(phase))),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{title}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _note(y: float, text: str) -> str:
    return f'<text class="note" x="20" y="{y}">{escape(text)}</text>'


def _notes(phase: int | None) -> tuple[str, str]:
    joins = f"; at the broken line (step {phase}) the generalist joins the pools" if phase else ""
    return (
        f"Across: steps of GRPO{joins}. Entropy: three specialists alike are 1.58 bits.",
        f"Pale: each step. Strong: its mean with {AROUND} steps before and after. Dots: looks at held-out questions.",
    )


def _panel(panel: Panel, lines: Sequence[Line], last: int, phase: int | None) -> Iterable[str]:
    def x(step: float) -> float:
        return panel.left + panel.width * step / last

    def y(value: float) -> float:
        return panel.top + panel.height * (1 - min(value, panel.most) / panel.most)

    yield f'<text class="title" x="{panel.left - 30}" y="{panel.top - 14}">{escape(panel.title)}</text>'
    for tick in range(5):
        value = panel.most * tick / 4
        yield f'<line class="grid" x1="{panel.left}" y1="{y(value):.1f}" x2="{x(last):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text class="tick" x="{panel.left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
    for step in _steps(last, panel.width):
        place = f'x="{x(step):.1f}" y="{y(0) + 16:.1f}"'
        yield f'<text class="tick" {place} text-anchor="middle">{step}</text>'
    yield f'<line class="axis" x1="{panel.left}" y1="{y(0):.1f}" x2="{x(last):.1f}" y2="{y(0):.1f}"/>'
    if phase is not None:
        yield f'<line class="phase" x1="{x(phase):.1f}" y1="{panel.top}" x2="{x(phase):.1f}" y2="{y(0):.1f}"/>'
    for series in panel.series:
        yield from _series(series, [(x(step), y(value)) for step, value in series.points(lines)])
    yield from _legend(panel)


def _steps(last: int, width: float) -> list[int]:
    """Round numbers of steps with room for each, none beyond the end."""
    ticks = [round(tick) for tick in nice(last) if tick <= last]
    return ticks[:: ceil(len(ticks) * 45 / width)]


def _series(series: Series, points: Points) -> Iterable[str]:
    if not points:
        return
    ends = f'stroke="{series.colour}"'
    if series.dots:
        yield f'<polyline class="mean" style="stroke-width: 1.4" {ends} points="{_path(points)}"/>'
        yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{series.colour}"/>' for x, y in points)
        return
    yield f'<polyline class="each" {ends} points="{_path(points)}"/>'
    yield f'<polyline class="mean" {ends} points="{_path(smoothed(points))}"/>'


def _path(points: Points) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def smoothed(points: Points) -> Points:
    """Each height as the mean of those around it: fewer at both ends."""
    found = []
    for index, (x, _) in enumerate(points):
        near = [y for _, y in points[max(0, index - AROUND) : index + AROUND + 1]]
        found.append((x, sum(near) / len(near)))
    return found


def _legend(panel: Panel) -> Iterable[str]:
    """The names in their colours, in the lower right corner of the panel, where curves that rise leave room."""
    for row, series in enumerate(reversed(panel.series)):
        place = f'x="{panel.left + panel.width - 8}" y="{panel.top + panel.height - 10 - 17 * row}"'
        name = f"{series.name} hop{'s' if series.name > '1' else ''}" if series.name.isdigit() else series.name
        yield f'<text class="name" {place} style="fill: {series.colour}">{escape(name)}</text>'


def main(curve: Path = CURVE, target: Path = PLOT) -> int:
    """Draw it; 1 where there is nothing to draw."""
    lines = [line for line in read(curve) if isinstance(line, dict) and type(line.get("step")) is int]
    if not lines:
        print(f"{curve} has no steps: copy the curve.jsonl of a training there", file=sys.stderr)
        return 1
    target.write_text(plot(lines), encoding="utf-8")
    print(f"{target}: {len(lines)} steps of {curve}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))
