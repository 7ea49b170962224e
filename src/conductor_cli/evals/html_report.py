"""An evaluation's report as one HTML file without scripts, links or requests.

Names, questions and answers come from models and files and may contain anything. Control characters and keys are
removed from every value, and then the template engine escapes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from conductor_cli.core.formatting import axis_ticks, format_money
from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.table import crop_text
from conductor_cli.evals.cases import Case
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.report import (
    Report,
    format_p_value,
    format_points,
    report_notes,
    system_table,
    tag_table,
)
from conductor_cli.evals.summary import Summary
from conductor_cli.models.known_secrets import KNOWN_SECRETS

MAX_CASES: Final = 500
"""How many cases the page shows; it says so if there are more."""
MAX_TEXT: Final = 400
"""Characters of a question or an answer; the page says how many are left out."""

CLOSE: Final = 0.03
"""How near two marks of a plot may be, as a share of its width, before they share one label."""


class PlotPoint(NamedTuple):
    """A system in the plots. Shares and `cost` are between 0 and 1; 1 is the end of the axis."""

    number: int
    name: str
    planned: bool
    share: float
    low: float
    high: float
    cost: float
    amount: str


def render_html(report: Report, cases: Sequence[Case] = (), outcomes: Sequence[Outcome] = ()) -> str:
    """The whole page. Each of the `cases` is shown with its outcomes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and only reports need it

    environment = Environment(
        loader=PackageLoader("conductor_cli"), autoescape=True, undefined=StrictUndefined, finalize=_finalize,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    spec, summary = report.spec, report.summary
    facts = {
        "evaluation": report.id, "started": spec.time, "cases": f"{spec.case_count}, {spec.hash[:16]}",
        "seed": str(spec.seed), "workers": ", ".join(spec.pool.names), "conductor": spec.conductor,
    }  # fmt: skip
    systems, tags = system_table(summary), tag_table(summary)
    points, ticks = _plot_points(summary)
    return environment.get_template("report.html.j2").render(
        title=one_line(f"Evaluation of {spec.source}"),
        facts=[(name, one_line(value)) for name, value in facts.items() if value],
        systems=([column.head for column in systems.columns], systems.rows), notes=report_notes(report),
        points=points, ticks=ticks, labels=_number_labels(points),
        cost_name="US dollars" if summary.cost_unit == "usd" else "tokens",
        comparisons=_comparison_rows(summary),
        tags=None if tags is None else ([column.head for column in tags.columns], tags.rows),
        cases=_case_details(cases[:MAX_CASES], outcomes, summary), case_count=len(cases),
    )  # fmt: skip


def _finalize(value: object) -> object:
    """What the template prints for a value. Markup, which is a subclass of `str`, is what a macro has rendered."""
    if type(value) is str:
        return _clean(value)
    return f"{value:.1f}" if isinstance(value, float) else value


def _comparison_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Each system against the best single worker, by its card and in hindsight."""
    rows: list[tuple[str, ...]] = []
    for system in summary.systems:
        for comparison, how in ((system.versus_card, "by its card"), (system.versus_best, "in hindsight")):
            if comparison is not None:
                counts, (low, high) = comparison.counts, map(format_points, comparison.interval)
                rows.append((
                    system.name, f"{comparison.other}, {how}", format_points(comparison.difference),
                    f"{low} to {high}", format_p_value(comparison.p), str(counts.only_first), str(counts.only_second),
                    str(counts.n),
                ))  # fmt: skip
    return rows


def _case_details(cases: Sequence[Case], outcomes: Sequence[Outcome], summary: Summary) -> list[dict[str, Any]]:
    by_case: dict[str, dict[str, Outcome]] = {case.id: {} for case in cases}
    for outcome in outcomes:
        by_case.get(outcome.case, {})[outcome.system] = outcome
    details = []
    for case in cases:
        found = [by_case[case.id][system.name] for system in summary.systems if system.name in by_case[case.id]]
        details.append({
            "id": one_line(case.id), "question": _crop(case.question), "answer": _crop(case.answer),
            "gist": crop_text(one_line(_clean(case.question)), 100),
            "right": sum(outcome.verdict == "right" for outcome in found),
            "judged": sum(outcome.verdict != "failed" for outcome in found),
            "outcomes": [
                {"system": one_line(o.system), "verdict": o.verdict, "text": _crop(o.error or o.answer)} for o in found
            ],
        })  # fmt: skip
    return details


def _clean(text: str) -> str:
    return KNOWN_SECRETS.redact(sanitize(text))


def _crop(text: str) -> str:
    # Cleaned before it is cut: half a key would not be recognised.
    text = _clean(text)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]} … ({len(text) - MAX_TEXT:,} characters more)"


def _plot_points(summary: Summary) -> tuple[list[PlotPoint], list[tuple[float, str]]]:
    """The systems with a judged case, and the ticks of the cost axis: each a place from 0 to 1 and an amount."""
    unit = summary.cost_unit

    def format_amount(cost: float) -> str:
        return format_money(cost) if unit == "usd" else f"{cost:,.0f}"

    costs = {
        system.name: system.per_case(float(system.usage.cost or 0) if unit == "usd" else system.usage.tokens) or 0.0
        for system in summary.systems
    }
    ticks = axis_ticks(max(costs.values(), default=0) or 1.0)
    points = [
        PlotPoint(
            number, one_line(system.name), system.valid_plans is not None, system.accuracy.value,
            *system.accuracy.interval, costs[system.name] / ticks[-1], format_amount(costs[system.name]),
        )
        for number, system in enumerate(summary.systems, start=1)
        if system.accuracy.value is not None
    ]  # fmt: skip
    return points, [(tick / ticks[-1], format_amount(tick)) for tick in ticks]


def _number_labels(points: Sequence[PlotPoint]) -> list[tuple[PlotPoint, str]]:
    """The number beside each mark of the cost plot; marks that almost coincide share one label."""
    groups: list[list[PlotPoint]] = []
    for point in points:
        near = (
            group for group in groups if math.dist((group[0].cost, group[0].share), (point.cost, point.share)) < CLOSE
        )
        group = next(near, None)
        if group is None:
            groups.append([point])
        else:
            group.append(point)
    return [(group[0], ", ".join(str(point.number) for point in group)) for group in groups]
