"""The whole run as one JSON object, written when it has ended: `--format json`."""

from __future__ import annotations

import json
from typing import Any

from conductor_cli.core.events import Event
from conductor_cli.core.plan import KeepAnswer, Plan
from conductor_cli.core.serialization import dump
from conductor_cli.core.trace import StepRecord, Trace
from conductor_cli.views.base import Stdout
from conductor_cli.views.json_lines import write_json
from conductor_cli.views.limit_hints import with_limit_hint
from conductor_cli.views.run_text import apply_without_deltas


class JsonOutput:
    """Answer, plan, steps, usage and the trace's id in one object; `answer` is null where the run failed."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._trace = Trace()
        self._written = False

    def show(self, event: Event) -> None:
        self._trace = apply_without_deltas(self._trace, event)
        if self._trace.ended:
            self._write()

    def close(self) -> None:
        """Write the object of a run that has no end."""
        if self._trace.run and not self._written:
            self._write()

    def _write(self) -> None:
        self._written = True
        write_json(self._stdout, json.dumps(run_data(self._trace), ensure_ascii=False, separators=(",", ":")))
        self._stdout.flush()


def run_data(trace: Trace, *, live: bool = False, prompts: bool = False) -> dict[str, Any]:
    """The object; `state` is finished, failed, interrupted, or running while somebody writes the trace (`live`).

    Money is text, as in the trace: a float is not exact. `alone` is an estimate of what single workers would have cost
    for the same question, null where that says nothing.
    """
    from conductor_cli.core.single_worker_cost import compare_with_single_worker  # the prompts are with it

    return {
        "state": trace.state if trace.ended else "running" if live else "interrupted",
        "answer": trace.answer if trace.state == "finished" else None,
        "partial": trace.partial,
        "error": dump(trace.error and with_limit_hint(trace.error)),
        "run": trace.run,
        "resumed": trace.resumed or None,
        "mode": trace.mode,
        "conductor": trace.conductor,
        "policy": dump(trace.policy),
        **_workflow(trace, prompts=prompts),
        "planning": dump(trace.planning),
        "usage": dump(trace.usage),
        "alone": dump(compare_with_single_worker(trace)),
        "notices": [{"step": notice.step, "text": notice.text} for notice in trace.notices],
    }


def _workflow(trace: Trace, *, prompts: bool = False) -> dict[str, Any]:
    steps = [_step(record, trace.at) | ({"prompt": dump(record.prompt)} if prompts else {}) for record in trace.steps]
    return {"plan": _plan(trace.plan), "steps": steps}


def _plan(plan: Plan | KeepAnswer | None) -> dict[str, Any] | str | None:
    if plan is None:
        return None
    return "accept" if isinstance(plan, KeepAnswer) else {"steps": [dump(step) for step in plan.steps]}


def _step(record: StepRecord, now: float) -> dict[str, Any]:
    inner = record.nested
    return {
        "number": record.number,
        "worker": record.worker,
        "subtask": record.step.subtask,
        "access": list(record.step.access),
        "state": record.state,
        "text": record.text,
        "usage": dump(record.usage),
        "seconds": round(record.seconds(now), 3),
        "error": dump(record.error and with_limit_hint(record.error)),
        "nested": inner and _workflow(inner),
    }
