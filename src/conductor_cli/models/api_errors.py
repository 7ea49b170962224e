"""From a server's HTTP status or error object to a `ModelError`. Pure. Every adapter uses it.

The provider's own words are kept: at most 300 characters, without control characters and without
any key. The forms are those of OpenAI, Anthropic, Groq, DeepSeek, Volcengine, vLLM, OpenRouter,
xAI, Moonshot, GLM, MiniMax and Text Generation Inference, as of November 2026.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from conductor_cli.core.errors import ModelError, ModelErrorReason
from conductor_cli.core.redact import Secrets
from conductor_cli.models.base import table_of, tables_in, text_of

MAX_EXCERPT: Final = 300

_NO_CREDIT_CODES: Final = (
    "insufficient_quota",
    "insufficient_balance",
    "billing",
    "exceeded_current_quota",
)

_NO_CREDIT_WORDS: Final = re.compile(
    r"insufficient (?:\w+ )?(?:balance|credits?)\b|used all available credits"
    r"|prepayment credits are depleted",
    re.IGNORECASE,
)
"""How servers say that an account has no credit, whose codes are those of a rate limit or of a key
that may not do this, or of a server that fails: GLM, Moonshot, xAI, Google, MiniMax.
"""

_WRONG_KEY_WORDS: Final = re.compile(r"\b(?:incorrect|invalid) api key\b", re.IGNORECASE)
"""How xAI says it, with the status of a request that it cannot read."""

_REASON_BY_CODE: Final[Mapping[str, ModelErrorReason]] = {
    # What Groq could not read of its model's reply: it is asked for again
    "tool_use_failed": "broken",
    "json_validate_failed": "broken",
    "401": "auth",
    "403": "auth",
    "404": "missing",
    "405": "missing",
    "410": "missing",
    "408": "overloaded",
    "409": "overloaded",
    "425": "overloaded",
    "429": "rate",
    **dict.fromkeys(_NO_CREDIT_CODES, "refused"),
    "rate_limit": "rate",
    "resource_exhausted": "rate",
    "too_many_requests": "rate",
    "authentication": "auth",
    "permission": "auth",
    "invalid_api_key": "auth",
    "api_key_invalid": "auth",
    "unauthorized": "auth",
    "not_found": "missing",
    "overloaded": "overloaded",
    "unavailable": "overloaded",
    "server_error": "overloaded",
    "internal": "overloaded",
    "timeout": "overloaded",
    "content_filter": "refused",
    "content_policy": "refused",
    "context_length": "length",
    "context_size": "length",
    "context_window": "length",
    "prompt_tokens": "length",
    "invalid": "refused",
}
"""HTTP statuses, and parts of the codes of providers. The first that matches counts, so specific
ones come first.
"""

_MEANINGS: Final[Mapping[ModelErrorReason, tuple[str, str]]] = {
    "auth": (
        "key missing or rejected",
        (
            "check it: conductor keys test; or name its variable: conductor workers add NAME --set "
            "key_env=VARIABLE"
        ),
    ),
    "missing": (
        "model or URL not found",
        "check the worker's model and base_url; most URLs end in /v1",
    ),
    "refused": ("request refused", ""),
    "length": (
        "question too long for this model",
        "ask for less, or use a model with a larger context",
    ),
    "rate": ("rate limit reached", ""),
    "overloaded": ("server error", ""),
    "broken": ("the answer broke off with an error", ""),
}
"""What each reason is called, and what to do about it."""

_TOO_LONG_WORDS: Final = re.compile(
    r"""
    max(?:imum)?\ (?:possible\ )?(?:context|prompt|input|model)\ (?:length|limit|size)
    | (?:exceed|longer\ than|greater\ than|fit\ into|larger\ than|overflow)
        .{0,80}\b(?:context|n_ctx\b)
    | context\ (?:length|window|size|limit).{0,20}\ (?:exceed|is\ only|overflow)
    | (?:prompt|input)(?:\ is)?\ too\ long
    | (?:exceed|too\ many).{0,80}\ (?:configured\ limit|number\ of\ tokens\ allowed|allowed\ length)
    | reduce\ the\ length\ of\ the\ (?:messages|input|prompt)
    | keep\ the\ first\ \d+\ tokens\ when\ context | n_keep.{0,20}n_ctx
    | exceeded\ model\ token\ limit | prompt\ exceeds\ max(?:imum)?\ length
    | prompt\ token\ count.{0,40}\ exceeds\ the\ limit
    | exceeds\ the\ maximum\ allowed\ input\ length | range\ of\ input\ length\ should\ be
    | tokens\ in\ the\ prompt\ cannot\ exceed
    | `inputs`\ (?:tokens\ \+\ `max_new_tokens`\ must\ be | must\ have\ less\ than)
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""How servers say that a question, perhaps with its reply, has more tokens than the model holds."""


_CONTROL_CHARACTERS: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]+"
)


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The message of an error body, its codes, and the parameter that it names.

    `place` is where that parameter is in the request, such as
    `messages[0].content[1].image_url.detail`. `wait` are the seconds to wait. `headers` are those
    that the body repeats, as OpenRouter's does; their names are in lower case.
    """

    message: str = ""
    codes: tuple[str, ...] = ()
    parameter: str = ""
    wait: float | None = None
    place: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


