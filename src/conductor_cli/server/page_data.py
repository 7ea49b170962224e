"""What the page in a browser draws of a run, as JSON values. Pure.

The tree is that of every other view (`views/run_tree.py`); the page only draws its nodes. Every text is cleaned here,
and bounded: a frame goes out several times a second, and a step is opened one at a time.
"""

from __future__ import annotations

from typing import Any, Final

from conductor_cli.core.formatting import format_count, format_duration, format_money
from conductor_cli.core.plan import KeepAnswer, Plan
from conductor_cli.core.pool import Worker
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import ENDED, FailedAttempt, ToolRecord, Trace, fast_replace
from conductor_cli.models.presets import recipient_of
from conductor_cli.views.html import TimelineRow, markdown_html, timeline, usage_rows
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
from conductor_cli.views.run_tree import Node, run_tree
from conductor_cli.views.trace_text import usage_text

MAX_LABEL: Final = 1_000
"""Characters of a question, a subtask or a remark in the tree."""

MAX_TAIL: Final = 600
"""Characters of a response in the tree: the last ones while it is written, the first ones later."""

MAX_PAGE_WORKERS: Final = 100
"""Rows of the table of workers."""

MAX_PAGE_TEXT: Final = 200_000
"""Characters of each text of an opened step."""

Data = dict[str, Any]


def frame_data(trace: Trace, *, now: float | None = None, live: bool = False, stored: bool = True) -> Data:
    """A run at a time by its own clock (seconds; without one, its newest event), as the page draws it.

    `state` is planning or an outcome (`core/trace.py`). `tree` is a node as `node_data` gives it.
    `times` are rows of bars in percent of the time so far. `usage` are rows of a table: who, tokens read, tokens
    written, calls, cost. `workers` are rows too: name, model, who reads what it is sent, and what a million tokens of
    input and of output cost. `stored` says whether a file has the run.
    """
    trace = trace if now is None else fast_replace(trace, at=now)
    times = timeline(trace)
    return {
        "run": one_line(trace.run),
        "time": one_line(trace.time),
        "at": round(trace.at, 3),
        "state": trace.state if live and not trace.ended else trace.outcome(),
        "ended": trace.ended,
        "outcome": describe_outcome(trace, live=live),
        "setup": describe_setup(trace),
        "totals": describe_totals(trace, stored=stored),
        "stored": stored,
        "notices": [describe_notice(notice)[:MAX_LABEL] for notice in trace.all_notices()],
        "tree": node_data(run_tree(trace)),
        "times": {"rows": [_time_row(row) for row in times.rows], "ticks": list(times.ticks)},
        "usage": [list(row) for row in usage_rows(trace)],
        "workers": [_worker_data(worker) for worker in trace.pool][:MAX_PAGE_WORKERS],
    }


def _worker_data(worker: Worker) -> list[str]:
    price = worker.price
    if price is None or not any(price.amounts()):
        shown = ["unknown" if price is None else "free"] * 2
    else:
        prefix = "from " if price.longer else ""  # long calls cost more
        shown = [f"{prefix}{format_money(amount)}" for amount in (price.input, price.output)]
    return [*map(_label, (worker.name, worker.model_name, recipient_of(worker))), *shown]


def _label(text: str) -> str:
    return one_line(text[: 4 * MAX_LABEL])[:MAX_LABEL]


def _time_row(row: TimelineRow) -> Data:
    bars = [
        {"kind": bar.kind, "start": round(bar.start, 2), "length": round(bar.length, 2), "title": bar.title}
        for bar in row.bars
    ]
    return {"label": row.label, "took": row.took, "bars": bars}


def node_data(node: Node) -> Data:
    """A node of the tree with everything below it. Its texts are safe to show, and short."""
    text = sanitize(node.text[-MAX_TAIL:] if node.state in _GROWING else node.text[:MAX_TAIL])
    return {
        "kind": node.kind, "state": node.state, "number": node.number, "name": _label(node.name),
        "label": _label(node.label), "remark": one_line(node.remark),
        "status": node.status, "figures": [figure for figure in node.figures if figure],
        "text": "" if node.answers else text.strip("\n"), "thinking": node.thinking, "answers": node.answers,
        "children": [node_data(child) for child in node.children],
    }  # fmt: skip


_GROWING: Final = frozenset({"planning", "running", "answering", "retrying"})


# One step, or the whole run, opened


