"""A summary as one HTML file that needs nothing else: no script, no other file, no network. Pure.

What workers wrote, and names and cases too, may be anything; each text goes through `escape`, and the page's own policy
forbids scripts and every fetch, so that a mistake here would not run either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from conductor_cli.core.html import html_text
from conductor_cli.core.sanitize import sanitize
from conductor_cli.evals.outcomes import Outcome
from conductor_cli.evals.plots import accuracy, against_cost
from conductor_cli.evals.summary import Summary
from conductor_cli.evals.table import Heading, Laid, by_tag, chance, lay_out, notes, percent, points

CASES: Final = 500
"""The most cases that are told one by one; the page says so where there are more."""

LONGEST: Final = 400
"""Characters of a question or an answer; more is left out, and said."""

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #667085; --line: #d8dce3; --back: #ffffff; --band: #f5f6f8;
  --plans: #b5460f; --fixed: #2f6f9f; --right: #1a7f4b; --wrong: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #98a2b3; --line: #353b47; --back: #14171c;
  --band: #1c2027; --plans: #f79256; --fixed: #7db7e0; --right: #5fd39a; --wrong: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.note, .tick { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } th:nth-child(2), td:nth-child(2) { text-align: left; }
tr:hover td { background: var(--band); }
svg { max-width: 47.5rem; width: 100%; height: auto; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); stroke-width: 1; }
.plans circle { fill: var(--plans); } .plans .limits { stroke: var(--plans); }
.fixed circle { fill: var(--fixed); } .fixed .limits { stroke: var(--fixed); }
.limits { stroke-width: 2; } .frontier { stroke: var(--fixed); stroke-width: 1.5; stroke-dasharray: 5 4; }
.key::before { content: "\\25cf "; } .key.plans::before { color: var(--plans); }
.key.fixed::before { color: var(--fixed); }
details { border-bottom: 1px solid var(--line); padding: .2rem 0; } summary { cursor: pointer; }
details table { white-space: normal; margin: .5rem 0 .8rem 1rem; } details td, details th { text-align: left; }
details td { white-space: pre-wrap; overflow-wrap: anywhere; vertical-align: top; }
.right { color: var(--right); } .wrong, .failed { color: var(--wrong); }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A case as the page tells it: what was asked, and what counts as right."""

    id: str
    question: str
    wanted: str


def page(heading: Heading, summary: Summary, cases: Sequence[Asked] = (), outcomes: Iterable[Outcome] = ()) -> str:
    """The whole file. `outcomes` are told under the `cases` that they belong to."""
    title = f"Evaluation of {heading.source}"
    parts = [
        f"<h1>{html_text(title)}</h1>", _about(heading), _table(summary), _notes(heading, summary),
        "<h2>Accuracy</h2>", _key(), accuracy(summary),
        f"<h2>Accuracy against {'cost' if summary.unit == 'usd' else 'tokens'}</h2>", _frontier(),
        against_cost(summary),
        _differences(summary), _tags(summary), _cases(cases, outcomes, summary),
    ]  # fmt: skip
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _about(heading: Heading) -> str:
    said = [
        ("evaluation", heading.id), ("begun", heading.time), ("cases", f"{heading.cases}, {heading.hash[:16]}"),
        ("seed", "" if heading.seed is None else str(heading.seed)), ("workers", ", ".join(heading.workers)),
        ("conductor", heading.conductor),
    ]  # fmt: skip
    return f'<p class="note">{"; ".join(f"{name} {html_text(text)}" for name, text in said if text)}</p>'


def _table(summary: Summary) -> str:
    laid = lay_out(summary)
    heads, rows = ("", *laid.heads), [(str(number), *row) for number, row in enumerate(laid.rows, start=1)]
    return _html_table(Laid(heads, tuple(rows)))


def _html_table(laid: Laid) -> str:
    heads = "".join(f"<th>{html_text(head)}</th>" for head in laid.heads)
    rows = "\n".join(f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row)}</tr>" for row in laid.rows)
    return f'<div class="wide"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>'