NO_BODY: Final = ErrorBody()

_CODE_FIELDS: Final = ("code", "type", "status", "error_type", "error_code")
"""The fields that say which error it is.

The last two are those of Text Generation Inference and of Databricks.
"""


class ApiError(ModelError):
    """What a server said in an answer with an error status, or in an error object of status 200."""

    def __init__(
        self, name: str, reason: ModelErrorReason, status: int, reported: ErrorBody, words: str
    ) -> None:
        """`words` is what to show of the answer of the server called `name`."""
        message, hint = _MEANINGS[reason]
        shown = message
        if status != 200:
            shown = f"{message} ({status})"
        super().__init__(reason, f"{name}: {shown}{f': {words}' if words else ''}", hint=hint)
        self.status = status
        self.reported = reported
        self.headers: Mapping[str, str] = {}
        """Those of an answer with an error status, their names in lower case."""


def error_of_response(
    name: str, status: int, headers: Mapping[str, str], body: bytes, secrets: Secrets
) -> ApiError:
    """Return the error for an answer with an error status. Header names are in lower case.

    With `x-should-retry: false` a server says that the same request would fail again, whatever the
    status: the SDKs of OpenAI and Anthropic obey it.
    """
    reported = parse_error_body(_parse_json(body))
    words = clean_excerpt(reported.message or body, secrets)
    if 300 <= status < 400:
        target = headers.get("location", "nowhere")
        words = clean_excerpt(f"redirects are not followed; this one leads to {target}", secrets)
    error = ApiError(name, reason_of_status(status, reported), status, reported, words)
    error.headers = headers
    error.retry_after = wait_of(reported, headers)
    if headers.get("x-should-retry") == "false":
        error.retryable = False
    return error


def error_in_body(name: str, value: object, secrets: Secrets) -> ApiError:
    """Return the error for an error object inside an answer with status 200."""
    reported = parse_error_body(value)
    words = clean_excerpt(reported.message, secrets)
    error = ApiError(name, _reason_in_body(reported), 200, reported, words)
    error.retry_after = wait_of(reported, {})
    return error


def _reason_in_body(reported: ErrorBody) -> ModelErrorReason:
    if exceeds_context(reported):
        return "length"
    if _lacks_credit(reported):
        return "refused"
    return next(filter(None, map(_reason_of_code, reported.codes)), "broken")


