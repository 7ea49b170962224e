"""Server-sent events about one run for the page: its events, and the run as it looks, live or replayed.

Every event is in the file before anything shows it, and a piece of text at most a second later, so the file is the one
source of both, whoever writes it. Nobody is asked to announce what they write: the file is looked at a few times a
second, which costs a call to the system each time. A run that no file has is looked at in memory.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import anyio.to_thread

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import DecodeError
from conductor_cli.core.terminal_text import escape_json
from conductor_cli.core.trace import Trace, apply_event, fold
from conductor_cli.models.known_secrets import KNOWN_SECRETS
from conductor_cli.server.page_data import frame_data
from conductor_cli.server.run_registry import ServedRun
from conductor_cli.state.interfaces import TraceReader

TICK: Final = 1 / 8
"""Seconds between two looks at the file, and between two frames, as on a terminal."""

IDLE: Final = 1.0
"""Seconds between two frames while only time passes."""

RATE: Final = 1_000_000
"""Bytes of frames a second: a large tree is drawn less often."""

HEARTBEAT: Final = 10.0
"""Seconds without anything after which a comment is sent, so that a proxy does not close the connection."""


def keyless_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A JSON value in one line, without keys."""
    line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if KNOWN_SECRETS.holds(line):
        line = json.dumps(KNOWN_SECRETS.redact_data(value), ensure_ascii=False, separators=(",", ":"))
    return escape_json(line)


def _message(kind: str, data: str, number: int | str = "") -> bytes:
    """One server-sent event. `data` is one line of JSON."""
    identity = "" if number == "" else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {data}\n\n".encode("utf-8", "replace")


def _end(state: str) -> bytes:
    return _message("end", json.dumps({"state": state}))


async def event_stream(tail: TraceReader, run: str, after: int) -> AsyncIterator[bytes]:
    """Each event of a trace from number `after` + 1 on, named by its kind, with the id `RUN:NUMBER`; at last `end`."""
    number, waited = 0, 0.0

    def read() -> tuple[list[tuple[str, str]], bool]:
        live = tail.is_written()
        # A file may have been edited by hand: nothing in it may end the line of `data`.
        found = tail.read() if tail.is_behind() else []
        named = [(event.kind, ev.to_line(event, KNOWN_SECRETS, brief=True)) for event in found]
        return named, live or tail.is_behind()

    while True:
        try:
            events, goes_on = await anyio.to_thread.run_sync(read)
        except OSError:  # the run was deleted
            break
        new = [(n, *event) for n, event in enumerate(events, number + 1) if n > after]
        messages = [_message(kind, line, f"{run}:{n}") for n, kind, line in new]
        number += len(events)
        if messages:
            yield b"".join(messages)
        if events and events[-1][0] in ("run_finished", "run_failed"):
            yield _end("finished" if events[-1][0] == "run_finished" else "failed")
            return
        if not (events or goes_on):
            break
        waited = 0.0 if events else waited + TICK
        if waited >= HEARTBEAT:
            waited = 0.0
            yield b": \n\n"
        if not events:
            await asyncio.sleep(TICK)
    yield _end("interrupted")


# The run as it looks


class RunSource:
    """A run to look at. `number` counts what was seen; with `over` no more comes."""

    stored = True

    def __init__(self) -> None:
        self.trace = Trace()
        self.number = 0
        self.live = True
        self.over = False

    def look(self) -> float | None:
        """Take what is new; returns the time by the run's own clock, None for that of its newest event.

        Called on a thread. Raises `OSError`, `UsageError` or `DecodeError`.
        """
        raise NotImplementedError


class FollowedSource(RunSource):
    """A stored run that somebody may be writing."""

    def __init__(self, tail: TraceReader) -> None:
        super().__init__()
        self._tail = tail

    def look(self) -> float | None:
        is_written = self._tail.is_written()
        before = self.number
        while self._tail.is_behind() and (events := self._tail.read()):
            for event in events:
                self.trace = apply_event(self.trace, event)
            self.number += len(events)
        if self.number and not self.trace.run:
            raise DecodeError("the first line is not the start of a run")
        self.over = self.trace.ended or (not is_written and self.number == before)
        self.live = is_written and not self.over
        return None if self.over else self.trace.at + self._tail.idle


class LiveSource(RunSource):
    """A run of this server that no file has."""

    stored = False

    def __init__(self, served: ServedRun) -> None:
        super().__init__()
        self._served = served
        self._changed = time.monotonic()

    def look(self) -> float | None:
        self.over = self._served.ended is not None
        self.live = not self.over
        if self._served.stream.trace is not self.trace:
            self.trace, self._changed = self._served.stream.trace, time.monotonic()
            self.number += 1
        return None if self.over else self.trace.at + time.monotonic() - self._changed


class ReplaySource(RunSource):
    """A stored run as it looked from `start` seconds on, `speed` times as fast as it was."""

    def __init__(self, events: Iterator[ev.Event], speed: float, start: float) -> None:
        super().__init__()
        self._events = fold(events)
        self._next: tuple[ev.Event, Trace] | None = None
        self._speed, self._start, self._begun = speed, start, time.monotonic()

    def look(self) -> float | None:
        now = self._start + (time.monotonic() - self._begun) * self._speed
        while (found := self._next or next(self._events, None)) is not None:
            self._next = found
            if found[0].at > now:
                return now
            self.trace, self._next = found[1], None
            self.number += 1
        self.over, self.live = True, False
        return None


async def frame_stream(source: RunSource, *, idle: float = IDLE) -> AsyncIterator[bytes]:
    """A `frame` now, and again whenever the run looks otherwise, until it has ended."""
    last, seen, drawn = "", -1, 0.0

    def draw() -> str:
        nonlocal seen, drawn
        now, at = source.look(), time.monotonic()
        if not source.trace.run or (seen == source.number and not source.over and at - drawn < idle):
            return ""
        seen, drawn = source.number, at
        return keyless_json(frame_data(source.trace, now=now, live=source.live, stored=source.stored))

    while True:
        try:
            frame = await anyio.to_thread.run_sync(draw)
        except (OSError, UsageError, DecodeError):  # the run was deleted, or the file is damaged from here on
            yield _end("unreadable")
            return
        if frame and frame != last:
            last = frame
            yield _message("frame", frame, source.number)
        if source.over:
            yield _end(source.trace.outcome())
            return
        await asyncio.sleep(max(TICK, len(frame) / RATE))
