"""What the page draws of a run, as JSON values. Its texts are cleaned and bounded here. Pure.

The tree is that of every other view (`views/run_tree.py`). It is sent as it looks, since folding
events in JavaScript would be a second implementation.
"""

from __future__ import annotations

from typing import Any, Final

from conductor_cli.app.traces import (
    describe_stored_offer,
    may_edit_offered,
    may_replan_offered,
    recipients_of,
    stored_planned_flow,
)
from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer, Plan, to_written_name
from conductor_cli.core.pool import Worker
from conductor_cli.core.question import Question, shorten
from conductor_cli.core.terminal_text import one_line, reveal, sanitize
from conductor_cli.core.trace import ENDED, FailedAttempt, StepRecord, ToolRecord, Trace
from conductor_cli.core.usage import Price
from conductor_cli.models.recipients import recipient_of
from conductor_cli.views.html import Bar, Timeline, markdown_html, timeline, usage_rows
from conductor_cli.views.plan_text import plan_lines, planned_flow_lines
from conductor_cli.views.run_text import (
    describe_access,
    describe_file,
    describe_notice,
    describe_outcome,
    describe_setup,
    describe_totals,
    describe_worker,
    message_text,
    short_name,
    tool_name,
)
from conductor_cli.views.run_tree import GOING, Node, stored_tree
from conductor_cli.views.text_layout import Screen, line_texts
from conductor_cli.views.trace_text import usage_text

MAX_LABEL: Final = 1_000  # Characters of a question, a subtask or a remark in the tree
MAX_SUBTASK: Final = 10 * MAX_LABEL  # Characters of a subtask where its step is opened
MAX_WORKERS: Final = 100  # Rows of the table of workers
# Characters of a response in the tree: the last ones while it is written, the first ones later
MAX_TAIL: Final = 600
MAX_PAGE_TEXT: Final = 200_000  # Characters of each text of an opened step

ELLIPSIS: Final = "…"
_PLAN_SCREEN: Final = Screen(width=4000)  # The browser breaks the lines

Data = dict[str, Any]


def frame_data(trace: Trace, *, now: float | None = None, live: bool = False) -> Data:
    """Return a run as the page draws it, at a time in seconds by its own clock.

    Without a time it is that of the newest event.

    `state` is planning or an outcome (`core/trace.py`). `offer` is what a person has to approve
    before the run goes on, as `offer_data` gives it, or null. `parent` is the run that this one
    continues, or empty. `tree` is a node as `node_data` gives it. `times` are rows of bars in
    percent of the time so far. `usage` are rows of a table: who, tokens read, tokens written,
    calls, cost. `workers` are rows too: name, model, who reads what it is sent, and what a million
    tokens of input and of output cost; `more_workers` says how many others there are.
    """
    if now is not None:
        trace = fast_replace(trace, at=now)
    is_growing = live and not trace.ended
    return {
        "run": one_line(trace.run),
        "time": one_line(trace.time),
        "at": round(trace.at, 3),
        "state": trace.state if is_growing else trace.outcome(),
        "ended": trace.ended,
        "outcome": describe_outcome(trace, live=live),
        "offer": offer_data(trace) if is_growing else None,
        "parent": one_line(trace.question.parent or ""),
        "setup": describe_setup(trace),
        "totals": describe_totals(trace, stored=True),
        "notices": [_beginning(describe_notice(notice)) for notice in trace.all_notices()],
        "tree": tree_data(trace, live=live),
        "times": _timeline_data(timeline(trace, live=live)),
        "usage": [list(row) for row in usage_rows(trace)],
        "workers": [_worker_row(worker) for worker in trace.pool.workers[:MAX_WORKERS]],
        "more_workers": _count_of_rest(len(trace.pool.workers) - MAX_WORKERS, "more worker"),
    }


def offer_data(trace: Trace) -> Data | None:
    """Return what a run waits for a person to approve: when it was offered, and what it is.

    None where nobody is waited for. `kind` is plan, tool, or input for what a server of tools asks.
    """
    offer = trace.waits_for
    if offer is None:
        return None
    if isinstance(offer, ev.ToolOffered):
        who = one_line(offer.worker) or f"step {offer.step}"
        return {
            "kind": "tool",
            "at": offer.at,
            "text": _beginning(f"{who} wants to call {tool_name(offer)}"),
            "detail": sanitize(reveal(shorten(offer.call.arguments, MAX_PAGE_TEXT))),
        }
    if isinstance(offer, ev.InputAsked):
        text = f"{one_line(offer.server)} asks for something, which can be typed in its terminal."
        return {"kind": "input", "at": offer.at, "text": _beginning(text), "detail": ""}
    steps = format_count(len(trace.steps), "step")
    return {"kind": "plan", "at": offer.at, "text": f"The plan has {steps}.", "detail": ""}


