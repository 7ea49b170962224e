"""A run as one self-contained HTML file: no scripts, no other files, no network. Pure.

Workers may write anything, so every text is escaped, and the page's own policy forbids scripts, forms and fetches in
case one is missed. The timeline is SVG: times are shares of the width, everything else is in pixels, so that it can be
read on a phone too.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from conductor_cli.core.formatting import axis_ticks, format_cost, format_count, format_duration
from conductor_cli.core.plan import Plan
from conductor_cli.core.sanitize import html_text, one_line, sanitize
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

ROW_HEIGHT: Final = 40
"""Pixels for a name and the bar below it."""

BAR_HEIGHT: Final = 14
LONGEST_NAME: Final = 40
"""Characters of a worker's name above its bar; the bar's title has the whole name."""

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2129; --soft: #667085; --line: #d8dce3; --back: #ffffff; --band: #f5f6f8;
  --plan: #8a6fc9; --done: #2f8f5b; --failed: #b42318; --going: #b5820f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ec; --soft: #98a2b3; --line: #353b47; --back: #14171c;
  --band: #1c2027; --plan: #b7a3ea; --done: #5fd39a; --failed: #ff8a80; --going: #f2c14e; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.35rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.note { color: var(--soft); margin: .2rem 0; overflow-wrap: anywhere; }
pre { background: var(--band); border: 1px solid var(--line); border-radius: 6px; padding: .7rem .9rem;
  white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, monospace; margin: .4rem 0; }
pre.answer { border-left: 4px solid var(--done); }
details { border-bottom: 1px solid var(--line); padding: .45rem 0; }
details details { border-bottom: 0; margin-left: 1.2rem; } details .note { margin-top: .5rem; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.state { font-weight: 600; } .done, .finished { color: var(--done); } .failed, .partial { color: var(--failed); }
.stopped, .skipped, .running, .waiting, .interrupted { color: var(--going); }
svg { width: 100%; overflow: visible; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); } .waits { stroke: var(--soft); stroke-width: 2; stroke-dasharray: 3 3; }
.bar { fill: var(--going); } .bar.plan { fill: var(--plan); } .bar.done { fill: var(--done); }
.bar.failed { fill: var(--failed); }
"""


def html_page(trace: Trace, *, live: bool = False) -> str:
    """The whole file: question, answer, timeline, steps with prompts and answers, notices."""
    title = question_line(trace)[:120] or trace.run
    body = "\n".join(_body(trace, title, live=live))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(trace: Trace, title: str, *, live: bool) -> Iterator[str]:
    state = "partial" if trace.partial else trace.state if trace.ended else "interrupted"
    yield f"<h1>{html_text(title)}</h1>"
    yield f'<p class="note"><span class="state {state}">{html_text(describe_outcome(trace, live=live))}</span></p>'
    yield _note(describe_totals(trace, stored=True))
    yield _note(f"{describe_setup(trace)}; started {trace.time}")
    if trace.resumed:
        yield _note(f"resumes run {trace.resumed}")
    if len(trace.question.text) > len(title):
        yield f"<h2>Question</h2>\n{_preformatted(trace.question.text)}"
    for file in trace.question.files:
        yield f"{_note(f'file {file.name}')}\n{_preformatted(file.text)}"
    if trace.answer:
        yield f"<h2>Answer</h2>\n{_preformatted(trace.answer, 'answer')}"
    yield f"<h2>Timeline</h2>\n{timeline(trace)}"
    yield _note("A dashed line is a planned step that waits. Colours show how a step ended, as the words below do.")
    if trace.steps:
        yield "<h2>Steps</h2>"
    yield from (_step(record, trace.at) for record in trace.steps)
    if isinstance(trace.plan, Plan) and trace.plan.reasoning:
        yield _details("The conductor's reasoning", trace.plan.reasoning)
    if trace.notices:
        yield "<h2>Notices</h2>"
    yield from (_note(notice.text) for notice in trace.notices)


