"""A trace as a page of text for `trace show`, with everything that the live views leave out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from conductor_cli.config import format_value
from conductor_cli.core.formatting import format_cost, format_count, format_duration
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.policy import Policy
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import describe_access, describe_outcome, describe_worker


def trace_text(trace: Trace, *, live: bool = False, prompts: bool = False) -> str:
    """The whole run; with `prompts`, what each worker was sent."""
    about = {
        "run": trace.run,
        "started": trace.time,
        "conductor": f"{trace.conductor}, profile {trace.profile}, mode {trace.mode}",
        "workers": ", ".join(f"{worker.name} ({worker.kind})" for worker in trace.pool) or "none",
        "policy": policy_text(trace.policy),
        "resumes": trace.resumed,
    }
    lines = [f"{label:<11}{one_line(text)}" for label, text in about.items() if text]
    lines += ["", "QUESTION", _indent(trace.question.text), "", f"PLAN  ({usage_text(trace.planning)})"]
    lines += [_indent(f"rejected: {event.problem}: {event.text}") for event in trace.rejected]
    if isinstance(trace.plan, KeepAnswer):
        lines.append("  accept: the given answer is kept")
    for record in trace.steps:
        lines += _step_lines(record, trace.at)
        lines += _prompt_lines(record) if prompts else []
    lines += [_indent(f"note: {notice.text}") for notice in trace.notices]
    lines += ["", f"ANSWER  ({describe_outcome(trace, live=live)})", _indent(trace.answer or "(none)")]
    lines += ["", f"total: {usage_text(trace.usage)}"]
    return "\n".join(lines)


def step_text(trace: Trace, number: int) -> str:
    """One step: its whole prompt and its whole answer."""
    record = next(record for record in trace.steps if record.number == number)
    lines = [*_step_lines(record, trace.at), ""]
    for message in record.prompt:
        lines += [f"PROMPT ({message.role})", message.content, ""]
    if record.thinking:
        lines += ["THINKING", record.thinking, ""]
    return "\n".join([*lines, "ANSWER", record.text or "(none)"])


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


def _step_lines(record: StepRecord, now: float) -> Iterator[str]:
    took = f"{format_duration(record.seconds(now))}  ({usage_text(record.usage)})"
    sees = describe_access(record.step.access)
    yield f"  {record.number}. {describe_worker(record)}  {sees}  {record.state}  {took}"
    yield _indent(record.step.subtask, 5)
    if record.error is not None:
        yield _indent(f"failed: {record.error.message}", 5)
    if record.nested is not None:
        yield "     nested:"
        for inner in record.nested.steps:
            yield from (_indent(line, 5) for line in _step_lines(inner, record.nested.at))
        if isinstance(record.nested.plan, KeepAnswer):
            yield "       accept: the given answer is kept"


def _prompt_lines(record: StepRecord) -> Iterator[str]:
    """What a step's worker was sent, and for a nested run what its workers were sent."""
    for message in record.prompt:
        yield _indent(f"prompt ({message.role}):\n{_indent(message.content)}", 5)
    for inner in record.nested.steps if record.nested is not None else ():
        yield from (_indent(line) for line in _prompt_lines(inner))


def _indent(text: str, by: int = 2) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())
