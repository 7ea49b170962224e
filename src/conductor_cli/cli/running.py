"""What still runs, in one line at the bottom of a terminal, while results are printed above it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from conductor_cli.core.formatting import format_duration
from conductor_cli.core.table import crop_text
from conductor_cli.store.fast_list import terminal_width
from conductor_cli.views.base import Clock, Timer
from conductor_cli.views.console import cannot_redraw

PERIOD: Final = 0.5
"""Seconds between two drawings."""

_ERASE: Final = "\r\x1b[2K"


class RunningLine:
    """Names what runs and for how long: `waiting for fast 3 s, slow 3 s`. It is drawn only where `shown`."""

    def __init__(self, *, shown: bool = True, clock: Clock = time.monotonic) -> None:
        self._shown = shown
        self._clock = clock
        self._started: dict[str, float] = {}
        self._lock = threading.Lock()
        self._drawn = False

    def start(self, name: str) -> None:
        """`name` runs from now on."""
        with self._lock:
            self._started[name] = self._clock()

    @contextmanager
    def finished(self, name: str) -> Iterator[None]:
        """`name` has ended; what the block prints stands above the line."""
        with self._lock:
            self._started.pop(name, None)
            self._write("")
            yield
        self.draw()

    def draw(self) -> None:
        """Draw the line as it is now. What began this moment is not shown: most of it ends at once."""
        with self._lock:
            now = self._clock()
            parts = [
                f"{name} {format_duration(now - begun, tenths=False)}"
                for name, begun in self._started.items()
                if now - begun >= PERIOD
            ]
            self._write(f"waiting for {', '.join(parts)}" if parts else "")

    def erase(self) -> None:
        """Leave nothing of the line on the screen."""
        with self._lock:
            self._write("")

    def _write(self, text: str) -> None:
        if self._shown and (text or self._drawn):
            with suppress(OSError, ValueError):  # ValueError: the stream is closed
                sys.stderr.write(_ERASE + crop_text(text, terminal_width(sys.stderr) - 1))
                sys.stderr.flush()
            self._drawn = bool(text)


@contextmanager
def show_running(*, quiet: bool) -> Iterator[RunningLine]:
    """Show what runs until the block ends, where standard error is a terminal that can redraw."""
    line = RunningLine(shown=not quiet and sys.stderr.isatty() and not cannot_redraw(os.environ))
    timer = Timer(line.draw, PERIOD, name="conductor-running")
    timer.start()
    try:
        yield line
    finally:
        timer.stop()
        line.erase()
