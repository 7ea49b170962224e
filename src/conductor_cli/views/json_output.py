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
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.system.known_secrets import KNOWN_SECRETS
from conductor_cli.views.base import RunView, Stdout
from conductor_cli.views.run_text import with_hint


class JsonLinesOutput(RunView):
    """Writes each event as a trace file has it, but with control characters escaped, so that
    terminals are safe.
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
        if self._trace.run:
            locate = self._trace_path if self._trace.stored else None
            path = locate(self._trace.run) if locate is not None else None
            data = run_json(self._trace, path)
            write_json(self._stdout, encode_line(data))
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
    """The run as one JSON object; with `prompts`, also what each worker was sent.

    `state` is finished, cancelled, failed, interrupted, or running while another process writes the
    trace (`live`). `answer` is null when there is none, and `trace` when no file, `path`, has the
    run. `notices` holds also what was recovered, and the notices of nested runs. Money is text, as
    in the trace, because a float is not exact.
    """
    state = trace.outcome(live=live)
    return {
        "state": "finished" if state == "partial" else state,
        "answer": trace.answer if trace.state == "finished" else None,
        "partial": trace.partial,
        "error": dump(trace.error and with_hint(trace.error)),
        "run": trace.run,
        "trace": path,
        "resumed": trace.resumed or None,
        "mode": trace.mode,
        "conductor": trace.conductor,
        "planner_worker": trace.planner_worker or None,
        "policy": dump(trace.policy),
        **_workflow_data(trace, prompts=prompts),
        "planning": dump(trace.planning),
        "usage": dump(trace.usage),
        "notices": [
            {"step": item.step, "text": item.text, "recovered": item.recovered}
            for item in trace.all_notices()
        ],
    }


def _workflow_data(trace: Trace, *, prompts: bool = False) -> dict[str, Any]:
    """Plan and steps of a run or of a nested one."""
    plan: Any = None
    if trace.plan is not None:
        plan = (
            "accept"
            if isinstance(trace.plan, KeepAnswer)
            else {"steps": [dump(step) for step in trace.plan.steps]}
        )
    # The reason of a rejected plan is `plan_invalid`, or why the call to the planner failed.
    rejected = [
        {
            "attempt": event.attempt,
            "at": event.at,
            "reason": event.reason,
            "message": event.problem,
            "hint": event.hint,
            "usage": dump(event.usage),
        }
        for event in trace.rejected
    ]
    steps = [_step_data(record, trace.at, prompts=prompts) for record in trace.steps]
    return {"plan": plan, "rejected_plans": rejected, "steps": steps}


def _step_data(record: StepRecord, now: float, *, prompts: bool) -> dict[str, Any]:
    """One step. Times are seconds since the run began.

    `started` of a failed attempt is null for a worker that was not asked, `ended` of a call of a
    tool if the call did not return.
    """
    failed = [(attempt, with_hint(attempt.error)) for attempt in record.failed]
    data = {
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
        "failed_attempts": [
            {
                "attempt": attempt.attempt,
                "worker": attempt.worker,
                "started": attempt.started,
                "ended": attempt.ended,
                "reason": error.reason or error.kind,
                "message": attempt.message,
                "hint": error.hint,
                "usage": dump(attempt.usage),
            }
            for attempt, error in failed
        ],
        "tools": [
            {
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
            for use in record.tools
        ],
        "nested": record.nested and _workflow_data(record.nested),
    }
    return data | {"prompt": dump(record.prompt)} if prompts else data
