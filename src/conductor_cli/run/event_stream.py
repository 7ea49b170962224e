"""The events of one run: its trace, its clock, and those that nobody has read yet."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from conductor_cli.core import events as ev
from conductor_cli.core.trace import Trace, apply_event


class EventStream:
    """Folds each event of a run into its trace and keeps it until it is read.

    It is the only writer of the trace.
    """

    def __init__(self, clock: Callable[[], float], trace: Trace) -> None:
        self.trace = trace
        self._clock = clock
        self._start = clock()
        # None marks the end. Unbounded, so that a slow reader cannot hold up a worker.
        self._unread: deque[ev.Event | None] = deque()
        self._reader: asyncio.Future[None] | None = None  # What the reader waits for
        # Set while the reader waits for more, until the start is announced
        self.all_read = asyncio.Event()

    def restart_clock(self) -> None:
        """Count the seconds from now on.

        A run begins when its events are first read, or goes on then.
        """
        self._start = self._clock() - self.trace.at

    def now(self) -> float:
        """Return seconds since the run began.

        To the millisecond, in which a trace keeps the times of pieces.
        """
        return round(self._clock() - self._start, 3)

    def emit(self, event: ev.Event) -> None:
        """Add an event to the trace, and give it to the reader."""
        self.trace = apply_event(self.trace, event)
        self._put(event)

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
        self.trace = apply_event(self.trace, event)

    def end(self) -> None:
        """Tell the reader that nothing follows."""
        self._put(None)

    def _put(self, event: ev.Event | None) -> None:
        self._unread.append(event)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def next_event(self) -> ev.Event | None:
        """Return the next event once there is one; None after the last."""
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
