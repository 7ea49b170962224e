"""What a client is told when a run, or what comes before it, fails: status, code and words. Pure.

A conversation that no model can hold is told in the words by which clients know it: a coding client
then shortens it and goes on; any other wording ends its work. The numbers are those that the
worker's provider said.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Any, Final

from conductor_cli.core.errors import Failure, FailureKind
from conductor_cli.core.terminal_text import one_line
from conductor_cli.server.api.request import RequestError

TOO_LONG: Final = "context_length_exceeded"  # The code of this error, which is OpenAI's

_NUMBER: Final = r"(?<![\w.-])(\d[\d,]{2,11})(?![\w-])"

_ADDRESS: Final = re.compile(
    r"\w+://\S+|(?:\b(?:localhost|[\w-]+(?:\.[\w-]+)+)|\[[\da-f:]+\]):\d+", re.IGNORECASE
)
"""An address in an error, whose port is no number of tokens."""

_LIMITS: Final = (
    r"\bn_ctx\W{0,4}NUM",
    r"NUM maximum\b",
    r"\bholds NUM",
    r">=?\s*NUM",
    (
        r"(?:(?:context|model|prompt) (?:length|size|window|limit)|configured limit|allowed)(?! "
        r"by\b)\D{0,20}?NUM"
    ),
)
"""How providers say how many tokens a model holds. The first that fits counts."""

_COUNTS: Final = (
    r"NUM\)? (?:\w+ ){0,2}tokens?\b",
    r"\btokens?(?: count)? \(?NUM",
    r"\blength \(?NUM",
    r"NUM\)?\s*>=?",
)
"""How they say how many tokens something has. The largest counts; any other number may be a date or
an id.
"""


def tokens_over(message: str, about: int | None = None) -> tuple[int, int] | None:
    """Return how many tokens a conversation has and how many its model holds.

    A provider's error says it. Where the error has only the second number, `about` is the first, if
    it is larger. None where a number is missing.
    """
    message = _ADDRESS.sub("", message)
    limits = list[int]()
    counts = list[int]()
    for pattern in _LIMITS:
        limits += _numbers_in(message, pattern)
    for pattern in _COUNTS:
        counts += _numbers_in(message, pattern)
    if not limits:
        return None
    limit = limits[0]
    used = max(counts, default=0)
    if used <= limit:
        used = about or 0
    if used <= limit:
        return None
    return used, limit


def _numbers_in(message: str, pattern: str) -> list[int]:
    numbers = re.findall(pattern.replace("NUM", _NUMBER), message, re.IGNORECASE)
    return [int(number.replace(",", "")) for number in numbers]


_STATUS: Final[dict[FailureKind, tuple[int, str]]] = {
    "usage": (400, "invalid_request"),
    "policy": (403, "policy"),
    # What waiting does not cure is 400: clients repeat every 5xx, and Codex 401 and 429 too.
    "key": (400, "upstream_key"),
    "config": (400, "config"),
    "conductor": (400, "planner_unusable"),
    "worker": (502, "workers_failed"),
    "unreachable": (503, "unreachable"),
    "cancelled": (499, "cancelled"),
    "terminated": (503, "server_is_ending"),
}
"""The status and the code of each kind of failure; 500 for any other."""


def request_error(
    failure: Failure, run: str = "", attempts: Sequence[Failure] = ()
) -> RequestError:
    """Return the error for a failure of the run `run`, or of what comes before one.

    `attempts` are the failed calls of its workers.
    """
    status, code = _STATUS.get(failure.kind, (500, "internal"))
    retry_after = {"unreachable": 10.0, "terminated": 5.0}.get(failure.kind)
    if failure.kind == "limit":
        # A limit of the run stays reached however often it is tried. That of a day ends at
        # midnight; a client that was told so would wait in silence until then.
        code = failure.reason or "limit"
        status = 504 if code == "limit_time" else 429
    reasons = {attempt.reason for attempt in attempts} if failure.kind == "worker" else set()
    # The same request meets these again
    if reasons and reasons <= {"auth", "missing", "refused", "file"}:
        status = 400
    if "length" in {failure.reason, *reasons} and reasons <= {"length"}:
        status = 400
        code = TOO_LONG
        retry_after = None
    summary = one_line(failure.message)[:1000]
    hint = one_line(failure.hint)[:400]
    if failure.reason in {"taken_over", "state"}:
        code = failure.reason
    # What its administrator does about it is in the log of the server
    if failure.reason == "state":
        hint = ""
        retry_after = 2.0
    message = f"{summary} ({hint})" if hint else summary
    if status >= 500 and run:
        message = f"{message} [run {run}]"
    return RequestError(status, code, message, retry_after=retry_after)


_TYPES: Final = {
    400: ("invalid_request_error", "invalid_request_error"),
    401: ("authentication_error", "authentication_error"),
    403: ("permission_error", "permission_error"),
    404: ("invalid_request_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_error"),
    503: ("server_error", "overloaded_error"),
    504: ("server_error", "timeout_error"),
}
"""The type of an error as OpenAI's APIs have it, and as Anthropic's has it, by its status.

Sources: https://platform.openai.com/docs/guides/error-codes and
https://docs.claude.com/en/api/errors
"""

MESSAGES_PATH: Final = "/v1/messages"

_OPENAI_PATHS: Final = ("/v1/chat/", "/v1/responses", "/v1/batches")
"""How the addresses begin that OpenAI's APIs alone have."""


def path_of_api(path: str, headers: Container[str]) -> str:
    """Return the path whose API an error at `path` is written for.

    Both have addresses such as `/v1/models`; there a client of Anthropic names its version.
    Header names are in lower case.
    """
    if "anthropic-version" in headers and not path.startswith(_OPENAI_PATHS):
        return MESSAGES_PATH
    return path


def error_body(
    error: RequestError, path: str = "", run: str = "", tokens: int | None = None
) -> dict[str, Any]:
    """Return the body of an error as the API at this path writes it; OpenAI's where there is none.

    `tokens` is about how long the request is, for one that is too long.
    """
    default = _TYPES[400] if error.status < 500 else ("server_error", "api_error")
    openai, anthropic = _TYPES.get(error.status, default)
    is_anthropic = path.startswith(MESSAGES_PATH)
    message = error.message
    param = error.param
    if error.code == TOO_LONG:  # in each API's own sentence, with the numbers if they are known
        param = "messages"
        counts = tokens_over(message, tokens if is_anthropic else None)
        if is_anthropic:
            excess = message if counts is None else f"{counts[0]} tokens > {counts[1]} maximum"
            message = f"prompt is too long: {excess}"
        elif counts is None:
            ending = "Please reduce the length of the messages."
            message = f"Your input exceeds the context window of this model: {message}. {ending}"
        else:
            message = (
                f"This model's maximum context length is {counts[1]} tokens. However, your "
                "messages resulted in "
                f"{counts[0]} tokens. Please reduce the length of the messages."
            )
    if is_anthropic:
        reported: dict[str, Any] = {"type": anthropic, "message": message}
        if error.details is not None:
            reported["details"] = dict(error.details)
        return {"type": "error", "error": reported, "request_id": run or None}
    return {"error": {"message": message, "type": openai, "param": param, "code": error.code}}
