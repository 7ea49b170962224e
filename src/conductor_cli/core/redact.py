"""Removes keys from text in every encoding in which they may come back.

As they are, in a URL, in JSON, in base64.

Providers repeat a key in their errors, servers echo headers, and an attached file may hold one.
`Secrets` knows a set of keys. Text that leaves the process goes through `Secrets.redact`; text that
a server streams goes through a `StreamRedactor`, since a key may be split between two pieces.

`NearCopies` finds what is nearly a key: cut at an end, in other case, reversed, with separators
inside, encoded and then cut. A key is compared by its letters and digits alone, without case.
Wherever `RUN_CHARS` of them in a row stand in a text, that part is a copy, whatever stands between
them (at most `MAX_GAP_CHARS` other characters each). Random text of this length is not met by
chance; so that ordinary words are left alone, only keys that look random take part, and of those
only runs in which letters and digits, or large and small letters, alternate.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b32encode, b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, pairwise
from string import ascii_letters, digits
from typing import Any, Final

RUN_CHARS: Final = 12
"""Letters and digits in a row that a text has in common with a key. Of a key of 20 no more than
eight are unknown then; fewer than 12 would also be found in dates, versions and identifiers.
"""

# Other characters between two of them: a line break with an indent has as many
MAX_GAP_CHARS: Final = 8

_BLOCK_CHARS: Final = RUN_CHARS // 2
"""Every run holds a whole block of this length that begins at a multiple of it: only those are
looked up.
"""

_PART: Final = 4
_MIN_RUN_LENGTH: Final = 16
_ALTERNATIONS: Final = 2  # Changes between small letters, large ones and digits in a run

_ALPHANUMERIC: Final = frozenset(ascii_letters + digits)
_LOWER: Final = bytes(range(256)).lower()
_OTHERS: Final = bytes(byte for byte in range(256) if chr(byte) not in _ALPHANUMERIC)
_ELISION: Final = re.compile(r"(?:\.{2,}|…|\*{2,}|•{2,}|\[\.\.\.\])[.*…•]{0,64}")
_BEFORE: Final = re.compile(r"[A-Za-z0-9_-]{4,}\Z")
_BEHIND: Final = re.compile(r"[A-Za-z0-9_-]{4,64}")


class NearCopies:
    """What of a set of keys is looked for."""

    def __init__(self) -> None:
        self._ends: tuple[bytes, ...] = ()
        self._heads: tuple[str, ...] = ()
        self._windows = frozenset[bytes]()
        self._blocks = frozenset[bytes]()
        self._parts = frozenset[bytes]()
        self._joined = b""

    def with_secrets(self, secrets: Iterable[str]) -> NearCopies:
        """Return what looks for these secrets, too: what was made for the others is kept."""
        keys = [secret for secret in secrets if looks_random(secret)]
        windows = set[bytes]()
        blocks = set[bytes]()
        parts = set[bytes]()
        for key in keys:
            windows_of_key, blocks_of_key, parts_of_key = _look_for(key)
            windows |= windows_of_key
            blocks |= blocks_of_key
            parts |= parts_of_key
        larger = NearCopies()
        larger._ends = (*self._ends, *map(_normal, keys))
        larger._heads = (*self._heads, *(key[:4] for key in keys))
        larger._windows = self._windows | windows
        larger._blocks = self._blocks | blocks
        larger._parts = self._parts | parts
        larger._joined = b"\n".join([self._joined, *windows])
        return larger

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of near copies in `text`; they may overlap."""
        if not self._windows:
            return []
        spans = self._runs(text)
        if any(head in text for head in self._heads):
            spans += self._elided(text)
        return spans

    def cut(self, text: str) -> int:
        """Return where a run that is not complete may begin at the end of `text`.

        The length of `text` if none does.
        """
        if not self._windows:
            return len(text)
        start = len(text)
        tail = b""
        for at in range(len(text) - 1, max(-1, len(text) - RUN_CHARS * (MAX_GAP_CHARS + 1)), -1):
            letter = text[at]
            if letter not in _ALPHANUMERIC:
                # Without a tail, `start` is the end of the text.
                if start - at > MAX_GAP_CHARS:
                    break
                continue
            longer = letter.lower().encode() + tail
            if len(longer) >= RUN_CHARS or not self._is_part(longer):
                break
            start = at
            tail = longer
        return start

    def _is_part(self, letters: bytes) -> bool:
        """Return whether a run that is looked for has these letters in it."""
        if len(letters) <= _PART:
            return letters in self._parts
        return letters in self._joined

    def _runs(self, text: str) -> list[tuple[int, int]]:
        starts = self._starts_of_runs(_normal(text))
        if not starts:
            return []
        positions = [index for index, letter in enumerate(text) if letter in _ALPHANUMERIC]
        spans = []
        for start in starts:
            run = positions[start : start + RUN_CHARS]
            if all(after - before <= MAX_GAP_CHARS + 1 for before, after in pairwise(run)):
                spans.append((run[0], run[-1] + 1))
        return spans

    def _starts_of_runs(self, letters: bytes) -> list[int]:
        """Return where a run begins that is looked for; a run may be there more than once.

        Each run of `RUN_CHARS` letters has a whole block in it, so only what is around a block of a
        key is looked at closely.
        """
        blocks = self._blocks
        windows = self._windows
        starts = []
        for block in range(0, len(letters) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
            if letters[block : block + _BLOCK_CHARS] in blocks:
                first = max(0, block + _BLOCK_CHARS - RUN_CHARS)
                last = min(block, len(letters) - RUN_CHARS)
                for start in range(first, last + 1):
                    if letters[start : start + RUN_CHARS] in windows:
                        starts.append(start)
        return starts

    def _elided(self, text: str) -> list[tuple[int, int]]:
        spans = []
        for dots in _ELISION.finditer(text):
            first = max(0, dots.start() - 64)
            before = _BEFORE.search(text[first : dots.start()])
            behind = _BEHIND.match(text, dots.end())
            if before is None or behind is None:
                continue
            if self._is_elided_key(_normal(before[0]), _normal(behind[0])):
                spans.append((first + before.start(), behind.end()))
        return spans

    def _is_elided_key(self, begin: bytes, end: bytes) -> bool:
        """Return whether a key begins and ends so, and at least half of it is shown."""
        shown = 2 * (len(begin) + len(end))
        for key in self._ends:
            if shown >= len(key) and key.startswith(begin) and key.endswith(end):
                return True
        return False


@cache
def _look_for(key: str) -> tuple[frozenset[bytes], frozenset[bytes], frozenset[bytes]]:
    """Return the runs of one key, their blocks, and their short parts.

    Keys are added one by one, so each is asked for again.

    Most text is done with after a few letters that are no short part.
    """
    content = key.encode("utf-8", "surrogatepass")
    # What of the encodings of a key does not depend on what stands around it.
    encoded = [content.hex(), *_base64_cores(content), *_base32_cores(content)]
    plain_forms = [key, key[::-1]]
    encoded_forms = [*encoded, *(text[::-1] for text in encoded)]
    # Bytes of a key, encoded, are no word, but they may be digits alone.
    runs = _pieces(map(_normal, encoded_forms), RUN_CHARS)
    for form in plain_forms:
        letters = "".join(letter for letter in form if letter in _ALPHANUMERIC)
        changes = _changes(letters)
        small_letters = letters.lower().encode()
        # Runs that do not alternate may be made of words.
        for start in range(len(letters) - RUN_CHARS + 1):
            end = start + RUN_CHARS
            if sum(changes[start : end - 1]) >= _ALTERNATIONS:
                runs.add(small_letters[start:end])
    forms = [_normal(form) for form in (*plain_forms, *encoded_forms)]
    parts: set[bytes] = set()
    for size in range(1, _PART + 1):
        parts |= _pieces(forms, size)
    return frozenset(runs), frozenset(_pieces(forms, _BLOCK_CHARS)), frozenset(parts)


def _pieces(forms: Iterable[bytes], size: int) -> set[bytes]:
    pieces: set[bytes] = set()
    for form in forms:
        pieces.update([form[start : start + size] for start in range(len(form) - size + 1)])
    return pieces


def looks_random(text: str) -> bool:
    """Return whether a key is long enough, and alternates often enough, not to be made of words."""
    letters = [letter for letter in text if letter in _ALPHANUMERIC]
    return len(letters) >= _MIN_RUN_LENGTH and sum(_changes(letters)) * 5 >= len(letters)


def _normal(text: str) -> bytes:
    return text.encode("ascii", "ignore").translate(_LOWER, _OTHERS)


def _changes(letters: Iterable[str]) -> list[bool]:
    """Return whether each letter but the first is of another kind than the one before it."""
    kinds = [(letter.isdigit(), letter.isupper()) for letter in letters]
    return [before != after for before, after in pairwise(kinds)]


REDACTED: Final = "[key]"  # What replaces a key
MIN_SECRET_CHARS: Final = 8  # A shorter text is not treated as a key: it could be an ordinary word

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
"""The bytes that a URL holds as they are (RFC 3986)."""

_KEPT: Final = tuple(
    _PLAIN | frozenset(others)
    for others in (b"", b"/", b"=", b"/=", b"+/=", b"!'()*", b"!'()*+,/:;=@$&?#")
)
"""The bytes that different programs leave unescaped in a URL."""

_ESCAPES: Final = ("%{:02X}", "%{:02x}", "%25{:02X}")


class Secrets:
    """The texts that must not leave the process, in all encodings.

    It only grows, so threads may share it.
    """

    def __init__(self, *secrets: str) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._encodings: dict[str, tuple[str, ...]] = {}
        self.forms: tuple[str, ...] = ()  # Every encoding of every secret, the longest first
        self._sorted: tuple[str, ...] = ()
        # Made when it is first needed: a command may read keys and show none
        self._near = self._secrets, NearCopies()
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Add secrets. Those shorter than `MIN_SECRET_CHARS` are ignored."""
        long_enough = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS}
        added = long_enough - self._secrets
        if not added:
            return
        # Whole new values are assigned, never changed in place: another thread may be reading
        # the old ones.
        for secret in added:
            self._encodings[secret] = tuple(encodings_of(secret))
        self._secrets |= added
        forms = set(chain.from_iterable([*self._encodings.values()]))
        self._sorted = tuple(sorted(forms))
        self.forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def holds(self, text: str) -> bool:
        return any(form in text for form in self.forms) or bool(self._near_copies().spans(text))

    def redact(self, text: str) -> str:
        """Return `text` with a mark for each secret in it.

        Encodings that overlap share one mark.
        """
        if not self.forms or len(text) < MIN_SECRET_CHARS:
            return text
        spans = self.spans(text)
        if not spans:
            return text
        return _marked(text, spans, len(text))[0]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of encodings and near copies in `text`, in order.

        Those that overlap are merged.
        """
        spans = self._near_copies().spans(text)
        for form in self.forms:
            start = text.find(form)
            while start >= 0:  # also where it overlaps itself
                spans.append((start, start + len(form)))
                start = text.find(form, start + 1)
        joined: list[tuple[int, int]] = []
        for start, end in sorted(spans):
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
        if not self.forms:
            return near
        longest = len(self.forms[0])
        for start in range(max(0, len(text) - longest), near):
            tail = text[start:]
            # A longer encoding that begins with the tail sorts directly after it.
            after = bisect_right(self._sorted, tail)
            if after < len(self._sorted) and self._sorted[after].startswith(tail):
                return start
        return near

    def _near_copies(self) -> NearCopies:
        # Another thread may add a key meanwhile, so it is kept with the keys that it was made of.
        secrets = self._secrets
        (made_of, near_copies) = self._near
        if made_of is not secrets:
            near_copies = near_copies.with_secrets(secrets - made_of)
            self._near = secrets, near_copies
        return near_copies

    def redact_data(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value with a mark for each secret in its texts and names of fields."""
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
    secrets = []
    for name, value in values.items():
        text = value.strip()
        last_word = text.rpartition(" ")[2]
        if _SECRET_NAME.search(name) or looks_random(last_word):
            secrets += [text, last_word]
        if "://" in text and "@" in text:
            user_and_password = text.partition("://")[2].rpartition("@")[0]
            secrets.append(user_and_password.partition(":")[2])
    return list(filter(None, secrets))


_LOGIN_FIELDS: Final = frozenset(
    {
        "access_token",
        "refresh_token",
        "id_token",
        "client_secret",
        "registration_access_token",
        "code",
        "code_verifier",
    }
)
"""Names that the standards of OAuth give to what is secret of a login."""


def login_secrets(values: Mapping[str, Any]) -> list[str]:
    """Return what is secret of a login (OAuth), wherever it stands in these JSON values."""
    secrets: list[str] = []
    left: list[Any] = [values]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            for name, text in value.items():
                if name in _LOGIN_FIELDS and isinstance(text, str):
                    secrets.append(text)
            left += value.values()
        elif isinstance(value, (list, tuple)):
            left += value
    return secrets


def _marked(
    text: str, spans: Iterable[tuple[int, int]], cut: int, hidden: int = 0
) -> tuple[str, int]:
    """Return `text` up to `cut` with a mark for each span that begins there, and where they end.

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
    content = secret.encode("utf-8", "surrogatepass")
    yield from (content.hex(), content.hex().upper())
    base32 = b32encode(content).decode().rstrip("=")
    yield from (base32, base32.lower())
    yield from (_escaped(content, escape, frozenset()) for escape in _ESCAPES)
    base64 = [b64encode(content).decode(), *_base64_cores(content)]
    url_base64 = [text.replace("+", "-").replace("/", "_") for text in base64]
    # URL encodings: programs differ in which characters they escape, and some escape twice.
    for text in (secret, *base64, *url_base64):
        yield text
        for escape in _ESCAPES:
            for kept in _KEPT:
                yield _escaped(text.encode("utf-8", "surrogatepass"), escape, kept)


def _escaped(content: bytes, escape: str, kept: frozenset[int]) -> str:
    """Return the bytes as text, with an escape for each that is not among those kept."""
    return "".join(map(_escape_table(escape, kept).__getitem__, content))


@cache
def _escape_table(escape: str, kept: frozenset[int]) -> tuple[str, ...]:
    """Return what stands for each byte."""
    texts = []
    for byte in range(256):
        texts.append(chr(byte) if byte in kept else escape.format(byte))
    return tuple(texts)


def _base64_cores(content: bytes) -> list[str]:
    """In base64 after other text such as a user name, what does not depend on that text."""
    cores = []
    for before in range(3):
        encoded = b64encode(bytes(before) + content)
        core = encoded[(before * 8 + 5) // 6 : (before + len(content)) * 8 // 6]
        cores.append(core.decode())
    return cores


def _base32_cores(content: bytes) -> list[str]:
    """Return the same in base32."""
    cores = []
    for before in range(5):
        encoded = b32encode(bytes(before) + content)
        core = encoded[(before * 8 + 4) // 5 : (before + len(content)) * 8 // 5]
        cores.append(core.decode())
    return cores
