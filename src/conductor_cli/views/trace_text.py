"""A stored run as a page of text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Final

from conductor_cli.config.settings import format_value
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.policy import Policy
from conductor_cli.core.terminal_text import one_line, reveal
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import (
    also_worker,
    describe_file,
    describe_outcome,
    find_step,
    message_text,
    tool_name,
)
from conductor_cli.views.run_tree import Node, TreeLayout, run_tree, step_node, tree_lines
from conductor_cli.views.text_layout import BLANK, WIDEST, Line, Screen

SHOWN_LINES: Final = 10  # Lines of each response in the tree of a stored run
WIDE: Final = Screen(width=WIDEST)


def trace_lines(
    trace: Trace, *, live: bool = False, prompts: bool = False, screen: Screen = WIDE
) -> list[Line]:
    """The whole run; with `prompts`, what each worker was sent.

    Whoever shows the texts makes them safe.
    """
    rules = {rule.name: getattr(trace.policy, rule.name) for rule in fields(Policy)}
    policy = [
        name if value is True else f"{name} {format_value(value)}"
        for name, value in rules.items()
        if value
    ]
    about = {
        "run": trace.run,
        "started": trace.time,
        "planner": (
            f"{trace.conductor}{also_worker(trace)}, profile {trace.profile}, mode {trace.mode}"
        ),
        "workers": ", ".join(f"{worker.name} ({worker.kind})" for worker in trace.pool) or "none",
        "policy": "; ".join(policy) or "no rules",
        "resumes": trace.resumed,
        "files": ", ".join(map(describe_file, trace.question.files)),
    }
    lines = [_plain(f"{label:<11}{one_line(text)}") for label, text in about.items() if text]
    lines += [BLANK, _head("QUESTION"), _plain(_indent(trace.question.text))]
    lines += [
        BLANK,
        _head(f"PLAN  ({usage_text(trace.planning)})"),
        *_tree(run_tree(trace), screen),
    ]
    for record in trace.steps:
        lines += map(_plain, _prompt_lines(record)) if prompts else []
    lines += [BLANK, _head(f"ANSWER  ({describe_outcome(trace, live=live)})")]
    lines += [_plain(_indent(trace.answer or "(none)"))]
    return [*lines, BLANK, _plain(f"total: {usage_text(trace.usage)}")]


def step_lines(trace: Trace, number: int, *, screen: Screen = WIDE) -> list[Line]:
    """One step with its attempts, calls and nested run, its whole prompt and answer.

    Texts as in `trace_lines`.
    """
    record = find_step(trace, number)
    assert record is not None
    node = step_node(record, trace)
    own = tuple(
        child
        for child in node.children
        if child.kind != "step" or child.number.startswith(f"{number}.")
    )
    lines = [
        *_tree(replace(node, children=own, text=""), screen),
        _plain(f"   {usage_text(record.usage)}"),
        BLANK,
    ]
    for message in record.prompt:
        lines += [_head(f"PROMPT ({message.role})"), _plain(message_text(message)), BLANK]
    if record.thinking:
        lines += [_head("THINKING"), _plain(record.thinking), BLANK]
    for use in record.tools:
        head = _head(f"TOOL CALL {tool_name(use)} (attempt {use.attempt}, reply {use.turn})")
        took = format_duration(use.ended - use.started) if use.ended is not None else "no result"
        result: Line = ((f"ERROR ({took})", "failed"),) if use.error else _head(f"RESULT ({took})")
        lines += [head, _plain(use.call.arguments), result, _plain(use.text.rstrip("\n")), BLANK]
    return [*lines, _head("ANSWER"), _plain(record.text or "(none)")]


def page_text(lines: Iterable[Line]) -> str:
    """Lines without their colours, as one text."""
    return "\n".join("".join(text for text, _ in line) for line in lines)


def usage_text(usage: Usage) -> str:
    """Tokens, calls and cost: `120 tokens in (80 cached), 40 out, 2 calls, $0.0012`."""
    if not usage.calls and not usage.tokens:
        return "no calls"
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    reasoning = f" ({usage.tokens_reasoning:,} reasoning)" if usage.tokens_reasoning else ""
    tokens = (
        f"{format_count(usage.tokens_in, 'token')} in{cached}, {usage.tokens_out:,} out{reasoning}"
    )
    cost = "no price known" if usage.cost is None else format_cost(usage)
    return f"{tokens}, {format_count(usage.calls, 'call')}, {cost}"


def _head(text: str) -> Line:
    return ((text, "question"),)


def _plain(text: str) -> Line:
    return ((reveal(text), "plain"),)


def _tree(root: Node, screen: Screen) -> list[Line]:
    return tree_lines(root, TreeLayout(screen, ended=SHOWN_LINES))


def _prompt_lines(record: StepRecord) -> Iterator[str]:
    """Yield what a step's worker was sent, and for a nested run what its workers were sent."""
    for message in record.prompt:
        yield _indent(
            f"step {record.number}, prompt ({message.role}):\n{_indent(message_text(message))}"
        )
    for inner in record.nested.steps if record.nested is not None else ():
        yield from (_indent(line) for line in _prompt_lines(inner))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
