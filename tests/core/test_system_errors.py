"""What the system refuses, in words: no number, no place in a library's source."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest

from conductor_cli.core.errors import describe_system_error, without_numbers


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/x"), "No such file or directory"),
        (OSError("[Errno 2] No such file or directory: '/x'"), "No such file or directory: '/x'"),
        (socket.gaierror(-2, "Name or service not known"), "there is no host of this name, or no network"),
        (OSError("[Errno -3] Temporary failure in name resolution"), "there is no host of this name, or no network"),
        (OSError("All connection attempts failed"), ""),
        (ValueError("not a number"), "not a number"),
        (
            ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed (_ssl.c:1006)"),
            "certificate verify failed: self-signed",
        ),
    ],
)
def test_a_system_error_is_described_without_numbers(error: Exception, said: str) -> None:
    """The words that follow the number, whichever library has put them together."""
    assert describe_system_error(error) == said
    assert "Errno" not in without_numbers(str(error))
