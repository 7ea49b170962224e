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
from functools import cache, lru_cache
from html import escape
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from conductor_cli.core.formatting import UNKNOWN, format_cost_cell, format_duration
from conductor_cli.core.plan import Plan
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.markdown_rules import keep_all_text
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
from conductor_cli.views.run_tree import TreeLayout, stored_tree, tree_lines
from conductor_cli.views.text_layout import MAX_COLUMNS, Screen, line_texts

if TYPE_CHECKING:
    from jinja2 import Template
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

MIN_BAR_PERCENT: Final = 0.8  # Shown of a bar, however short it was


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

    def kinds(self) -> set[str]:
        """Return the kinds of all bars."""
        bars = chain.from_iterable(row.bars for row in self.rows)
        return {bar.kind for bar in bars}


def timeline(trace: Trace, *, live: bool = False) -> Timeline:
    """Return the planner and all steps that have started; `live` if the run still goes on.

    Those of nested runs stand below the step that they belong to.
    """
    axis = _Axis(max(trace.at, 0.0))
    rows = list[TimelineRow]()
    if trace.planning.calls or trace.plan_text:
        # Until the last step was planned
        end = max((record.planned for record in trace.steps), default=trace.at)
        planning = axis.bar("planning", 0.0, end, "planning")
        rows.append(TimelineRow("planner", format_duration(end), (planning,)))
    is_interrupted = not (live or trace.ended)
    rows += _step_rows(trace, axis, begin=0.0, outer="", is_interrupted=is_interrupted)
    ticks = tuple(format_duration(axis.seconds * part) for part in (0, 0.5, 1))
    return Timeline(tuple(rows), ticks)


class _Axis(NamedTuple):
    """How long the whole run took, and so where a bar stands."""

    seconds: float

    def bar(self, kind: str, start: float, end: float, title: str) -> Bar:
        if self.seconds <= 0:
            return Bar(kind, 0.0, 100.0, title)
        first = self._percent(start)
        length = max(self._percent(end) - first, MIN_BAR_PERCENT)
        return Bar(kind, min(first, 100 - length), length, title)

    def _percent(self, seconds: float) -> float:
        return min(max(100 * seconds / self.seconds, 0.0), 100.0)


def _step_rows(
    run: Trace, axis: _Axis, *, begin: float, outer: str, is_interrupted: bool
) -> Iterator[TimelineRow]:
    """Yield a row for each step of a run that began at `begin`, each before its nested run."""
    for record in run.steps:
        if record.started is None and not record.failed:
            continue
        number = f"{outer}{record.number}"
        bars = [*_attempt_bars(record, axis, begin)]
        has_own_bar = record.state != "failed" or not record.failed
        if record.started is not None and has_own_bar:
            start = record.started if record.attempted is None else record.attempted
            end = run.at if record.ended is None else record.ended
            state = "interrupted" if is_interrupted and record.ended is None else record.state
            title = f"{short_name(record.worker)} {state}"
            bars.append(axis.bar(state, begin + start, begin + end, title))
        took = format_duration(record.seconds(run.at))
        yield TimelineRow(f"{number} {short_name(record.worker)}", took, tuple(bars))
        if record.nested is not None:
            start = begin + (record.started or 0.0)
            yield from _step_rows(
                record.nested,
                axis,
                begin=start,
                outer=f"{number}.",
                is_interrupted=is_interrupted,
            )


def _attempt_bars(record: StepRecord, axis: _Axis, begin: float) -> Iterator[Bar]:
    """Yield a bar for each attempt that failed, and for the wait after it."""
    for attempt in record.failed:
        if attempt.started is None:
            continue  # this worker was not asked at all
        title = f"{one_line(attempt.worker)}, attempt {attempt.attempt} failed: "
        title += one_line(attempt.message)[:MAX_MESSAGE]
        end = begin + attempt.ended
        yield axis.bar("failed", begin + attempt.started, end, title)
        if attempt.retry_in:
            waited = f"waited {format_duration(attempt.retry_in)}"
            yield axis.bar("waited", end, end + attempt.retry_in, waited)


MAX_MARKDOWN_CHARACTERS: Final = 200_000
"""Characters that are parsed; a longer text is shown as it was written."""

