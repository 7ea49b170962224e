"""A run as one HTML file that needs nothing else: no script, no other file, no network. Pure.

What workers wrote may be anything; each text goes through `escape`, and the page's own policy forbids scripts, forms
and every fetch, so that a mistake here would not run either.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.html import html_text
from conductor_cli.core.plan import Plan
from conductor_cli.core.sanitize import sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.run_text import (
    describe_access,
    describe_failure,
    describe_outcome,
    describe_setup,
    describe_totals,
    question_line,
    quote_text,
)
from conductor_cli.views.timeline import timeline

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
    """The whole file: question, timeline, steps with prompts and answers, notices, answer."""
    title = question_line(trace)[:120] or trace.run
    body = "\n".join(part for part in _parts(trace, title, live) if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _parts(trace: Trace, title: str, live: bool) -> Iterator[str]:  # noqa: FBT001 - as its caller was told
    state = "partial" if trace.partial else trace.state if trace.ended else "interrupted"
    yield f"<h1>{html_text(title)}</h1>"
    yield f'<p class="note"><span class="state {state}">{html_text(describe_outcome(trace, live=live))}</span></p>'
    yield _note(describe_totals(trace, kept=True))
    yield _note(f"{describe_setup(trace)}; begun {trace.time}")
    yield _note(f"resumes run {trace.resumed}") if trace.resumed else ""
    if len(trace.question.text) > len(title):
        yield f"<h2>Question</h2>\n{_text(trace.question.text)}"
    yield from (f"{_note(f'file {file.name}')}\n{_text(file.text)}" for file in trace.question.files)
    yield f"<h2>Answer</h2>\n{_text(trace.answer, 'answer')}" if trace.answer else ""
    yield f"<h2>Timeline</h2>\n{timeline(trace)}"
    yield _note("Dashes: the step is planned and waits. Colours say how it ended, as the words below do.")
    yield "<h2>Steps</h2>\n" + "\n".join(_step(record, trace.at) for record in trace.steps) if trace.steps else ""
    if isinstance(trace.plan, Plan) and trace.plan.reasoning:
        yield f"<details><summary>What the conductor reasoned</summary>{_text(trace.plan.reasoning)}</details>"
    if trace.notices:
        yield "<h2>Notices</h2>\n" + "\n".join(_note(notice.text) for notice in trace.notices)


def _step(record: StepRecord, now: float) -> str:
    """A step to be opened: its subtask, what its worker was sent, thought and answered."""
    state = f'<span class="state {record.state}">{record.state}</span>'
    usage = record.usage
    took = [
        format_duration(record.seconds(now)),
        format_count(usage.tokens, "token"),
        format_cost(usage),
    ]
    told = ", ".join([record.worker, describe_access(record.step.access), *filter(None, took)])
    head = f"{record.number}. {told}: {quote_text(record.step.subtask)}"
    parts = [f"<summary>{state} {html_text(head)}</summary>", _note("subtask"), _text(record.step.subtask)]
    if record.error is not None:
        parts.append(_note(f"failed: {describe_failure(record.error)}"))
    if record.nested is not None:
        parts += [_step(inner, record.nested.at) for inner in record.nested.steps]
    parts += [
        f"<details><summary>prompt ({html_text(message.role)})</summary>{_text(message.content)}</details>"
        for message in record.prompt
    ]
    parts += [f"<details><summary>thinking</summary>{_text(record.thinking)}</details>"] if record.thinking else []
    parts += [_note("answer"), _text(record.text)] if record.text else []
    return f"<details>{''.join(parts)}</details>"


def _note(text: str) -> str:
    return f'<p class="note">{html_text(text)}</p>'


def _text(text: str, kind: str = "text") -> str:
    """A text as it stands, line ends and all."""
    return f'<pre class="{kind}">\n{escape(sanitize(text))}</pre>'
