"""A trace as text for `trace show`: everything that was hidden elsewhere is said here."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from conductor_cli.core.formatting import format_cost, format_count
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.policy import Policy
from conductor_cli.core.sanitize import one_line
from conductor_cli.core.serialization import dump
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.views.run_text import compare_single_workers, describe_access


def trace_text(trace: Trace, *, live: bool = False, prompts: bool = False) -> str:
    """The whole run on a page: question, plan, steps with usage, notices, answer; with `prompts` what workers saw."""
    parts = [
        _labelled("run", trace.run),
        _labelled("begun", trace.time),
        _labelled("conductor", f"{trace.conductor}, profile {trace.profile}, mode {trace.mode}"),
        _labelled("workers", ", ".join(f"{worker.name} ({worker.kind})" for worker in trace.pool) or "none"),
        _labelled("policy", policy_text(trace.policy)),
        *([_labelled("resumes", trace.resumed)] if trace.resumed else []),
        "",
        "QUESTION",
        _indented(trace.question.text),
        "",
        f"PLAN  ({usage_text(trace.planning)})",
    ]
    parts += [_indented(f"rejected: {event.problem}: {event.text}") for event in trace.rejected]
    parts += ["  accept: the answer at hand stands"] if isinstance(trace.plan, KeepAnswer) else []
    for record in trace.steps:
        parts += [_step_line(record, trace.at), *(_prompt(record) if prompts else [])]
    parts += [_indented(f"note: {notice.text}") for notice in trace.notices]
    parts += [
        "",
        f"ANSWER  ({_ending(trace, live=live)})",
        _indented(trace.answer or "(none)"),
        "",
        f"total: {usage_text(trace.usage)}",
    ]
    return "\n".join([*parts, *filter(None, [compare_single_workers(trace)])])


def _labelled(label: str, text: str) -> str:
    return f"{label:<11}{one_line(text)}"


def policy_text(policy: Policy) -> str:
    """The rules of a run in one line: `deny gpt, tag:us; local_only`."""
    from conductor_cli.config import format_value

    rules = {rule.name: getattr(policy, rule.name) for rule in fields(Policy) if getattr(policy, rule.name)}
    return (
        "; ".join(name if value is True else f"{name} {format_value(value)}" for name, value in rules.items())
        or "no rule"
    )


def prompts_data(trace: Trace, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps of a report, each with what its worker was sent."""
    sent = {record.number: dump(record.prompt) for record in trace.steps}
    return [{**step, "prompt": sent[step["number"]]} for step in steps]


def step_text(trace: Trace, number: int) -> str:
    """One step: its whole prompt and its whole answer."""
    record = next(record for record in trace.steps if record.number == number)
    parts = [_step_line(record, trace.at), ""]
    for message in record.prompt:
        parts += [f"PROMPT ({message.role})", message.content, ""]
    if record.thinking:
        parts += ["THINKING", record.thinking, ""]
    return "\n".join([*parts, "ANSWER", record.text or "(none)"])


def _prompt(record: StepRecord) -> list[str]:
    """What a step's worker was sent, and where it is another's, what those of a nested run were."""
    lines = [_indented(f"prompt ({message.role}):\n{_indented(message.content)}", 5) for message in record.prompt]
    inner = record.nested.steps if record.nested is not None else ()
    return lines + [_indented(line) for step in inner for line in _prompt(step)]


def usage_text(usage: Usage) -> str:
    """Tokens and money, with what is not known said."""
    if not usage.calls and not usage.tokens:
        return "no call"
    cached = f" ({usage.tokens_cached:,} cached)" if usage.tokens_cached else ""
    thought = f" ({usage.tokens_reasoning:,} reasoning)" if usage.tokens_reasoning else ""
    tokens = f"{format_count(usage.tokens_in, 'token')} in{cached}, {usage.tokens_out:,} out{thought}"
    cost = "no price known" if usage.cost is None else format_cost(usage)
    return f"{tokens}, {format_count(usage.calls, 'call')}, {cost}"


def _step_line(record: StepRecord, now: float) -> str:
    took = f"{record.seconds(now):.1f} s  ({usage_text(record.usage)})"
    head = (
        f"  {record.number}. {one_line(record.worker)}  {describe_access(record.step.access)}  {record.state}  {took}"
    )
    lines = [head, _indented(record.step.subtask, 5)]
    lines += [_indented(f"failed: {record.error.message}", 5)] if record.error is not None else []
    if record.nested is not None:
        lines += ["     nested:", *[_indented(_step_line(inner, record.nested.at), 5) for inner in record.nested.steps]]
        lines += ["       accept: the answer at hand stands"] if isinstance(record.nested.plan, KeepAnswer) else []
    return "\n".join(lines)


def _ending(trace: Trace, *, live: bool) -> str:
    if not trace.ended:
        return "the run goes on" if live else "the run was interrupted"
    if trace.error is not None:
        return f"{'partial' if trace.partial else 'failed'}: {one_line(trace.error.message)}"
    return "partial" if trace.partial else "whole"


def _indented(text: str, by: int = 2) -> str:
    return "\n".join(" " * by + line for line in text.splitlines())