def offered_plan_data(trace: Trace) -> Data:
    """Return the plan that a run waits to have approved: its words, who reads what, its steps.

    `plan` and `flow` are what a terminal prints. `steps` are as a plan file has them, `workers`
    the names that a step may have; `edits` and `replans` say what may be done with the plan.
    Raises `UsageError` where no plan is on offer.
    """
    offer = trace.waits_for
    if not isinstance(offer, ev.PlanOffered) or not isinstance(trace.plan, Plan):
        raise UsageError(f"run {one_line(trace.run)} waits for no approval of a plan")
    recipients = recipients_of(trace.pool)
    flow = planned_flow_lines(stored_planned_flow(trace), recipients, _PLAN_SCREEN)
    steps = list[Data]()
    for step in trace.plan.steps:
        worker = to_written_name(step.worker, trace.pool.names)
        subtask = sanitize(reveal(step.subtask))
        steps.append({"worker": worker, "subtask": subtask, "access": list(step.access)})
    workers = [*trace.pool.names, *(step["worker"] for step in steps)]
    return {
        "at": offer.at,
        "plan": "\n".join(line_texts(plan_lines(describe_stored_offer(trace), _PLAN_SCREEN))),
        "flow": "\n".join(line_texts(flow)),
        "steps": steps,
        "workers": list(dict.fromkeys(workers)),
        "edits": may_edit_offered(trace),
        "replans": may_replan_offered(trace),
    }


def _timeline_data(times: Timeline) -> Data:
    rows = list[Data]()
    for row in times.rows:
        bars = [_bar_data(bar) for bar in row.bars]
        rows.append({"label": row.label, "took": row.took, "bars": bars})
    return {"rows": rows, "ticks": list(times.ticks)}


def _bar_data(bar: Bar) -> Data:
    return {
        "kind": bar.kind,
        "start": round(bar.start, 2),
        "length": round(bar.length, 2),
        "title": bar.title,
    }


def _worker_row(worker: Worker) -> list[str]:
    """Return name, model, who reads what it is sent, and the prices of input and output."""
    names = [worker.name, worker.model_name, recipient_of(worker)]
    return [*map(_label, names), *_price_texts(worker.price)]


def _price_texts(price: Price | None) -> tuple[str, str]:
    if price is None:
        return "unknown", "unknown"
    if price.is_free:
        return "free", "free"
    prefix = "from " if price.longer else ""  # long calls cost more
    return prefix + format_money(price.input), prefix + format_money(price.output)


def tree_data(trace: Trace, *, live: bool) -> Data:
    """Return the tree of a run, as `node_data` gives it."""
    return node_data(stored_tree(trace, live=live))


def node_data(node: Node) -> Data:
    """Return a node of the tree with everything below it. Its texts are safe to show, and short."""
    is_growing = node.state in GOING
    text = node.text[:MAX_TAIL]
    if is_growing:
        text = node.text[-MAX_TAIL:]
    if node.answers:  # the answer has a place of its own
        text = ""
    return {
        "kind": node.kind,
        "state": node.state,
        "number": node.number,
        "name": _label(node.name),
        "label": _label(node.label),
        "remark": one_line(node.remark),
        "status": node.status,
        "figures": list(filter(None, node.figures)),
        "text": sanitize(text).strip("\n"),
        "thinking": node.thinking,
        "answers": node.answers,
        "children": [node_data(child) for child in node.children],
    }


def opened_step(trace: Trace, number: str) -> Data | None:
    """Return a step as it is opened: `title`, `facts` (a line each), and `sections`.

    None where there is none.

    A section has a title and a text, as `text` or as `html`, which is safe to put into a page.
    `more` is how many characters were left out at its end, and `whole` the command that prints all
    of them.
    """
    found = _find_step(trace, number)
    if found is None:
        return None
    run, record = found
    took = format_duration(record.seconds(run.at), tenths=record.state in ENDED)
    facts = [
        _beginning(one_line(record.step.subtask), MAX_SUBTASK),
        f"{record.state}, {describe_access(record.step.access)}",
        f"{took}, {usage_text(record.usage)}",
    ]
    whole = f"conductor trace show {one_line(trace.run)} --step {number}"
    if run is not trace:
        whole = _all_events_of(trace)
    return {
        "number": number,
        "title": f"{number}. {describe_worker(record)}",
        "facts": facts,
        "sections": [section | {"whole": whole} for section in _step_sections(record)],
    }


def _find_step(run: Trace, number: str) -> tuple[Trace, StepRecord] | None:
    """Return the run that a step is in, and the step, by a number such as 2.

    That of a step of a nested run is such as 2.1. None where there is no such step.
    """
    first, dot, rest = number.partition(".")
    for record in run.steps:
        if str(record.number) == first:
            return _find_step(record.nested or Trace(), rest) if dot else (run, record)
    return None


