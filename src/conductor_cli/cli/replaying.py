"""Showing a stored run again, with its own timing."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from conductor_cli.cli.output import leave_stdout
from conductor_cli.core.events import Event
from conductor_cli.views import View

LONGEST_PAUSE: Final = 30.0
"""Seconds: a run that waited for hours is not replayed for hours."""


def replay(events: Iterator[Event], view: View, speed: float, sleep: Callable[[float], None] = time.sleep) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code."""
    at = 0.0
    pause = _Pause(sleep)
    pause.listen()
    try:
        for event in events:
            if speed > 0 and event.at > at:
                pause.wait(min((event.at - at) / speed, LONGEST_PAUSE))
            if pause.code:
                break
            at = max(at, event.at)
            view.show(event)
    except BrokenPipeError:
        leave_stdout()
    except OSError:
        leave_stdout()
        raise
    finally:
        with suppress(OSError):
            view.close()
        pause.leave()
    return pause.code


class _Woken(BaseException):
    """A signal came while nothing was being shown."""


class _Pause:
    """Waits between two events. A signal ends a wait at once; anywhere else it must not break the view in two."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.code = 0
        self._sleep = sleep
        self._waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        with suppress(ValueError):  # not the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._end)

    def leave(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def wait(self, seconds: float) -> None:
        try:
            self._waiting = True
            if not self.code:
                self._sleep(seconds)
            self._waiting = False
        except _Woken:
            self._waiting = False

    def _end(self, number: int, _: object) -> None:
        """A second signal ends the process as it would without any handler."""
        if self.code:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.code = 128 + number
        if self._waiting:
            raise _Woken
