"""What a server says when it does not answer: an HTTP status, or an error object, to a `ModelError`. Pure.

The provider's own words are kept, short and clean: at most 300 characters, without control characters and without the
key that was sent.
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

WORDS: Final = 300
"""How many characters of a provider's message are shown."""

CAPS: Final = ("max_tokens", "max_completion_tokens")
"""The two names of the bound on a reply's tokens. It is renamed, never left out."""

FORMS: Final = ("grammar", "structured_outputs", "ebnf", "response_format")
"""The fields that hold a reply to a form. One call has at most one of them."""

SPARE: Final = (
    "temperature", "stream_options", "seed", "stop", "reasoning_effort", "chat_template_kwargs", "top_p",
    "thinking", "reasoning", "extra_body", *FORMS,
)  # fmt: skip
"""What may be left out of a call whose server refuses it, unless it is a setting of the worker's own."""

SECRET: Final = 6
"""A header's value with fewer characters is no secret."""

_STATUS: Final[dict[int, ModelErrorReason]] = {
    400: "refused", 401: "auth", 402: "refused", 403: "auth", 404: "missing", 405: "missing", 408: "overloaded",
    409: "overloaded", 410: "missing", 413: "refused", 422: "refused", 425: "overloaded", 429: "rate",
}  # fmt: skip

_NO_MONEY: Final = ("insufficient_quota", "insufficient_balance", "billing")

_CODES: Final[tuple[tuple[str, ModelErrorReason], ...]] = (
    *((code, "refused") for code in _NO_MONEY),
    ("rate_limit", "rate"),
    ("resource_exhausted", "rate"),
    ("too_many_requests", "rate"),
    ("authentication", "auth"),
    ("permission", "auth"),
    ("invalid_api_key", "auth"),
    ("unauthorized", "auth"),
    ("not_found", "missing"),
    ("overloaded", "overloaded"),
    ("unavailable", "overloaded"),
    ("server_error", "overloaded"),
    ("internal", "overloaded"),
    ("timeout", "overloaded"),
    ("content_filter", "refused"),
    ("content_policy", "refused"),
    ("context_length", "length"),
    ("context_size", "length"),
    ("context_window", "length"),
    ("invalid", "refused"),
)
"""Parts of the codes that providers use, the more telling first."""

_DOES: Final[dict[ModelErrorReason, str]] = {
    "auth": "refused the key",
    "missing": "knows no such model or address",
    "refused": "refused the question",
    "length": "cannot read so long a question",
    "rate": "is asked too often",
    "overloaded": "is not able to answer now",
    "broken": "broke the answer off with an error",
}

_HINTS: Final[dict[ModelErrorReason, str]] = {
    "auth": "check the key: conductor keys test",
    "missing": "check the worker's model and base_url",
    "length": "ask for less, or use a model with a larger context",
}

_NO_KEY: Final = "none was sent; say which variable holds it: conductor workers add NAME --key-env VARIABLE"

_NO_SERVER: Final = (
    "answers, but not as a model server does",
    "check host, port and path of its address: something else may listen there, and most addresses end in /v1",
)
"""What does not know an address and does not say so as the servers of models do, and what to do then."""

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
"""How servers say that a question, or it and the reply together, have more tokens than the model can hold."""

_OF_FORM: Final = re.compile(
    r"grammar|\bebnf\b|\bgbnf\b|json[ _-]?schema|(?:response|output)[ _-]format|structured[ _-]outputs?|\bguided",
    re.IGNORECASE,
)
"""How servers speak of a form that they do not take, where they do not name the field."""

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
        faults = list(_faults(message.get("detail") if isinstance(message, Mapping) else parts.get("detail")))
        self.codes = tuple(str(parts[key]) for key in ("code", "type", "status") if parts.get(key))
        self.names = tuple(str(name) for name in (parts.get("param"), *(where for where, _ in faults)) if name)
        self.message = "; ".join(f"{where}: {what}" if where else what for where, what in faults) or _text(message)


def error_of_response(
    name: str, status: int, headers: Mapping[str, str], body: bytes, secrets: tuple[str, ...] = ()
) -> ApiError:
    """The error for an answer of the server called `name` with an error status. Header names are in lower case."""
    said = ErrorBody(_json(body))
    reason = kind_of_status(status, said)
    words = clean_excerpt(said.message or body, secrets)
    does, hint = _DOES.get(reason, "failed"), _HINTS.get(reason, "")
    if reason == "auth" and not any(secrets):
        does, hint = "wants a key", _NO_KEY
    if status in {404, 405} and not _is_error(_json(body)):
        does, hint = _NO_SERVER
    if 300 <= status < 400:
        words = clean_excerpt(
            f"redirects are not followed, this one leads to {headers.get('location', 'nowhere')}", secrets
        )
    refusal = ApiError(
        reason,
        f"{name} {does} ({status}){f': {words}' if words else ', without a word'}",
        hint=hint,
        retry_after=retry_after(headers, time.time()),
    )
    refusal.status, refusal.said = status, said
    return refusal


