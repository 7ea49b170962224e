"""Everything that can go wrong, as one tree below `ConductorError`, and the exit code of each kind.

Exceptions stop a command before or outside a run. Inside a run a failure is a value, `Failure`,
carried by an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from conductor_cli.core.usage import Usage

FailureKind = Literal[
    "usage",
    "config",
    "policy",
    "key",
    "conductor",
    "limit",
    "partial",
    "unreachable",
    "worker",
    "internal",
    "cancelled",
    "terminated",
]

EXIT_CODES: Final[dict[str, int]] = {
    "internal": 1,
    "worker": 1,
    "usage": 2,
    "config": 3,
    "policy": 3,
    "key": 4,
    "conductor": 5,
    "limit": 6,
    "partial": 7,
    "unreachable": 8,
    "cancelled": 130,
    "terminated": 143,
}
"""The exit code of a command, by the kind of what stopped it."""

ModelErrorReason = Literal[
    "auth",  # key missing or refused: 401, 403
    "missing",  # no such model or address: 404
    "refused",  # the request itself was refused: 400, 413, 422
    "length",  # the prompt is longer than the model's context
    "rate",  # 429
    "overloaded",  # 5xx, 408, 425, 529
    "connect",  # no connection: DNS, TLS, refused, proxy
    "timeout",  # connect, first token, idle or total time ran out
    "broken",  # the stream ended or turned to garbage in the middle
    "empty_answer",  # the model ended without a word
    "schema",  # the answer does not follow its JSON Schema
    "file",  # a model file is missing or damaged
    "internal",  # our adapter met something it does not know
]
LimitReason = Literal[
    "limit_time",
    "limit_calls",
    "limit_tokens",
    "limit_cost",
    "limit_calls_day",
    "limit_tokens_day",
    "limit_cost_day",
    "limit_cost_all",  # that of all runs of a batch or an evaluation together
]
LIMITS_OF_SEVERAL: Final = frozenset(
    {"limit_calls_day", "limit_tokens_day", "limit_cost_day", "limit_cost_all"}
)
"""Limits that several runs share: one that is reached says nothing about the run that met it."""
FailureReason = Literal[
    ModelErrorReason,
    LimitReason,
    "",  # the kind says all there is to say
    "plan_invalid",  # the planner's text is not a plan, or a plan that the rules do not allow
    "no_planner",  # planning is needed and there is no planner
    "nesting_limit",  # a step on the planner itself, deeper than runs may nest
    "state",  # the database that has the state does not answer, or refuses
    "taken_over",  # another process goes on with the run, because this one seemed to be gone
    "worker_unknown",  # no worker has this name
    "worker_excluded",  # the worker was left out before the run began
    "circuit_open",  # the worker failed several times in a row, and is skipped for a time
    "declined",  # a worker said that it cannot do its step, or nobody could without a valid plan
    "answer_truncated",  # the answer reached the worker's token limit
    "step_truncated",  # a step did, and the answer was made of what it had written
    "answer_filtered",  # a content filter cut the answer off, or the model refused to go on
    "answer_not_json",  # a JSON Schema was given and the answer is not JSON
    "answer_not_schema",  # a JSON Schema was given and the answer does not follow it
    # A JSON Schema was given and checking the answer against it takes too much
    "answer_not_checked",
    "output_closed",  # nobody reads the output any more
    "output_failed",  # the output cannot be written
    "step_not_run",  # the step was never started
    "workers_failed",  # several workers failed at the step, for different reasons
]
"""Why something failed, finer than the kind. Code decides by this value, never by the text of a
message.
"""

RETRYABLE: Final[frozenset[str]] = frozenset(
    {"rate", "overloaded", "connect", "timeout", "broken", "empty_answer"}
)

_KIND_OF_REASON: Final[dict[str, FailureKind]] = {
    "auth": "key",
    "connect": "unreachable",
    "timeout": "unreachable",
    "overloaded": "unreachable",
    "file": "conductor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, as a value: what happened, to what, and what to do next.

    For a limit, `suggested_limit` is a value of it with which the run could have gone on. The hint
    is then left to whoever shows the failure, who knows by which flag or setting the limit is
    raised.
    """

    kind: FailureKind
    message: str
    hint: str = ""
    reason: FailureReason = ""
    suggested_limit: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]


