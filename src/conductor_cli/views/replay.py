"""Showing a stored run again: with its own timing, faster, or at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, Final, cast

from conductor_cli.config import load_settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.events import Event
from conductor_cli.core.terminal_text import one_line
from conductor_cli.state.trace_store import TraceStore
from conductor_cli.views import OutputContext, OutputName, ProgressName, View, open_views

LONGEST_PAUSE: Final = 30.0
"""Seconds: a run that waited for hours is not replayed for hours."""

SLICE: Final = 0.05
"""Seconds of a pause after which it is checked whether a signal has come."""


def fast_replay(words: Sequence[str]) -> int | None:
    """Do what `conductor trace replay [RUN] [--speed N]` does into a pipe.

    A replay of 50,000 events may take 15 times as long as `conductor --version`; loading Typer and the other commands
    alone takes 20 times as long. Returns the exit code; None when the command itself has to do it or report a mistake.
    """
    if sys.stdout is None or sys.stderr is None or sys.stdout.isatty() or sys.stderr.isatty():
        return None
    *rest, speed = words if words[-2:-1] == ["--speed"] else (*words, "--speed", "1")
    names = rest[:-1]
    if len(names) > 1 or any(word.startswith("-") for word in names) or not speed.isdecimal():
        return None
    try:
        settings = load_settings(os.environ)
        store = TraceStore(settings.paths.traces)
        # Only a replay with pauses needs the streamed pieces.
        events = store.events(store.find(*names or ["last"]), pieces=speed != "0")
        view = open_replay_view(settings.values, "answer", store)
        events = chain([next(events)], events)  # a file that cannot be read is reported by the command
    except ConductorError:
        return None
    try:
        return replay_events(events, view, float(speed))
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush does not fail
        is_read = not isinstance(error, BrokenPipeError)
        if is_read:
            sys.stderr.write(f"conductor: standard output cannot be written: {error.strerror}\n")
        return int(is_read)
    except ConductorError as error:  # the file is damaged further down
        sys.stderr.write(f"conductor: {one_line(error.message)}\n  {one_line(error.hint)}\n")
        return error.exit_code


def open_replay_view(settings: Mapping[str, Any], output: str, store: TraceStore, *, quiet: bool = False) -> View:
    """The view of a replay, by the output settings."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
    context = OutputContext(
        stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=settings["output.color"], quiet=quiet,
        markdown=settings["output.markdown"], trace_path=store.path,
    )  # fmt: skip
    return open_views(cast("OutputName", output), cast("ProgressName", settings["output.progress"]), context)


def replay_events(
    events: Iterator[Event], view: View, speed: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code.

    Raises `OSError` when standard output cannot be written, and `BrokenPipeError` when nobody reads it.
    """
    at = 0.0
    with _noted_signals() as signals:
        try:
            for event in events:
                pause = min((event.at - at) / speed, LONGEST_PAUSE) if speed > 0 else 0.0
                while pause > 0 and not signals:
                    sleep(min(pause, SLICE))
                    pause -= SLICE
                if signals:
                    break
                at = max(at, event.at)
                view.show(event)
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
