"""The lines of traces from before December 2026, and the events of formats 1 and 2. Pure.

In these lines texts are named instead of repeated, and times are written as letters. `{"repeated":
NAME}` stands for a text of an earlier line, `{"repeated": ["…", [NAME]]}` for one with such texts
in it, and `{"repeated_item": NAME}` for an object of a list; NAME is the beginning of the SHA-256.
A line that has names has the field `repeats`. `cuts` of a line of pieces says where its texts were
cut and when each piece came.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.serialization import DecodeError

MIN_NAMED_CHARS: Final = 64  # Characters of the shortest text that has a name
MAX_REPEATED: Final = 256 << 20
"""Characters that a trace may repeat. A run repeats far less; a made-up trace could name a text
that names others.
"""

NAME: Final = 12  # Digits of the SHA-256 of a text that are its name
MARK: Final = "repeats"
REPEATED: Final = "repeated"
REPEATED_ITEM: Final = "repeated_item"

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Each stands for five bits of a number, the lowest first; the second half says that more
follow.
"""

MAX_LETTERS: Final = 8
_CONTINUATION_BIT: Final = 32
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

OLD_FORMATS: Final = (1, 2)
"""Formats of traces that are read as the present one: format 1 had other words, format 2 only other
lines.
"""

_NAMES: Final = {"reader": "recipient", "remark": "feedback"}
_WORDS: Final = {
    ("kind", "inner"): "nested_event",
    ("verdict", "run"): "approved",
    ("verdict", "again"): "replan",
    ("reason", "unneeded"): "not_needed",
    ("reason", "cannot"): "run_failed",
}


def upgrade_event(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of an event of an old format as the present format has it."""
    upgraded: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, str):
            value = _WORDS.get((name, value), value)  # noqa: PLW2901 - the same value, renamed
        upgraded[_NAMES.get(name, name)] = value
    if isinstance(shown := fields.get("tells_of"), list):
        upgraded["planner_saw_files"] = "files" in shown
    if isinstance(inner := fields.get("event"), Mapping):
        upgraded["event"] = upgrade_event(inner)
    if "format" in fields:
        upgraded["format"] = ev.FORMAT
    return upgraded


def name_of(text: str) -> str:
    """Return the first digits of the SHA-256 of a text, which are its name."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:NAME]


class NamedTexts:
    """The texts of the lines that were read, by their names.

    Without `strict`, an unknown one is empty.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._by_name = dict[str, str]()
        self._pieces = dict[str, list[str]]()
        self._repeated = 0

    def resolve(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object of a line with its texts in place of their names, and note them.

        Raises `DecodeError`.
        """
        path, inner = _innermost(fields)
        # The pieces before it make one text
        if path in self._pieces and inner.get("kind") != ev.StepDelta.kind:
            self._add("".join(self._pieces.pop(path)))
        if MARK in fields:
            fields = self._resolve({name: value for name, value in fields.items() if name != MARK})
        self.add_piece(fields)
        self._add_texts_of(fields)
        return fields

    def add_piece(self, fields: Mapping[str, Any]) -> None:
        """Note the text of a piece of an answer."""
        path, inner = _innermost(fields)
        if inner.get("kind") == ev.StepDelta.kind and isinstance(text := inner.get("text"), str):
            self._pieces.setdefault(path, []).append(text)

    def _add_texts_of(self, fields: Mapping[str, Any]) -> None:
        for value in fields.values():
            self._add_value(value)

    def _add_value(self, value: object) -> None:
        if isinstance(value, str):
            self._add(value)
        elif isinstance(value, dict):
            self._add_texts_of(value)
        elif isinstance(value, list):
            for item in value:
                self._add_value(item)
                if isinstance(item, dict):
                    self._add(_ENCODE(item))

    def _add(self, text: str) -> None:
        if len(text) >= MIN_NAMED_CHARS:
            self._by_name.setdefault(name_of(text), text)

    def _resolve(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and REPEATED in value:
            parts = value[REPEATED]
            if not isinstance(parts, list):
                parts = [[parts]]
            return "".join(map(self._text_of_part, parts))
        if len(value) == 1 and REPEATED_ITEM in value:
            return json.loads(self._text([value[REPEATED_ITEM]]) or "null")
        return {name: self._resolve(item) for name, item in value.items()}

    def _text_of_part(self, part: Any) -> str:  # noqa: ANN401 - any JSON value
        if isinstance(part, str):
            return part
        return self._text(part)

    def _text(self, part: Any) -> str:  # noqa: ANN401 - any JSON value
        name = None
        if isinstance(part, list) and len(part) == 1:
            name = part[0]
        text = None
        if isinstance(name, str):
            text = self._by_name.get(name)
        if text is None and self._strict:
            raise DecodeError("it repeats a text of a line that is missing or damaged")
        self._repeated += len(text or "")
        if self._repeated > MAX_REPEATED:
            raise DecodeError("it repeats more text than any run does")
        return text or ""


def _innermost(fields: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return which step of which nested run an event belongs to, and the innermost event."""
    path = ""
    while fields.get("kind") == ev.NestedEvent.kind:
        inner = fields.get("event")
        if not isinstance(inner, Mapping):
            break
        path += f"{fields.get('step')!r:.20}/"
        fields = inner
    return f"{path}{fields.get('step')!r:.20}", fields


def read_cuts(
    cuts: str, texts: Sequence[str], times: Sequence[tuple[float, ...]]
) -> Iterator[tuple[int, tuple[float, ...], str]]:
    """Yield each piece of a line in order.

    The number of its text, its times, and its part of that text.

    `times` are those of the first piece of each text. Raises `DecodeError`.
    """
    numbers = iter(_read_numbers(cuts))
    starts = [0] * len(texts)
    after = [[0] * len(times_of_text) for times_of_text in times]
    for number in numbers:
        index = 0
        length = number
        if len(texts) > 1:
            index = number
            length = next(numbers, -1)
        if index >= len(texts):
            raise DecodeError("its pieces are of more texts than it has")
        start = starts[index]
        after[index] = [milliseconds + next(numbers, 0) for milliseconds in after[index]]
        starts[index] = start + length
        if not start < starts[index] <= len(texts[index]):
            raise DecodeError("its pieces do not fit its texts")
        piece_times = tuple(map(_time_after, times[index], after[index]))
        yield index, piece_times, texts[index][start : starts[index]]
    if any(start != len(text) for start, text in zip(starts, texts, strict=True)):
        raise DecodeError("its pieces do not fit its texts")


def _time_after(first: float, milliseconds: int) -> float:
    if not milliseconds:
        return first
    return round(first + milliseconds / 1000, 4)


def _read_numbers(letters: str) -> Iterator[int]:
    number = 0
    digits = 0
    for letter in letters:
        value = LETTERS.find(letter)
        if value < 0 or digits == MAX_LETTERS:
            raise DecodeError("its cuts are no numbers")
        number |= value % _CONTINUATION_BIT << 5 * digits
        digits += 1
        if value < _CONTINUATION_BIT:
            yield number
            number = 0
            digits = 0
    if digits:
        raise DecodeError("its cuts are no numbers")
