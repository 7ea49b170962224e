"""What becomes of a question: its line among the answers or the failures, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from conductor_cli.app.batches.input_forms import BatchItem, input_hash, is_openai
from conductor_cli.core.continuation import who_answers
from conductor_cli.core.errors import Failure
from conductor_cli.core.fast_copies import fast_replace
from conductor_cli.core.mappings import without_empty
from conductor_cli.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What became of a question.

    Its `line` is one of the answers, or of the failures where there is a `failure`. The cost is in
    US dollars, None where it is unknown; `unpriced` calls had no price.
    """

    line: Mapping[str, Any]
    cost: Decimal | None = None
    unpriced: int = 0
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)  # Without slots for `fast_replace`
class BatchProgress:
    """How many of `total` questions were answered, how many failed, and what all of it cost.

    That is all that is known of it: `unpriced` calls had no price.
    """

    total: int
    answered: int = 0
    failed: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0

    @property
    def done(self) -> int:
        return self.answered + self.failed

    def after(self, result: BatchResult) -> BatchProgress:
        """Return the progress when this result counts, too."""
        cost = self.cost + (result.cost or Decimal(0))
        unpriced = self.unpriced + result.unpriced
        if result.failure is not None:
            return fast_replace(self, failed=self.failed + 1, cost=cost, unpriced=unpriced)
        return fast_replace(self, answered=self.answered + 1, cost=cost, unpriced=unpriced)


def batch_result_of(item: BatchItem, trace: Trace, *, stores: bool) -> BatchResult:
    """Return what became of a question by the trace of its run.

    Its line names the run where that is stored, which `stores` allows. Where it is not, the line is
    the same whenever the answer is.
    """
    cost: dict[str, Any] = {}
    if trace.usage.cost:
        cost["cost"] = float(trace.usage.cost)
    if trace.usage.unpriced:
        cost["unpriced"] = trace.usage.unpriced
    failure = trace.error
    if failure is not None and _is_as_long_as_asked(trace):
        failure = None
    if failure is not None:
        line = _failed_fields(item) | {"error": _error_fields(failure) | cost}
    elif is_openai(item.fields):
        line = _openai_fields(item, trace) | cost | {"input": input_hash(item.fields)}
    else:
        line = _answer_fields(item, trace) | cost
        if stores and trace.stored:
            line["run"] = trace.run
    usage = trace.usage
    return BatchResult(line=line, cost=usage.cost, unpriced=usage.unpriced, failure=failure)


def _is_as_long_as_asked(trace: Trace) -> bool:
    """Return whether an answer has no end because its own request wants no more tokens of it."""
    conversation = trace.question.conversation
    last = who_answers(trace)
    if conversation is None or conversation.max_tokens is None or last is None:
        return False
    is_cut = trace.error is not None and trace.error.reason == "answer_truncated"
    return is_cut and last.usage.tokens_out >= conversation.max_tokens


def _failed_fields(item: BatchItem) -> dict[str, Any]:
    """Return the line of the input, the id first.

    By that a line is known as ours which a kill has cut off.
    """
    name = "custom_id" if is_openai(item.fields) else "id"
    return {name: item.id, **item.fields}


def _error_fields(failure: Failure) -> dict[str, Any]:
    """Return the fields of a failure that have a text."""
    fields: dict[str, str] = {
        "kind": failure.kind,
        "reason": failure.reason,
        "message": failure.message,
        "hint": failure.hint,
    }
    return without_empty(fields)


def _answer_fields(item: BatchItem, trace: Trace) -> dict[str, Any]:
    return {
        "id": item.id,
        "question": item.fields["question"],
        "answer": trace.answer,
        "tokens": trace.usage.tokens,
        "input": input_hash(item.fields),
    }


def _openai_fields(item: BatchItem, trace: Trace) -> dict[str, Any]:
    """Return a line of answers as OpenAI writes it."""
    message = {"role": "assistant", "content": trace.answer}
    finish = "stop" if trace.error is None else "length"
    body = {
        "id": f"chatcmpl-{trace.run}",
        "object": "chat.completion",
        "model": "conductor",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {
            "prompt_tokens": trace.usage.tokens_in,
            "completion_tokens": trace.usage.tokens_out,
            "total_tokens": trace.usage.tokens,
        },
    }
    return {
        "id": f"batch_req_{trace.run}",
        "custom_id": item.id,
        "response": {"status_code": 200, "request_id": trace.run, "body": body},
        "error": None,
    }
