"""Server-sent events as bytes (WHATWG HTML, section 9.2). Pure."""

from __future__ import annotations

import json
from typing import Any, Final

# Only ASCII, because some clients end a line at U+2028, and a lone surrogate has no UTF-8.
_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode

HEARTBEAT: Final = b": heartbeat\n\n"
"""A comment, which clients skip."""

DONE: Final = b"data: [DONE]\n\n"
"""What ends a stream of Chat Completions."""


def json_bytes(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """A JSON value in one line."""
    return _ENCODE(value).encode()


def data_event(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """A JSON value as an event without a name."""
    return b"data: %b\n\n" % json_bytes(value)


def named_event(name: str, value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """A JSON value as an event of this name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), json_bytes(value))
