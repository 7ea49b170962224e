"""A run as JSON.

The events as lines (`--format jsonl`), or one object when it has ended (`--format json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from conductor_cli.core.events import Event, to_line
from conductor_cli.core.plan import KeepAnswer
from conductor_cli.core.serialization import dump, encode_line
from conductor_cli.core.trace import (
    FailedAttempt,
    StepRecord,
    ToolRecord,
    Trace,
    describe_approval,
)
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.views.base import RunView, Stdout
from conductor_cli.views.run_text import with_hint


class JsonLinesOutput(RunView):
    """Writes each event as a trace file has it, but with control characters escaped.

    So terminals are safe.
    """

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout

    def show(self, event: Event, _: Trace) -> None:
        write_json(self._stdout, to_line(event, KNOWN_SECRETS))
        self._stdout.flush()


class JsonOutput(RunView):
    """Writes `run_json` once, when the view is closed.

    `trace_path` is where a run's trace is, by the run's id.
    """

    def __init__(self, stdout: Stdout, trace_path: Callable[[str], str] | None = None) -> None:
        self._stdout = stdout
        self._trace_path = trace_path
        self._trace = Trace()

    def show(self, _: Event, trace: Trace) -> None:
        self._trace = trace

    def close(self) -> None:
        run = self._trace.run
        if not run:
            return
        path = None
        if self._trace.stored and self._trace_path is not None:
            path = self._trace_path(run)
        write_json(self._stdout, encode_line(run_json(self._trace, path)))
        self._stdout.flush()


def write_json(stdout: Stdout, line: str) -> None:
    """Write a line of JSON, in ASCII if the encoding of the stream lacks some of its characters."""
    try:
        line.encode(stdout.encoding)
    except UnicodeEncodeError:
        line = json.dumps(json.loads(line), separators=(",", ":"))
    stdout.write(line + "\n")


def run_json(
    trace: Trace, path: str | None, *, live: bool = False, prompts: bool = False
) -> dict[str, Any]:
    """Return the run as one JSON object; with `prompts`, also what each worker was sent.

    `state` is finished, cancelled, failed, interrupted, or running while another process writes the
    trace (`live`). `answer` is null when there is none, and `trace` when no file, `path`, has the
    run. `waits` is what a person has to approve before the run goes on, else null, and `waited`
    the seconds in which it did nothing but wait for that. `notices` holds also what was recovered,
    and the notices of nested runs. Money is text, as in the trace, because a float is not exact.
    """
    state = trace.outcome(live=live)
    if state == "partial":
        state = "finished"
    notices = []
    for notice in trace.all_notices():
        notices.append({"step": notice.step, "text": notice.text, "recovered": notice.recovered})
    return {
        "state": state,
        "answer": trace.answer if trace.state == "finished" else None,
        "partial": trace.partial,
        "error": dump(trace.error and with_hint(trace.error)),
        "run": trace.run,
        "trace": path,
        "waits": _waits_of(trace, live=live),
        "waited": round(trace.seconds_waited(trace.at), 3),
        "resumed": trace.resumed or None,
        "mode": trace.mode,
        "planner": trace.conductor,
        "conductor": trace.conductor,  # The earlier name
        "planner_worker": trace.planner_worker or None,
        "policy": dump(trace.policy),
        **_workflow_data(trace, prompts=prompts),
        "planning": dump(trace.planning),
        "usage": dump(trace.usage),
        "notices": notices,
    }


def _waits_of(trace: Trace, *, live: bool) -> str | None:
    """Return what a person has to approve before the run goes on; None where nobody has to."""
    if live and trace.waits_for is not None:
        return describe_approval(trace.waits_for)
    return None


def _workflow_data(trace: Trace, *, prompts: bool = False) -> dict[str, Any]:
    """Return plan and steps of a run or of a nested one."""
    plan: Any = None
    if isinstance(trace.plan, KeepAnswer):
        plan = "accept"
    elif trace.plan is not None:
        plan = {"steps": [dump(step) for step in trace.plan.steps]}
    # The reason of a rejected plan is `plan_invalid`, or why the call to the planner failed.
    rejected = []
    for event in trace.rejected:
        rejected.append(
            {
                "attempt": event.attempt,
                "at": event.at,
                "reason": event.reason,
                "message": event.problem,
                "hint": event.hint,
                "usage": dump(event.usage),
            }
        )
    steps = [_step_data(record, trace.at, prompts=prompts) for record in trace.steps]
    return {"plan": plan, "rejected_plans": rejected, "steps": steps}


def _step_data(record: StepRecord, now: float, *, prompts: bool) -> dict[str, Any]:
    """Return one step. Times are seconds since the run began.

    `started` of a failed attempt is null for a worker that was not asked, `ended` of a call of a
    tool if the call did not return.
    """
    fields = {
        "number": record.number,
        "planned_worker": record.step.worker,
        "worker": record.worker,
        "subtask": record.step.subtask,
        "access": list(record.step.access),
        "state": record.state,
        "text": record.text,
        "usage": dump(record.usage),
        "seconds": round(record.seconds(now), 3),
        "error": dump(record.error and with_hint(record.error)),
        "failed_attempts": [_attempt_data(attempt) for attempt in record.failed],
        "tools": [_tool_data(use) for use in record.tools],
        "nested": record.nested and _workflow_data(record.nested),
    }
    if prompts:
        fields["prompt"] = dump(record.prompt)
    return fields


def _attempt_data(attempt: FailedAttempt) -> dict[str, Any]:
    error = with_hint(attempt.error)
    return {
        "attempt": attempt.attempt,
        "worker": attempt.worker,
        "started": attempt.started,
        "ended": attempt.ended,
        "reason": error.reason or error.kind,
        "message": attempt.message,
        "hint": error.hint,
        "usage": dump(attempt.usage),
    }


def _tool_data(use: ToolRecord) -> dict[str, Any]:
    return {
        "attempt": use.attempt,
        "turn": use.turn,
        "id": use.call.id,
        "server": use.server,
        "name": use.call.name,
        "arguments": use.call.arguments,
        "started": use.started,
        "ended": use.ended,
        "text": use.text,
        "error": use.error,
    }
