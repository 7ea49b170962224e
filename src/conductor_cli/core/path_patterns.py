"""Patterns of paths, as `.gitignore` and `-f 'src/**/*.py'` have them. Pure.

Both may come from a stranger, so no pattern takes long, whatever stands in it. A pattern is matched
a name at a time, with the set of places in it that may be reached; within a name each part between
two stars is found where it first fits and never looked for again. Libraries make one backtracking
expression of a pattern: `*a*a*a*a*b` takes minutes. Names and patterns are bytes, as for Git.

The rules are those of https://git-scm.com/docs/gitignore, and of wildmatch.c where that is silent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import normalize

Places = frozenset[int]
"""How many names of a pattern may have been met; all of them where a path matches."""

_CLASSES: Final = {
    b"alnum": b"0-9A-Za-z",
    b"alpha": b"A-Za-z",
    b"blank": b" \\t",
    b"cntrl": b"\\x00-\\x1f\\x7f",
    b"digit": b"0-9",
    b"graph": b"\\x21-\\x7e",
    b"lower": b"a-z",
    b"print": b"\\x20-\\x7e",
    b"punct": b"!-/:-@\\[-`{-~",
    b"space": b" \\t-\\r",
    b"upper": b"A-Z",
    b"xdigit": b"0-9A-Fa-f",
}

_NEVER: Final = rb"(?!)"
_MAX_SHORT_BYTES: Final = 100
"""Bytes of an expression that is searched for together with others: long ones would take long to
compile twice.
"""


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A pattern by the names in it. None stands for `**`: any number of directories."""

    names: tuple[re.Pattern[bytes] | None, ...]

    def start(self) -> Places:
        """Return the places before the first name of a path."""
        return self._with_skipped({0})

    def advance(self, places: Places, name: bytes) -> Places:
        """Return the places behind one more name of a path.

        None where nothing below can match any more.
        """
        after = set[int]()
        for index in places:
            if index == len(self.names):
                continue
            expression = self.names[index]
            if expression is None:
                after.add(index)
            elif expression.fullmatch(name):
                after.add(index + 1)
        return self._with_skipped(after)

    def is_end(self, places: Places) -> bool:
        """Return whether the path up to here matches."""
        return len(self.names) in places

    def matches(self, path: Sequence[bytes]) -> bool:
        """Return whether the whole path matches."""
        first = self.names[0]
        if first is not None and not first.fullmatch(path[0]):  # so it is for most paths
            return False
        places = self.start()
        for name in path:
            if not places:
                return False
            places = self.advance(places, name)
        return self.is_end(places)

    def _with_skipped(self, places: set[int]) -> Places:
        """Return the places, and those that `**` reaches by standing for no directory at all."""
        reached = set(places)
        for index in places:
            skipped = index
            while skipped < len(self.names) and self.names[skipped] is None:
                skipped += 1
                reached.add(skipped)
        return frozenset(reached)


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoreRule:
    """One line of a `.gitignore`."""

    pattern: PathPattern
    ignores: bool
    """False for a line that begins with `!`."""
    directories_only: bool
    anywhere: bool
    """The pattern is one name, at any depth."""

    def applies(self, path: Sequence[bytes], *, directory: bool) -> bool:
        """Return whether the rule is about a path, given from the directory of the `.gitignore`."""
        if self.directories_only and not directory:
            return False
        if self.anywhere:
            path = path[-1:]
        return self.pattern.matches(path)


def look_of(name: str) -> str:
    """Return what a person sees of a name.

    Every blank is one, and letters have one form. The names of screenshots on a Mac have a narrow
    blank, which few programs copy.
    """
    return "".join(" " if letter.isspace() else letter for letter in normalize("NFKC", name))


class IgnoreFile:
    """The rules of a `.gitignore`. Of those that apply to a path, the last one counts."""

    def __init__(self, content: bytes) -> None:
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        rules = [parse_ignore_line(line.removesuffix(b"\r")) for line in reversed(lines)]
        self._rules = [rule for rule in rules if rule is not None]
        self._elsewhere = []
        names = []
        # Most rules are one name, and most names match none of them: that is one search.
        for rule in self._rules:
            expression = rule.pattern.names[0]
            if (
                rule.anywhere
                and expression is not None
                and len(expression.pattern) < _MAX_SHORT_BYTES
            ):
                names.append(expression.pattern)
            else:
                self._elsewhere.append(rule)
        self._names = re.compile(b"|".join(names) or _NEVER, re.DOTALL)

    def candidates(self, name: bytes) -> list[IgnoreRule]:
        """Return the rules that may apply to a path with this last name.

        The first that does is the one that counts.
        """
        if self._names.fullmatch(name):
            return self._rules
        return self._elsewhere


