"""Showing a stored run again, with its own timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from conductor_cli.cli.output import leave_stdout
from conductor_cli.core.events import Event
from conductor_cli.views import View

LONGEST_PAUSE: Final = 30.0
"""Seconds: a run that waited for hours is not replayed for hours."""


def replay(events: Iterator[Event], view: View, speed: float, sleep: Callable[[float], None] = time.sleep) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code."""
    at = 0.0
    try:
        for event in events:
            if speed > 0 and event.at > at:
                sleep(min((event.at - at) / speed, LONGEST_PAUSE))
            at = max(at, event.at)
            view.show(event)
    except BrokenPipeError:
        leave_stdout()
    except KeyboardInterrupt:
        return 130
    finally:
        with suppress(BrokenPipeError):
            view.close()
    return 0
