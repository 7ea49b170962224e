"""An evaluation's report as one HTML file without scripts, links or requests.

Names, questions and answers come from models and files and may contain anything. Control characters and keys are
removed from every value, and then the template engine escapes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from conductor_cli.core.formatting import axis_ticks, format_money
from conductor_cli.core.terminal_text import crop_text, one_line, sanitize, shown_heads
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import CaseOutcome, EvaluationSpec
from conductor_cli.evals.report import reach_verdict, report_notes, system_table, tag_table
from conductor_cli.evals.summary import Summary, SystemResult
from conductor_cli.models.known_secrets import KNOWN_SECRETS

LETTER: Final = 6.6  # About the width of a letter, in units of the drawing
LINE: Final = 14  # The height of a name
RADIUS: Final = 6  # Of a point, with a little room


class Area(NamedTuple):
    """The size of a drawing, and the margins around the part of it that has the points."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def x(self, share: float) -> float:
        """The place of a share from 0 (at the left) to 1."""
        return self.left + share * (self.width - self.left - self.right)

    def y(self, share: float) -> float:
        """The place of a share from 0 (at the bottom) to 1."""
        return self.height - self.bottom - share * (self.height - self.top - self.bottom)


AREA: Final = Area(width=480, height=346, left=44, right=26, top=20, bottom=46)
"""The second plot of a report. It is as wide as a phone, so that its texts can be read there."""


class Label(NamedTuple):
    """The place of a name, as SVG has it: its baseline, and whether it begins or ends at `x`.

    `far`: it is not beside its point, so a line should join them.
    """

    x: float
    y: float
    anchor: str
    far: bool


_Box = tuple[float, float, float, float]  # The left, upper, right and lower edge


def _covers(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def place_labels(points: Sequence[tuple[float, float, str]], area: Area) -> list[Label]:
    """A place for the name of each point `(x, y, name)`, all of them inside the drawing and above its axis.

    Each name goes to the nearest free place right or left of its point, in rows ever further above and below it. If
    every place is taken, it covers a point rather than another name.
    """
    dots = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y, _ in points]
    names: list[_Box] = []
    found = []
    for x, y, name in points:
        length, places = LETTER * len(name), list[tuple[Label, _Box]]()
        for row in sorted(range(-int(area.y(0) / LINE), int(area.y(0) / LINE)), key=abs):
            middle = y + LINE * row
            if not LINE / 2 <= middle <= area.y(0) - LINE / 2:
                continue
            for anchor, left in (("start", x + RADIUS + 3), ("end", x - RADIUS - 3 - length)):
                label = Label(left if anchor == "start" else left + length, middle + 4, anchor, far=abs(row) > 1)
                places.append((label, (left, middle - LINE / 2, left + length, middle + LINE / 2)))
        inside = [(label, box) for label, box in places if area.left <= box[0] and box[2] <= area.width]
        readable = [place for place in inside if not any(_covers(place[1], other) for other in names)]
        free = [place for place in readable if not any(_covers(place[1], dot) for dot in dots)]
        label, box = (free or readable or inside or places)[0]
        names.append(box)
        found.append(label)
    return found


MAX_CASES: Final = 500  # How many cases the page shows; it says so if there are more
MAX_NAME: Final = 24  # Characters of a system's name in a plot
MAX_TEXT: Final = 400  # Characters of a question or an answer; the page says how many are left out


def render_html(
    evaluation: str,
    spec: EvaluationSpec,
    summary: Summary,
    cases: Sequence[Case] = (),
    outcomes: Sequence[CaseOutcome] = (),
) -> str:
    """The whole page. Each of the `cases` is shown with its outcomes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and only reports need it

    environment = Environment(
        loader=PackageLoader("conductor_cli"), autoescape=True, undefined=StrictUndefined, finalize=_finalize,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    systems = system_table(summary)
    facts = [evaluation, spec.time, f"cases {spec.hash[:16]}", f"workers {', '.join(spec.workers)}", spec.conductor]
    by_case: dict[str, list[CaseOutcome]] = defaultdict(list)
    order = {name: number for number, name in enumerate(spec.systems)}
    for outcome in sorted(outcomes, key=lambda outcome: order.get(outcome.system, 0)):
        by_case[outcome.case].append(outcome)
    return environment.get_template("report.html.j2").render(
        title=one_line(f"Evaluation of {spec.source}"),
        facts="; ".join(one_line(fact) for fact in facts if fact),
        verdict=reach_verdict(summary), systems=systems, tags=tag_table(summary),
        notes=report_notes(spec, summary, shown_heads(*systems)), **_plot_data(summary),
        case_count=len(cases), crop=_crop,
        cases=[(case, by_case[case.id]) for case in cases[:MAX_CASES]],
    )  # fmt: skip


def _finalize(value: object) -> object:
    """What the template prints for a value. Markup, which is a subclass of `str`, is what a macro has rendered."""
    if type(value) is str:
        return _clean(value)
    return f"{value:.1f}" if isinstance(value, float) else value


def _clean(text: str) -> str:
    return KNOWN_SECRETS.redact(sanitize(text))


def _crop(text: str) -> str:
    # Cleaned before it is cut: half a key would not be recognised.
    text = _clean(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text) - MAX_TEXT:,} characters more)"


class _Point(NamedTuple):
    """A system in the plots: who plans, the place of its point in the second one, its cost there, and its name."""

    system: SystemResult
    kind: str
    x: float
    y: float
    name: str
    amount: str
    label: Label


def _plot_data(summary: Summary) -> dict[str, Any]:
    """The systems with a judged case, each with its cost, and the cost axis; 1 is the end of that axis.

    Costs are in dollars if every call has a price and any call costs something, else in tokens.
    """
    systems = summary.systems
    in_dollars = not any(system.unpriced for system in systems) and any(system.cost for system in systems)
    costs = {system.name: float((system.cost if in_dollars else system.tokens) or 0) for system in systems}
    ticks = axis_ticks(max(costs.values(), default=0) or 1.0)

    def format_amount(amount: float) -> str:
        return format_money(amount) if in_dollars else f"{amount:,.0f}"

    judged = [system for system in systems if system.accuracy.n]
    places = [
        (
            AREA.x(costs[system.name] / ticks[-1]),
            AREA.y(system.accuracy.accuracy or 0.0),
            crop_text(one_line(_clean(system.name)), MAX_NAME),
        )
        for system in judged
    ]
    labels = place_labels(places, AREA)
    return {
        "points": [
            _Point(
                system, "planned" if system.valid_plans else "fixed", *place, format_amount(costs[system.name]), label
            )
            for system, place, label in zip(judged, places, labels, strict=True)
        ],
        "area": AREA,
        "ticks": [(AREA.x(tick / ticks[-1]), format_amount(tick)) for tick in ticks],
        "cost_name": "US dollars" if in_dollars else "tokens",
    }
