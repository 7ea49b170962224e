"""What a view is, the streams that views write to, and the timer that redraws them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TextIO

from conductor_cli.core.events import Event
from conductor_cli.models.known_secrets import KNOWN_SECRETS

Clock = Callable[[], float]
"""Seconds since some moment; never goes back."""


class View(Protocol):
    """Shows one run. `show` gets every event in order; `close` ends the output, also that of an interrupted run."""

    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...


class Progress(View, Protocol):
    """A view for the person who waits. Between `rest` and `wake` it writes nothing: the answer uses the terminal."""

    def rest(self) -> None: ...

    def wake(self) -> None: ...


class Stdout:
    """Standard output. Keys that this process has read are redacted, and characters that the encoding lacks replaced.

    `BrokenPipeError` is raised to the caller.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self.terminal = is_terminal(stream)

    def write(self, text: str) -> int:
        text = KNOWN_SECRETS.redact(text)
        try:
            return self.stream.write(text)
        except UnicodeEncodeError:
            return self.stream.write(encodable(text, self.encoding))

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return self.terminal

    def fileno(self) -> int:
        return self.stream.fileno()


class Stderr(Stdout):
    """Standard error. A run must not fail because nobody reads its progress, so errors of writes are ignored."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except (OSError, ValueError):  # ValueError: the stream is closed
            return 0

    def flush(self) -> None:
        try:
            super().flush()
        except (OSError, ValueError):
            return


def is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is an open terminal."""
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


def encodable(text: str, encoding: str) -> str:
    """`text` with a question mark in place of every character that `encoding` lacks."""
    return text.encode(encoding, "replace").decode(encoding)


class Timer:
    """Calls `tick` every `seconds` on a thread, until it is stopped."""

    def __init__(self, tick: Callable[[], None], seconds: float, name: str = "conductor-tree") -> None:
        self._tick = tick
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when no call is running and none will come."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self._tick()
