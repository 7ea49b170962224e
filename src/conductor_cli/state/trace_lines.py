"""Events as the lines of a trace, and back: pieces of text share a line, and no text stands in a trace twice.

Pieces of streamed text wait for each other, one to four seconds or until they have 4,096 characters. Their line has the
text of each stream once, and in `cuts` where it was cut and when each piece came, so that a replay has the rhythm of
the run. A text that a trace has already is named by a hash: the answer of a step, which its pieces have, that of the
run, what a prompt repeats of the conversation. A text whose line was lost cannot be mistaken for another one. Pure.

The texts of a trace by their names, so that one that stands in it already is not written a second time. Pure.

Whole numbers as letters: one letter for each that is less than 32, two up to 1023, and so on. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from conductor_cli.core import events as ev
from conductor_cli.core.redact import Secrets
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.terminal_text import escape_json

SHORTEST: Final = 64
"""Characters of the shortest text that is named instead of repeated."""

SHORTEST_WITHIN: Final = 256
"""The same for a text that is a part of a longer one."""

MOST_WITHIN: Final = 32
"""So many of the latest texts are looked for in longer ones."""

MOST_REPEATED: Final = 256 << 20
"""Characters that a trace may repeat. A run repeats far less; a made-up trace could name a text that names others."""

NAME: Final = 12
"""Digits of the SHA-256 of a text that are its name. A writer names no second text that has the same."""

MARK: Final = "repeats"
"""The field that says that a line names texts."""

REPEATED: Final = "repeated"
"""Stands for a text: its name, or a list of its parts, each a text or a list of one name."""

REPEATED_ITEM: Final = "repeated_item"
"""Stands for an object of a list, such as a message: the name of its JSON."""

_KNOWN_TEXTS_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def name_of(text: str) -> str:
    """The name of a text: the first digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:NAME]


