"""Showing a stored run again: with its own timing, faster, or at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from conductor_cli.core.events import Event
from conductor_cli.core.trace import fold
from conductor_cli.state.interfaces import Traces
from conductor_cli.views import OutputContext, OutputName, ProgressName, RunView, open_views

MAX_PAUSE: Final = 30.0  # Seconds: a run that waited for hours is not replayed for hours
SLICE: Final = 0.05  # Seconds of a pause after which it is checked whether a frame is due or a signal has come


def open_replay_view(settings: Mapping[str, Any], output: str, store: Traces, *, quiet: bool = False) -> RunView:
    """The view of a replay, by the output settings."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
    context = OutputContext(
        stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=settings["output.color"], quiet=quiet,
        markdown=settings["output.markdown"], trace_path=store.location,
    )  # fmt: skip
    return open_views(cast("OutputName", output), cast("ProgressName", settings["output.progress"]), context)


def replay_events(
    events: Iterator[Event], view: RunView, speed: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code.

    Raises `OSError` when standard output cannot be written, and `BrokenPipeError` when nobody reads it.
    """
    at = 0.0
    with _noted_signals() as signals:
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


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The signals that have come, so that the view can finish its work. A second one ends the process."""
    noted: list[int] = []

    def note(number: int, _: object) -> None:
        if noted:  # the user is impatient: the first one has not ended the process yet
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        noted.append(number)

    before: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not the main thread
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