def _step_sections(record: StepRecord) -> list[Data]:
    sections = [
        _section(f"Prompt ({message.role})", message_text(message)) for message in record.prompt
    ]
    sections += [_attempt_section(attempt) for attempt in record.failed]
    for use in record.tools:
        sections += _tool_sections(use)
    if record.thinking:
        sections.append(_section("Thinking", record.thinking))
    if record.nested is None:
        sections.append(_section("Response", record.text, "rendered"))
    return sections


def _attempt_section(attempt: FailedAttempt) -> Data:
    title = f"Failed attempt {attempt.attempt}, {one_line(attempt.worker)}"
    if attempt.started is not None:
        title += f", after {format_duration(attempt.ended - attempt.started)}"
    lines = [attempt.message, usage_text(attempt.usage)]
    if attempt.error.hint:
        lines.insert(1, attempt.error.hint)
    return _section(title, "\n".join(lines), "failed")


def _tool_sections(use: ToolRecord) -> list[Data]:
    took = "no result" if use.ended is None else format_duration(use.ended - use.started)
    call = f"Tool call {tool_name(use)} (attempt {use.attempt}, reply {use.turn})"
    result = _section(f"Result ({took})", use.text)
    if use.error:
        result = _section(f"Error ({took})", use.text, "failed")
    return [_section(call, use.call.arguments), result]


def question_data(trace: Trace) -> Data:
    """Return question, plan and answer in the shape of `opened_step`. The number is 0."""
    answer = None
    if trace.answer:
        kind = "rendered" if trace.question.schema is None else ""
        answer = _section("Answer", trace.answer, kind)
        answer["whole"] = f"conductor trace show {one_line(trace.run)}"
    sections = _question_sections(trace.question) + _plan_sections(trace)
    whole = _all_events_of(trace)
    return {
        "number": "0",
        "title": "Question and plan",
        "sections": [section | {"whole": whole} for section in sections],
        "answer": answer,
        "facts": [
            describe_setup(trace),
            f"planning: {usage_text(trace.planning)}",
            f"all: {usage_text(trace.usage)}",
        ],
    }


def _question_sections(question: Question) -> list[Data]:
    sections = [_section("Question", question.text, "rendered")]
    for turn in question.history:
        sections.append(_section("Earlier question", f"{turn.question}\n\n{turn.answer}"))
    if question.system:
        sections.append(_section("System text", question.system))
    sections += [_section(f"File {describe_file(file)}", file.text) for file in question.files]
    return sections


def _plan_sections(trace: Trace) -> list[Data]:
    plan = trace.plan
    sections = list[Data]()
    if isinstance(plan, KeepAnswer):
        sections.append(_section("Plan", "the given answer is kept"))
    elif trace.steps or plan is not None:
        sections.append(_section("Plan", "\n".join(_step_line(step) for step in trace.steps)))
    if isinstance(plan, Plan) and plan.reasoning:
        sections.append(_section("The planner's reasoning", plan.reasoning))
    if trace.plan_text:
        sections.append(_section("As the planner wrote it", trace.plan_text))
    for event in trace.rejected:
        problem = _label(event.problem)
        sections.append(_section(f"Plan {event.attempt} was not valid: {problem}", event.text))
    return sections


def _step_line(record: StepRecord) -> str:
    access = describe_access(record.step.access)
    subtask = _beginning(one_line(record.step.subtask), MAX_SUBTASK)
    return f"{record.number}. {short_name(record.step.worker)} ({access}): {subtask}"


def _section(title: str, text: str, kind: str = "") -> Data:
    """Return a text as it was written, or as a page has its Markdown where that is `rendered`.

    `kind` is how it is marked.
    """
    beginning = text[:MAX_PAGE_TEXT]
    section = {"title": one_line(title)}
    if kind == "rendered":
        section["html"] = markdown_html(beginning)
    else:
        section["text"] = sanitize(beginning)
    section["more"] = _count_of_rest(len(text) - MAX_PAGE_TEXT, "more character")
    section["kind"] = kind
    return section


def _all_events_of(trace: Trace) -> str:
    """Return the command that prints whatever a trace has."""
    return f"conductor trace replay {one_line(trace.run)} --speed 0 --format jsonl"


def _label(text: str) -> str:
    """Return a text as one line, or the beginning of it."""
    beginning = text[: 4 * MAX_LABEL]
    line = one_line(beginning)
    if len(text) > len(beginning):
        line += ELLIPSIS
    return _beginning(line)


def _beginning(line: str, most: int = MAX_LABEL) -> str:
    """Return so many characters of a line at most, with an ellipsis where it goes on."""
    if len(line) <= most:
        return line
    return line[: most - 1] + ELLIPSIS


def _count_of_rest(count: int, noun: str) -> str:
    """Return how much was left out, such as `3 more workers`; empty where nothing was."""
    return format_count(count, noun) if count > 0 else ""
