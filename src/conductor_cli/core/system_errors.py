"""Why the operating system refused something, in words for a person: no error number, no name of a library. Pure."""

from __future__ import annotations

import re
from typing import Final

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
    """What went wrong, such as `Permission denied`; empty where the error says nothing about it."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return without_numbers(words)


def without_numbers(text: str) -> str:
    """A library's text about a system error without the error's number and the place in the library's source."""
    text = _PLACE.sub("", _NUMBER.sub("", text)).strip()
    if _NO_SUCH_HOST.search(text):
        return "there is no host of this name, or no network"
    return "" if _EMPTY.fullmatch(text) else text