class ConductorError(Exception):
    """The root: one sentence, and what to do next.

    `str()` is the message; `failure` is the same as a value.
    """

    kind: FailureKind = "internal"
    suggested_limit: str = ""

    def __init__(self, message: str, *, hint: str = "", reason: FailureReason = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.reason: FailureReason = reason

    @property
    def failure(self) -> Failure:
        return Failure(
            kind=self.kind,
            message=self.message,
            hint=self.hint,
            reason=self.reason,
            suggested_limit=self.suggested_limit,
        )

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]


class UsageError(ConductorError):
    """The command line, or a file named on it, cannot be understood."""

    kind = "usage"


class ConfigError(ConductorError):
    """A setting has a wrong name, type or value."""

    kind = "config"


class PolicyError(ConductorError):
    """A rule forbids what was asked."""

    kind = "policy"


class KeyMissing(ConductorError):
    """A provider's key is not there, or the provider refused it."""

    kind = "key"


class ConductorUnusable(ConductorError):
    """The planner is missing, damaged, or of a kind that llama.cpp does not load."""

    kind = "conductor"


class LimitReached(ConductorError):
    """A limit is used up. `suggested` is a value of it with which the call could have been made."""

    kind: FailureKind = "limit"

    def __init__(
        self, message: str, *, hint: str = "", reason: FailureReason = "", suggested: str = ""
    ) -> None:
        super().__init__(message, hint=hint, reason=reason)
        self.suggested_limit = suggested


class StateUnavailable(LimitReached):
    """The database that says what may be spent does not answer.

    The same request may succeed in a moment.
    """

    kind = "unreachable"


class TakenOver(StateUnavailable):
    """Another process goes on with a run, because this one seemed to be gone."""

    def __init__(
        self,
        message: str = "another process goes on with the run; read it again",
        *,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint, reason="taken_over")


class PlanError(ConductorError):
    """Text that is not a valid plan; it never leaves the planning stage.

    `line` is the text at fault.
    """

    kind = "worker"

    def __init__(self, message: str, *, hint: str = "", line: str = "") -> None:
        super().__init__(message, hint=hint, reason="plan_invalid")
        self.line = line


class ModelError(ConductorError):
    """One call to one model failed. Every foreign exception becomes one of these in its adapter."""

    reason: ModelErrorReason

    def __init__(  # noqa: PLR0913 - what adapters know of a failure
        self,
        reason: ModelErrorReason,
        message: str,
        *,
        hint: str = "",
        retry_after: float | None = None,
        usage: Usage | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message, hint=hint, reason=reason)
        if retryable is None:
            retryable = reason in RETRYABLE
        self.retryable = retryable
        """Whether the same call may succeed a moment later."""
        self.kind = _KIND_OF_REASON.get(reason, "worker")
        self.usage = usage
        self.retry_after = retry_after


_NUMBER: Final = re.compile(r"\[(?:Errno|WinError) -?\d+\] ?")
_PLACE: Final = re.compile(r"\[SSL: [A-Z_]+\] ?| ?\(_ssl\.c:\d+\)")
_NO_SUCH_HOST: Final = re.compile(
    r"name or service not known|nodename nor servname provided|temporary failure in name resolution"
    r"|no address associated with hostname|getaddrinfo failed",
    re.IGNORECASE,
)
"""What systems say of a host name that they cannot look up."""

_EMPTY: Final = re.compile(r"all connection attempts failed\.?", re.IGNORECASE)
"""A text that says no more than that a server cannot be reached."""


def describe_system_error(error: BaseException) -> str:
    """Return what went wrong, such as `Permission denied`.

    Empty where the error says nothing about it.
    """
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror
    return without_numbers(words)


def without_numbers(text: str) -> str:
    """Return a library's text about a system error, without numbers and places in its source."""
    text = _PLACE.sub("", _NUMBER.sub("", text)).strip()
    if _NO_SUCH_HOST.search(text):
        return "there is no host of this name, or no network"
    if _EMPTY.fullmatch(text):
        return ""
    return text


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the one of these names that looks most like `name`, also in another case.

    Empty where none does.
    """
    from difflib import get_close_matches  # only where a name is wrong

    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    if not matches:
        return ""
    return by_lower[matches[0]]


def suggest(name: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """Return the hint of an error about an unknown name.

    `did you mean fast?`, else `otherwise`, else the known names.
    """
    names = tuple(candidates)
    near = nearest(name, names)
    if near:
        return f"did you mean {near}?"
    return otherwise or f"known: {', '.join(names) or 'none'}"
