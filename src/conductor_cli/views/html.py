"""A run as one self-contained HTML file: no scripts, no other files, no network. Pure.

Workers may write anything, so control characters are removed from every value, and the template
engine escapes it. Only `markdown_html` makes HTML of a text, and takes out what could act. The
page's own policy forbids scripts, forms and fetches in case one is missed.

Of Markdown that a model wrote, only tokens of the kinds named here keep their element, and no
element keeps an attribute of the text. The address of a link is shown as text, because a reader who
is not able to see it would have to trust it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_duration
from conductor_cli.core.plan import Plan
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.run_text import (
    MAX_MESSAGE,
    describe_access,
    describe_file,
    describe_notice,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    message_text,
    question_line,
    short_name,
)
from conductor_cli.views.run_tree import TreeLayout, run_tree, tree_lines
from conductor_cli.views.text_layout import WIDEST, Screen, line_texts

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


MARKS: Final = {
    "done": "✓",
    "failed": "✗",
    "stopped": "■",
    "skipped": "–",
    "running": "●",
    "waiting": "○",
}
"""What stands for each state of a step, always beside its word."""

LEAST: Final = 0.8  # Percent of a bar that is shown, however short it was


class Bar(NamedTuple):
    """What happened from `start` on, for `length` percent of the time.

    A state of a step, `planning` or `waited`.

    An attempt that failed is a bar of its own, and so is the wait after it.
    """

    kind: str
    start: float
    length: float
    title: str


class TimelineRow(NamedTuple):
    """The planner or one worker at one step: the label, how long it took in all, and its bars."""

    label: str
    took: str
    bars: tuple[Bar, ...]


class Timeline(NamedTuple):
    """The rows, and what the beginning, the middle and the end of the axis are called."""

    rows: tuple[TimelineRow, ...]
    ticks: tuple[str, ...]


def timeline(trace: Trace) -> Timeline:
    """The planner and all steps that have started, those of nested runs below the step they belong
    to.
    """
    whole = max(trace.at, 0.0)
    rows = list[TimelineRow]()

    def bar(kind: str, start: float, end: float, title: str) -> Bar:
        if whole <= 0:
            return Bar(kind, 0.0, 100.0, title)
        first, last = (min(max(100 * at / whole, 0.0), 100.0) for at in (start, end))
        length = max(last - first, LEAST)
        return Bar(kind, min(first, 100 - length), length, title)

    def add_steps(run: Trace, begin: float, outer: str) -> None:
        for record in run.steps:
            if record.started is None and not record.failed:
                continue
            number = f"{outer}{record.number}"
            worker = short_name(record.worker)
            bars = list[Bar]()
            for failed in record.failed:
                if failed.started is None:
                    continue  # this worker was not asked at all
                what = f"{one_line(failed.worker)}, attempt {failed.attempt} failed: "
                what += one_line(failed.message)[:MAX_MESSAGE]
                after = begin + failed.ended
                bars.append(bar("failed", begin + failed.started, after, what))
                if failed.retry_in:
                    bars.append(
                        bar(
                            "waited",
                            after,
                            after + failed.retry_in,
                            f"waited {format_duration(failed.retry_in)}",
                        )
                    )
            if record.started is not None and (record.state != "failed" or not record.failed):
                start = record.started if record.attempted is None else record.attempted
                end = run.at if record.ended is None else record.ended
                bars.append(
                    bar(record.state, begin + start, begin + end, f"{worker} {record.state}")
                )
            rows.append(
                TimelineRow(
                    f"{number} {worker}", format_duration(record.seconds(run.at)), tuple(bars)
                )
            )
            if record.nested is not None:
                add_steps(record.nested, begin + (record.started or 0.0), f"{number}.")

    if trace.planning.calls or trace.plan_text:
        # Until the last step was planned
        end = max((record.planned for record in trace.steps), default=trace.at)
        rows.append(
            TimelineRow("planner", format_duration(end), (bar("planning", 0.0, end, "planning"),))
        )
    add_steps(trace, 0.0, "")
    return Timeline(tuple(rows), tuple(format_duration(whole * part) for part in (0, 0.5, 1)))


LONGEST: Final = 200_000  # Characters that are parsed; a longer text is shown as it was written

_BLOCKS: Final = frozenset(
    {
        "paragraph",
        "heading",
        "blockquote",
        "bullet_list",
        "ordered_list",
        "list_item",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "em",
        "strong",
        "s",
    }
)
"""Tokens that open and close an element."""
_SINGLE: Final = frozenset(
    {"inline", "text", "code_inline", "code_block", "fence", "hr", "softbreak", "hardbreak"}
)
_ALIGNED: Final = {"text-align:right": "right", "text-align:center": "center"}
# How many levels the headings of a text are below their own: the page has headings above them
_DEEPER: Final = 2


def markdown_html(text: str) -> str:
    """The HTML of a text, safe to put into a page as it is."""
    text = sanitize(text)
    if len(text) <= LONGEST:
        try:
            parser = _parser()
            tokens = list(_harmless(parser.parse(text)))
            return parser.renderer.render(tokens, parser.options, {})  # type: ignore[no-any-return] # it returns a text
        except Exception:  # noqa: BLE001, S110 - whatever a parser fails on, the text is shown
            pass
    return f"<pre>{escape(text)}</pre>\n"


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # only pages need it

    # Models write one line per thought, so line breaks are kept. Definitions would make links of
    # other parts.
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": False})
    return parser.enable(["table", "strikethrough"]).disable(["reference", "image"])


def _harmless(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens without what could act. An unknown kind becomes its text."""
    addresses: list[str] = []
    for token in tokens:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind == "link":
            # Nothing where a link begins, and its address where it ends, unless the link's text is
            # the address.
            address = addresses.pop() if token.nesting != 1 and addresses else ""
            if token.nesting == 1:
                addresses.append(
                    "" if token.markup == "autolink" else str(token.attrs.get("href", ""))
                )
            yield _as_text(token, f" ({address})" if address else "")
            continue
        if kind not in _BLOCKS | _SINGLE:
            yield _as_text(token, token.content)
            continue
        start = token.attrs.get("start") if kind == "ordered_list" else None
        # A class, because a page allows no styles of texts
        align = _ALIGNED.get(str(token.attrs.get("style", "")))
        token.attrs = (
            {"start": start} if isinstance(start, int) else {"class": align} if align else {}
        )
        token.info = ""  # the language of a block of code would become a class
        # Entities have become characters by now, which may be unsafe ones.
        token.content = sanitize(token.content)
        if kind == "heading":
            token.tag = f"h{min(6, int(token.tag[1:]) + _DEEPER)}"
        if token.children is not None:
            token.children = list(_harmless(token.children))
        yield token


