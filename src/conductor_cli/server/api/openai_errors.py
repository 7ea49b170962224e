"""The error object of OpenAI's APIs. Pure."""

from __future__ import annotations

from typing import Any, Final

from conductor_cli.server.api.overflow import TOO_LONG, openai_words
from conductor_cli.server.api.request import RequestError

_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_object(error: RequestError) -> dict[str, Any]:
    """`{"message", "type", "param", "code"}`, as the clients of both APIs read it."""
    is_too_long = error.code == TOO_LONG
    other = "server_error" if error.status >= 500 else "invalid_request_error"
    return {
        "message": openai_words(error.message) if is_too_long else error.message,
        "type": _TYPES.get(error.status, other),
        "param": "messages" if is_too_long else error.param,
        "code": error.code,
    }
