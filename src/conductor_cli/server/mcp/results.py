"""What a call returns, as text that a client's model reads.

Texts are sanitized and keys redacted: a client may print them on a terminal. A client hands what it reads to its own
model, which may be anywhere, so a run whose rules kept its texts from somebody is not shown, unless this server has run
it for its client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from mcp_types import CallToolResult, TextContent

from conductor_cli.app.traces import describe_offer, earliest_run_id, recipients_of
from conductor_cli.core.errors import ConductorError, Failure, UsageError
from conductor_cli.core.estimate import ZERO, estimate_steps
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import Plan
from conductor_cli.core.plan_file import format_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import Trace
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.run import Run
from conductor_cli.server.stored_runs import confidential, first_event, newest_runs, restricts_texts
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.stored_run import RunQuery, normalize_terms
from conductor_cli.state.trace_file import unreadable
from conductor_cli.views.run_text import describe_notice, describe_outcome, find_step, with_hint

MAX_RESULT_TEXT: Final = 100_000
"""Characters of one text of a step. A client's model reads no more."""

_ARGUMENTS: Final = {"limit_cost": "max_cost", "limit_time": "max_seconds", "limit_tokens": "max_tokens"}
"""The argument that sets a limit, by the reason of a failure at it."""


def clean(text: str) -> str:
    """A text without keys, and without what a terminal would obey."""
    return sanitize(KNOWN_SECRETS.redact(text))


def result_of(*texts: str, is_error: bool = False) -> CallToolResult:
    """The result of a call: the texts that are not empty, cleaned."""
    content = [TextContent(type="text", text=clean(text)) for text in texts if text]
    return CallToolResult(content=[*content], is_error=is_error)


def error_result(error: ConductorError | Failure, *more: str) -> CallToolResult:
    """An error as the client's model reads it: what happened, and what to do next."""
    hint = " ".join(error.hint.split())
    return result_of("\n".join([one_line(error.message), *([hint] if hint else []), *more]), is_error=True)


def run_result(run: Run) -> CallToolResult:
    """The answer of a run that has ended; an error where there is none."""
    trace = run.trace
    lines = [*_notes(trace), f"[run {trace.run}: {_totals(trace)}]"]
    if trace.state != "finished":
        error = trace.error or Failure(kind="internal", message="the run has no answer")
        argument = _ARGUMENTS.get(error.reason)
        if argument is None or error.hint or not error.suggested_limit:
            return error_result(with_hint(error), *lines)
        hint = f"call again with {argument}={error.suggested_limit}, if the user's own limit allows it"
        return error_result(replace(error, hint=hint), *lines)
    if trace.partial or trace.error is not None:
        why = f": {one_line(trace.error.message)}" if trace.error is not None else ""
        lines.insert(0, f"This is a part of the answer{why}.")
    return result_of(trace.answer, "\n".join(lines))


def _totals(trace: Trace) -> str:
    workers = ", ".join(dict.fromkeys(one_line(record.worker) for record in trace.steps))
    parts = (
        f"{format_count(len(trace.steps), 'step')}{f' by {workers}' if workers else ''}",
        format_count(trace.usage.tokens, "token"), format_cost(trace.usage), format_duration(trace.at),
    )  # fmt: skip
    return ", ".join(filter(None, parts))


def _notes(trace: Trace) -> list[str]:
    """What a reader should know about how an answer or a plan came about."""
    return [describe_notice(notice) for notice in trace.all_notices()]


def plan_result(run: Run, limits: Limits) -> CallToolResult:
    """The plan of a run that only planned, with its estimate, and as JSON; an error where there is none."""
    trace = run.trace
    if trace.error is not None and (trace.state != "finished" or not isinstance(trace.plan, Plan)):
        return run_result(run)
    if trace.state != "finished" or not isinstance(trace.plan, Plan):
        return error_result(Failure(kind="conductor", message="the planner wrote no plan", hint="ask again"))
    offer, recipients = describe_offer(run), recipients_of(run.config.pool)
    estimate = sum(estimate_steps(offer.question_for, offer.plan, offer.pool, offer.profile), ZERO)
    lines = []
    for number, step in enumerate(trace.plan.steps, start=1):
        seen = f"the answers of {', '.join(map(str, step.access))}" if step.access else "the question and files only"
        reader = recipients.get(step.worker, "")
        lines.append(f"{number}. {step.worker} (sees {seen}; read by {reader}): {one_line(step.subtask)}")
    (low, high), (least, most) = estimate.tokens, estimate.cost
    unpriced = f", and {format_count(estimate.unpriced, 'call')} without a known price" if estimate.unpriced else ""
    cost = f"{format_money(least)} to {format_money(most)}{unpriced}"
    lines += [
        f"Estimate: {format_count(estimate.calls, 'call')}, {low:,} to {high:,} tokens, {cost}.",
        *_notes(trace),
        f"To run it as it is, call the tool run with run={trace.run}. To change it, give it as plan:",
    ]
    return result_of("\n".join(lines), format_plan_file(run.question, trace.plan, limits))


def look_at_runs(store: Traces, arguments: Mapping[str, Any], own: Collection[str]) -> CallToolResult:
    """A list, one run, or one step of it. `own` are the runs of this server. Raises `UsageError` or `PolicyError`."""
    hint = "call trace without arguments for a list of runs"
    if "run" not in arguments:
        if "step" in arguments:
            raise UsageError("step needs run", hint=hint)
        terms = normalize_terms([arguments["search"]] if "search" in arguments else [])
        since = earliest_run_id(arguments["since"], datetime.now(UTC)) if "since" in arguments else ""
        query, count = RunQuery(since=since, terms=terms), arguments.get("count", 20)
        try:
            rows, more, _ = newest_runs(
                store, query, count, lambda first: first.run in own or not restricts_texts(first.policy)
            )
        except OSError as error:
            raise unreadable(store.place, error) from None
        lines = [f"{row['run']}  {row['state']}  {one_line(row['question'])[:100]}" for row in rows]
        lines += ["There are older runs that match: search for less, or give since or a higher count."] * more
        return result_of("\n".join(lines) or "there are no stored runs that match")
    try:
        run = store.find(arguments["run"])
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from None
    first = first_event(store, run) if run not in own else None
    if run not in own and (first is None or restricts_texts(first.policy)):
        raise confidential(run)
    live = store.is_running(run)
    trace = store.trace(run)
    if "step" in arguments:
        record = find_step(trace, arguments["step"])
        if record is None:
            have = f"it has {format_count(len(trace.steps), 'step')}"
            raise UsageError(f"run {run} has no step {arguments['step']}", hint=have)
        prompt = [f"Its worker was sent as {each.role}:\n{each.content[:MAX_RESULT_TEXT]}" for each in record.prompt]
        return result_of(record.text[:MAX_RESULT_TEXT] or "(no text)", *prompt)
    lines = [f"Run {run}: {describe_outcome(trace, live=live)}. Question: {one_line(trace.question.text)[:300]}"]
    lines += [f"{each.number}. {each.worker}, {each.state}: {one_line(each.step.subtask)}" for each in trace.steps]
    lines += [*_notes(trace), f"[{_totals(trace)}]"]
    return result_of("\n".join(lines), trace.answer[:MAX_RESULT_TEXT])
