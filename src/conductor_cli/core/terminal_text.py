"""Makes untrusted text safe for a terminal.

`sanitize` removes escape sequences (colours, cursor moves, titles, links, clipboard writes),
control characters, and the marks that reverse the reading order. It keeps newline, tab and every
printable character. Line ends of any kind become newlines. A lone surrogate, which no encoding can
write, becomes the replacement character.
"""

from __future__ import annotations

import json
import re
from typing import Final

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_NAME = re.compile(f"[\t\n]|{_UNSAFE.pattern}")

UNSEEN_CHARS: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The characters that nobody can see, as a set of a regular expression: joiners, marks of
direction, fillers, tags.
"""
_UNSEEN_RUN = re.compile(f"[{UNSEEN_CHARS}]+")
_BLANK = re.compile(f"[{UNSEEN_CHARS}\\s\ufe00-\ufe0f\u2800]*")
_HIDDEN = re.compile("[\u00ad\u061c\u200b\u200e\u200f\U000e0000-\U000e007f]")

# Each pattern is a sequence without its end. The bounds keep a sequence that never ends from
# swallowing the text.
_CSI = "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}"  # colours, cursor, erase
# OSC, DCS, SOS, PM, APC: one line
_STRING = "(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f]{0,4096}"
_SHORT = "\x1b[ -/]{0,8}"  # two-character and character-set escapes
_PIECES = re.compile(
    f"{_CSI}[@-~]|{_STRING}(?:\x07|\x9c|\x1b\\\\)|{_SHORT}[0-~]|\r\n|{_UNSAFE.pattern}"
)
_TAIL = re.compile(f"(?:\r|{_CSI}|{_STRING}\x1b?|{_SHORT})\\Z")


MAX_SEARCHED_CHARACTERS: Final = 64 << 10
"""Characters of a text that are looked through at once: other threads go on between two calls."""


def is_sanitized(text: str) -> bool:
    """Return whether `sanitize` would leave `text` unchanged."""
    if len(text) > MAX_SEARCHED_CHARACTERS:
        starts = range(0, len(text), MAX_SEARCHED_CHARACTERS)
        return all(is_sanitized(text[start : start + MAX_SEARCHED_CHARACTERS]) for start in starts)
    return (text.isascii() and text.isprintable()) or _UNSAFE.search(text) is None


def sanitize(text: str) -> str:
    """Return `text` without anything that a terminal would obey instead of displaying."""

    def replacement(match: re.Match[str]) -> str:
        piece = match[0]
        if piece == "\r\n" or (len(piece) == 1 and piece in "\r\x0b\x0c\x85\u2028\u2029"):
            return "\n"
        if "\ud800" <= piece <= "\udfff":
            return "\ufffd"
        return ""

    if is_sanitized(text):
        return text
    return _PIECES.sub(replacement, text)


def one_line(text: str) -> str:
    """Return `text`, sanitized, with every run of white space as one space.

    For places with room for one line.
    """
    return " ".join(sanitize(text).split())


def short_line(text: str, max_length: int = 200) -> str:
    """Return a text from a file or a library as an error may show it: one line, printable, short.

    What is not printable becomes a blank, so that the rest of an escape sequence stays visible as
    what it is.
    """
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(printable.split())
    if len(line) <= max_length:
        return line
    return line[: max_length - 1] + "…"


def escape_name(name: str) -> str:
    r"""Return the name of a file in one line, with an escape for what would not be shown as it is.

    It has `\n` for a line end, as Git and ls write it, and `\xff` for a byte that is no UTF-8.
    """
    return _UNSAFE_IN_NAME.sub(lambda match: _escaped(match[0]), name)


def shell_word(word: str) -> str:
    """Return a word as a shell reads it back, in one line."""
    import shlex  # Few lines name a command

    if _UNSAFE_IN_NAME.search(word) is None:
        return shlex.quote(word)
    literal = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{escape_name(literal)}'"


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x80:
        return letter.encode("unicode_escape").decode()
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name, as Python keeps it
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}"


def reveal(text: str) -> str:
    """Return `text` with a name such as ⟨U+200B⟩ for each character that nobody can see.

    Long rows of them are counted.

    A joiner after a letter or sign of a script that needs it, as in Persian or between emoji,
    stays.
    """

    def revealed(match: re.Match[str]) -> str:
        run = match[0]
        before = match.string[match.start() - 1 : match.start()]
        if run in "\u200c\u200d" and not before.isascii() and not before.isspace():
            return run
        named = "".join(f"\u27e8U+{ord(letter):04X}\u27e9" for letter in run[:3])
        rest = len(run) - 3
        if rest > 0:
            return f"{named}\u27e8and {rest} more that cannot be seen\u27e9"
        return named

    if text.isascii():
        return text
    return _UNSEEN_RUN.sub(revealed, text)


def without_hidden(text: str) -> str:
    """Return `text` without what can hide words in it or change their order.

    Joiners stay, which scripts need.
    """
    if text.isascii():
        return text
    return _HIDDEN.sub("", text)


def is_blank(text: str) -> bool:
    """Return whether there is nothing to see in `text`."""
    return _BLANK.fullmatch(text) is not None


def without_controls(text: str) -> str:
    """Return `text` without escape sequences and control characters.

    All else stays as it is, line ends too.
    """

    def replacement(match: re.Match[str]) -> str:
        piece = match[0]
        if piece == "\r\n" or (len(piece) == 1 and (piece in "\r\x0b\x0c" or piece >= "\u2028")):
            return piece
        if piece == "\x85":
            return "\n"
        return ""

    if is_sanitized(text):
        return text
    return _PIECES.sub(replacement, text)


def escape_unseen(line: str) -> str:
    """Return the same line of JSON, with escapes for the characters that nobody can see."""
    if line.isascii():
        return line
    return _UNSEEN_RUN.sub(lambda match: json.dumps(match[0])[1:-1], line)


def escape_json(line: str) -> str:
    """Return the same line of JSON, with escapes for whatever is unsafe in it."""
    if is_sanitized(line):
        return line
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


class StreamSanitizer:
    """`sanitize` for text that comes in pieces.

    It recognizes an escape sequence that is split between two pieces.
    """

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what may be shown now.

        A sequence that has begun at the end of the text is held back.
        """
        if not self._held and is_sanitized(piece):
            return piece
        text = self._held + piece
        tail = _TAIL.search(text)
        self._held = ""
        if tail is not None:
            self._held = tail[0]
        return sanitize(text[: len(text) - len(self._held)])

    def close(self) -> str:
        held = self._held
        self._held = ""
        return sanitize(held)
