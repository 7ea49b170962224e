"""Showing a stored run again: with its own timing, faster, or at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from conductor_cli.cli.terminal_input import handle_signal
from conductor_cli.core.events import Event
from conductor_cli.core.trace import fold
from conductor_cli.views import RunView

MAX_PAUSE: Final = 30.0  # Seconds: a run that waited for hours is not replayed for hours
SLICE: Final = 0.05  # Seconds of a pause after which it is checked whether a frame is due or a signal has come


def replay_events(
    events: Iterator[Event], view: RunView, speed: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code.

    A signal lets the view finish its work, a second one ends the process. Raises `OSError` when standard output cannot
    be written, and `BrokenPipeError` when nobody reads it.
    """
    at, signals = 0.0, list[int]()

    def note(number: int, _: object) -> None:
        if signals:  # the user is impatient: the first one has not ended the process yet
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        signals.append(number)

    with handle_signal(signal.SIGINT, note), handle_signal(signal.SIGTERM, note):
        try:
            for event, trace in fold(events):
                pause = min((event.at - at) / speed, MAX_PAUSE) if speed > 0 else 0.0
                while pause > 0 and not signals:
                    view.draw()
                    sleep(min(pause, SLICE))
                    pause -= SLICE
                if signals:
                    break
                at = max(at, event.at)
                view.show(event, trace)
        finally:
            with suppress(OSError):
                view.close()
    return 128 + signals[0] if signals else 0