def wait_of(reported: ErrorBody, headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait, in its headers or else in the body."""
    wait = retry_after({**reported.headers, **headers}, time.time())
    return reported.wait if wait is None else wait


def parse_error_body(value: object) -> ErrorBody:
    """Return the parts of a JSON value that a server sent as an error.

    Every server has its own form.
    """
    reported = _reported(value)
    metadata = table_of(_parts_of(value).get("metadata"))
    if not metadata:
        return reported
    repeated = table_of(metadata.get("headers"))
    headers = {str(name).lower(): str(text) for name, text in repeated.items()}
    upstream = _upstream_error(metadata)
    message = reported.message
    if upstream.message and upstream.message not in message:
        provider = text_of(metadata.get("provider_name"))
        who = f" ({provider})" if provider else ""
        message = f"{message}{who}: {upstream.message}"
    return replace(
        reported,
        message=message,
        codes=(*reported.codes, *upstream.codes),
        parameter=reported.parameter or upstream.parameter,
        wait=upstream.wait if reported.wait is None else reported.wait,
        place=reported.place or upstream.place,
        headers=headers,
    )


def _upstream_error(metadata: Mapping[str, Any]) -> ErrorBody:
    """Return what the provider said that a gateway stands before.

    OpenRouter has its words as `raw` in the metadata; its own message is that there was an error.
    """
    raw = metadata.get("raw")
    if isinstance(raw, str):
        value = _parse_json(raw)
        if not isinstance(value, Mapping | list):
            return ErrorBody(message=raw, wait=wait_in_words(raw[:MAX_EXCERPT]))
        raw = value
    upstream = _reported(raw)
    if raw and not upstream.message:
        return replace(upstream, message=json.dumps(raw))
    return upstream


def _parts_of(value: object) -> Mapping[str, Any]:
    """Return the object of an error body that has its message and codes."""
    outer = table_of(value[0] if isinstance(value, list) and value else value)
    inner = outer.get("error") or outer
    if isinstance(inner, Mapping):
        return inner
    # The error is a text, perhaps with its code and more words beside it
    title = text_of(inner)
    words = text_of(outer.get("message"))
    if title in words:
        return {**outer, "message": words}
    return {**outer, "message": title if words in title else f"{title}: {words}"}


def _reported(value: object) -> ErrorBody:
    """Return the parts of an error that its server made itself."""
    parts = _parts_of(value)
    details = tables_in(parts.get("details"))
    codes = [str(parts[key]) for key in _CODE_FIELDS if parts.get(key)]
    # Google says here, and in no header, how long to wait: {"@type": "…RetryInfo", "retryDelay":
    # "34s"}.
    delays = [str(item["retryDelay"]).removesuffix("s") for item in details if "retryDelay" in item]
    words = parts.get("message") or parts.get("detail")
    if isinstance(words, Mapping):
        words = words.get("detail")
    # Of the faults that FastAPI's servers list, the field and what is wrong with it
    if isinstance(words, list):
        words = "; ".join(f"{item.get('loc')}: {item.get('msg')}" for item in tables_in(words))
    wait = _parse_seconds(delays[0]) if delays else wait_in_words(text_of(words)[:MAX_EXCERPT])
    place = str(parts.get("param") or "")
    return ErrorBody(
        message=text_of(words),
        codes=(*codes, *(str(item["reason"]) for item in details if item.get("reason"))),
        parameter=place.partition(".")[0],
        wait=wait,
        place=place,
    )


def clean_excerpt(text: str | bytes, secrets: Secrets) -> str:
    """Return the beginning of a foreign text, fit to be shown.

    It has no markup, no control characters and no secrets.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    # A key must not be cut in two before it is found, so the text is redacted before it is
    # shortened.
    text = secrets.redact(text)[: 64 * MAX_EXCERPT]
    if "<html" in text[:MAX_EXCERPT].lower() or text.lstrip()[:9].lower() == "<!doctype":
        return "a web page"
    text = " ".join(_CONTROL_CHARACTERS.sub(" ", text).split())
    if len(text) <= MAX_EXCERPT:
        return text
    return text[: MAX_EXCERPT - 1] + "…"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that a server asks to wait.

    `retry-after` gives them as a number, as a duration or as a date. OpenRouter says instead when
    the requests begin to count anew, in milliseconds since 1970.
    """
    milliseconds = _parse_seconds(headers.get("retry-after-ms", ""))
    if milliseconds:  # Azure says 0 beside a second
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _parse_seconds(value)
    if seconds is not None:
        return seconds
    try:
        date = parsedate_to_datetime(value)
        if date.tzinfo is None:  # in the older forms, which are in UTC too
            date = date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now)
    except (ValueError, OverflowError, IndexError):
        return _until_reset(headers, now)


def _until_reset(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until requests count anew, where none is left and a time is given."""
    if headers.get("x-ratelimit-remaining", "").strip() != "0":
        return None
    milliseconds = _parse_seconds(headers.get("x-ratelimit-reset", ""))
    if milliseconds is None or milliseconds < _FIRST_MILLISECONDS:
        return None
    seconds = milliseconds / 1000 - now
    return seconds if seconds > 0 else None


_FIRST_MILLISECONDS: Final = 1e12
"""A smaller number is no time in milliseconds: it would be before 2001."""

_DURATION: Final = re.compile(
    r"(?:(?P<h>\d{1,6})h)?(?:(?P<m>\d{1,6})m(?!s))?(?:(?P<s>\d{1,6}(?:\.\d*)?)s)?(?:(?P<ms>\d{1,9})ms)?"
)
_TRY_AGAIN: Final = re.compile(
    r"\b(?:try again|retry) (?:in|after) "
    r"(?:(?P<wait>\d[\d.hms]*[hms])|(?P<number>\d{1,6}) (?P<unit>second|minute|hour)s?)\b",
    re.IGNORECASE,
)
"""How servers say it in words, such as `Please try again in 1m30.5s` or `Try again in 17 seconds`.
"""

_UNITS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0}


