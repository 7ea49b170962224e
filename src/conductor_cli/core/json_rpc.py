"""What can be made of a JSON-RPC message that a strict parser refuses. Pure."""

from __future__ import annotations

import json
import re
from typing import Final

_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}(?![\d.eE])|"[^"\\\\]{1,200}")'
_FIRST_ID: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?(?:"method"\s*:\s*"[a-z/]+"\s*,\s*)?' + _ID
)
_LAST_ID: Final = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

# A letter in two halves (surrogates), or one half of it alone, as JSON escapes it
_ESCAPED_HALVES: Final = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..)"
)


def find_message_id(head: bytes, tail: bytes) -> int | str | None:
    """Return the id of a message of which only this beginning and this end are read.

    None where none stands at the front or at the back, as programs write it.
    """
    match = _FIRST_ID.match(head) or _LAST_ID.search(tail)
    if match is None:
        return None
    message_id: int | str = json.loads(match[1].decode("utf-8", "replace"))
    return message_id


def without_half_letters(line: bytes) -> bytes:
    """Return a message in which half a letter is the mark of one that cannot be read.

    JavaScript programs send such halves where they cut a text; other parsers refuse them.
    """
    if rb"\ud" not in line.lower():
        return line
    return _ESCAPED_HALVES.sub(lambda match: match[1] + (match[2] or rb"\ufffd"), line)


_OPEN_ESCAPE: Final = re.compile(
    rb"(?<!\\)\\++(?:u[0-9a-fA-F]{0,4}(?:\\(?:u[0-9a-fA-F]{0,4})?)?)?\Z"
)
"""The end of a piece with which an escape begins that may go on in the next piece."""
_MAX_HELD: Final = 4096  # Bytes that are held back; a row of so many backslashes is no text


class WholeLetters:
    """`without_half_letters` for messages that come in pieces."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what is known not to be half of a letter whose other half follows."""
        content = self._held + piece
        self._held = b""
        begun = _OPEN_ESCAPE.search(content)
        if begun is not None and len(begun[0]) <= _MAX_HELD:
            self._held = begun[0]
        return without_half_letters(content[: len(content) - len(self._held)])

    def end(self) -> bytes:
        """Return what was held back, now that nothing follows."""
        return without_half_letters(self._held)
