"""Errors as values.

Each kind has an exit code, and a refusal of the system is told without numbers.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import get_args

import pytest

from conductor_cli.core import errors
from conductor_cli.core.errors import (
    EXIT_CODES,
    ConductorError,
    Failure,
    FailureKind,
    ModelError,
    ModelErrorReason,
)

TREE = [
    item
    for item in vars(errors).values()
    if isinstance(item, type) and issubclass(item, ConductorError)
]


def test_every_kind_has_an_exit_code() -> None:
    assert set(EXIT_CODES) == set(get_args(FailureKind))
    assert 0 not in EXIT_CODES.values()
    assert [
        Failure(kind=kind, message="m").exit_code for kind in ("usage", "limit", "terminated")
    ] == [2, 6, 143]


@pytest.mark.parametrize("kind", [kind for kind in TREE if kind is not ModelError])
def test_every_error_is_a_value_too(kind: type[ConductorError]) -> None:
    error = kind("it happened", hint="do this")
    assert error.failure == Failure(
        kind=kind.kind, message="it happened", hint="do this", reason=error.reason
    )
    assert error.exit_code == error.failure.exit_code == EXIT_CODES[kind.kind]
    assert str(error) == "it happened"


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        ("auth", "key", 4),
        ("rate", "worker", 1),
        ("timeout", "unreachable", 8),
        ("file", "conductor", 5),
    ],
)
def test_the_reason_decides_kind_and_exit_code(
    reason: ModelErrorReason, kind: FailureKind, code: int
) -> None:
    error = ModelError(reason, "m", hint="h", retry_after=2.0)
    assert error.failure == Failure(kind=kind, message="m", hint="h", reason=reason)
    assert (error.exit_code, error.retry_after) == (code, 2.0)
    assert error.retryable == (reason in errors.RETRYABLE)


@pytest.mark.parametrize(
    ("error", "description"),
    [
        (OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/x"), "No such file or directory"),
        (OSError("[Errno 2] No such file or directory: '/x'"), "No such file or directory: '/x'"),
        (
            socket.gaierror(-2, "Name or service not known"),
            "there is no host of this name, or no network",
        ),
        (
            OSError("[Errno -3] Temporary failure in name resolution"),
            "there is no host of this name, or no network",
        ),
        (OSError("All connection attempts failed"), ""),
        (ValueError("not a number"), "not a number"),
        (
            ssl.SSLError(
                1,
                (
                    "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed "
                    "(_ssl.c:1006)"
                ),
            ),
            "certificate verify failed: self-signed",
        ),
    ],
)
def test_a_system_error_is_described_without_numbers(error: Exception, description: str) -> None:
    assert errors.describe_system_error(error) == description
