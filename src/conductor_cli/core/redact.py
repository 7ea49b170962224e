"""Removes keys from text in every encoding in which they may come back.

As they are, in a URL, in JSON, in base64.

Providers repeat a key in their errors, servers echo headers, and an attached file may hold one.
`Secrets` knows a set of keys. Text that leaves the process goes through `Secrets.redact`; text that
a server streams goes through a `StreamRedactor`, since a key may be split between two pieces.

`NearCopies` finds what is nearly a key: cut at an end, in other case, reversed, with separators
inside, encoded and then cut. A key is compared by its letters and digits alone, without case.
Wherever `RUN` of them in a row stand in a text, that part is a copy, whatever stands between them
(at most `GAP` other characters each). Random text of this length is not met by chance; so that
ordinary words are left alone, only keys that look random take part, and of those only runs in which
letters and digits, or large and small letters, alternate.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b32encode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from string import ascii_letters, digits
from typing import Any, Final

RUN: Final = 12
"""Letters and digits in a row that a text has in common with a key. Of a key of 20 no more than
eight are unknown then; fewer than 12 would also be found in dates, versions and identifiers.
"""

GAP: Final = 8  # Other characters between two of them: a line break with an indent has as many

_BLOCK_CHARS: Final = RUN // 2
"""Every run holds a whole block of this length that begins at a multiple of it: only those are
looked up.
"""

_PART: Final = 4
_SHORTEST: Final = 16
_ALTERNATIONS: Final = 2  # Changes between small letters, large ones and digits in a run

_ALPHANUMERIC: Final = frozenset(ascii_letters + digits)
_LOWER: Final = bytes(range(256)).lower()
_OTHERS: Final = bytes(byte for byte in range(256) if chr(byte) not in _ALPHANUMERIC)
_ELISION: Final = re.compile(r"(?:\.{2,}|…|\*{2,}|•{2,}|\[\.\.\.\])[.*…•]{0,64}")
_BEFORE: Final = re.compile(r"[A-Za-z0-9_-]{4,}\Z")
_BEHIND: Final = re.compile(r"[A-Za-z0-9_-]{4,64}")
_NONE: Final = frozenset[bytes]()


class NearCopies:
    """What of a set of keys is looked for."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        keys = [secret for secret in secrets if looks_random(secret)]
        self._ends = tuple(map(_normal, keys))
        self._heads = tuple(key[:4] for key in keys)
        looks = [_look_for(key) for key in keys]
        self._windows, self._blocks, self._parts = (
            _NONE.union(*(look[kind] for look in looks)) for kind in range(3)
        )
        self._joined = b"\n".join(self._windows)

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of near copies in `text`; they may overlap."""
        if not self._windows:
            return []
        elided = any(head in text for head in self._heads)
        return self._runs(text) + (self._elided(text) if elided else [])

    def cut(self, text: str) -> int:
        """Return where a run that is not complete may begin at the end of `text`.

        The length of `text` if none does.
        """
        if not self._windows:
            return len(text)
        start = len(text)
        tail = b""
        for at in range(len(text) - 1, max(-1, len(text) - RUN * (GAP + 1)), -1):
            letter = text[at]
            if letter not in _ALPHANUMERIC:
                if (start if tail else len(text)) - at > GAP:
                    break
                continue
            longer = letter.lower().encode() + tail
            known = longer in self._parts if len(longer) <= _PART else longer in self._joined
            if not known or len(longer) >= RUN:
                break
            start = at
            tail = longer
        return start

    def _runs(self, text: str) -> list[tuple[int, int]]:
        data = _normal(text)
        blocks = self._blocks
        found = [
            start
            for block in range(0, len(data) - _BLOCK_CHARS + 1, _BLOCK_CHARS)
            if data[block : block + _BLOCK_CHARS] in blocks
            for start in range(max(0, block + _BLOCK_CHARS - RUN), min(block, len(data) - RUN) + 1)
            if data[start : start + RUN] in self._windows
        ]
        if not found:
            return []
        at = [index for index, letter in enumerate(text) if letter in _ALPHANUMERIC]
        places = (at[start : start + RUN] for start in found)
        return [
            (run[0], run[-1] + 1)
            for run in places
            if all(after - before <= GAP + 1 for before, after in pairwise(run))
        ]

    def _elided(self, text: str) -> list[tuple[int, int]]:
        found = []
        for dots in _ELISION.finditer(text):
            first = max(0, dots.start() - 64)
            before = _BEFORE.search(text[first : dots.start()])
            behind = _BEHIND.match(text, dots.end())
            if before is None or behind is None:
                continue
            begin = _normal(before[0])
            end = _normal(behind[0])
            shown = 2 * (len(begin) + len(end))
            if any(
                shown >= len(key) and key.startswith(begin) and key.endswith(end)
                for key in self._ends
            ):
                found.append((first + before.start(), behind.end()))
        return found


@cache
def _look_for(key: str) -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
    """The runs of one key, their blocks, and their short parts.

    Keys are added one by one, so each is asked for again.

    Most text is done with after a few letters that are no short part.
    """
    plain = [key, key[::-1]]
    data = key.encode("utf-8", "surrogatepass")
    # What of the encodings of a key does not depend on what stands around it.
    whole = [
        data.hex(),
        *_base64_cores(data),
        *(
            b32encode(bytes(at) + data)[(at * 8 + 4) // 5 : (at + len(data)) * 8 // 5].decode()
            for at in range(5)
        ),
    ]
    coded = [form for each in whole for form in (each, each[::-1])]
    forms = [_normal(form) for form in (*plain, *coded)]
    # Bytes of a key, encoded, are no word, but they may be digits alone.
    runs = _pieces(forms[len(plain) :], RUN)
    for form in plain:
        letters = "".join(letter for letter in form if letter in _ALPHANUMERIC)
        every = (letters[start : start + RUN] for start in range(len(letters) - RUN + 1))
        # Runs that do not alternate may be made of words.
        runs |= {run.lower().encode() for run in every if _alternations(run) >= _ALTERNATIONS}
    parts = {part for size in range(1, _PART + 1) for part in _pieces(forms, size)}
    return frozenset(runs), frozenset(_pieces(forms, _BLOCK_CHARS)), frozenset(parts)


def _pieces(forms: Iterable[bytes], size: int) -> set[bytes]:
    return {form[start : start + size] for form in forms for start in range(len(form) - size + 1)}


def looks_random(text: str) -> bool:
    """Return whether a key is long enough, and alternates often enough, not to be made of words."""
    letters = [letter for letter in text if letter in _ALPHANUMERIC]
    return len(letters) >= _SHORTEST and _alternations("".join(letters)) * 5 >= len(letters)


def _normal(text: str) -> bytes:
    return text.encode("ascii", "ignore").translate(_LOWER, _OTHERS)


def _alternations(text: str) -> int:
    kinds = [(letter.isdigit(), letter.isupper()) for letter in text]
    return sum(one != other for one, other in pairwise(kinds))


REDACTED: Final = "[key]"  # What replaces a key
SHORTEST: Final = 8  # A shorter text is not treated as a key: it could be an ordinary word

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""The bytes that a URL holds as they are (RFC 3986)."""

