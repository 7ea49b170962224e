"""A run as one self-contained HTML file: no scripts, no other files, no network. Pure.

Workers may write anything, so control characters are removed from every value, and the template engine escapes it. The
page's own policy forbids scripts, forms and fetches in case one is missed.
"""

from __future__ import annotations

from conductor_cli.core.plan import Plan
from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.trace import Trace
from conductor_cli.views.run_lines import StepLayout, line_texts, run_lines
from conductor_cli.views.run_text import (
    describe_failure,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    question_line,
)
from conductor_cli.views.text_layout import WIDEST, Screen


def html_page(trace: Trace, *, live: bool = False) -> str:
    """The whole file: question, answer, the steps as `trace show` has them, and each with its prompt and answer."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import, and only pages need it

    environment = Environment(
        loader=PackageLoader("conductor_cli"), autoescape=True, undefined=StrictUndefined, finalize=_finalize,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["line"] = one_line
    facts = [describe_totals(trace, stored=True), f"{describe_setup(trace)}; started {trace.time}"]
    if trace.resumed:
        facts.append(f"resumes run {trace.resumed}")
    tree = "\n".join(line_texts(run_lines(trace, StepLayout(Screen(width=WIDEST), trace.at))))
    return environment.get_template("run.html.j2").render(
        title=one_line(question_line(trace)[:120] or trace.run), trace=trace, facts=facts,
        state="partial" if trace.partial else trace.state if trace.ended else "interrupted",
        outcome=describe_outcome(trace, live=live), tree=tree,
        reasoning=trace.plan.reasoning if isinstance(trace.plan, Plan) else "",
        describe_worker=describe_worker, describe_failure=describe_failure,
    )  # fmt: skip


def _finalize(value: object) -> object:
    """What the template prints for a value. Markup, which is a subclass of `str`, is what a macro has rendered."""
    return sanitize(value) if type(value) is str else value
