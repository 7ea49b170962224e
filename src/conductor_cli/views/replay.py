"""Showing a stored run again: with its own timing, faster, or at once."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, cast

from conductor_cli.config import load_settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.events import Event
from conductor_cli.core.sanitize import one_line
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views import OUTPUTS, OutputContext, OutputName, ProgressName, View, open_views

LONGEST_PAUSE: Final = 30.0
"""Seconds: a run that waited for hours is not replayed for hours."""


def fast_replay(words: Sequence[str]) -> int | None:
    """Do what `conductor trace replay` does into a pipe, for a run, `--speed` and `--format` alone.

    A replay of 50,000 events may take 15 times as long as `conductor --version`; loading Typer and the other commands
    alone takes 20 times as long. Returns the exit code; None when the command itself has to do it or report a mistake.
    """
    options = _parse_options(words)
    if options is None or sys.stdout is None or sys.stderr is None or sys.stdout.isatty() or sys.stderr.isatty():
        return None
    name, speed, output = options
    try:
        settings = load_settings(os.environ)
        store = TraceStore(settings.paths.traces)
        # Only `jsonl` and a replay with pauses need the streamed pieces; otherwise whole texts do.
        events = store.events(store.find(name), pieces=bool(speed) or output == "jsonl")
        view = open_replay_view(settings.values, output)
        events = chain([next(events)], events)  # a file that cannot be read is reported by the command
    except ConductorError:
        return None
    try:
        return replay_events(events, view, speed)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush does not fail
        return 0
    except ConductorError as error:  # the file is damaged further down
        sys.stderr.write(f"conductor: {one_line(error.message)}\n  {one_line(error.hint)}\n")
        return error.exit_code


def _parse_options(words: Sequence[str]) -> tuple[str, float, str] | None:
    """The run, the speed and the format; None for any other command line."""
    names, speed, output, rest = list[str](), 1.0, "answer", iter(words)
    for word in rest:
        if word == "--speed":
            try:
                speed = float(next(rest, ""))
            except ValueError:
                return None
        elif word == "--format":
            output = next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            names.append(word)
    valid = len(names) <= 1 and 0 <= speed < float("inf") and output in OUTPUTS
    return (names[0] if names else "last", speed, output) if valid else None


def open_replay_view(settings: Mapping[str, Any], output: str, *, quiet: bool = False) -> View:
    """The view of a replay, by the output settings."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
    context = OutputContext(
        stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=settings["output.color"], quiet=quiet,
        markdown=settings["output.markdown"], brief=settings["output.brief"],
    )  # fmt: skip
    return open_views(cast("OutputName", output), cast("ProgressName", settings["output.progress"]), context)


def replay_events(
    events: Iterator[Event], view: View, speed: float, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code.

    Raises `OSError` when standard output cannot be written, and `BrokenPipeError` when nobody reads it.
    """
    at, pause = 0.0, _Pause()
    pause.listen()
    try:
        for event in events:
            if speed > 0 and event.at > at:
                pause.wait(sleep, min((event.at - at) / speed, LONGEST_PAUSE))
            if pause.code:
                break
            at = max(at, event.at)
            view.show(event)
    finally:
        with suppress(OSError):
            view.close()
        pause.stop_listening()
    return pause.code


class _SignalReceived(BaseException):
    """A signal came during a pause."""


class _Pause:
    """Waits between two events. A signal ends a pause at once; at any other time the view finishes its work first."""

    def __init__(self) -> None:
        self.code = 0
        self._waiting = False
        self._handlers: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        with suppress(ValueError):  # not the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._on_signal)

    def stop_listening(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def wait(self, sleep: Callable[[float], None], seconds: float) -> None:
        try:
            self._waiting = True
            if not self.code:
                sleep(seconds)
            self._waiting = False
        except _SignalReceived:
            self._waiting = False

    def _on_signal(self, number: int, _: object) -> None:
        """A second signal ends the process as it would without a handler."""
        if self.code:  # the user is impatient: the first one has not ended the process yet
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.code = 128 + number
        if self._waiting:
            raise _SignalReceived
