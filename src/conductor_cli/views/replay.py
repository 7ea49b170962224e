"""Showing a stored run again: with its own timing, at once, or an event for each key."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final, cast

from conductor_cli.config import load_settings
from conductor_cli.core.errors import ConductorError
from conductor_cli.core.events import Event, PlanDelta, StepDelta
from conductor_cli.core.sanitize import one_line
from conductor_cli.store.trace_store import TraceStore
from conductor_cli.views import OUTPUTS, OutputContext, OutputName, ProgressName, View, open_views
from conductor_cli.views.run_text import innermost_event

LONGEST_PAUSE: Final = 30.0
"""Seconds: a run that waited for hours is not replayed for hours."""


ENDING: Final = frozenset({"q", "Q", "\x1b", ""})
"""Keys after which the rest is shown at once: q, Escape, and the end of the input."""


def fast_replay(words: Sequence[str]) -> int | None:
    """Replay into a pipe as `conductor trace replay` does, for words that are plain: a run, `--speed`, `--format`.

    Returns the exit code; None where the command itself is to do it, or to say what is wrong.
    """
    plain = _plain(words)
    if plain is None or sys.stdout is None or sys.stderr is None or sys.stdout.isatty() or sys.stderr.isatty():
        return None
    name, speed, output = plain
    try:
        # What is shown at once into a pipe is whole texts; `jsonl` is every event.
        pieces = bool(speed) or output == "jsonl"
        settings = load_settings(os.environ)
        store = TraceStore(settings.paths.traces)
        events = store.events(store.find(name), pieces=pieces)
        view = open_replay_view(settings.values, output)
        events = chain([next(events)], events)
    except ConductorError:
        return None
    try:
        return replay_events(events, view, speed)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be written fails nobody
        return 0
    except ConductorError as error:  # in the middle of the file
        sys.stderr.write(f"conductor: {one_line(error.message)}\n  {one_line(error.hint)}\n")
        return error.exit_code


def _plain(words: Sequence[str]) -> tuple[str, float, str] | None:
    """The run, the speed and the format that are asked for; None for anything else."""
    names, speed, output, rest = list[str](), 1.0, "answer", iter(words)
    for word in rest:
        if word == "--speed":
            with suppress(ValueError):
                speed = float(next(rest, ""))
                continue
            return None
        if word == "--format":
            output = next(rest, "")
        elif word.startswith("-"):
            return None
        else:
            names.append(word)
    fine = len(names) <= 1 and 0 <= speed < float("inf") and output in OUTPUTS
    return (names[0] if names else "last", speed, output) if fine else None


def open_replay_view(look: Mapping[str, Any], output: str, *, quiet: bool = False) -> View:
    """What shows a run: of the settings in `look` those of the output are read."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
    around = OutputContext(
        stdout=sys.stdout, stderr=sys.stderr, environ=os.environ, color=look["output.color"], quiet=quiet,
        markdown=look["output.markdown"], brief=look["output.brief"],
    )  # fmt: skip
    return open_views(cast("OutputName", output), cast("ProgressName", look["output.progress"]), around)


def replay_events(
    events: Iterator[Event], view: View, speed: float, sleep: Callable[[float], None] = time.sleep,
    key: Callable[[], str] | None = None,
) -> int:  # fmt: skip
    """Show `events`, pausing as the run did, divided by `speed`; 0 does not pause. Returns the exit code.

    With `key` each event that is no piece of a text waits for a key instead. Raises `OSError` when standard output
    takes no more, and `BrokenPipeError` when nobody reads it.
    """
    at, keys = 0.0, None if key is None else _Keys(key)
    pause = _Pause()
    pause.listen()
    try:
        for event in events:
            if keys is not None:
                pause.wait(partial(keys.before, event))
            elif speed > 0 and event.at > at:
                pause.wait(partial(sleep, min((event.at - at) / speed, LONGEST_PAUSE)))
            if pause.code:
                break
            at = max(at, event.at)
            view.show(event)
    finally:
        with suppress(OSError):
            view.close()
        pause.leave()
    return pause.code


class _Keys:
    """Waits for a key before each event that is no piece of a text, the first one left out."""

    def __init__(self, key: Callable[[], str]) -> None:
        self._key = key
        self._asks: bool | None = False  # None: not any more

    def before(self, event: Event) -> None:
        if self._asks is None or isinstance(innermost_event(event), (StepDelta, PlanDelta)):
            return
        if self._asks and self._key() in ENDING:
            self._asks = None
            return
        self._asks = True


class _Woken(BaseException):
    """A signal came while nothing was being shown."""


class _Pause:
    """Waits between two events. A signal ends a wait at once; anywhere else it must not break the view in two."""

    def __init__(self) -> None:
        self.code = 0
        self._waiting = False
        self._before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        with suppress(ValueError):  # not the main thread
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._end)

    def leave(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def wait(self, wait: Callable[[], None]) -> None:
        try:
            self._waiting = True
            if not self.code:
                wait()
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
