"""The events of one run: its trace, its clock, and those that nobody has read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.trace import Trace, apply_event

MAX_UNFOLDED: Final = 64
"""Pieces of text that wait to be folded into the trace together: each fold copies all the text."""


class EventStream:
    """Folds each event of a run into its trace and keeps it until it is read.

    It is the only writer of the trace.
    """

    def __init__(self, clock: Callable[[], float], trace: Trace) -> None:
        self.read_so_far = trace  # The trace after the event that was read last
        self._trace = trace
        self._unfolded: list[ev.StepDelta] = []  # The newest events, where the trace lacks them
        self._clock = clock
        self._start = clock()
        # None marks the end. Unbounded, so that a slow reader cannot hold up a worker.
        self._unread: deque[ev.Event | None] = deque()
        self._reader: asyncio.Future[None] | None = None  # What the reader waits for
        # Set while the reader waits for more, until the start is announced
        self.all_read = asyncio.Event()
        self.read_piece: Callable[[ev.StepDelta], bool] | None = None
        """Reads a piece of text at once where the reader waits for the next event, so that no task
        is woken for it. False where the reader is to have it.
        """
        self._are_pieces_read = False  # Whether `read_so_far` lacks some that were read at once

    @property
    def trace(self) -> Trace:
        """The run so far."""
        if self._unfolded:
            self._fold_pieces()
        return self._trace

    def restart_clock(self) -> None:
        """Count the seconds from now on.

        A run begins when its events are first read, or goes on then.
        """
        self._start = self._clock() - self.trace.at

    def now(self) -> float:
        """Return seconds since the run began.

        To the millisecond, in which a trace keeps the times of pieces.
        """
        # `round` to three places takes ten times as long
        return round((self._clock() - self._start) * 1000) / 1000

    def emit(self, event: ev.Event) -> None:
        """Add an event to the trace, and give it to the reader."""
        self._catch_up()
        self._trace = apply_event(self.trace, event)
        self._put(event)

    def emit_piece(self, piece: ev.StepDelta) -> None:
        """Add a piece of text, which may be read at once."""
        reader = self._reader
        is_waiting = reader is not None and not self._unread and not reader.done()
        if is_waiting and self.read_piece is not None and self.read_piece(piece):
            self._are_pieces_read = True
            self._fold_later(piece)
            return
        self._catch_up()
        self._fold_later(piece)
        self._put(piece)

    def notice(
        self,
        text: str,
        step: int = 0,
        *,
        recovered: bool = False,
        reason: ev.NoticeReason = "",
    ) -> None:
        """Tell the user something, of step `step` or of the whole run."""
        notice = ev.Notice(at=self.now(), text=text, step=step, recovered=recovered, reason=reason)
        self.emit(notice)

    def fold(self, event: ev.Event) -> None:
        """Add an event to the trace that the reader has already."""
        self._catch_up()
        self._trace = apply_event(self.trace, event)
        self.read_so_far = apply_event(self.read_so_far, event)

    def end(self) -> None:
        """Tell the reader that nothing follows."""
        self._put(None)

    def _put(self, event: ev.Event | None) -> None:
        self._unread.append(event)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _catch_up(self) -> None:
        """Let the trace of the reader have the pieces that were read at once."""
        if self._are_pieces_read:
            self.read_so_far = self.trace
            self._are_pieces_read = False

    def _fold_later(self, piece: ev.StepDelta) -> None:
        self._unfolded.append(piece)
        if len(self._unfolded) >= MAX_UNFOLDED:
            self._fold_pieces()

    def _fold_pieces(self) -> None:
        pieces = self._unfolded
        self._unfolded = []
        if len(pieces) == 1:
            self._trace = apply_event(self._trace, pieces[0])
            return
        by_step: dict[int, list[ev.StepDelta]] = {}
        for piece in pieces:
            by_step.setdefault(piece.step, []).append(piece)
        for pieces_of_step in by_step.values():
            whole = replace(
                pieces_of_step[0],
                at=pieces[-1].at,
                text="".join(piece.text for piece in pieces_of_step),
                thinking="".join(piece.thinking for piece in pieces_of_step),
            )
            self._trace = apply_event(self._trace, whole)

    async def next_event(self) -> ev.Event | None:
        """Return the next event once there is one; None after the last.

        A reader that keeps up shares the run's own trace. Events that wait carry none: each trace
        has all the text so far, so the memory of a slow reader would grow with the square of its
        delay.
        """
        event = await self.next_event_alone()
        if event is None:
            return None
        if self._unread:
            self.read_so_far = apply_event(self.read_so_far, event)
        else:
            self.read_so_far = self.trace
        return event

    async def next_event_alone(self) -> ev.Event | None:
        """Return the same for a reader that needs no traces: `read_so_far` stays as it was."""
        while not self._unread:  # what `asyncio.Queue` does besides costs more than all the rest
            self.all_read.set()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._unread.popleft()

    @property
    def unread(self) -> bool:
        """Whether an event waits to be read."""
        return bool(self._unread)

    def unread_events(self) -> Iterator[ev.Event]:
        """Take the events that nobody has read."""
        while self._unread:
            event = self._unread.popleft()
            if event is not None:
                yield event