def error_in_body(name: str, value: object, secrets: tuple[str, ...] = ()) -> ApiError:
    """The error for an error object inside an answer whose status was good."""
    said = ErrorBody(value)
    reason: ModelErrorReason = next((kind for kind in map(_by_code, said.codes) if kind), "broken")
    reason = "length" if exceeds_context(said) else reason
    words = clean_excerpt(said.message, secrets)
    refusal = ApiError(reason, f"{name} {_DOES[reason]}{f': {words}' if words else ''}", hint=_HINTS.get(reason, ""))
    refusal.status, refusal.said = 200, said
    return refusal


def rejected_parameter(said: ErrorBody, body: Mapping[str, Any]) -> str:
    """The parameter of `body` that a server names as the reason of its refusal, empty if none."""
    sent = [name for name in (*CAPS, *SPARE) if name in body]
    parts = {name.partition(".")[0] for name in said.names}
    for name in sent:
        if name in parts or re.search(rf"""['"`]{name}\b""", said.message):
            return name
    plain = (name for name in sent if "_" in name or name == "temperature")  # the others are words of any message
    form = (name for name in sent if name in FORMS and _OF_FORM.search(said.message))
    return next((name for name in plain if re.search(rf"\b{name}\b", said.message)), next(form, ""))


def clean_excerpt(text: str | bytes, secrets: tuple[str, ...] = ()) -> str:
    """Foreign words fit to be shown: no markup, no control characters, no secrets, at most 300 characters."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    for secret in secrets:
        if len(secret) >= SECRET:
            text = text.replace(secret, REDACTED)
    text = KNOWN_SECRETS.redact(text)
    text = text[: 64 * WORDS]
    if "<html" in text[:WORDS].lower() or text.lstrip()[:9].lower() == "<!doctype":
        text = _TAGS.sub(" ", text)
    text = " ".join(_CONTROL.sub(" ", text).split())
    return text if len(text) <= WORDS else text[: WORDS - 1] + "…"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that a server asks to wait: `retry-after` as seconds or as a date, or `retry-after-ms`."""
    wait = _number(headers.get("retry-after-ms", ""))
    if wait is not None:
        return wait / 1000
    value = headers.get("retry-after", "")
    wait = _number(value)
    return _until(value, now) if wait is None else wait


def exceeds_context(said: ErrorBody) -> bool:
    """Whether a server says that the model cannot hold so many tokens: by its code, else in its words."""
    codes = [_by_code(code) for code in said.codes]
    return "length" in codes or ("rate" not in codes and _TOO_LONG.search(said.message) is not None)


def kind_of_status(status: int, said: ErrorBody) -> ModelErrorReason:
    """What an HTTP status means."""
    if status in (400, 413, 422, 500) and exceeds_context(said):
        return "length"
    if status == 429 and any(part in code.lower() for code in said.codes for part in _NO_MONEY):
        return "refused"  # asking again does not help
    if 300 <= status < 400:
        return "missing"
    return "overloaded" if status >= 500 else _STATUS.get(status, "refused")


def _by_code(code: str) -> ModelErrorReason | None:
    if code.isascii() and code.isdigit() and len(code) == 3:
        return kind_of_status(int(code), ErrorBody(None)) if int(code) >= 300 else None
    code = code.lower().replace("-", "_").replace(" ", "_")
    return next((reason for part, reason in _CODES if part in code), None)


def _is_error(value: object) -> bool:
    """Whether a body is an error as the servers of models write it, and not as every web server does."""
    value = value[0] if isinstance(value, list) and value else value
    return isinstance(value, Mapping) and bool({"error", "object", "code", "message"} & value.keys())


def _faults(detail: object) -> Iterator[tuple[str, str]]:
    """Where and what, of the `detail` that FastAPI servers send."""
    if isinstance(detail, str):
        yield "", detail
    for fault in detail if isinstance(detail, list) else ():
        if isinstance(fault, Mapping):
            where = fault.get("loc")
            yield str(where[-1]) if isinstance(where, list) and where else "", _text(fault.get("msg"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _json(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


def _until(value: str, now: float) -> float | None:
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, OverflowError, IndexError):
        return None
