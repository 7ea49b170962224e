from __future__ import annotations

from typing import get_args

import pytest

from conductor_cli.core import errors
from conductor_cli.core.errors import (
    EXIT_CODES,
    RETRYABLE,
    ConductorError,
    Failure,
    FailureKind,
    ModelError,
    ModelErrorReason,
    PlanError,
)

TREE = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, ConductorError)]


def test_every_kind_has_an_exit_code() -> None:
    """The table and the names belong together, and no failure exits with 0."""
    assert set(EXIT_CODES) == set(get_args(FailureKind))
    assert 0 not in EXIT_CODES.values()
    assert [Failure(kind=kind, message="m").exit_code for kind in ("usage", "limit", "terminated")] == [2, 6, 143]


@pytest.mark.parametrize("kind", [kind for kind in TREE if kind is not ModelError])
def test_every_error_is_a_value_too(kind: type[ConductorError]) -> None:
    """Kind, message, hint and exit code say the same on both sides."""
    error = kind("it happened", hint="do this")
    assert error.failure == Failure(kind=kind.kind, message="it happened", hint="do this", reason=error.reason)
    assert error.exit_code == error.failure.exit_code == EXIT_CODES[kind.kind]
    assert str(error) == "it happened"
    assert kind("m").hint == ""


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """What a reader is shown first is what there is."""
    for kind in TREE:
        assert kind.__name__ in (errors.__doc__ or "")
        assert kind.__doc__


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        ("auth", "key", 4), ("missing", "worker", 1), ("refused", "worker", 1), ("rate", "worker", 1),
        ("overloaded", "unreachable", 8), ("connect", "unreachable", 8), ("timeout", "unreachable", 8),
        ("broken", "worker", 1), ("empty_answer", "worker", 1), ("file", "conductor", 5), ("internal", "worker", 1),
    ],
)  # fmt: skip
def test_the_reason_decides_kind_and_exit_code(reason: ModelErrorReason, kind: FailureKind, code: int) -> None:
    """Each reason has a kind, and so an exit code."""
    error = ModelError(reason, "m", hint="h", retry_after=2.0)
    assert error.failure == Failure(kind=kind, message="m", hint="h", reason=reason)
    assert (error.exit_code, error.retry_after) == (code, 2.0)
    assert error.retryable == (reason in RETRYABLE)


def test_every_reason_is_covered() -> None:
    """What may be tried again is a part of the reasons there are."""
    assert set(get_args(ModelErrorReason)) >= RETRYABLE
    assert not RETRYABLE & {"auth", "missing", "refused", "file", "internal"}


def test_a_plan_error_holds_its_line() -> None:
    """The text at fault is shown to whoever wrote it."""
    error = PlanError("no", line="Z | 9 | x")
    assert (error.line, error.hint) == ("Z | 9 | x", "")