def _step(record: StepRecord, now: float) -> str:
    """A step that can be opened: its subtask, what its worker was sent, its reasoning and its answer."""
    usage = record.usage
    facts = (
        describe_worker(record), describe_access(record.step.access), format_duration(record.seconds(now)),
        format_count(usage.tokens, "token"), format_cost(usage),
    )  # fmt: skip
    head = f"{record.number}. {', '.join(filter(None, facts))}: {quote_text(record.step.subtask)}"
    state = f'<span class="state {record.state}">{record.state}</span>'
    parts = [f"<summary>{state} {html_text(head)}</summary>", _note("subtask"), _preformatted(record.step.subtask)]
    if record.error is not None:
        parts.append(_note(f"failed: {describe_failure(record.error)}"))
    if record.nested is not None:
        parts += [_step(step, record.nested.at) for step in record.nested.steps]
    parts += [_details(f"prompt ({message.role})", message.content) for message in record.prompt]
    parts += [_details("thinking", record.thinking)] if record.thinking else []
    parts += [_note("answer"), _preformatted(record.text)] if record.text else []
    return f"<details>{''.join(parts)}</details>"


def _note(text: str) -> str:
    return f'<p class="note">{html_text(text)}</p>'


def _details(title: str, text: str) -> str:
    return f"<details><summary>{html_text(title)}</summary>{_preformatted(text)}</details>"


def _preformatted(text: str, kind: str = "text") -> str:
    """A text with its line ends."""
    return f'<pre class="{kind}">\n{escape(sanitize(text))}</pre>'


# The timeline


def timeline(trace: Trace) -> str:
    """One row for the planning and one for each step, those of a nested run after the step that it is."""
    steps = list(timed_steps(trace))
    latest = max([trace.at, *(start + end for _, start, _, end in steps)])
    latest = latest if latest > 0 else 1.0
    ticks = axis_ticks(latest)
    scale = TIMELINE_WIDTH / max(latest, ticks[-1])
    bottom = ROW_HEIGHT * (len(steps) + 1) + 8
    planned = max((record.planned for record in trace.steps), default=trace.at)
    parts = [_tick(tick * scale, bottom, f"{tick:g} s") for tick in ticks]
    parts.append(_row(0, "plan", _bar(0, 0.0, planned * scale, "plan", f"planned in {format_duration(planned)}")))
    for index, (number, start, record, end) in enumerate(steps, start=1):
        name = one_line(record.worker)
        label = f"{number} {name if len(name) <= LONGEST_NAME else f'{name[: LONGEST_NAME - 2]}..'}"
        began = end if record.started is None else record.started
        marks = _waiting_line(index, (start + record.planned) * scale, (start + began) * scale)
        if record.started is not None:
            what = f"step {number}, {name}: {record.state}, {format_duration(record.seconds(end))}"
            marks += _bar(index, (start + began) * scale, (start + end) * scale, record.state, what)
        parts.append(_row(index, label, marks))
    title = "When each step waited and worked"
    inner = "\n".join(parts)
    return f'<svg role="img" height="{bottom + 22}" aria-label="{title}"><title>{title}</title>\n{inner}\n</svg>'


def timed_steps(trace: Trace, start: float = 0.0, path: str = "") -> Iterator[tuple[str, float, StepRecord, float]]:
    """Every step: its number, `2.1` in a nested run; when its run started, by the outermost clock; and its end.

    A step without an end ends at the newest moment of its run.
    """
    for record in trace.steps:
        number = f"{path}{record.number}"
        yield number, start, record, trace.at if record.ended is None else record.ended
        if record.nested is not None:
            yield from timed_steps(record.nested, start + (record.started or 0.0), f"{number}.")


def _tick(x: float, bottom: int, label: str) -> str:
    line = f'<line class="grid" x1="{x:.2f}%" y1="4" x2="{x:.2f}%" y2="{bottom}"/>'
    anchor = "middle" if x else "start"
    return f'{line}<text class="tick" x="{x:.2f}%" y="{bottom + 16}" text-anchor="{anchor}">{label}</text>'


def _row(index: int, label: str, marks: str) -> str:
    return f'<text x="4" y="{ROW_HEIGHT * index + 20}">{escape(label)}</text>{marks}'


def _waiting_line(index: int, x1: float, x2: float) -> str:
    y = ROW_HEIGHT * index + 26 + BAR_HEIGHT // 2
    return f'<line class="waits" x1="{x1:.2f}%" y1="{y}" x2="{x2:.2f}%" y2="{y}"/>' if x2 > x1 else ""


def _bar(index: int, x1: float, x2: float, state: str, title: str) -> str:
    y, width = ROW_HEIGHT * index + 26, max(x2 - x1, 0.3)
    return (
        f'<rect class="bar {state}" x="{x1:.2f}%" y="{y}" width="{width:.2f}%" height="{BAR_HEIGHT}" rx="3">'
        f"<title>{html_text(title)}</title></rect>"
    )