_PAIRED_TOKENS: Final = frozenset(
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
_LEAF_TOKENS: Final = frozenset(
    {"inline", "text", "code_inline", "code_block", "fence", "hr", "softbreak", "hardbreak"}
)
_ALIGNMENT_CLASSES: Final = {"text-align:right": "right", "text-align:center": "center"}
_HEADING_SHIFT: Final = 2
"""How many levels the headings of a text are below their own: the page has headings above them."""


def markdown_html(text: str) -> str:
    """Return the HTML of a text, safe to put into a page as it is."""
    text = sanitize(text)
    if len(text) <= MAX_MARKDOWN_CHARACTERS:
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
    parser.enable(["table", "strikethrough"]).disable(["reference", "image"])
    return keep_all_text(parser)


def _harmless(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens without what could act. An unknown kind becomes its text."""
    addresses: list[str] = []
    for token in tokens:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if kind == "link":
            yield _without_link(token, addresses)
        elif kind in _PAIRED_TOKENS or kind in _LEAF_TOKENS:
            yield _harmless_token(token, kind)
        else:
            yield _as_text(token, token.content)


def _without_link(token: Token, addresses: list[str]) -> Token:
    """Return a text for the begin or the end of a link; `addresses` has the links that are open.

    It is empty where the link begins, and its address where it ends, unless the link's text is the
    address.
    """
    if token.nesting == 1:
        is_address = token.markup == "autolink"
        addresses.append("" if is_address else str(token.attrs.get("href", "")))
        return _as_text(token, "")
    address = addresses.pop() if addresses else ""
    return _as_text(token, f" ({address})" if address else "")


def _harmless_token(token: Token, kind: str) -> Token:
    """Return the token with only those of its attributes that a page needs."""
    token.attrs = _kept_attributes(token, kind)
    token.info = ""  # the language of a block of code would become a class
    # Entities have become characters by now, which may be unsafe ones.
    token.content = sanitize(token.content)
    if kind == "heading":
        token.tag = f"h{min(6, int(token.tag[1:]) + _HEADING_SHIFT)}"
    if token.children is not None:
        token.children = list(_harmless(token.children))
    return token


def _kept_attributes(token: Token, kind: str) -> dict[str, str | int | float]:
    start = token.attrs.get("start")
    if kind == "ordered_list" and isinstance(start, int):
        return {"start": start}
    # A class, because a page allows no styles of texts
    alignment = _ALIGNMENT_CLASSES.get(str(token.attrs.get("style", "")))
    return {"class": alignment} if alignment else {}


def _as_text(token: Token, text: str) -> Token:
    token.type = "text"
    token.tag = ""
    token.nesting = 0
    token.attrs = {}
    token.content = sanitize(text)
    token.children = None
    token.block = False
    return token


_BAR_LEGEND: Final = (
    ("planning", "planning"),
    ("done", "answered"),
    ("failed", "failed attempt"),
    ("waited", "wait before the next"),
)
"""The kinds of bars that the key under the timeline explains."""


def html_page(trace: Trace, *, live: bool = False) -> str:
    """Return the whole file.

    Question, answer, plan and times as drawings, and each step with its prompt and response.
    """
    root = stored_tree(trace, live=live)
    above_tree = {notice.text for notice in trace.notices}
    below_root = []
    for node in root.children:
        is_above = node.kind == "note" and node.label in above_tree
        if not is_above:
            below_root.append(node)
    times = timeline(trace, live=live)
    return _page_template().render(
        title=one_line(question_line(trace)[:120] or trace.run),
        trace=trace,
        question=trace.question,
        facts=page_facts(trace),
        state=trace.outcome(live=live),
        outcome=describe_outcome(trace, live=live),
        told=[describe_notice(notice) for notice in trace.all_notices()],
        times=times,
        kinds=times.kinds(),
        keys=_BAR_LEGEND,
        usage=list(usage_rows(trace)),
        tree=tree_text(trace, live=live),
        reasoning=trace.plan.reasoning if isinstance(trace.plan, Plan) else "",
        marks=MARKS,
        root=replace(root, children=tuple(below_root)),
        records=dict(_records(trace)),
    )


@cache
def _page_template() -> Template:
    """Return the template of a page, which takes 60 ms to compile: once in a process."""
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
    return environment.get_template("run.html.j2")


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


def tree_text(trace: Trace, *, live: bool) -> str:
    """Return the plan as a tree of lines; `live` if the run still goes on."""
    layout = TreeLayout(Screen(width=MAX_COLUMNS), ended=10)
    return "\n".join(line_texts(tree_lines(stored_tree(trace, live=live), layout)))


def _finalize(value: object) -> object:
    """Return what the template prints for a value.

    Markup, a subclass of `str`, is what a macro has rendered.
    """
    if type(value) is str:
        return sanitize(value)
    if isinstance(value, float):
        return f"{value:.1f}"
    return value


def _records(trace: Trace, outer: str = "") -> Iterator[tuple[str, StepRecord]]:
    """Yield every step by its number in the tree, `2.1` for step 1 of the run nested in step 2."""
    for record in trace.steps:
        yield f"{outer}{record.number}", record
        if record.nested is not None:
            yield from _records(record.nested, f"{outer}{record.number}.")


def usage_rows(trace: Trace) -> Iterator[tuple[str, ...]]:
    """Yield what the planner, each step and all together used, in the words of the page's table."""
    used = list[tuple[str, Usage]]()
    if trace.planning.calls:
        used.append(("planner", trace.planning))
    used += [(f"{record.number} {describe_worker(record)}", record.usage) for record in trace.steps]
    for label, usage in [*used, ("total", trace.usage)]:
        if usage.calls:
            cost = format_cost_cell(usage.cost, usage.unpriced)
            yield label, f"{usage.tokens_in:,}", f"{usage.tokens_out:,}", f"{usage.calls:,}", cost
        else:
            yield label, UNKNOWN, UNKNOWN, "0", UNKNOWN
