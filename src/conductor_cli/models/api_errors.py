"""From a server's HTTP status or error object to a `ModelError`. Pure.

The provider's own words are kept: at most 300 characters, without control characters and without any key.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.core.redact import REDACTED
from conductor_cli.models.known_secrets import KNOWN_SECRETS

LONGEST_EXCERPT: Final = 300

MAX_TOKENS_FIELDS: Final = ("max_tokens", "max_completion_tokens")
"""The two names of the limit on a reply's tokens. A server that refuses one is sent the other."""

CONSTRAINT_FIELDS: Final = ("grammar", "structured_outputs", "ebnf", "response_format")
"""The fields that constrain a reply's form. A request has at most one of them."""

OPTIONAL_FIELDS: Final = (
    "temperature", "stream_options", "seed", "stop", "reasoning_effort", "chat_template_kwargs", "top_p",
    "thinking", "reasoning", "extra_body", *CONSTRAINT_FIELDS,
)  # fmt: skip
"""What may be left out of a request that a server refuses, unless it is one of the worker's own settings."""

SHORTEST_SECRET: Final = 6
"""A header's value with fewer characters is not a secret."""

_STATUS: Final[dict[int, ModelErrorReason]] = {
    400: "refused", 401: "auth", 402: "refused", 403: "auth", 404: "missing", 405: "missing", 408: "overloaded",
    409: "overloaded", 410: "missing", 413: "refused", 422: "refused", 425: "overloaded", 429: "rate",
}  # fmt: skip

_NO_MONEY: Final = ("insufficient_quota", "insufficient_balance", "billing")

_CODES: Final[Mapping[str, ModelErrorReason]] = {
    **dict.fromkeys(_NO_MONEY, "refused"),
    "rate_limit": "rate", "resource_exhausted": "rate", "too_many_requests": "rate",
    "authentication": "auth", "permission": "auth", "invalid_api_key": "auth", "unauthorized": "auth",
    "not_found": "missing",
    "overloaded": "overloaded", "unavailable": "overloaded", "server_error": "overloaded", "internal": "overloaded",
    "timeout": "overloaded",
    "content_filter": "refused", "content_policy": "refused",
    "context_length": "length", "context_size": "length", "context_window": "length",
    "invalid": "refused",
}  # fmt: skip
"""Parts of the codes that providers use. The first one that matches counts, so specific ones come first."""

_MESSAGES: Final[dict[ModelErrorReason, str]] = {
    "auth": "key rejected",
    "missing": "model or URL not found",
    "refused": "request refused",
    "length": "question too long for this model",
    "rate": "rate limit reached",
    "overloaded": "server error",
    "broken": "the answer broke off with an error",
}

_HINTS: Final[dict[ModelErrorReason, str]] = {
    "auth": "check the key: conductor keys test",
    "missing": "check the worker's model and base_url",
    "length": "ask for less, or use a model with a larger context",
}

_NO_KEY_HINT: Final = "name the variable that holds the key: conductor workers add NAME --key-env VARIABLE"

_NOT_A_MODEL_SERVER_HINT: Final = (
    "check host, port and path of its URL: another program may listen there, and most URLs end in /v1"
)

