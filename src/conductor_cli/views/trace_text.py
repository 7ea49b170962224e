"""A stored run as a page of text for `trace show`, and two of them compared for `trace diff`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from difflib import unified_diff

from conductor_cli.config import format_value
from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.policy import Policy
from conductor_cli.core.sanitize import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_lines import StepLayout, find_step, line_texts, run_lines, step_lines
from conductor_cli.views.run_text import also_worker, describe_outcome
from conductor_cli.views.text_layout import WIDEST, Screen


def trace_text(
    trace: Trace, *, live: bool = False, prompts: bool = False, answers: bool = False, width: int = WIDEST
) -> str:
    """The whole run; with `prompts`, what each worker was sent, and with `answers`, what each worker answered."""
    about = {
        "run": trace.run,
        "started": trace.time,
        "conductor": f"{trace.conductor}{also_worker(trace)}, profile {trace.profile}, mode {trace.mode}",
        "workers": ", ".join(f"{worker.name} ({worker.kind})" for worker in trace.pool) or "none",
        "policy": policy_text(trace.policy),
        "resumes": trace.resumed,
    }
    lines = [f"{label:<11}{one_line(text)}" for label, text in about.items() if text]
    lines += ["", "QUESTION", _indent(trace.question.text), "", f"PLAN  ({usage_text(trace.planning)})"]
    lines += line_texts(run_lines(trace, _layout(trace, width)))
    for record in trace.steps:
        lines += _prompt_lines(record) if prompts else []
        lines += ["", f"STEP {record.number}", _indent(record.text)] if answers else []
    lines += ["", f"ANSWER  ({describe_outcome(trace, live=live)})", _indent(trace.answer or "(none)")]
    return "\n".join([*lines, "", f"total: {usage_text(trace.usage)}"])


def step_text(trace: Trace, number: int, *, width: int = WIDEST) -> str:
    """One step: its whole prompt and its whole answer."""
    record = find_step(trace, number)
    assert record is not None
    lines = [*line_texts(step_lines(record, trace, _layout(trace, width))), f"   {usage_text(record.usage)}", ""]
    for message in record.prompt:
        lines += [f"PROMPT ({message.role})", message.content, ""]
    if record.thinking:
        lines += ["THINKING", record.thinking, ""]
    return "\n".join([*lines, "ANSWER", record.text or "(none)"])


def comparison_text(one: Trace, other: Trace) -> str:
    """What differs between two runs, as `diff -u` shows it."""
    left, right = (sanitize(trace_text(trace, answers=True)).splitlines() for trace in (one, other))
    return "\n".join(unified_diff(left, right, fromfile=one.run, tofile=other.run, lineterm=""))


def policy_text(policy: Policy) -> str:
    """The rules of a run in one line: `deny gpt, tag:us; local_only`."""
    rules = {rule.name: getattr(policy, rule.name) for rule in fields(Policy) if getattr(policy, rule.name)}
    shown = [name if value is True else f"{name} {format_value(value)}" for name, value in rules.items()]
    return "; ".join(shown) or "no rules"


def usage_text(usage: Usage) -> str:
    """Tokens, calls and cost: `120 tokens in (80 cached), 40 out, 2 calls, $0.0012`."""
    if not usage.calls and not usage.tokens:
        return "no calls"
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    reasoning = f" ({usage.tokens_reasoning:,} reasoning)" if usage.tokens_reasoning else ""
    tokens = f"{format_count(usage.tokens_in, 'token')} in{cached}, {usage.tokens_out:,} out{reasoning}"
    cost = "no price known" if usage.cost is None else format_cost(usage)
    return f"{tokens}, {format_count(usage.calls, 'call')}, {cost}"


def _layout(trace: Trace, width: int) -> StepLayout:
    return StepLayout(Screen(width=min(width, WIDEST)), trace.at)


def _prompt_lines(record: StepRecord) -> Iterator[str]:
    """What a step's worker was sent, and for a nested run what its workers were sent."""
    for message in record.prompt:
        yield _indent(f"step {record.number}, prompt ({message.role}):\n{_indent(message.content)}")
    for inner in record.nested.steps if record.nested is not None else ():
        yield from (_indent(line) for line in _prompt_lines(inner))


def _indent(text: str, by: int = 2) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())
