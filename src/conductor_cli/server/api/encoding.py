"""What a request used, under the names that clients know, and the `conductor` object with the rest.

Pure.

`orchestration_input_tokens`, `orchestration_input_cached_tokens` and `orchestration_output_tokens`
are Fugu's names. The tokens of a reply are those of the answering step alone, because clients take
them for the length of their conversation and shorten it when they are too many. What planning and
the other steps used stands beside them.

It also writes server-sent events as bytes (WHATWG HTML, section 9.2).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from conductor_cli.core.usage import Usage
from conductor_cli.server.api.request import ServedAnswer, ServedUsage


def chat_usage(usage: ServedUsage) -> dict[str, Any]:
    """Return the `usage` of Chat Completions."""
    return {
        "prompt_tokens": usage.answer.tokens_in,
        "completion_tokens": usage.answer.tokens_out,
        "total_tokens": usage.answer.tokens,
        "prompt_tokens_details": _details_in(usage),
        "completion_tokens_details": _details_out(usage),
    }


def responses_usage(usage: ServedUsage) -> dict[str, Any]:
    """Return the tokens of an answer by their kinds, as the Responses API names them."""
    return {
        "input_tokens": usage.answer.tokens_in,
        "input_tokens_details": _details_in(usage),
        "output_tokens": usage.answer.tokens_out,
        "output_tokens_details": _details_out(usage),
        "total_tokens": usage.answer.tokens,
    }


def _details_in(usage: ServedUsage) -> dict[str, int]:
    rest = usage.orchestration
    return {
        "cached_tokens": usage.answer.tokens_cached,
        "cache_write_tokens": usage.answer.tokens_stored,
        "orchestration_input_tokens": rest.tokens_in,
        "orchestration_input_cached_tokens": rest.tokens_cached,
    }


def _details_out(usage: ServedUsage) -> dict[str, int]:
    rest = usage.orchestration
    return {
        "reasoning_tokens": usage.answer.tokens_reasoning,
        "orchestration_output_tokens": rest.tokens_out,
    }


def conductor_object(answer: ServedAnswer, ignored: Sequence[str] = ()) -> dict[str, Any]:
    """Return what only this server says.

    The run, what all of it used and cost, and the same for each step. `ignored` are the fields of
    the request that had no effect, and `notices` what a reader should know about how the answer
    came about, if there are any: not every client shows its reasoning.

    Costs are in US dollars, null where nothing has a price; `unpriced_calls` counts the calls
    without one. `usage.total` is the sum of `usage.answer` and `usage.orchestration`.
    """
    usage = answer.usage
    parts = {"answer": usage.answer, "orchestration": usage.orchestration, "total": usage.total}
    remarks = {}
    if ignored:
        remarks["ignored"] = list(ignored)
    if answer.notices:
        remarks["notices"] = list(answer.notices)
    return {
        "run": answer.run,
        **remarks,
        "cost": _dollars(usage.total.cost),
        "unpriced_calls": usage.total.unpriced,
        "usage": {name: _tokens(part) for name, part in parts.items()},
        "steps": [
            {"step": step.step, "worker": step.worker, "model": step.model, **_tokens(step.usage)}
            | {"seconds": round(step.usage.seconds, 3)}
            for step in usage.steps
        ],
    }


def _tokens(usage: Usage) -> dict[str, Any]:
    return {
        "calls": usage.calls,
        "input_tokens": usage.tokens_in,
        "cached_tokens": usage.tokens_cached,
        "output_tokens": usage.tokens_out,
        "reasoning_tokens": usage.tokens_reasoning,
        "cost": _dollars(usage.cost),
    }


def _dollars(cost: Decimal | None) -> float | None:
    return None if cost is None else float(cost)


# Only ASCII, because some clients end a line at U+2028, and a lone surrogate has no UTF-8.
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode

DONE: Final = b"data: [DONE]\n\n"  # What ends a stream of Chat Completions


def json_text(text: str) -> bytes:
    """Return a text as a JSON value, as `json_bytes` writes it."""
    return encode_basestring_ascii(text).encode()


def json_bytes(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return a JSON value in one line."""
    return _ENCODE(value).encode()


def data_event(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return a JSON value as an event without a name."""
    return b"data: %b\n\n" % json_bytes(value)


# Any JSON value
def named_event(name: str, value: Any, identity: str = "") -> bytes:  # noqa: ANN401
    """Return a JSON value as an event of this name, and with this id if it is not empty."""
    line = f"id: {identity}\n" if identity else ""
    return b"%bevent: %b\ndata: %b\n\n" % (line.encode(), name.encode(), json_bytes(value))
