"""What a view is, and the streams that views write to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TextIO

from conductor_cli.core.events import Event
from conductor_cli.models.known_secrets import KNOWN_SECRETS

Clock = Callable[[], float]
"""Seconds that only grow."""


class View(Protocol):
    """Shows one run. `show` takes every event in order; `close` ends the output, also of a run that broke off."""

    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...


class Progress(View, Protocol):
    """A view for the person who waits. From `rest` to `wake` it writes nothing: the terminal is someone else's."""

    def rest(self) -> None: ...

    def wake(self) -> None: ...


class Stdout:
    """Standard output, without a key that this process has read.

    A character that the encoding lacks is replaced; a closed pipe is the caller's to hear of.
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
    """Standard error. Nobody must fail because nobody listens: a write that the system refuses is dropped."""

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
    """Whether a person looks at `stream`. A closed stream has no reader."""
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


def encodable(text: str, encoding: str) -> str:
    """`text` with a question mark for every character that `encoding` lacks."""
    return text.encode(encoding, "replace").decode(encoding)
