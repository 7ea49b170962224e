"""What a call returns: data in the form of the tool's result schema, and the same for a reader, as text.

Texts are sanitized and keys redacted: a client may print them on a terminal, and its model reads them. A client hands
what it reads to its own model, which may be anywhere, so a run whose rules kept its texts from somebody is not shown,
unless this server has run it for its client.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel, Field

from conductor_cli.app.traces import describe_offer, earliest_run_id, recipients_of
from conductor_cli.core.errors import ConductorError, Failure, UsageError
from conductor_cli.core.estimate import ZERO, estimate_steps
from conductor_cli.core.events import RunStarted
from conductor_cli.core.formatting import format_cost, format_count, format_duration, format_money
from conductor_cli.core.plan import Plan
from conductor_cli.core.plan_file import format_plan_file
from conductor_cli.core.pool import Limits
from conductor_cli.core.serialization import dump
from conductor_cli.core.terminal_text import one_line, sanitize
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.core.usage import Usage
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.run import Run
from conductor_cli.server.stored_runs import confidential, first_event, newest_runs, restricts_texts
from conductor_cli.state.interfaces import Traces
from conductor_cli.state.stored_run import RunQuery, normalize_terms
from conductor_cli.state.trace_file import unreadable
from conductor_cli.views.json_output import run_state
from conductor_cli.views.run_text import describe_notice, describe_outcome, find_step, with_hint

MAX_RESULT_TEXT: Final = 100_000
"""Characters of one text of a step. A client's model reads no more."""

_ARGUMENTS: Final = {"limit_cost": "max_cost", "limit_time": "max_seconds", "limit_tokens": "max_tokens"}
"""The argument that sets a limit, by the reason of a failure at it."""


def result_of(*texts: str, data: dict[str, Any] | None = None, is_error: bool = False) -> CallToolResult:
    """The result of a call: `texts` for a reader, `data` for a program (None: there is none)."""
    content = [TextContent(type="text", text=text) for text in texts]
    return CallToolResult(content=[*content], structured_content=data, is_error=is_error)