def _notes(heading: Heading, summary: Summary) -> str:
    return "".join(f'<p class="note">{html_text(note)}</p>' for note in notes(heading, summary))


def _key() -> str:
    return (
        '<p class="note"><span class="key plans">plans, or is told the plan</span>, '
        '<span class="key fixed">does not plan</span>; '
        "the lines are 95 % intervals (Wilson)</p>"
    )


def _frontier() -> str:
    return (
        '<p class="note">The dashed line is the frontier of the systems that do not plan: what drawing at random '
        "between two of them reaches. A system above it is worth what it takes.</p>"
    )


def _differences(summary: Summary) -> str:
    """Each system against the best single worker, by card and in hindsight."""
    rows = []
    for number, row in enumerate(summary.rows, start=1):
        for versus, how in ((row.card, "by its card"), (row.hindsight, "in hindsight")):
            if versus is None:
                continue
            low, high = versus.interval
            paired = versus.paired
            rows.append((
                str(number), row.name, f"{versus.other}, {how}", points(versus.difference),
                f"{points(low)} to {points(high)}", chance(versus.p), str(paired.only_one), str(paired.only_other),
                str(paired.n),
            ))  # fmt: skip
    if not rows:
        return ""
    heads = ("", "SYSTEM", "AGAINST", "POINTS", "95 %", "P", "ONLY THIS RIGHT", "ONLY THAT RIGHT", "CASES")
    said = "Paired by case; the interval is Newcombe's (method 10), p McNemar's, exact and two-sided."
    return f'<h2>Against the best single worker</h2><p class="note">{said}</p>{_html_table(Laid(heads, tuple(rows)))}'


def _tags(summary: Summary) -> str:
    laid = by_tag(summary)
    if laid is None:
        return ""
    numbered = tuple((str(number), *row) for number, row in enumerate(laid.rows, start=1))
    return f"<h2>Accuracy by tag, %</h2>{_html_table(Laid(('', *laid.heads), numbered))}"


def _cases(cases: Sequence[Asked], outcomes: Iterable[Outcome], summary: Summary) -> str:
    if not cases:
        return ""
    shown = {case.id: case for case in cases[:CASES]}
    said: dict[str, dict[str, Outcome]] = {name: {} for name in shown}
    for outcome in outcomes:
        if outcome.case in said:
            said[outcome.case][outcome.system] = outcome
    names = [row.name for row in summary.rows]
    told = "\n".join(_case(case, said[case.id], names) for case in shown.values())
    more = f", the first {CASES} of {len(cases)}" if len(cases) > CASES else ""
    return f"<h2>Cases{more}</h2>\n{told}"


def _case(case: Asked, outcomes: Mapping[str, Outcome], names: Sequence[str]) -> str:
    there = [outcomes[name] for name in names if name in outcomes]
    right = sum(outcome.verdict == "right" for outcome in there)
    judged = sum(outcome.verdict != "failed" for outcome in there)
    share = percent(right / judged, 0) if judged else "-"
    rows = "\n".join(
        f'<tr><td>{html_text(outcome.system)}</td><td class="{outcome.verdict}">{outcome.verdict}</td>'
        f"<td>{_long(outcome.error or outcome.answer)}</td></tr>"
        for outcome in there
    )
    asked = f"<tr><th>asked</th><th></th><td>{_long(case.question)}</td></tr>"
    wanted = f"<tr><th>wanted</th><th></th><td>{_long(case.wanted)}</td></tr>"
    gist = html_text(case.question)
    gist = gist if len(case.question) <= 100 else f"{html_text(case.question[:100])} …"
    head = (
        f'<summary>{html_text(case.id)} <span class="note">{right} of {judged} right, {share} %</span> {gist}</summary>'
    )
    return f"<details>{head}<table>\n{asked}\n{wanted}\n{rows}\n</table></details>"


def _long(text: str) -> str:
    """A text as it stands, line ends and all, up to a length."""
    shown = sanitize(text)
    more = f" … ({len(shown) - LONGEST:,} characters more)" if len(shown) > LONGEST else ""
    return escape(shown[:LONGEST]) + more
