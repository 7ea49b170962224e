"""What a client is told when a run, or what comes before it, fails: one table for every API. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from conductor_cli.core.errors import Failure, FailureKind
from conductor_cli.core.sanitize import one_line
from conductor_cli.server.api.overflow import TOO_LONG
from conductor_cli.server.api.request import RequestError

BUSY_SECONDS: Final = 30.0
"""Seconds after which a client may try again where something of the server's own is missing."""

_STATUS: Final[dict[FailureKind, tuple[int, str]]] = {
    "usage": (400, "invalid_request"),
    "policy": (403, "policy"),
    # Never 401: a client would ask its user for the key of this server.
    "key": (502, "upstream_key"),
    "config": (503, "config"),
    "conductor": (503, "planner_unusable"),
    "worker": (502, "workers_failed"),
    "unreachable": (503, "unreachable"),
    "cancelled": (499, "cancelled"),
    "terminated": (503, "server_is_ending"),
}
"""The status and the code of each kind of failure; 500 for any other."""

_RETRY_AFTER: Final[dict[FailureKind, float]] = {
    "config": BUSY_SECONDS, "conductor": BUSY_SECONDS, "unreachable": 10.0, "terminated": 5.0
}  # fmt: skip


def request_error(failure: Failure, run: str = "", *, now: datetime | None = None) -> RequestError:
    """The error for a failure of the run `run`, or of what comes before one. `now` is the local time."""
    status, code = _STATUS.get(failure.kind, (500, "internal"))
    retry_after = _RETRY_AFTER.get(failure.kind)
    if failure.kind == "limit":
        # A limit of the run stays reached however often it is tried; that of a day ends at midnight.
        code = failure.reason or "limit"
        status = 504 if code == "limit_time" else 429
        retry_after = _until_midnight(now) if code.endswith("_day") and now is not None else None
    if failure.reason == "length":
        status, code, retry_after = 400, TOO_LONG, None
    said = one_line(failure.message)[:1000]
    hint = one_line(failure.hint)[:400]
    message = f"{said} ({hint})" if hint else said
    if status >= 500 and run:
        message = f"{message} [run {run}]"
    return RequestError(status, code, message, retry_after=retry_after)


def _until_midnight(now: datetime) -> float:
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds()