def clean(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value without keys, and without what a terminal would obey."""

    def sanitized(value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {sanitize(str(name)): sanitized(item) for name, item in value.items()}
        if isinstance(value, list):
            return [sanitized(item) for item in value]
        return sanitize(value) if isinstance(value, str) else value

    return sanitized(KNOWN_SECRETS.redact_data(value))


# The form of the data

Money = Annotated[
    str | None,
    Field(description="US dollars, as text so that no digit is lost; null where no price is known."),
]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]
Range = Annotated[list[Any], Field(min_length=2, max_length=2)]
WHY_NOT: Final = "Why there is no answer or only a part of one; null where all went well."


class _FailureReport(BaseModel):
    kind: str
    reason: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: Failure | None) -> _FailureReport | None:
        if error is None:
            return None
        error = _advised(error)
        return cls(kind=error.kind, reason=error.reason, message=error.message, hint=error.hint)


class _UsageReport(BaseModel):
    calls: Count
    tokens_in: Count
    tokens_out: Count
    cost: Money
    unpriced_calls: Count
    seconds: Seconds = Field(description="How long the run took.")

    @classmethod
    def of(cls, usage: Usage, seconds: float) -> _UsageReport:
        return cls(
            calls=usage.calls, tokens_in=usage.tokens_in, tokens_out=usage.tokens_out, cost=dump(usage.cost),
            unpriced_calls=usage.unpriced, seconds=round(seconds, 3),
        )  # fmt: skip


class _StepReport(BaseModel):
    number: Count
    worker: str
    planned_worker: str
    subtask: str
    access: list[Count]
    state: str
    seconds: Seconds
    tokens: Count
    cost: Money
    error: _FailureReport | None = Field(description=WHY_NOT)

    @classmethod
    def of(cls, record: StepRecord, now: float, **more: Any) -> _StepReport:  # noqa: ANN401 - fields of a subclass
        return cls(
            number=record.number, worker=record.worker, planned_worker=record.step.worker, subtask=record.step.subtask,
            access=list(record.step.access), state=record.state, seconds=round(record.seconds(now), 3),
            tokens=record.usage.tokens, cost=dump(record.usage.cost), error=_FailureReport.of(record.error), **more,
        )  # fmt: skip


class _WholeStep(_StepReport):
    text: str
    prompt: list[dict[str, str]]


class RunReport(BaseModel):
    """A run."""

    run: str = Field(description="The id of the run, for the tools trace and run.")
    stored: bool = Field(description="Whether the run is in the record, so that trace can show it.")
    state: str = Field(description="finished, cancelled, failed, running or interrupted")
    answer: str = Field(description="The answer; empty where there is none.")
    partial: bool = Field(description="The answer is cut off, or not from the last step.")
    error: _FailureReport | None = Field(description=WHY_NOT)
    steps: list[_StepReport]
    usage: _UsageReport
    notices: list[str] = Field(description="What a reader should know about how the answer came about.")

    @classmethod
    def of(cls, trace: Trace, *, stored: bool, state: str = "", most: int | None = None) -> RunReport:
        """The report of a run. `state` says more where the run has no end, `most` bounds the answer."""
        return cls(
            run=trace.run, stored=stored, state=state or trace.state, answer=trace.answer[:most],
            partial=trace.partial, error=_FailureReport.of(trace.error),
            steps=[_StepReport.of(record, trace.at) for record in trace.steps],
            usage=_UsageReport.of(trace.usage, trace.at),
            notices=[describe_notice(each) for each in trace.all_notices()],
        )  # fmt: skip


class _EstimateReport(BaseModel):
    calls: Count
    tokens: Range = Field(description="The least and the most tokens.")
    cost: Range = Field(description="The least and the most US dollars, as text.")
    unpriced_calls: Count = Field(description="Calls whose price is not known; they come on top.")


class PlanReport(BaseModel):
    """A plan with its estimate."""

    run: str = Field(description="Give it to the tool run to run this plan as it is.")
    stored: bool
    plan: dict[str, Any] = Field(description="The plan. Give it to the tool run, changed or not.")
    estimate: _EstimateReport
    recipients: dict[str, str] = Field(
        description="Who reads what each worker of the plan is sent: a provider, a host, or this machine."
    )
    usage: _UsageReport
    notices: list[str] = Field(description="What a reader should know about how the plan came about.")


class _ListedRun(BaseModel):
    run: str
    time: str
    state: str
    question: str
    workers: list[str]
    cost: Money
    tokens: Count
    seconds: Seconds


class FoundRuns(BaseModel):
    """What the tool `trace` found."""

    runs: list[_ListedRun] | None = Field(None, description="Stored runs, newest first; only where no run was named.")
    more: bool | None = Field(None, description="Whether there are older runs that match.")
    run: RunReport | None = Field(None, description="The run that was named.")
    question: str | None = Field(None, description="The question of the run that was named.")
    step: _WholeStep | None = Field(
        None, description="The step that was named: what its worker was sent and what it wrote."
    )


def _data(report: BaseModel) -> dict[str, Any]:
    found: dict[str, Any] = clean(report.model_dump(exclude_unset=True))
    return found


# Results


def error_result(error: ConductorError | Failure, *more: str, data: dict[str, Any] | None = None) -> CallToolResult:
    """An error as the client's model reads it: what happened, and what to do next."""
    hint = " ".join(error.hint.split())
    lines = [one_line(error.message), *([hint] if hint else []), *more]
    return result_of(clean("\n".join(lines)), data=data, is_error=True)


def _advised(error: Failure) -> Failure:
    """The failure with a hint that a client can follow: at a limit it names the argument, not the flag."""
    argument = _ARGUMENTS.get(error.reason)
    if argument is None or error.hint or not error.suggested_limit:
        return with_hint(error)
    return replace(error, hint=f"call again with {argument}={error.suggested_limit}, if the user's own limit allows it")


def run_result(run: Run) -> CallToolResult:
    """The answer of a run that has ended; an error where there is none."""
    trace = run.trace
    data = _data(RunReport.of(trace, stored=trace.stored))
    workers = ", ".join(dict.fromkeys(one_line(record.worker) for record in trace.steps))
    parts = (
        f"{format_count(len(trace.steps), 'step')}{f' by {workers}' if workers else ''}",
        format_count(trace.usage.tokens, "token"), format_cost(trace.usage), format_duration(trace.at),
    )  # fmt: skip
    totals = f"[run {trace.run}: {', '.join(filter(None, parts))}]"
    if trace.state != "finished":
        error = _advised(trace.error or Failure(kind="internal", message="the run has no answer"))
        return error_result(error, totals, data=data)
    if trace.partial or trace.error is not None:
        why = f": {one_line(trace.error.message)}" if trace.error is not None else ""
        totals = f"This is a part of the answer{why}.\n{totals}"
    return result_of(data["answer"], clean(totals), data=data)


def plan_result(run: Run, limits: Limits) -> CallToolResult:
    """The plan of a run that only planned, with its estimate; an error where there is none."""
    trace = run.trace
    if trace.error is not None and (trace.state != "finished" or not isinstance(trace.plan, Plan)):
        return run_result(run)
    if trace.state != "finished" or not isinstance(trace.plan, Plan):
        return error_result(Failure(kind="conductor", message="the planner wrote no plan", hint="ask again"))
    offer = describe_offer(run)
    estimate = sum(estimate_steps(offer.question_for, offer.plan, offer.pool, offer.profile), ZERO)
    recipients = recipients_of(run.config.pool)
    report = PlanReport(
        run=trace.run,
        stored=trace.stored,
        plan=json.loads(format_plan_file(run.question, trace.plan, limits)),
        estimate=_EstimateReport(
            calls=estimate.calls, tokens=list(estimate.tokens), cost=[str(cost) for cost in estimate.cost],
            unpriced_calls=estimate.unpriced,
        ),
        recipients={step.worker: recipients.get(step.worker, "") for step in trace.plan.steps},
        usage=_UsageReport.of(trace.usage, trace.at),
        notices=[describe_notice(notice) for notice in trace.all_notices()],
    )  # fmt: skip
    lines = []
    for number, step in enumerate(trace.plan.steps, start=1):
        seen = f"the answers of {', '.join(map(str, step.access))}" if step.access else "the question and files only"
        lines.append(f"{number}. {step.worker} (sees {seen}): {one_line(step.subtask)}")
    (low, high), (least, most) = estimate.tokens, estimate.cost
    unpriced = f", and {format_count(estimate.unpriced, 'call')} without a known price" if estimate.unpriced else ""
    cost = f"{format_money(least)} to {format_money(most)}{unpriced}"
    lines += [
        f"Estimate: {format_count(estimate.calls, 'call')}, {low:,} to {high:,} tokens, {cost}.",
        f"To run it as it is, call the tool run with run={trace.run}.",
    ]
    return result_of(clean("\n".join(lines)), data=_data(report))


def look_at_runs(store: Traces, arguments: Mapping[str, Any], own: Collection[str]) -> CallToolResult:
    """A list, one run, or one step of it. `own` are the runs of this server. Raises `UsageError` or `PolicyError`."""
    hint = "call trace without arguments for a list of runs"
    if "run" not in arguments:
        if "step" in arguments:
            raise UsageError("step needs run", hint=hint)
        return _list(store, arguments, own)
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
        prompt = [{"role": each.role, "content": each.content[:MAX_RESULT_TEXT]} for each in record.prompt]
        step = _WholeStep.of(record, trace.at, text=record.text[:MAX_RESULT_TEXT], prompt=prompt)
        data = {"step": _data(step)}
        return result_of(data["step"]["text"] or "(no text)", data=data)
    report = RunReport.of(trace, stored=True, state=run_state(trace, live=live), most=MAX_RESULT_TEXT)
    data = {"run": _data(report), "question": clean(trace.question.text)}
    lines = [f"{describe_outcome(trace, live=live)}. Question: {one_line(trace.question.text)[:300]}"]
    lines += [f"{step.number}. {step.worker}, {step.state}: {one_line(step.subtask)}" for step in report.steps]
    texts = [clean("\n".join(lines)), *([data["run"]["answer"]] if data["run"]["answer"] else [])]
    return result_of(*texts, data=data)


def _list(store: Traces, arguments: Mapping[str, Any], own: Collection[str]) -> CallToolResult:
    terms = normalize_terms([arguments["search"]] if "search" in arguments else [])
    since = earliest_run_id(arguments["since"], datetime.now(UTC)) if "since" in arguments else ""

    def is_readable(first: RunStarted) -> bool:
        return first.run in own or not restricts_texts(first.policy)

    try:
        rows, more, _ = newest_runs(store, RunQuery(since=since, terms=terms), arguments.get("count", 20), is_readable)
    except OSError as error:
        raise unreadable(store.place, error) from None
    runs = clean([{name: row[name] for name in _ListedRun.model_fields} for row in rows])
    lines = [f"{row['run']}  {row['state']}  {one_line(row['question'])[:100]}" for row in runs]
    text = "\n".join(lines) or "there are no stored runs that match"
    return result_of(text, data={"runs": runs, "more": more})
