"""`text/event-stream`, piece by piece: bytes in, the data of events out. Pure, with bounded memory; no HTTP here.

Follows the WHATWG rules (HTML, section 9.2.6): lines end in CR, LF or CRLF, `data` lines are joined by LF, a comment
begins with a colon, an event ends at an empty line, an event that the stream breaks off is dropped. The fields `event`,
`id` and `retry` are ignored: no server with OpenAI's API says anything in them that it does not say in the data.
"""

from __future__ import annotations

from typing import Final

from conductor_cli.core.errors import ModelError

LIMIT: Final = 1024 * 1024
"""The most bytes that one line, or the data of one event, may have."""

_BOM: Final = b"\xef\xbb\xbf"


class Parser:
    """Takes pieces cut anywhere, and gives the data of each event that is complete."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()  # a line that has begun; appending is cheap however small the pieces are
        self._after_cr = False
        self._at_start = True
        self._data: list[str] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[str]:
        """The data of the events that `piece` completes. A line or event beyond the limit is a `ModelError`."""
        events: list[str] = []
        for line in self._lines(piece):
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901 - the same line, without the mark of its encoding
            self._bound(len(line))
            if not line:  # an empty line ends an event
                if self._data:
                    events.append("\n".join(self._data))
                self._data, self._size = [], 0
                continue
            name, _, value = line.partition(b":")
            if name == b"data":
                value = value.removeprefix(b" ")
                self._size += len(value) + 1
                self._bound(self._size)
                self._data.append(value.decode("utf-8", "replace"))
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

    def _bound(self, size: int) -> None:
        if size > self._limit:
            raise ModelError("broken", f"the server sent a line of more than {self._limit} bytes")
