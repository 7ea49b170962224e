"""What a run that has ended is to its client: text, calls, usage, or an error. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from conductor_cli.core.chat import Finish
from conductor_cli.core.errors import Failure
from conductor_cli.core.follow_up import who_answers
from conductor_cli.core.trace import Trace
from conductor_cli.core.usage import NO_USAGE, Usage
from conductor_cli.server.api.failures import request_error
from conductor_cli.server.api.request import Outcome, RequestError, ServedUsage, StepUsage

SCHEMA_BROKEN: Final = frozenset({"answer_not_json", "answer_not_schema"})
"""Why an answer is a failure to a client that gave a JSON Schema."""


def outcome_of(trace: Trace, reasoning: str = "", *, now: datetime | None = None) -> Outcome | RequestError:
    """How a run ended. `reasoning` is what was told of it, `now` the local time, for limits of a day."""
    if (refusal := refusal_in(trace.error)) and trace.state == "failed":
        return Outcome(
            run=trace.run, text=refusal, finish="stop", usage=served_usage(trace), reasoning=reasoning, tool_calls=()
        )
    if trace.state != "finished" or _broke_off(trace):
        return request_error(_cause(trace), trace.run, now=now)
    if trace.error is not None and trace.error.reason in SCHEMA_BROKEN:
        return RequestError(502, "invalid_answer", f"{trace.error.message} [run {trace.run}]")
    if trace.error is not None and trace.error.reason == "answer_not_checked":
        # To try again would cost another run, and end likewise.
        return RequestError(400, "invalid_json_schema", f"{trace.error.message} [run {trace.run}]")
    return Outcome(
        run=trace.run, text=trace.answer, finish=_finish(trace), usage=served_usage(trace), reasoning=reasoning,
        tool_calls=trace.tool_calls,
    )  # fmt: skip


def refusal_in(error: Failure | None) -> str:
    """What a client reads as the answer where the run declined to give one, in a sentence; else empty.

    For a client, a model that declines has answered: an error would end an evaluation, or be tried again.
    """
    return error.message if error is not None and error.reason == "declined" else ""


def served_usage(trace: Trace) -> ServedUsage:
    """What a run used: its answering step, and all the rest. What no step reported counts as the rest."""
    last = who_answers(trace)
    answer = last.usage if last is not None else NO_USAGE
    models = {worker.name: worker.model_name for worker in trace.pool}
    steps = tuple(
        StepUsage(step=record.number, worker=record.worker, model=models.get(record.worker, ""), usage=record.usage)
        for record in trace.steps
    )
    return ServedUsage(answer=answer, orchestration=_rest(trace.usage, answer), steps=steps)


def _rest(total: Usage, part: Usage) -> Usage:
    """What `part` leaves of `total`."""
    cost: Decimal | None = total.cost
    if cost is not None and part.cost is not None:
        # A cost of nothing is none where nothing else has a price, so that the sum says the same as the total.
        cost = max(cost - part.cost, Decimal(0))
    return Usage(
        tokens_in=max(total.tokens_in - part.tokens_in, 0),
        tokens_out=max(total.tokens_out - part.tokens_out, 0),
        tokens_cached=max(total.tokens_cached - part.tokens_cached, 0),
        tokens_reasoning=max(total.tokens_reasoning - part.tokens_reasoning, 0),
        tokens_stored=max(total.tokens_stored - part.tokens_stored, 0),
        cost=cost,
        seconds=max(total.seconds - part.seconds, 0.0),
        calls=max(total.calls - part.calls, 0),
        unpriced=max(total.unpriced - part.unpriced, 0),
    )


def _broke_off(trace: Trace) -> bool:
    """Whether the answer is the beginning of one whose worker failed.

    Clients try again after an error. An end for the reason `length` they take for a limit that their user should raise.
    """
    if not trace.partial or trace.error is None or trace.error.kind not in ("worker", "unreachable"):
        return False
    return all(record.text != trace.answer for record in trace.steps if record.state == "done")


def _finish(trace: Trace) -> Finish:
    if trace.tool_calls:
        return "tool"
    if trace.partial:
        return "length"
    last = who_answers(trace)
    return last.finish or "stop" if last is not None else "stop"


def _cause(trace: Trace) -> Failure:
    """Why a run failed. Where each attempt found the conversation too long for its model, that is the reason."""
    error = trace.error or Failure(kind="internal", message="the run has no end")
    attempts = [attempt.error for record in trace.steps for attempt in record.failed]
    if error.kind == "worker" and attempts and all(each.reason == "length" for each in attempts):
        return replace(error, reason="length")
    return error