def opened_step(trace: Trace, number: str) -> Data | None:
    """A step as it is opened: `title`, `facts` (a line each), and `sections`. None where there is none.

    A section has a title and a text, as `text` or as `html`, which is safe to put into a page. `more` is how many
    characters were left out at its end.
    """
    run, record = trace, None
    for part in number.split("."):  # such as 2, or 2.1 for a step of a nested run
        run = record.nested or Trace() if record is not None else run
        record = next((each for each in run.steps if str(each.number) == part), None)
        if record is None:
            return None
    assert record is not None
    took = format_duration(record.seconds(run.at), tenths=record.state in ENDED)
    facts = [
        one_line(record.step.subtask)[: 10 * MAX_LABEL],
        f"{record.state}, {describe_access(record.step.access)}",
        f"{took}, {usage_text(record.usage)}",
    ]
    sections = [
        *(_section(f"Prompt ({message.role})", message_text(message)) for message in record.prompt),
        *map(_failed_section, record.failed),
        *(section for use in record.tools for section in _tool_sections(use)),
        *([_section("Thinking", record.thinking)] if record.thinking else []),
        *([] if record.nested is not None else [_rendered("Response", record.text)]),
    ]
    return {"number": number, "title": f"{number}. {describe_worker(record)}", "facts": facts, "sections": sections}


def question_data(trace: Trace) -> Data:
    """The question, the plan and the answer, in the shape of `opened_step`. Its number is 0."""
    question, plan = trace.question, trace.plan
    sections = [_rendered("Question", question.text)]
    sections += [_section("Earlier question", f"{turn.question}\n\n{turn.answer}") for turn in question.history]
    sections += [_section("System text", question.system)] if question.system else []
    sections += [_section(f"File {describe_file(file)}", file.text) for file in question.files]
    if trace.steps or plan is not None:
        steps = [
            f"{record.number}. {short_name(record.step.worker)} ({describe_access(record.step.access)}): "
            f"{one_line(record.step.subtask)[: 10 * MAX_LABEL]}"
            for record in trace.steps
        ]
        text = "the given answer is kept" if isinstance(plan, KeepAnswer) else "\n".join(steps)
        sections.append(_section("Plan", text))
    if isinstance(plan, Plan) and plan.reasoning:
        sections.append(_section("The planner's reasoning", plan.reasoning))
    sections += [_section("As the planner wrote it", trace.plan_text)] if trace.plan_text else []
    sections += [
        _section(f"Plan {event.attempt} was not valid: {one_line(event.problem)[:MAX_LABEL]}", event.text)
        for event in trace.rejected
    ]
    answer = None
    if trace.answer:
        answer = (_rendered if question.schema is None else _section)("Answer", trace.answer)
    return {
        "number": "0", "title": "Question and plan", "sections": sections, "answer": answer,
        "facts": [describe_setup(trace), f"planning: {usage_text(trace.planning)}", f"all: {usage_text(trace.usage)}"],
    }  # fmt: skip


def _failed_section(attempt: FailedAttempt) -> Data:
    took = "" if attempt.started is None else f", after {format_duration(attempt.ended - attempt.started)}"
    hint = f"\n{attempt.error.hint}" if attempt.error.hint else ""
    title = f"Failed attempt {attempt.attempt}, {one_line(attempt.worker)}{took}"
    return _section(title, f"{attempt.message}{hint}\n{usage_text(attempt.usage)}", "failed")


def _tool_sections(use: ToolRecord) -> tuple[Data, Data]:
    took = "no result" if use.ended is None else format_duration(use.ended - use.started)
    return (
        _section(f"Tool call {tool_name(use)} (attempt {use.attempt}, reply {use.turn})", use.call.arguments),
        _section(f"{'Error' if use.error else 'Result'} ({took})", use.text, "failed" if use.error else ""),
    )


def _section(title: str, text: str, kind: str = "") -> Data:
    """A text as it was written. `kind` says how it is marked."""
    return {"title": one_line(title), "text": sanitize(text[:MAX_PAGE_TEXT]), "more": _left_out(text), "kind": kind}


def _rendered(title: str, text: str) -> Data:
    return {"title": title, "html": markdown_html(text[:MAX_PAGE_TEXT]), "more": _left_out(text), "kind": "rendered"}


def _left_out(text: str) -> str:
    left = len(text) - MAX_PAGE_TEXT
    return format_count(left, "more character") if left > 0 else ""
