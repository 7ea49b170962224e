"""`text/event-stream`, piece by piece: bytes in, events out. Pure, with bounded memory; knows nothing of HTTP.

Follows the WHATWG rules (HTML, section 9.2.6): lines end in CR, LF or CRLF, `data` lines are joined by LF, a comment
begins with a colon, an event ends at an empty line, an event that the stream breaks off is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from conductor_cli.core.errors import ModelError

LIMIT: Final = 1024 * 1024
"""The most bytes that one line, or the data of one event, may have."""

_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its data, and its type, which is `message` unless the server names another."""

    data: str
    kind: str = "message"


class Parser:
    """Takes pieces cut anywhere, and gives the events that are complete. `id` and `retry` are ignored."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()  # a line that has begun; appending is cheap however small the pieces are
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._size = 0
        self._kind = ""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that `piece` completes. A line or an event beyond the limit is a `ModelError` (broken)."""
        events = []
        for line in self._lines(piece):
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    @property
    def unfinished(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._pending or self._data)

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")  # the second half of a CRLF that was cut in two
            self._after_cr = False
        if b"\n" not in piece and b"\r" not in piece:
            self._hold(piece)
            return []
        self._after_cr = piece.endswith(b"\r")
        lines = (bytes(self._pending) + piece).splitlines()
        self._pending.clear()
        if not piece.endswith((b"\n", b"\r")):
            self._hold(lines.pop())
        return lines

    def _hold(self, piece: bytes) -> None:
        self._pending += piece
        self._bound(len(self._pending))

    def _line(self, line: bytes) -> Event | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        self._bound(len(line))
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._add(value.removeprefix(b" "))
        elif name == b"event":
            self._kind = value.removeprefix(b" ").decode("utf-8", "replace")
        return None

    def _add(self, value: bytes) -> None:
        self._size += len(value) + 1
        self._bound(self._size)
        self._data.append(value.decode("utf-8", "replace"))

    def _dispatch(self) -> Event | None:
        data, kind = self._data, self._kind
        self._data, self._kind, self._size = [], "", 0
        return Event("\n".join(data), kind or "message") if data else None

    def _bound(self, size: int) -> None:
        if size > self._limit:
            raise ModelError("broken", f"the server sent a line of more than {self._limit} bytes")
