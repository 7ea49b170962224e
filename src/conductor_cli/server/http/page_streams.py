"""The streams of the page over a stored run: its events, and frames of how it looks.

Both follow the trace, whoever writes it: every event is stored before any view sees it, so one way
serves the runs of this server and of others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, NamedTuple

import anyio
import anyio.to_thread

from conductor_cli.core import events as ev
from conductor_cli.core.errors import UsageError
from conductor_cli.core.serialization import DecodeError, encode_line
from conductor_cli.core.trace import Trace, apply_event, fold
from conductor_cli.server.api.encoding import named_event
from conductor_cli.server.http.page_data import Data, frame_data
from conductor_cli.state.interfaces import TraceReader
from conductor_cli.system.known_secrets import KNOWN_SECRETS

# Seconds between two looks at the file, and between two frames, as on a terminal
TICK_SECONDS: Final = 1 / 8
IDLE_SECONDS: Final = 1.0  # Seconds between two frames while only time passes
BYTES_PER_SECOND: Final = 1_000_000  # Bytes of frames a second: a large tree is drawn less often
# Seconds without anything after which a comment is sent, so that no proxy closes the connection
HEARTBEAT_SECONDS: Final = 10.0

_END_STATES: Final = {"run_finished": "finished", "run_failed": "failed"}


async def event_stream(tail: TraceReader, run: str, after: int) -> AsyncIterator[bytes]:
    """Yield each event of a trace from number `after` + 1 on, and at last `end`.

    An event is named by its kind, and has the id `RUN:NUMBER`.
    """
    number = 0
    silent_seconds = 0.0
    last_kind = ""
    while True:
        try:
            events, may_have_more = await anyio.to_thread.run_sync(_next_lines, tail)
        except OSError:  # the run was deleted
            break
        messages = list[bytes]()
        for kind, line in events:
            number += 1
            last_kind = kind
            if number > after:
                messages.append(_message(kind, line, f"{run}:{number}"))
        if messages:
            yield b"".join(messages)
        if events and last_kind in _END_STATES:
            yield named_event("end", {"state": _END_STATES[last_kind]})
            return
        if not (events or may_have_more):
            break
        silent_seconds = 0.0 if events else silent_seconds + TICK_SECONDS
        if silent_seconds >= HEARTBEAT_SECONDS:
            silent_seconds = 0.0
            yield b": \n\n"
        if not events:
            await asyncio.sleep(TICK_SECONDS)
    yield named_event("end", {"state": "interrupted"})


def _next_lines(tail: TraceReader) -> tuple[list[tuple[str, str]], bool]:
    """Return the next events, each by its kind and as a line, and whether more may come."""
    live = tail.is_written()
    events = list[ev.Event]()
    if tail.is_behind():
        events = tail.read()
    # A file may have been edited by hand: nothing in it may end the line of `data`.
    lines = [(event.kind, ev.to_line(event, KNOWN_SECRETS, brief=True)) for event in events]
    return lines, live or tail.is_behind()


class RunSnapshot(NamedTuple):
    """A run as it looks now. `number` counts the events so far; with `over` no more come.

    `now` is the time by the run's own clock, None for that of its newest event.
    """

    trace: Trace
    number: int
    now: float | None
    live: bool
    over: bool


def followed(tail: TraceReader) -> Iterator[RunSnapshot]:
    """Yield snapshots of a run that may be being written. Raises `OSError` and `DecodeError`."""
    trace = Trace()
    number = 0
    over = False
    while not over:
        is_written = tail.is_written()
        before = number
        while tail.is_behind() and (events := tail.read()):
            for event in events:
                trace = apply_event(trace, event)
            number += len(events)
        if number and not trace.run:
            raise DecodeError("the first line is not the start of a run")
        over = trace.ended or (not is_written and number == before)
        if over:
            yield RunSnapshot(trace, number, None, live=False, over=True)
        else:
            now = trace.at + tail.idle
            yield RunSnapshot(trace, number, now, live=is_written, over=False)


def replayed(events: Iterator[ev.Event], speed: float, start: float) -> Iterator[RunSnapshot]:
    """Yield a stored run as it was from `start` seconds on, `speed` times as fast.

    Raises `UsageError`.
    """
    trace = Trace()
    number = 0
    begun = time.monotonic()
    for event, after in fold(events):
        while event.at > (now := start + (time.monotonic() - begun) * speed):
            yield RunSnapshot(trace, number, now, live=True, over=False)
        trace = after
        number = number + 1
    yield RunSnapshot(trace, number, None, live=False, over=True)


async def frame_stream(
    snapshots: Iterator[RunSnapshot],
    *,
    idle: float = IDLE_SECONDS,
    acts: Callable[[Trace], Data] = lambda _: {},
) -> AsyncIterator[bytes]:
    """Yield a `frame` now, and again whenever the run looks otherwise, until it has ended.

    `snapshots` are taken on a thread, and what its reader may do with the run (`acts`) is added to
    each.
    """
    frames = _Frames(snapshots, idle, acts)
    last_frame = ""
    while True:
        try:
            frame, snapshot = await anyio.to_thread.run_sync(frames.draw_next)
        except (OSError, UsageError, DecodeError):
            # The run was deleted, or the file is damaged from here on
            yield named_event("end", {"state": "unreadable"})
            return
        if frame and frame != last_frame:
            last_frame = frame
            yield _message("frame", frame, snapshot.number)
        if snapshot.over:
            yield named_event("end", {"state": snapshot.trace.outcome()})
            return
        await asyncio.sleep(max(TICK_SECONDS, len(frame) / BYTES_PER_SECOND))


class _Frames:
    """Draws snapshots; one without new events only where `idle` seconds have passed."""

    def __init__(
        self, snapshots: Iterator[RunSnapshot], idle: float, acts: Callable[[Trace], Data]
    ) -> None:
        self._snapshots = snapshots
        self._acts = acts
        self._idle = idle
        self._drawn_number = -1
        self._drawn_at = 0.0

    def draw_next(self) -> tuple[str, RunSnapshot]:
        """Return the next snapshot, and its frame, which is empty where none is needed."""
        snapshot = next(self._snapshots)
        now = time.monotonic()
        is_same = snapshot.number == self._drawn_number and not snapshot.over
        if not snapshot.trace.run or (is_same and now - self._drawn_at < self._idle):
            return "", snapshot
        self._drawn_number = snapshot.number
        self._drawn_at = now
        frame = frame_data(snapshot.trace, now=snapshot.now, live=snapshot.live)
        frame |= self._acts(snapshot.trace)
        return encode_line(frame, KNOWN_SECRETS), snapshot


# The streams


def _message(kind: str, json_line: str, number: int | str = "") -> bytes:
    """Return one server-sent event. `json_line` is one line of JSON."""
    identity = "" if number == "" else f"id: {number}\n"
    return f"{identity}event: {kind}\ndata: {json_line}\n\n".encode("utf-8", "replace")