def _as_text(token: Token, text: str) -> Token:
    token.type = "text"
    token.tag = ""
    token.nesting = 0
    token.attrs = {}
    token.content = sanitize(text)
    token.children = None
    token.block = False
    return token


_KEYS: Final = (
    ("planning", "planning"),
    ("done", "answered"),
    ("failed", "failed attempt"),
    ("waited", "wait before the next"),
)
"""The kinds of bars that the key under the timeline explains."""


def html_page(trace: Trace, *, live: bool = False) -> str:
    """The whole file.

    Question, answer, plan and times as drawings, and each step with its prompt and response.
    """
    # Slow to import, and only pages need it
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("conductor_cli"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = one_line
    environment.filters["markdown"] = markdown_html
    environment.globals |= {
        "describe_access": describe_access,
        "describe_file": describe_file,
        "describe_worker": describe_worker,
        "message_text": message_text,
        "max_message": MAX_MESSAGE,
    }
    root = run_tree(trace)
    told = {notice.text for notice in trace.notices}  # above the tree
    others = tuple(node for node in root.children if node.kind != "note" or node.label not in told)
    times = timeline(trace)
    return environment.get_template("run.html.j2").render(
        title=one_line(question_line(trace)[:120] or trace.run),
        trace=trace,
        question=trace.question,
        facts=page_facts(trace),
        state=trace.outcome(),
        outcome=describe_outcome(trace, live=live),
        told=[describe_notice(notice) for notice in trace.all_notices()],
        times=times,
        kinds={bar.kind for row in times.rows for bar in row.bars},
        keys=_KEYS,
        usage=list(usage_rows(trace)),
        tree=tree_text(trace),
        reasoning=trace.plan.reasoning if isinstance(trace.plan, Plan) else "",
        marks=MARKS,
        root=replace(root, children=others),
        records=dict(_records(trace)),
    )


def page_facts(trace: Trace) -> list[str]:
    """Return what a page says of a run below its title: figures, who planned it and when."""
    started = trace.time
    with suppress(ValueError):  # a text that is no time stays as it is
        then = datetime.fromisoformat(trace.time).astimezone(UTC)
        started = f"{then.day} {then:%B %Y, %H:%M} UTC"
    facts = [
        describe_totals(trace, stored=True),
        f"{describe_setup(trace)}; started {started}",
    ]
    if trace.resumed:
        facts.append(f"resumes run {trace.resumed}")
    return facts


def tree_text(trace: Trace) -> str:
    """The plan as a tree of lines."""
    return "\n".join(
        line_texts(tree_lines(run_tree(trace), TreeLayout(Screen(width=WIDEST), ended=10)))
    )


def _finalize(value: object) -> object:
    """Return what the template prints for a value.

    Markup, a subclass of `str`, is what a macro has rendered.
    """
    if type(value) is str:
        return sanitize(value)
    return f"{value:.1f}" if isinstance(value, float) else value


def _records(trace: Trace, outer: str = "") -> Iterator[tuple[str, StepRecord]]:
    """Every step by its number in the tree, `2.1` for step 1 of the run nested in step 2."""
    for record in trace.steps:
        yield f"{outer}{record.number}", record
        if record.nested is not None:
            yield from _records(record.nested, f"{outer}{record.number}.")


def usage_rows(trace: Trace) -> Iterator[tuple[str, ...]]:
    """Yield what the planner, each step and all together used, in the words of the page's table."""
    used = [("planner", trace.planning)] if trace.planning.calls else []
    used += [(f"{record.number} {describe_worker(record)}", record.usage) for record in trace.steps]
    for label, usage in [*used, ("total", trace.usage)]:
        if usage.calls:
            cost = format_cost_cell(usage.cost, usage.unpriced)
            yield label, f"{usage.tokens_in:,}", f"{usage.tokens_out:,}", f"{usage.calls:,}", cost
        else:
            yield label, UNKNOWN, UNKNOWN, "0", UNKNOWN