def is_text(text: str) -> bool:
    """Whether JSON gives a text back as it was, also joined with others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class KnownTexts:
    """The texts of a trace by their hashes. Its writer and its reader fill it in the same way, from the same data."""

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._names = dict[str, str]()
        self._by_name = dict[str, str]()
        self._within = list[str]()
        self._heard = dict[str, list[str]]()
        self._repeated = 0

    def hear(self, data: Mapping[str, Any]) -> None:
        """Note the text of a piece of an answer."""
        place, inner = _place_of(data)
        if inner.get("kind") == ev.StepDelta.kind and isinstance(text := inner.get("text"), str):
            self._heard.setdefault(place, []).append(text)

    def settle(self, data: Mapping[str, Any]) -> None:
        """An event of a step that is no piece ends the text that its pieces make."""
        place, inner = _place_of(data)
        if place in self._heard and inner.get("kind") != ev.StepDelta.kind:
            self._add("".join(self._heard.pop(place)))

    def add_all(self, value: dict[str, Any] | list[Any]) -> None:
        """Note every text in a JSON object or list, and the objects of every list in it."""
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, str):
                if len(each) >= SHORTEST:
                    self._add(each)
            elif isinstance(each, dict | list):
                self.add_all(each)
                if isinstance(each, dict) and isinstance(value, list):
                    self._add(_KNOWN_TEXTS_ENCODE(each), within=False)

    def _add(self, text: str, *, within: bool = True) -> None:
        if len(text) < SHORTEST or text in self._names or not is_text(text):
            return
        name = name_of(text)
        if self._by_name.setdefault(name, text) is text:
            self._names[text] = name
            if within and len(text) >= SHORTEST_WITHIN:
                self._within = [*self._within, text][-MOST_WITHIN:]

    def name_in(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data with names in place of texts that are known; the data itself where there is none."""
        shared, found = self._named(data)
        return shared if found else data

    def _named(self, value: Any) -> tuple[Any, bool]:  # noqa: ANN401 - any JSON value
        """A value with names, and whether it has any."""
        if isinstance(value, str):
            parts = self._parts(value)
            return (value, False) if parts == value else ({REPEATED: parts}, True)
        if isinstance(value, dict):
            pairs = {name: self._named(each) for name, each in value.items()}
            return {name: each for name, (each, _) in pairs.items()}, any(found for _, found in pairs.values())
        if isinstance(value, list):
            items = [self._named_item(each) for each in value]
            return [each for each, _ in items], any(found for _, found in items)
        return value, False

    def _named_item(self, value: Any) -> tuple[Any, bool]:  # noqa: ANN401 - any JSON value
        name = self._names.get(_KNOWN_TEXTS_ENCODE(value)) if isinstance(value, dict) else None
        return self._named(value) if name is None else ({REPEATED_ITEM: name}, True)

    def _parts(self, text: str) -> str | list[Any]:
        """The name of a text, its parts, or the text itself where it has nothing that is known."""
        if len(text) < SHORTEST or text in self._names:
            return self._names.get(text, text)
        parts = self._split(text, sorted(self._within, key=len)) if len(text) > SHORTEST_WITHIN else [text]
        return text if parts == [text] else parts

    def _split(self, text: str, known: list[str]) -> list[Any]:
        """The parts of a text, the longest known ones taken out first."""
        while known and (len(known[-1]) > len(text) or known[-1] not in text):
            known = known[:-1]
        if not known:
            return [text] if text else []
        parts = list[Any]()
        for number, between in enumerate(text.split(known[-1])):
            parts += [[self._names[known[-1]]]] if number else []
            parts += self._split(between, known[:-1])
        return parts

    def resolve(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """A value with the texts that are named in it. Raises `DecodeError`."""
        if isinstance(value, dict):
            if len(value) == 1 and REPEATED in value:
                parts = value[REPEATED]
                if isinstance(parts, list):
                    return "".join(part if isinstance(part, str) else self._text(part) for part in parts)
                return self._text([parts])
            if len(value) == 1 and REPEATED_ITEM in value:
                return json.loads(self._text([value[REPEATED_ITEM]]) or "null")
            return {name: self.resolve(each) for name, each in value.items()}
        return [self.resolve(each) for each in value] if isinstance(value, list) else value

    def _text(self, part: Any) -> str:  # noqa: ANN401 - any JSON value
        name = part[0] if isinstance(part, list) and len(part) == 1 else None
        text = self._by_name.get(name) if isinstance(name, str) else None
        if text is None and self._strict:
            raise DecodeError("it repeats a text of a line that is missing or damaged")
        self._repeated += len(text or "")
        if self._repeated > MOST_REPEATED:
            raise DecodeError("it repeats more text than any run does")
        return text or ""


def _place_of(data: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Which step of which nested run an event belongs to, and the innermost event."""
    place = ""
    while data.get("kind") == ev.NestedEvent.kind and isinstance(inner := data.get("event"), Mapping):
        place += f"{data.get('step')!r:.20}/"
        data = inner
    return f"{place}{data.get('step')!r:.20}", data


_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""Each stands for five bits; the second half says that more follow."""

_VALUES: Final = {letter: value for value, letter in enumerate(_LETTERS)}
_MORE: Final = 32
_MOST: Final = 8
"""Letters of the largest number."""


def write_number(number: int) -> str:
    """A number as letters, the lowest bits first."""
    letters = ""
    while number >= _MORE:
        letters += _LETTERS[number % _MORE + _MORE]
        number //= _MORE
    return letters + _LETTERS[number]


def read_numbers(letters: str) -> Iterator[int]:
    """The numbers that letters stand for. Raises `DecodeError`."""
    number = digits = 0
    for letter in letters:
        value = _VALUES.get(letter, -1)
        if value < 0 or digits == _MOST:
            raise DecodeError("its cuts are no numbers")
        number |= value % _MORE << 5 * digits
        digits += 1
        if value < _MORE:
            yield number
            number = digits = 0
    if digits:
        raise DecodeError("its cuts are no numbers")


PIECES: Final = "pieces"
"""The kind of a line with several pieces."""

SHORTEST_WAIT, LONGEST_WAIT = 1.0, 4.0
"""Seconds between the first and the last piece of a line, at the start of a run and after much text."""

CHARACTERS_PER_SECOND: Final = 7_500
"""How much text has to be written before pieces wait a second longer: a kill then costs a smaller part of it."""

MOST_CHARACTERS: Final = 4096
"""Characters of the pieces of a line from which on they are written."""

MOST_STREAMS: Final = 32
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of text. `times` are those of the nested runs that it is in, then its own, in seconds."""

    event: ev.Event
    place: str
    channel: str
    times: tuple[float, ...]
    text: str


@dataclass(slots=True)
class _Stream:
    """The pieces of one text in a line; `last` are the times of the latest, in milliseconds after the first."""

    first: _Piece
    index: int
    last: list[int]
    texts: list[str] = field(default_factory=list)


class LineWriter:
    """Makes lines of events, without any of `secrets`. Beside these, every event can be read back as it was."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._texts = KnownTexts()
        self._streams = dict[tuple[str, str], _Stream]()
        self._cuts = list[tuple[int, int, list[int]]]()
        self._size = 0
        self._written = 0  # characters of pieces in earlier lines

    def add(self, event: ev.Event) -> list[str]:
        """The lines that can be written now that this event has happened: none while pieces wait."""
        piece = _piece_of(event)
        if piece is None:
            return [*self.flush(), self._line(event)]
        after = self._times_after(piece)
        lines = self.flush() if after is None else []
        key = piece.place, piece.channel
        stream = self._streams.setdefault(key, _Stream(piece, len(self._streams), [0] * len(piece.times)))
        after = after or stream.last
        waits = [new - old for old, new in zip(stream.last, after, strict=True)]
        self._cuts.append((stream.index, len(piece.text), waits))
        stream.last = after
        stream.texts.append(piece.text)
        self._size += len(piece.text)
        return lines if self._size < MOST_CHARACTERS else [*lines, *self.flush()]

    @property
    def longest_wait(self) -> float:
        """Seconds after which pieces are to be written, counted from the first."""
        return min(LONGEST_WAIT, SHORTEST_WAIT + self._written / CHARACTERS_PER_SECOND)

    @property
    def waiting(self) -> int:
        """How many pieces wait for others."""
        return len(self._cuts)

    def flush(self) -> list[str]:
        """The line of the pieces that wait, if there are any."""
        streams, cuts = list(self._streams.values()), self._cuts
        if not cuts:
            return []
        self._written += self._size
        self._streams, self._cuts, self._size = {}, [], 0
        if len(cuts) == 1:
            return [self._line(streams[0].first.event)]
        data = [ev.to_brief_json(_rebuilt(each.first.event, each.first.times, "".join(each.texts))) for each in streams]
        named = "".join(
            write_number(number)
            for index, length, times in cuts
            for number in (*([index] if len(streams) > 1 else ()), length, *times)
        )
        line = _line({"kind": PIECES, "events": data, "cuts": named})
        if self._secrets.holds(line):
            # The texts have another length now, so each is one piece.
            data = self._secrets.redact_data(data)
            line = _line({"kind": PIECES, "events": data, "cuts": ""})
        for each in data:
            self._texts.hear(each)
        return [line]

    def _times_after(self, piece: _Piece) -> list[int] | None:
        """Milliseconds of a piece after the first one of its stream; None where it cannot share the line exactly."""
        if not self._cuts:
            return None
        opening = next(iter(self._streams.values())).first
        if not 0 <= piece.times[0] - opening.times[0] < self.longest_wait:
            return None
        stream = self._streams.get((piece.place, piece.channel))
        if stream is None:
            return [0] * len(piece.times) if len(self._streams) < MOST_STREAMS else None
        after = []
        for first, time, last in zip(stream.first.times, piece.times, stream.last, strict=True):
            milliseconds = round((time - first) * 1000) if 0 <= time - first < 1e6 else -1
            if milliseconds < last or _later(first, milliseconds) != time:
                return None
            after.append(milliseconds)
        return after

    def _line(self, event: ev.Event) -> str:
        data = ev.to_brief_json(event)
        line = _line(data)
        if self._secrets.holds(line):
            data = self._secrets.redact_data(data)
            line = _line(data)
        self._texts.settle(data)
        # An object of a tool or a provider that looks like a name must not be taken for one.
        looks_alike = any(f'"{key}":' in line for key in (REPEATED, REPEATED_ITEM))
        shared = data if looks_alike else self._texts.name_in(data)
        self._texts.hear(data)
        self._texts.add_all(data)
        return line if shared is data else _line({**shared, MARK: 1})


class LineReader:
    """Makes events of lines, in the order of the file. Without `pieces`, those of streamed text are left out.

    Without `strict`, a text that is named and not known is empty: enough to say what kind of line it is.
    """

    def __init__(self, *, pieces: bool = True, strict: bool = True) -> None:
        self._pieces = pieces
        self._texts = KnownTexts(strict=strict)

    def read_line(self, line: str) -> list[ev.Event]:
        """The events of one line. Raises `DecodeError`, also for text that is not JSON."""
        try:
            return self.read(json.loads(line))
        except DecodeError:
            raise  # it is a `ValueError` too, and says more than the next line would
        except ValueError as error:
            raise DecodeError(f"not JSON: {error}") from None
        except RecursionError:
            raise DecodeError("not an event: nested too deep") from None

    def read(self, data: Any) -> list[ev.Event]:  # noqa: ANN401 - any JSON value
        """The events of the JSON object of one line. Raises `DecodeError`."""
        if isinstance(data, Mapping) and data.get("kind") == PIECES:
            return self._read_pieces(data)
        if isinstance(data, Mapping):
            self._texts.settle(data)
            if MARK in data:
                data = self._texts.resolve({name: value for name, value in data.items() if name != MARK})
        event = ev.from_json(data)
        self._texts.hear(data)
        self._texts.add_all(data)
        return [] if not self._pieces and isinstance(ev.innermost_event(event), _DELTAS) else [event]

    def _read_pieces(self, data: Mapping[str, Any]) -> list[ev.Event]:
        found, cuts = data.get("events"), data.get("cuts")
        if not isinstance(found, list) or not isinstance(cuts, str):
            raise DecodeError("its pieces are not complete")
        if not self._pieces and all(isinstance(each, Mapping) for each in found):
            for each in found:
                self._texts.hear(each)
            return []
        firsts = [_piece_of(ev.from_json(each)) for each in found]
        pieces = [piece for piece in firsts if piece is not None]
        if len(pieces) < len(firsts):
            raise DecodeError("it has pieces of something that is no text")
        for each in found:
            self._texts.hear(each)
        return list(_cut(pieces, cuts)) if cuts else [piece.event for piece in pieces]


_DELTAS: Final = (ev.StepDelta, ev.PlanDelta)


def _cut(streams: list[_Piece], cuts: str) -> Iterator[ev.Event]:
    """The pieces of a line, in the order in which they came. Raises `DecodeError`."""
    numbers = iter(read_numbers(cuts))
    starts, times = [0] * len(streams), [[0] * len(stream.times) for stream in streams]
    for number in numbers:
        index, length = (number, next(numbers, -1)) if len(streams) > 1 else (0, number)
        if index >= len(streams):
            raise DecodeError("its pieces are of more texts than it has")
        stream, start = streams[index], starts[index]
        times[index] = [time + next(numbers, 0) for time in times[index]]
        starts[index] = start + length
        if not start < starts[index] <= len(stream.text):
            raise DecodeError("its pieces do not fit its texts")
        at = tuple(_later(first, after) for first, after in zip(stream.times, times[index], strict=True))
        yield _rebuilt(stream.event, at, stream.text[start : starts[index]])
    if any(start != len(stream.text) for start, stream in zip(starts, streams, strict=True)):
        raise DecodeError("its pieces do not fit its texts")


def _piece_of(event: ev.Event) -> _Piece | None:
    """The piece of text that an event is; None for any other event, also one with text of two kinds."""
    whole, times, place = event, list[float](), ""
    while isinstance(event, ev.NestedEvent):
        times.append(event.at)
        place += f"{event.step}/"
        event = event.event
    times.append(event.at)
    if isinstance(event, ev.StepDelta) and bool(event.text) != bool(event.thinking):
        place += f"{event.step}/{event.attempt}"
        text, channel = event.text or event.thinking, "text" if event.text else "thinking"
    elif isinstance(event, ev.PlanDelta) and event.text:
        text, channel = event.text, "plan"
    else:
        return None
    # Two halves of a letter would become one where they are joined.
    return _Piece(whole, place, channel, tuple(times), text) if is_text(text) else None


def _rebuilt(event: ev.Event, times: tuple[float, ...], text: str) -> ev.Event:
    """The piece of text `event` with other times and another text."""
    if isinstance(event, ev.NestedEvent):
        return replace(event, at=times[0], event=_rebuilt(event.event, times[1:], text))
    if isinstance(event, ev.StepDelta) and event.thinking:
        return replace(event, at=times[0], thinking=text)
    assert isinstance(event, _DELTAS)
    return replace(event, at=times[0], text=text)


def _later(first: float, milliseconds: int) -> float:
    return round(first + milliseconds / 1000, 4) if milliseconds else first


def _line(data: Any) -> str:  # noqa: ANN401 - any JSON value
    return escape_json(_ENCODE(data))