def parse_ignore_line(line: bytes) -> IgnoreRule | None:
    """Return the rule of a line; None for a comment, and for a line that can match nothing."""
    text = _without_trailing_spaces(line)
    if text.startswith(b"#"):
        return None
    ignores = not text.startswith(b"!")
    text = text.removeprefix(b"!")
    directories_only = text.endswith(b"/")
    text = text.removesuffix(b"/")
    if not text:
        return None
    anywhere = b"/" not in text
    text = text.removeprefix(b"/")
    pattern = parse_pattern(text)
    return IgnoreRule(
        pattern=pattern, ignores=ignores, directories_only=directories_only, anywhere=anywhere
    )


def parse_pattern(text: bytes) -> PathPattern:
    """Return a pattern of names between slashes."""
    names: list[re.Pattern[bytes] | None] = []
    position = 0
    while position <= len(text):
        name, position = _parse_name(text, position)
        names.append(name)
    if names[-1] is None:
        names.append(re.compile(rb".+", re.DOTALL))  # `a/**` is what is in `a`, and not `a` itself
    return PathPattern(tuple(names))


def _without_trailing_spaces(line: bytes) -> bytes:
    """Return a line without the spaces at its end that no backslash protects."""
    end = 0
    position = 0
    while position < len(line):
        width = 1
        if line[position : position + 1] == b"\\":
            width = 2
        if line[position : position + 1] != b" ":
            end = position + width
        position += width
    return line[:end]


def _parse_name(text: bytes, position: int) -> tuple[re.Pattern[bytes] | None, int]:
    """Return the expression of one name of a pattern, and where the next name begins.

    The expression is None for `**`.
    """
    parts = [bytearray()]
    """The expressions between the stars."""
    stars = 0
    begin = position
    while position < len(text):
        letter = text[position : position + 1]
        if letter == b"/":
            break
        if letter == b"*":
            stars += 1
            if stars == 1 or parts[-1]:
                parts.append(bytearray())
            position += 1
        elif letter == b"?":
            parts[-1] += b"."
            position += 1
        elif letter == b"[":
            expression, position = _parse_set(text, position)
            parts[-1] += expression
        elif letter == b"\\":
            if text[position + 1 : position + 2] == b"/":
                position += 1
                break
            escaped = text[position + 1 : position + 2]
            if escaped:
                parts[-1] += re.escape(escaped)
            else:
                parts[-1] += _NEVER
            position += 2
        else:
            parts[-1] += re.escape(letter)
            position += 1
    if stars >= 2 and stars == position - begin:
        return None, position + 1
    expression = _NEVER
    if stars or parts[0]:
        expression = _join(parts)
    return re.compile(expression, re.DOTALL), position + 1


def _join(parts: Sequence[bytearray]) -> bytes:
    """Return one expression for parts with stars between them.

    It never tries a part at a second place. Each part has a fixed length, so where it first fits
    leaves the most for the others.
    """
    if len(parts) == 1:
        return bytes(parts[0])
    middle = b"".join(b"(?>.*?%b)" % bytes(part) for part in parts[1:-1] if part)
    return b"%b%b.*%b" % (bytes(parts[0]), middle, bytes(parts[-1]))


def _parse_set(text: bytes, position: int) -> tuple[bytes, int]:
    """Return the expression of `[…]` and where it ends; one that never matches if it has no end."""
    end = position + 1
    negated = text[end : end + 1] in {b"!", b"^"}
    end += negated
    members = bytearray()
    last = b""
    """The member before, with which a range may begin."""
    first = True
    while first or text[end : end + 1] != b"]":
        first = False
        letter = text[end : end + 1]
        if not letter:
            return _NEVER, len(text)
        closing = text.find(b"]", end)
        if (
            letter == b"["
            and text[end + 1 : end + 2] == b":"
            and text[closing - 1 : closing] == b":"
            and closing > end + 2
        ):
            name = text[end + 2 : closing - 1]
            if name not in _CLASSES:
                return _NEVER, len(text)
            members += _CLASSES[name]
            last = b""
            end = closing + 1
            continue
        is_range = letter == b"-" and last and text[end + 1 : end + 2] not in {b"", b"]"}
        if is_range:
            end += 1
            letter = text[end : end + 1]
        if letter == b"\\":
            end += 1
            letter = text[end : end + 1]
            if not letter:
                return _NEVER, len(text)
        end += 1
        if not is_range:
            members += re.escape(letter)
            last = letter
            continue
        if last <= letter:
            members += b"\\x%02x-\\x%02x" % (last[0], letter[0])
        last = b""
    if not members:
        if negated:
            return b".", end + 1
        return _NEVER, end + 1
    return b"[%b%b]" % (b"^" * negated, bytes(members)), end + 1
