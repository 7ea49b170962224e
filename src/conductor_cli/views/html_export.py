"""A run as one self-contained HTML file: no scripts, no other files, no network. Pure.

Workers may write anything, so control characters are removed from every value, and the template engine escapes it.
Only `markdown_html` makes HTML of a text, and takes out what could act. The page's own policy forbids scripts, forms
and fetches in case one is missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell
from conductor_cli.core.plan import Plan
from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.markdown_html import markdown_html
from conductor_cli.views.plan_graph import MARKS, plan_graph
from conductor_cli.views.run_text import (
    LONGEST_MESSAGE,
    describe_access,
    describe_file,
    describe_notice,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    message_text,
    question_line,
)
from conductor_cli.views.run_tree import Node, run_tree
from conductor_cli.views.text_layout import WIDEST, Screen, line_texts
from conductor_cli.views.timeline import timeline
from conductor_cli.views.tree_lines import TreeLayout, tree_lines

_KEYS: Final = (
    ("planning", "planning"), ("done", "answered"), ("failed", "failed attempt"), ("waited", "wait before the next"),
)  # fmt: skip
"""The kinds of bars that the key under the timeline explains."""


def html_page(trace: Trace, *, live: bool = False) -> str:
    """The whole file: question, answer, plan and times as drawings, and each step with its prompt and response."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and only pages need it

    environment = Environment(
        loader=PackageLoader("conductor_cli"), autoescape=True, undefined=StrictUndefined, finalize=_finalize,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["line"] = one_line
    environment.filters["markdown"] = markdown_html
    facts = [describe_totals(trace, stored=True), f"{describe_setup(trace)}; started {trace.time}"]
    if trace.resumed:
        facts.append(f"resumes run {trace.resumed}")
    root = run_tree(trace)
    tree = "\n".join(line_texts(tree_lines(root, TreeLayout(Screen(width=WIDEST), ended=10))))
    times = timeline(trace)
    return environment.get_template("run.html.j2").render(
        title=one_line(question_line(trace)[:120] or trace.run), trace=trace, question=trace.question, facts=facts,
        state="partial" if trace.partial else trace.state if trace.ended else "interrupted",
        outcome=describe_outcome(trace, live=live), told=[describe_notice(notice) for notice in trace.told()],
        drawn=plan_graph(trace), times=times, kinds={bar.kind for row in times.rows for bar in row.bars}, keys=_KEYS,
        usage=list(usage_rows(trace)), tree=tree,
        reasoning=trace.plan.reasoning if isinstance(trace.plan, Plan) else "", marks=MARKS,
        root=_without_notices(root, trace), records=dict(_records(trace)), longest=LONGEST_MESSAGE,
        describe_worker=describe_worker, describe_access=describe_access, describe_file=describe_file,
        message_text=message_text,
    )  # fmt: skip


def _finalize(value: object) -> object:
    """What the template prints for a value. Markup, which is a subclass of `str`, is what a macro has rendered."""
    if type(value) is str:
        return sanitize(value)
    return f"{value:.1f}" if isinstance(value, float) else value


def _records(trace: Trace, outer: str = "") -> Iterator[tuple[str, StepRecord]]:
    """Every step by its number in the tree, `2.1` for step 1 of the run nested in step 2."""
    for record in trace.steps:
        yield f"{outer}{record.number}", record
        if record.nested is not None:
            yield from _records(record.nested, f"{outer}{record.number}.")


def _without_notices(root: Node, trace: Trace) -> Node:
    """The tree without the notices at its root, which are told above it."""
    told = {notice.text for notice in trace.notices}
    return replace(
        root, children=tuple(node for node in root.children if node.kind != "note" or node.label not in told)
    )


def usage_rows(trace: Trace) -> Iterator[tuple[str, ...]]:
    """What the planner, each step and all together used, in the words of the page's table."""
    if trace.planning.calls:
        yield _usage_row("planner", trace.planning)
    for record in trace.steps:
        yield _usage_row(f"{record.number} {describe_worker(record)}", record.usage)
    yield _usage_row("total", trace.usage)


def _usage_row(label: str, usage: Usage) -> tuple[str, ...]:
    if not usage.calls:
        return (label, UNKNOWN, UNKNOWN, "0", UNKNOWN)
    cost = format_cost_cell(usage.cost, usage.unpriced)
    return (label, f"{usage.tokens_in:,}", f"{usage.tokens_out:,}", f"{usage.calls:,}", cost)