def _parse_seconds(value: str) -> float | None:
    """Return the seconds of a number, or of a duration such as `1m30s`."""
    match = _DURATION.fullmatch(value.strip())
    if match is not None and any(match.groups()):
        hours = float(match["h"] or 0)
        minutes = float(match["m"] or 0)
        seconds = float(match["s"] or 0)
        return hours * 3600 + minutes * 60 + seconds + float(match["ms"] or 0) / 1000
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def wait_in_words(message: str) -> float | None:
    """Return the seconds that a message asks to wait."""
    match = _TRY_AGAIN.search(message)
    if match is None:
        return None
    if match["number"]:
        return float(match["number"]) * _UNITS[match["unit"].lower()]
    return _parse_seconds(match["wait"])


def exceeds_context(reported: ErrorBody) -> bool:
    """Return whether a server says that the model cannot hold so many tokens.

    It says so by its code, or else in its words.
    """
    reasons = [_reason_of_code(code) for code in reported.codes]
    if "length" in reasons:
        return True
    if "rate" in reasons:
        return False
    return _TOO_LONG_WORDS.search(reported.message) is not None


def reason_of_status(status: int, reported: ErrorBody = NO_BODY) -> ModelErrorReason:
    """Return what an HTTP status means, with what the server said."""
    if status in (400, 413, 422, 500) and exceeds_context(reported):
        return "length"
    if status == 400:
        return _reason_of_bad_request(reported)
    # Neither another key nor asking again helps an account without credit
    if status in (403, 429) and _lacks_credit(reported):
        return "refused"
    if status == 500 and _NO_CREDIT_WORDS.search(reported.message):
        return "refused"
    if 300 <= status < 400:
        return "missing"
    if status >= 500:
        return "overloaded"
    return _REASON_BY_CODE.get(str(status), "refused")


def _reason_of_bad_request(reported: ErrorBody) -> ModelErrorReason:
    """Return what the status 400 means, which some servers have for more than a refusal."""
    reasons = [_reason_of_code(code) for code in reported.codes]
    if "auth" in reasons or _WRONG_KEY_WORDS.search(reported.message):
        return "auth"  # Google's and xAI's answer to a wrong key
    if "broken" in reasons:
        return "broken"
    if "model_not_found" in reported.codes:
        return "missing"  # OpenAI's answer where Responses is asked for a model
    return "refused"


def _lacks_credit(reported: ErrorBody) -> bool:
    """Return whether a server says that there is no credit left, by its codes or in its words."""
    for code in reported.codes:
        if any(part in code.lower() for part in _NO_CREDIT_CODES):
            return True
    return _NO_CREDIT_WORDS.search(reported.message) is not None


def _reason_of_code(code: str) -> ModelErrorReason | None:
    is_status = code.isascii() and code.isdigit() and len(code) == 3
    if is_status:
        return reason_of_status(int(code)) if int(code) >= 300 else None
    code = code.lower().replace("-", "_").replace(" ", "_")
    for part, reason in _REASON_BY_CODE.items():
        if part in code:
            return reason
    return None


def _parse_json(body: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
