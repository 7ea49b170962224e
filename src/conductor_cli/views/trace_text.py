"""A stored run as a page of text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Final

from conductor_cli.config.settings import format_value
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.policy import Policy
from conductor_cli.core.terminal_text import one_line, reveal
from conductor_cli.core.trace import StepRecord, ToolRecord, Trace, find_step
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import (
    also_worker,
    describe_file,
    describe_outcome,
    message_text,
    tool_name,
)
from conductor_cli.views.run_tree import (
    Node,
    TreeLayout,
    step_node,
    stored_tree,
    tree_lines,
)
from conductor_cli.views.text_layout import BLANK, MAX_COLUMNS, Line, Screen

SHOWN_LINES: Final = 10  # Lines of each response in the tree of a stored run
WIDE_SCREEN: Final = Screen(width=MAX_COLUMNS)


def trace_lines(
    trace: Trace, *, live: bool = False, prompts: bool = False, screen: Screen = WIDE_SCREEN
) -> list[Line]:
    """Return the whole run; with `prompts`, what each worker was sent.

    Whoever shows the texts makes them safe.
    """
    facts = {
        "run": trace.run,
        "started": trace.time,
        "planner": (
            f"{trace.conductor}{also_worker(trace)}, profile {trace.profile}, mode {trace.mode}"
        ),
        "workers": ", ".join(f"{worker.name} ({worker.kind})" for worker in trace.pool) or "none",
        "policy": "; ".join(_policy_rules(trace.policy)) or "no rules",
        "resumes": trace.resumed,
        "files": ", ".join(map(describe_file, trace.question.files)),
    }
    lines = [_plain(f"{label:<11}{one_line(text)}") for label, text in facts.items() if text]
    lines += [BLANK, _head("QUESTION"), _plain(_indent(trace.question.text))]
    root = stored_tree(trace, live=live)
    lines += [BLANK, _head(f"PLAN  ({usage_text(trace.planning)})"), *_tree(root, screen)]
    if prompts:
        for record in trace.steps:
            lines += map(_plain, _prompt_lines(record))
    lines += [BLANK, _head(f"ANSWER  ({describe_outcome(trace, live=live)})")]
    lines += [_plain(_indent(trace.answer or "(none)"))]
    return [*lines, BLANK, _plain(f"total: {usage_text(trace.usage)}")]


def _policy_rules(policy: Policy) -> Iterator[str]:
    for rule in fields(Policy):
        value = getattr(policy, rule.name)
        if value is True:
            yield rule.name
        elif value:
            yield f"{rule.name} {format_value(value)}"


def step_lines(trace: Trace, number: int, *, screen: Screen = WIDE_SCREEN) -> list[Line]:
    """One step with its attempts, calls and nested run, its whole prompt and answer.

    Texts as in `trace_lines`.
    """
    record = find_step(trace, number)
    assert record is not None
    node = step_node(record, trace)
    children = []
    for child in node.children:
        if child.kind != "step" or child.number.startswith(f"{number}."):
            children.append(child)
    lines = [
        *_tree(replace(node, children=tuple(children), text=""), screen),
        _plain(f"   {usage_text(record.usage)}"),
        BLANK,
    ]
    for message in record.prompt:
        lines += [_head(f"PROMPT ({message.role})"), _plain(message_text(message)), BLANK]
    if record.thinking:
        lines += [_head("THINKING"), _plain(record.thinking), BLANK]
    for use in record.tools:
        lines += [*_tool_lines(use), BLANK]
    return [*lines, _head("ANSWER"), _plain(record.text or "(none)")]


def _tool_lines(use: ToolRecord) -> list[Line]:
    """Return a call of a tool with its arguments, and what came back."""
    call = f"TOOL CALL {tool_name(use)} (attempt {use.attempt}, reply {use.turn})"
    took = "no result"
    if use.ended is not None:
        took = format_duration(use.ended - use.started)
    result: Line = _head(f"RESULT ({took})")
    if use.error:
        result = ((f"ERROR ({took})", "failed"),)
    return [_head(call), _plain(use.call.arguments), result, _plain(use.text.rstrip("\n"))]


def page_text(lines: Iterable[Line]) -> str:
    """Lines without their colours, as one text."""
    return "\n".join("".join(text for text, _ in line) for line in lines)


def usage_text(usage: Usage) -> str:
    """Tokens, calls and cost: `120 tokens in (80 cached), 40 out, 2 calls, $0.0012`."""
    if not usage.calls and not usage.tokens:
        return "no calls"
    tokens_in = f"{format_count(usage.tokens_in, 'token')} in"
    if usage.tokens_cached:
        tokens_in += f" ({usage.tokens_cached:,} cached)"
    tokens_out = f"{usage.tokens_out:,} out"
    if usage.tokens_reasoning:
        tokens_out += f" ({usage.tokens_reasoning:,} reasoning)"
    cost = "no price known" if usage.cost is None else format_cost(usage)
    return f"{tokens_in}, {tokens_out}, {format_count(usage.calls, 'call')}, {cost}"


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
    if record.nested is None:
        return
    for inner in record.nested.steps:
        for line in _prompt_lines(inner):
            yield _indent(line)


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
