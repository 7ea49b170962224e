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

SHORTEST: Final = 64  # Characters of the shortest text that has a name
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
_MORE: Final = 32
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


def upgrade_event(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object of an event of an old format as the present format has it."""
    new = {
        _NAMES.get(name, name): _WORDS.get((name, value), value)
        if isinstance(value, str)
        else value
        for name, value in data.items()
    }
    if isinstance(shown := data.get("tells_of"), list):
        new["planner_saw_files"] = "files" in shown
    if isinstance(inner := data.get("event"), Mapping):
        new["event"] = upgrade_event(inner)
    return new | ({"format": ev.FORMAT} if "format" in data else {})


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

    def resolve(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object of a line with its texts in place of their names, and note them.

        Raises `DecodeError`.
        """
        place, inner = _innermost(data)
        # The pieces before it make one text
        if place in self._pieces and inner.get("kind") != ev.StepDelta.kind:
            self._add("".join(self._pieces.pop(place)))
        if MARK in data:
            data = self._resolve({name: value for name, value in data.items() if name != MARK})
        self.add_piece(data)
        self._add_all(data)
        return data

    def add_piece(self, data: Mapping[str, Any]) -> None:
        """Note the text of a piece of an answer."""
        place, inner = _innermost(data)
        if inner.get("kind") == ev.StepDelta.kind and isinstance(text := inner.get("text"), str):
            self._pieces.setdefault(place, []).append(text)

    def _add_all(self, value: Mapping[str, Any] | list[Any]) -> None:
        for each in value.values() if isinstance(value, Mapping) else value:
            if isinstance(each, str):
                self._add(each)
            elif isinstance(each, dict | list):
                self._add_all(each)
                if isinstance(each, dict) and isinstance(value, list):
                    self._add(_ENCODE(each))

    def _add(self, text: str) -> None:
        if len(text) >= SHORTEST:
            self._by_name.setdefault(name_of(text), text)

    def _resolve(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, list):
            return [self._resolve(each) for each in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1 and REPEATED in value:
            parts = value[REPEATED] if isinstance(value[REPEATED], list) else [[value[REPEATED]]]
            return "".join(part if isinstance(part, str) else self._text(part) for part in parts)
        if len(value) == 1 and REPEATED_ITEM in value:
            return json.loads(self._text([value[REPEATED_ITEM]]) or "null")
        return {name: self._resolve(each) for name, each in value.items()}

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


def _innermost(data: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return which step of which nested run an event belongs to, and the innermost event."""
    place = ""
    while data.get("kind") == ev.NestedEvent.kind and isinstance(
        inner := data.get("event"), Mapping
    ):
        place += f"{data.get('step')!r:.20}/"
        data = inner
    return f"{place}{data.get('step')!r:.20}", data


def read_cuts(
    cuts: str, texts: Sequence[str], times: Sequence[tuple[float, ...]]
) -> Iterator[tuple[int, tuple[float, ...], str]]:
    """Yield each piece of a line in order.

    The number of its text, its times, and its part of that text.

    `times` are those of the first piece of each text. Raises `DecodeError`.
    """
    numbers = iter(_read_numbers(cuts))
    starts = [0] * len(texts)
    after = [[0] * len(each) for each in times]
    for number in numbers:
        index, length = (number, next(numbers, -1)) if len(texts) > 1 else (0, number)
        if index >= len(texts):
            raise DecodeError("its pieces are of more texts than it has")
        start = starts[index]
        after[index] = [milliseconds + next(numbers, 0) for milliseconds in after[index]]
        starts[index] = start + length
        if not start < starts[index] <= len(texts[index]):
            raise DecodeError("its pieces do not fit its texts")
        later = zip(times[index], after[index], strict=True)
        yield (
            index,
            tuple(round(first + waited / 1000, 4) if waited else first for first, waited in later),
            texts[index][start : starts[index]],
        )
    if any(start != len(text) for start, text in zip(starts, texts, strict=True)):
        raise DecodeError("its pieces do not fit its texts")


def _read_numbers(letters: str) -> Iterator[int]:
    number = 0
    digits = 0
    for letter in letters:
        value = LETTERS.find(letter)
        if value < 0 or digits == MAX_LETTERS:
            raise DecodeError("its cuts are no numbers")
        number |= value % _MORE << 5 * digits
        digits += 1
        if value < _MORE:
            yield number
            number = 0
            digits = 0
    if digits:
        raise DecodeError("its cuts are no numbers")