_TOO_LONG: Final = re.compile(
    r"""
    max(?:imum)?\ (?:possible\ )?(?:context|prompt|input|model)\ (?:length|limit|size)
    | (?:exceed|longer\ than|greater\ than|fit\ into|larger\ than|overflow).{0,80}\b(?:context|n_ctx\b)
    | context\ (?:length|window|size|limit).{0,20}\ (?:exceed|is\ only|overflow)
    | (?:prompt|input)(?:\ is)?\ too\ long
    | (?:exceed|too\ many).{0,80}\ (?:configured\ limit|number\ of\ tokens\ allowed|allowed\ length)
    | reduce\ the\ length\ of\ the\ (?:messages|input|prompt)
    | keep\ the\ first\ \d+\ tokens\ when\ context | n_keep.{0,20}n_ctx
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How servers say that a question, or a question and its reply, have more tokens than the model can hold."""

_CONSTRAINT_WORDS: Final = re.compile(
    r"grammar|\bebnf\b|\bgbnf\b|json[ _-]?schema|(?:response|output)[ _-]format|structured[ _-]outputs?|\bguided",
    re.IGNORECASE,
)
"""How servers speak of a constraint that they do not support, if they do not name the field."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+")
_TAGS: Final = re.compile(r"(?is)<(script|style)\b.*?(?:</\1>|\Z)|<[^>]*>")


class ApiError(ModelError):
    """An answer with an error status, or an error object inside an answer of status 200, and what it said."""

    status: int
    said: ErrorBody


class ErrorBody:
    """The parts of an error body: the message, the code or type, and the parameters named apart from the message."""

    __slots__ = ("codes", "message", "names")

    def __init__(self, value: object) -> None:
        value = value[0] if isinstance(value, list) and value else value
        outer = value if isinstance(value, Mapping) else {}
        inner = outer.get("error") or outer
        inner = {"message": inner} if isinstance(inner, str) else inner
        parts = inner if isinstance(inner, Mapping) else {}
        message = parts.get("message")
        faults = list(
            _validation_errors(message.get("detail") if isinstance(message, Mapping) else parts.get("detail"))
        )
        self.codes = tuple(str(parts[key]) for key in ("code", "type", "status") if parts.get(key))
        self.names = tuple(str(name) for name in (parts.get("param"), *(where for where, _ in faults)) if name)
        self.message = "; ".join(f"{where}: {what}" if where else what for where, what in faults) or _text_of(message)


def error_of_response(
    name: str, status: int, headers: Mapping[str, str], body: bytes, secrets: tuple[str, ...] = ()
) -> ApiError:
    """The error for an answer of the server called `name` with an error status. Header names are in lower case."""
    content = _parse_json(body)
    said = ErrorBody(content)
    reason = kind_of_status(status, said)
    message, hint = _MESSAGES.get(reason, "failed"), _HINTS.get(reason, "")
    words = clean_excerpt(said.message or body, secrets)
    if reason == "auth" and not any(secrets):
        message, hint = "a key is required, and none was sent", _NO_KEY_HINT
    if status in {404, 405} and not _is_model_server_error(content):
        message, hint = "this is not a model server", _NOT_A_MODEL_SERVER_HINT
    if 300 <= status < 400:
        target = headers.get("location", "nowhere")
        words = clean_excerpt(f"redirects are not followed; this one leads to {target}", secrets)
    error = ApiError(
        reason,
        f"{name}: {message} ({status}){f': {words}' if words else ''}",
        hint=hint,
        retry_after=retry_after(headers, time.time()),
    )
    error.status, error.said = status, said
    return error


def error_in_body(name: str, value: object, secrets: tuple[str, ...] = ()) -> ApiError:
    """The error for an error object inside an answer with status 200."""
    said = ErrorBody(value)
    reason: ModelErrorReason = next((kind for kind in map(_kind_of_code, said.codes) if kind), "broken")
    reason = "length" if exceeds_context(said) else reason
    words = clean_excerpt(said.message, secrets)
    message = f"{name}: {_MESSAGES[reason]}{f': {words}' if words else ''}"
    error = ApiError(reason, message, hint=_HINTS.get(reason, ""))
    error.status, error.said = 200, said
    return error


def rejected_parameter(said: ErrorBody, body: Mapping[str, Any]) -> str:
    """The parameter of `body` that a server gives as the reason for its refusal; empty if it names none."""
    sent = [name for name in (*MAX_TOKENS_FIELDS, *OPTIONAL_FIELDS) if name in body]
    parts = {name.partition(".")[0] for name in said.names}
    for name in sent:
        if name in parts or re.search(rf"""['"`]{name}\b""", said.message):
            return name
    for name in sent:
        # Without quotes, `seed` or `stop` may be any word of the message.
        if ("_" in name or name == "temperature") and re.search(rf"\b{name}\b", said.message):
            return name
    constraint = next((name for name in sent if name in CONSTRAINT_FIELDS), "")
    return constraint if _CONSTRAINT_WORDS.search(said.message) else ""


def clean_excerpt(text: str | bytes, secrets: tuple[str, ...] = ()) -> str:
    """The beginning of a foreign text, fit to be shown: no markup, no control characters, no secrets."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    text = KNOWN_SECRETS.redact(text)[: 64 * LONGEST_EXCERPT]
    if "<html" in text[:LONGEST_EXCERPT].lower() or text.lstrip()[:9].lower() == "<!doctype":
        text = _TAGS.sub(" ", text)
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= LONGEST_EXCERPT else text[: LONGEST_EXCERPT - 1] + "…"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a server asks to wait: `retry-after` as seconds or as a date, or `retry-after-ms`."""
    milliseconds = _parse_number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _parse_number(value)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError, IndexError):
        return None


def exceeds_context(said: ErrorBody) -> bool:
    """Whether a server says that the model cannot hold so many tokens: by its code, else in its words."""
    kinds = [_kind_of_code(code) for code in said.codes]
    return "length" in kinds or ("rate" not in kinds and _TOO_LONG.search(said.message) is not None)


def kind_of_status(status: int, said: ErrorBody) -> ModelErrorReason:
    """What an HTTP status means."""
    if status in (400, 413, 422, 500) and exceeds_context(said):
        return "length"
    if status == 429 and any(part in code.lower() for code in said.codes for part in _NO_MONEY):
        return "refused"  # no credit: asking again does not help
    if 300 <= status < 400:
        return "missing"
    return "overloaded" if status >= 500 else _STATUS.get(status, "refused")


def _kind_of_code(code: str) -> ModelErrorReason | None:
    if code.isascii() and code.isdigit() and len(code) == 3:
        return kind_of_status(int(code), ErrorBody(None)) if int(code) >= 300 else None
    code = code.lower().replace("-", "_").replace(" ", "_")
    return next((reason for part, reason in _CODES.items() if part in code), None)


def _is_model_server_error(value: object) -> bool:
    """Whether a body is an error as model servers write it, unlike the page of any web server."""
    value = value[0] if isinstance(value, list) and value else value
    return isinstance(value, Mapping) and bool({"error", "object", "code", "message"} & value.keys())


def _validation_errors(detail: object) -> Iterator[tuple[str, str]]:
    """Field and message, from the `detail` that FastAPI servers send."""
    if isinstance(detail, str):
        yield "", detail
    for fault in detail if isinstance(detail, list) else ():
        if isinstance(fault, Mapping):
            place = fault.get("loc")
            yield str(place[-1]) if isinstance(place, list) and place else "", _text_of(fault.get("msg"))


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _parse_json(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _parse_number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
