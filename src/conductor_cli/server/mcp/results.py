"""What a call returns: data in the form of the tool's result schema, and the same for a reader, as text.

Texts are sanitized and keys redacted: a client may print them on a terminal, and its model reads them.

The tool `trace`: stored runs as a client may see them.

A client hands what it reads to its own model, which may be anywhere. A run whose rules kept its texts on this machine,
or from some providers, is therefore not shown, unless this server has run it for its client.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

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
from conductor_cli.server.runs import confidential, restricts_texts
from conductor_cli.state.run_index import RunIndex
from conductor_cli.state.stored_run import RunQuery, StoredRun, normalize_terms, stored_run_data
from conductor_cli.state.trace_file import unreadable
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views.run_text import describe_notice, describe_outcome, find_step, with_hint

LONGEST_TEXT: Final = 100_000
"""Characters of one text of a step. A client's model reads no more."""

_ARGUMENTS: Final = {"limit_cost": "max_cost", "limit_time": "max_seconds", "limit_tokens": "max_tokens"}
"""The argument that sets a limit, by the reason of a failure at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a call: `texts` for a reader, `data` for a program (None: there is none)."""

    texts: tuple[str, ...]
    data: dict[str, Any] | None = None
    is_error: bool = False


def clean(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value without keys, and without what a terminal would obey."""
    return _sanitized(KNOWN_SECRETS.redact_data(value))


def _sanitized(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, dict):
        return {sanitize(str(name)): _sanitized(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_sanitized(item) for item in value]
    return value


# Errors


def error_result(error: ConductorError | Failure, data: dict[str, Any] | None = None) -> Result:
    """An error as the client's model reads it: what happened, and what to do next."""
    hint = " ".join(error.hint.split())
    text = f"{one_line(error.message)}" + (f"\n{hint}" if hint else "")
    return Result(texts=(clean(text),), data=data, is_error=True)


# A run


def run_result(run: Run) -> Result:
    """The answer of a run that has ended; an error where there is none."""
    trace = run.trace
    data = clean(run_data(trace, stored=trace.stored))
    if trace.state != "finished":
        error = _advised(trace.error or Failure(kind="internal", message="the run has no answer"))
        found = error_result(error, data)
        return replace(found, texts=(f"{found.texts[0]}\n{_totals(trace)}",))
    remarks = [_totals(trace)]
    if trace.partial or trace.error is not None:
        why = f": {one_line(trace.error.message)}" if trace.error is not None else ""
        remarks.insert(0, f"This is a part of the answer{why}.")
    return Result(texts=(data["answer"], clean("\n".join(remarks))), data=data)


def run_data(trace: Trace, *, stored: bool, state: str = "") -> dict[str, Any]:
    """A run in the form of the result schema. `state` says more where the run has no end."""
    return {
        "run": trace.run,
        "stored": stored,
        "state": state or trace.state,
        "answer": trace.answer,
        "partial": trace.partial,
        "error": _failure_data(trace.error),
        "steps": [step_data(record, trace.at) for record in trace.steps],
        "usage": _usage_data(trace.usage, trace.at),
        "notices": [describe_notice(notice) for notice in trace.told()],
    }


def step_data(record: StepRecord, now: float) -> dict[str, Any]:
    """A step without its texts."""
    return {
        "number": record.number,
        "worker": record.worker,
        "planned_worker": record.step.worker,
        "subtask": record.step.subtask,
        "access": list(record.step.access),
        "state": record.state,
        "seconds": round(record.seconds(now), 3),
        "tokens": record.usage.tokens,
        "cost": dump(record.usage.cost),
        "error": _failure_data(record.error),
    }


def whole_step_data(record: StepRecord, now: float) -> dict[str, Any]:
    """A step with what its worker was sent and what it wrote, each up to `LONGEST_TEXT` characters."""
    prompt = [{"role": message.role, "content": message.content[:LONGEST_TEXT]} for message in record.prompt]
    return {**step_data(record, now), "text": record.text[:LONGEST_TEXT], "prompt": prompt}


def _failure_data(error: Failure | None) -> dict[str, Any] | None:
    if error is None:
        return None
    error = _advised(error)
    return {"kind": error.kind, "reason": error.reason, "message": error.message, "hint": error.hint}


def _advised(error: Failure) -> Failure:
    """The failure with a hint that a client can follow: at a limit it names the argument, not the flag."""
    argument = _ARGUMENTS.get(error.reason)
    if argument is None or error.hint or not error.suggested_limit:
        return with_hint(error)
    return replace(error, hint=f"call again with {argument}={error.suggested_limit}, if the user's own limit allows it")


def _usage_data(usage: Usage, seconds: float) -> dict[str, Any]:
    return {
        "calls": usage.calls, "tokens_in": usage.tokens_in, "tokens_out": usage.tokens_out, "cost": dump(usage.cost),
        "unpriced_calls": usage.unpriced, "seconds": round(seconds, 3),
    }  # fmt: skip


def _totals(trace: Trace) -> str:
    """`run 2026…: 2 steps by alpha and beta, 310 tokens, $0.0012, 4.1 s`."""
    workers = ", ".join(dict.fromkeys(one_line(record.worker) for record in trace.steps))
    by = f" by {workers}" if workers else ""
    parts = (
        f"{format_count(len(trace.steps), 'step')}{by}", format_count(trace.usage.tokens, "token"),
        format_cost(trace.usage), format_duration(trace.at),
    )  # fmt: skip
    return f"[run {trace.run}: {', '.join(filter(None, parts))}]"


# A plan


def plan_result(run: Run, limits: Limits) -> Result:
    """The plan of a run that only planned, with its estimate; an error where there is none."""
    trace = run.trace
    if not isinstance(trace.plan, Plan) or trace.state != "finished":
        return run_result(run) if trace.error is not None else _no_plan()
    offer = describe_offer(run)
    estimate = sum(estimate_steps(offer.question_for, offer.plan, offer.pool, offer.profile, offer.planner), ZERO)
    recipients = recipients_of(run.config.pool)
    data = clean({
        "run": trace.run,
        "stored": trace.stored,
        "plan": json.loads(format_plan_file(run.question, trace.plan, limits)),
        "estimate": {
            "calls": estimate.calls, "tokens": list(estimate.tokens), "cost": [str(cost) for cost in estimate.cost],
            "unpriced_calls": estimate.unpriced,
        },
        "recipients": {step.worker: recipients.get(step.worker, "") for step in trace.plan.steps},
        "usage": _usage_data(trace.usage, trace.at),
        "notices": [describe_notice(notice) for notice in trace.told()],
    })  # fmt: skip
    lines = [
        f"{number}. {step.worker} (sees {_seen(step.access)}): {one_line(step.subtask)}"
        for number, step in enumerate(trace.plan.steps, start=1)
    ]
    (low, high), (least, most) = estimate.tokens, estimate.cost
    unpriced = f", and {format_count(estimate.unpriced, 'call')} without a known price" if estimate.unpriced else ""
    cost = f"{format_money(least)} to {format_money(most)}{unpriced}"
    lines += [
        f"Estimate: {format_count(estimate.calls, 'call')}, {low:,} to {high:,} tokens, {cost}.",
        f"To run it as it is, call the tool run with run={trace.run}.",
    ]
    return Result(texts=(clean("\n".join(lines)),), data=data)


def _seen(access: Sequence[int]) -> str:
    return "the answers of " + ", ".join(map(str, access)) if access else "the question and files only"


def _no_plan() -> Result:
    return error_result(Failure(kind="conductor", message="the planner wrote no plan", hint="ask again"))


COUNT: Final = 20
"""Runs in a list where the client names no number."""

_SHOWN: Final = ("run", "time", "state", "question", "workers", "cost", "tokens", "seconds")


def look_at_runs(store: TraceStore, arguments: Mapping[str, Any], own: Collection[str]) -> Result:
    """A list, one run, or one step of it. `own` are the runs of this server. Raises `UsageError` or `PolicyError`."""
    if "run" not in arguments:
        if "step" in arguments:
            raise UsageError("step needs run", hint="call trace without arguments for a list of runs")
        return _list(store, arguments, own)
    try:
        run = store.find(arguments["run"])
    except UsageError as error:
        raise UsageError(error.message, hint="call trace without arguments for a list of runs") from None
    return _show(store, run, arguments.get("step"), own)


def _list(store: TraceStore, arguments: Mapping[str, Any], own: Collection[str]) -> Result:
    terms = normalize_terms([arguments["search"]] if "search" in arguments else [])
    since = earliest_run_id(arguments["since"], datetime.now(UTC)) if "since" in arguments else ""
    directory = str(store.directory)
    try:
        rows, more = RunIndex(directory).newest(RunQuery(since=since, terms=terms), arguments.get("count", COUNT))
    except OSError as error:
        raise unreadable(Path(directory), error) from None
    hidden = {row.run for row in rows if row.run not in own and _is_confidential(store, row.run)}
    # That a text is found in a run says something about it, too.
    shown = [row for row in rows if not (terms and row.run in hidden)]
    runs = clean([_row_data(row, directory, hidden) for row in shown])
    lines = [f"{row['run']}  {row['state']}  {one_line(row['question'])[:100]}" for row in runs]
    text = "\n".join(lines) or "there are no stored runs that match"
    return Result(texts=(text,), data={"runs": runs, "more": more})


def _row_data(row: StoredRun, directory: str, hidden: Collection[str]) -> dict[str, Any]:
    data = stored_run_data(row, directory)
    if row.run in hidden:
        data["question"] = "(not shown: its rules keep it from other programs)"
    return {name: data[name] for name in _SHOWN}


def _show(store: TraceStore, run: str, step: int | None, own: Collection[str]) -> Result:
    if run not in own and _is_confidential(store, run):
        raise confidential(run)
    live = store.is_running(run)
    trace = store.trace(run)
    if step is not None:
        record = find_step(trace, step)
        if record is None:
            raise UsageError(f"run {run} has no step {step}", hint=f"it has {format_count(len(trace.steps), 'step')}")
        data = clean(whole_step_data(record, trace.at))
        return Result(texts=(data["text"] or "(no text)",), data={"step": data})
    state = trace.state if trace.ended else "running" if live else "interrupted"
    data = clean(run_data(trace, stored=True, state=state) | {"answer": trace.answer[:LONGEST_TEXT]})
    lines = [f"{describe_outcome(trace, live=live)}. Question: {one_line(trace.question.text)[:300]}"]
    lines += [_step_line(step_data(record, trace.at)) for record in trace.steps]
    texts = [clean("\n".join(lines)), *([data["answer"]] if data["answer"] else [])]
    return Result(texts=tuple(texts), data={"run": data, "question": clean(trace.question.text)})


def _step_line(step: Mapping[str, Any]) -> str:
    return f"{step['number']}. {step['worker']}, {step['state']}: {one_line(step['subtask'])}"


def _is_confidential(store: TraceStore, run: str) -> bool:
    """Whether a run had a rule about who may read its texts. One that cannot be read is treated as if it had."""
    with suppress(ConductorError, OSError):
        first = next(iter(store.events(run, pieces=False)), None)
        if isinstance(first, RunStarted):
            return restricts_texts(first.policy)
    return True
