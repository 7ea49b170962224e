"""How a limit is raised on the command line: the hint of a failure whose reason is a limit.

The core reports which limit was reached and a value that would be enough; only here is it known which flag or setting
that is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from conductor_cli.core.errors import Failure

_FLAGS: Final = {
    "limit_time": "--max-time",
    "limit_calls": "--max-calls",
    "limit_tokens": "--max-tokens",
    "limit_cost": "--max-cost",
}
_DAY_SETTINGS: Final = {
    "limit_calls_day": "limits.calls_day",
    "limit_tokens_day": "limits.tokens_day",
    "limit_cost_day": "limits.cost_day",
}


def raising_flag(failure: Failure) -> str:
    """The flag and value that raise the limit of a run; empty for any other failure."""
    flag = _FLAGS.get(failure.reason)
    return f"{flag} {failure.suggested_limit}" if flag and failure.suggested_limit else ""


def with_limit_hint(failure: Failure) -> Failure:
    """The failure with a hint on how to raise its limit; unchanged where it has a hint or is not about a limit."""
    flag, setting = raising_flag(failure), _DAY_SETTINGS.get(failure.reason)
    if failure.hint or not (flag or setting):
        return failure
    if flag:
        return replace(failure, hint=f"raise it with {flag}")
    return replace(
        failure, hint=f"wait until midnight, or run: conductor config set {setting} {failure.suggested_limit}"
    )