_KEPT: Final = tuple(
    _PLAIN | frozenset(more)
    for more in (b"", b"/", b"=", b"/=", b"+/=", b"!'()*", b"!'()*+,/:;=@$&?#")
)
"""The bytes that different programs leave unescaped in a URL."""

_ESCAPES: Final = ("%{:02X}", "%{:02x}", "%25{:02X}")


class Secrets:
    """The texts that must not leave the process, in all encodings.

    It only grows, so threads may share it.
    """

    def __init__(self, *secrets: str) -> None:
        self._known: frozenset[str] = frozenset()
        self.forms: tuple[str, ...] = ()  # Every encoding of every secret, the longest first
        self._sorted: tuple[str, ...] = ()
        # Made when it is first needed: a command may read keys and show none
        self._near = self._known, NearCopies()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Add secrets. Those shorter than `SHORTEST` are ignored."""
        new = {secret for secret in secrets if len(secret) >= SHORTEST} - self._known
        if new:
            # Whole new values are assigned, never changed in place: another thread may be reading
            # the old ones.
            self._known |= new
            found = {form for secret in self._known for form in encodings_of(secret)}
            self._sorted = tuple(sorted(found))
            self.forms = tuple(sorted(found, key=lambda form: (-len(form), form)))

    def holds(self, text: str) -> bool:
        return any(form in text for form in self.forms) or bool(self._near_copies().spans(text))

    def redact(self, text: str) -> str:
        """Return `text` with a mark for each secret in it.

        Encodings that overlap share one mark.
        """
        if not self.forms or len(text) < SHORTEST:
            return text
        spans = self.spans(text)
        if not spans:
            return text
        return _marked(text, spans, len(text))[0]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of encodings and near copies in `text`, in order.

        Those that overlap are merged.
        """
        joined: list[tuple[int, int]] = []
        found = []
        for form in self.forms:
            start = text.find(form)
            while start >= 0:  # also where it overlaps itself
                found.append((start, start + len(form)))
                start = text.find(form, start + 1)
        for start, end in sorted(found + self._near_copies().spans(text)):
            if joined and start < joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return joined

    def cut(self, text: str) -> int:
        """Return where an incomplete copy may begin at the end of `text`.

        The length of `text` if none does.
        """
        near = self._near_copies().cut(text)
        for start in range(max(0, len(text) - len(self.forms[0])) if self.forms else near, near):
            tail = text[start:]
            # A longer encoding that begins with the tail sorts directly after it.
            after = bisect_right(self._sorted, tail)
            if after < len(self._sorted) and self._sorted[after].startswith(tail):
                return start
        return near

    def _near_copies(self) -> NearCopies:
        # Another thread may add a key meanwhile, so it is kept with the keys that it was made of.
        known = self._known
        (of, found) = self._near
        if of is not known:
            found = NearCopies(known)
            self._near = known, found
        return found

    def redact_data(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value with a mark for each secret in its texts, names of fields included."""
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, dict):
            return {self.redact(str(name)): self.redact_data(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact_data(item) for item in value]
        return value


class StreamRedactor:
    """`redact` for text in pieces.

    What may be the beginning of a secret is held back until it is not.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._held = ""
        self._hidden = 0  # so many characters of what is held belong to a mark that was shown

    def feed(self, piece: str) -> str:
        if not self._secrets.forms:
            return piece
        text = self._held + piece
        return self._show(text, self._secrets.cut(text))

    def close(self) -> str:
        """Return what was held back, now that nothing can follow it."""
        return self._show(self._held, len(self._held))

    def _show(self, text: str, cut: int) -> str:
        """Return what is before `cut`: every encoding that begins there is complete."""
        shown, at = _marked(text, self._secrets.spans(text), cut, self._hidden)
        self._held = text[cut:]
        self._hidden = max(0, at - cut)
        return shown


_SECRET_NAME: Final = re.compile(
    r"auth|token|key|secret|passw|cookie|credential|session|signature|jwt|bearer|^pass$",
    re.IGNORECASE,
)


def secrets_in(values: Mapping[str, str]) -> list[str]:
    """Return what is secret among named values, such as headers.

    By the name, or because the value looks random.

    With each value its last word, as in `Bearer TOKEN`, and the password of a URL.
    """
    found = []
    for name, value in values.items():
        text = value.strip()
        if _SECRET_NAME.search(name) or looks_random(text.rpartition(" ")[2]):
            found += [text, text.rpartition(" ")[2]]
        if "://" in text and "@" in text:
            found.append(text.partition("://")[2].rpartition("@")[0].partition(":")[2])
    return [text for text in found if text]


def _marked(
    text: str, spans: Iterable[tuple[int, int]], cut: int, hidden: int = 0
) -> tuple[str, int]:
    """Return `text` up to `cut` with a mark for each span that begins there, and how far the last
    of them reaches.

    The first `hidden` characters belong to a mark that was shown before; so does a span that
    overlaps them.
    """
    shown = []
    at = hidden
    for start, end in spans:
        if start >= cut:
            break
        if start >= at:
            shown += [text[at:start], REDACTED]
        at = max(at, end)
    return "".join([*shown, text[at:cut]]), at


def encodings_of(secret: str) -> Iterator[str]:
    """Yield the ways in which `secret` may be encoded inside other text."""
    yield secret
    quoted = json.dumps(secret)[1:-1]
    yield from (
        quoted,
        quoted.replace("/", "\\/"),
        quoted.replace("\\", "\\\\"),
        json.dumps(quoted)[1:-1],
    )
    yield "".join(f"\\u{ord(letter):04x}" for letter in secret)
    yield html.escape(secret)
    data = secret.encode("utf-8", "surrogatepass")
    yield from (data.hex(), data.hex().upper())
    yield from (b32encode(data).decode().rstrip("="), b32encode(data).decode().rstrip("=").lower())
    yield from ("".join(form.format(byte) for byte in data) for form in _ESCAPES)
    # URL encodings: programs differ in which characters they escape, and some escape twice.
    coded = [b64encode(data).decode(), *_base64_cores(data)]
    for text in (secret, *coded, *(each.replace("+", "-").replace("/", "_") for each in coded)):
        yield text
        for escape in _ESCAPES:
            for kept in _KEPT:
                yield "".join(
                    chr(byte) if byte in kept else escape.format(byte)
                    for byte in text.encode("utf-8", "surrogatepass")
                )


def _base64_cores(data: bytes) -> list[str]:
    """In base64 after other text such as a user name.

    The part that does not depend on what surrounds it.
    """
    return [
        b64encode(bytes(at) + data)[(at * 8 + 5) // 6 : (at + len(data)) * 8 // 6].decode()
        for at in range(3)
    ]
