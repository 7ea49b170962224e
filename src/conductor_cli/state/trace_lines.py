"""Events as the lines of a trace, and back. Pieces of streamed text share a line. Pure.

A piece waits for others for at most a second, or until they have 4,096 characters. `streams` of
their line has the first event of each text, with `…` for the text; each of `pieces` has the number
of its stream, its text, and its times, those of the nested runs that it is in first. Older traces
are written otherwise (`format_upgrades`).

The last field of a line is `hash`: 8 digits of the SHA-256 of the line without this field, then 24
digits of the SHA-256 of the 24 digits of the line before and that whole hash. So a line that was
changed shows it by itself, and a line that does not follow the one before it does too. It has no
key: whoever can write the file can make a new chain.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from conductor_cli.core import events as ev
from conductor_cli.core.redact import Secrets
from conductor_cli.core.serialization import MAX_NUMBER, DecodeError, decode_line, encode_line
from conductor_cli.state.format_upgrades import OLD_FORMATS, NamedTexts, read_cuts, upgrade_event
from conductor_cli.state.interfaces import MAX_WAIT

DELTAS: Final = (ev.StepDelta, ev.PlanDelta)  # The events that are pieces of text
_HOLDING_PIECES: Final = frozenset({ev.NestedEvent, *DELTAS})
PIECES: Final = "pieces"  # The kind of a line with several pieces, and its field that has them
TEXT: Final = "…"  # Stands for the text of an event whose pieces follow
LINES_VERSION: Final = 2  # In the field `lines` of the first line: the trace names no texts
# Characters of the pieces of a line from which on they are written
MAX_WAITING_CHARACTERS: Final = 4096

OWN_DIGITS: Final = 8  # Of a hash, those of the line alone
LINK_DIGITS: Final = 24  # Of a hash, those that chain the line to the one before
START: Final = b"0" * LINK_DIGITS  # What the first line follows
_HASH: Final = rb',"hash":"([0-9a-f]{%d})([0-9a-f]{%d})"\}' % (OWN_DIGITS, LINK_DIGITS)
_END: Final = re.compile(_HASH + rb"\Z")
_BETWEEN: Final = re.compile(rb"(?<=%s)(?=\{)" % _HASH.replace(b"(", b"(?:"))
_HASH_BYTES: Final = len(b',"hash":""}') + OWN_DIGITS + LINK_DIGITS


class HashedLine(NamedTuple):
    """A line with a hash.

    `body` has no closing brace; `line_hash` and `link` are the digits as they are stored.
    """

    body: bytes
    line_hash: bytes
    link: bytes

    @property
    def is_unchanged(self) -> bool:
        return hashlib.sha256(self.body).hexdigest()[:OWN_DIGITS].encode() == self.line_hash

    def follows(self, link: bytes) -> bool:
        """Return whether the line was written behind the one with this `link`."""
        return self.link_behind(link) == self.link

    def link_behind(self, link: bytes) -> bytes:
        """Return the hash that chains the line to the one before it, whose hash is `link`."""
        return _link(link, hashlib.sha256(self.body).digest())


def add_hash(line: bytes, before: bytes) -> tuple[bytes, bytes]:
    """Return a JSON object as the line after the one with the link `before`, and its own link."""
    body = line[:-1]
    digest = hashlib.sha256(body).digest()
    link = _link(before, digest)
    line_hash = digest[: OWN_DIGITS // 2].hex().encode()
    return b'%b,"hash":"%b%b"}' % (body, line_hash, link), link


def read_hash(line: bytes) -> HashedLine | None:
    """Return the line without its hash; None where it has none at its end."""
    match = _END.search(line, max(0, len(line) - _HASH_BYTES))
    if match is None:
        return None
    return HashedLine(line[: match.start()], match[1], match[2])


def split_records(line: bytes) -> list[bytes]:
    """Return the records of a line: several where line breaks between them were lost."""
    return _BETWEEN.split(line)


def _link(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(before + digest).hexdigest()[:LINK_DIGITS].encode()


class _Piece(NamedTuple):
    """A piece of text.

    It has its event, the place and kind of its text, and its times (see above) in seconds.
    """

    event: ev.Event
    stream: tuple[int | str, ...]
    times: tuple[float, ...]
    text: str


class LineWriter:
    """Makes lines with hashes of the events of one run, without any of `secrets`.

    All else can be read back.
    """

    def __init__(self, secrets: Secrets, link: bytes = START) -> None:
        """`link` is the hash of the line before, which the next one is chained to."""
        self._secrets = secrets
        self._link = link
        self._waiting = list[_Piece]()
        self._size = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, event: ev.Event) -> bytes:
        """Return the lines that can be written now that this event has happened.

        None while pieces wait.
        """
        piece = _piece_of(event)
        if piece is None:
            record = ev.to_json(event, brief=True)
            if isinstance(event, ev.RunStarted):
                record["lines"] = LINES_VERSION
            return self.flush() + self._line(record)
        lines = b""
        if self._waiting:
            waited = piece.times[0] - self._waiting[0].times[0]
            if not 0 <= waited < MAX_WAIT:
                lines = self.flush()
        self._waiting.append(piece)
        self._size += len(piece.text)
        if self._size >= MAX_WAITING_CHARACTERS:
            lines += self.flush()
        return lines

    def flush(self) -> bytes:
        """Return the line of the pieces that wait, if there are any."""
        waiting = self._waiting
        self._waiting = []
        self._size = 0
        if len(waiting) < 2:
            return b"".join(self._line(ev.to_json(piece.event, brief=True)) for piece in waiting)
        streams = dict[tuple[int | str, ...], list[_Piece]]()
        for piece in waiting:
            streams.setdefault(piece.stream, []).append(piece)
        texts = ["".join(piece.text for piece in pieces) for pieces in streams.values()]
        # A secret may lie in two pieces, so each text becomes one
        if any(map(self._secrets.holds, texts)):
            waiting = [
                pieces[0]._replace(text=text)
                for pieces, text in zip(streams.values(), texts, strict=True)
            ]
        numbers = {stream: number for number, stream in enumerate(streams)}
        firsts = list[dict[str, Any]]()
        for first, *_ in streams.values():
            firsts.append(ev.to_json(_with_text(first.event, first.times, TEXT), brief=True))
        pieces = [[numbers[piece.stream], piece.text, *piece.times] for piece in waiting]
        return self._line({"kind": PIECES, "streams": firsts, PIECES: pieces})

    def _line(self, record: dict[str, Any]) -> bytes:
        line = encode_line(record, self._secrets)
        hashed, self._link = add_hash(line.encode("utf-8", "backslashreplace"), self._link)
        return hashed + b"\n"


class LineReader:
    """Makes events of lines, in the order of the file.

    Without `pieces`, those of streamed text are left out.

    Without `strict`, a text that is named and not known is empty: enough to say what kind of line
    it is.
    """

    def __init__(self, *, pieces: bool = True, strict: bool = True) -> None:
        self._pieces = pieces
        self._texts: NamedTexts | None = NamedTexts(strict=strict)
        self.format = ev.FORMAT
        """The format of the lines, as the first one says; their events are those of the present
        format.
        """

    def read_line(self, line: str) -> list[ev.Event]:
        """Return the events of one line. Raises `DecodeError`."""
        return decode_line(line, self.read)

    def read_lines(self, lines: bytes) -> list[ev.Event]:
        """Return the events of whole lines. Damaged ones are left out."""
        events = list[ev.Event]()
        for line in lines.split(b"\n")[:-1]:
            with suppress(DecodeError):
                events += self.read_line(line.decode("utf-8", "replace"))
        return events

    def read(self, record: Any) -> list[ev.Event]:  # noqa: ANN401 - any JSON value
        """Return the events of the JSON object of one line. Raises `DecodeError`."""
        if isinstance(record, Mapping):
            kind = record.get("kind")
            if kind == PIECES and "cuts" in record:
                return self._read_cut_pieces(record)
            if kind == PIECES:
                return self._read_pieces(record)
            if kind == ev.RunStarted.kind:
                self._read_format(record)
            record = self._upgraded(record)
        event = ev.from_json(record)
        if not self._pieces and isinstance(ev.innermost_event(event), DELTAS):
            return []
        return [event]

    def _read_format(self, record: Mapping[str, Any]) -> None:
        """Take the format of the lines from the first one."""
        self.format = record.get("format", ev.FORMAT)
        if record.get("lines") == LINES_VERSION:
            self._texts = None

    def _upgraded(self, record: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
        """Return the record of one event in the present format, with its texts."""
        upgraded: Any = record
        if self.format in OLD_FORMATS:
            upgraded = upgrade_event(record)
        if self._texts is not None:
            upgraded = self._texts.resolve(upgraded)
        return upgraded

    def _read_pieces(self, record: Mapping[str, Any]) -> list[ev.Event]:
        """Return the pieces of a line."""
        streams = record.get("streams")
        pieces = record.get(PIECES)
        if not isinstance(streams, list) or not isinstance(pieces, list):
            raise DecodeError("its pieces are not complete")
        if not self._pieces:
            return []
        firsts = _read_firsts(streams)
        return [_read_piece(piece, firsts) for piece in pieces]

    def _read_cut_pieces(self, record: Mapping[str, Any]) -> list[ev.Event]:
        """Return the pieces of a line of the first formats, which has whole texts and cuts."""
        texts = record.get("events")
        cuts = record["cuts"]
        if not isinstance(texts, list) or not isinstance(cuts, str):
            raise DecodeError("its pieces are not complete")
        firsts = _read_firsts(texts)
        if self._texts is not None:
            for text in texts:
                self._texts.add_piece(text)
        if not self._pieces:
            return []
        if not cuts:  # a secret was removed, so each text is one piece
            return [first.event for first in firsts]
        parts = read_cuts(cuts, [first.text for first in firsts], [first.times for first in firsts])
        return [_with_text(firsts[index].event, times, text) for index, times, text in parts]


def _read_firsts(records: list[Any]) -> list[_Piece]:
    """Return the first pieces of the texts of a line. Raises `DecodeError`."""
    firsts = list[_Piece]()
    for record in records:
        piece = _piece_of(ev.from_json(record))
        if piece is None:
            raise DecodeError("it has pieces of something that is no text")
        firsts.append(piece)
    return firsts


def _read_piece(piece: Any, streams: list[_Piece]) -> ev.Event:  # noqa: ANN401 - any JSON value
    match piece:
        case [int(number), str(text), *times] if 0 <= number < len(streams):
            stream = streams[number]
            are_times = all(
                isinstance(time, int | float) and -MAX_NUMBER <= time <= MAX_NUMBER
                for time in times
            )
            if are_times and len(times) == len(stream.times):
                return _with_text(stream.event, tuple(map(float, times)), text)
    raise DecodeError("its pieces do not fit its streams")


def _piece_of(event: ev.Event) -> _Piece | None:
    """Return the piece of text that an event is.

    None for any other event, also one with text of two kinds.
    """
    if type(event) is ev.StepDelta and event.text and not event.thinking:  # as most are
        return _Piece(event, (event.step, event.attempt, "text"), (event.at,), event.text)
    if type(event) not in _HOLDING_PIECES:
        return None
    inner = event
    times: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()  # Those of the nested runs that it is in
    while isinstance(inner, ev.NestedEvent):
        times = (*times, inner.at)
        steps = (*steps, inner.step)
        inner = inner.event
    times = (*times, inner.at)
    if isinstance(inner, ev.StepDelta) and bool(inner.text) != bool(inner.thinking):
        kind = "thinking"
        if inner.text:
            kind = "text"
        stream: tuple[int | str, ...] = (*steps, inner.step, inner.attempt, kind)
        return _Piece(event, stream, times, inner.text or inner.thinking)
    if isinstance(inner, ev.PlanDelta) and inner.text:
        return _Piece(event, (*steps, "plan"), times, inner.text)
    return None


def _with_text(event: ev.Event, times: tuple[float, ...], text: str) -> ev.Event:
    """Return the piece of text `event` with other times and another text."""
    if isinstance(event, ev.NestedEvent):
        return replace(event, at=times[0], event=_with_text(event.event, times[1:], text))
    if isinstance(event, ev.StepDelta) and event.thinking:
        return replace(event, at=times[0], thinking=text)
    assert isinstance(event, DELTAS)
    return replace(event, at=times[0], text=text)
