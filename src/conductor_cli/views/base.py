"""What a view is, and the streams that views write to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TextIO

from conductor_cli.core.events import Event
from conductor_cli.core.trace import Trace
from conductor_cli.models.known_secrets import KNOWN_SECRETS

Clock = Callable[[], float]  # Seconds since some moment; never goes back
FRAME: Final = 1 / 8  # Seconds between two drawings of what moves, however fast the workers write


class RunView:
    """Shows one run; does nothing by itself. `show` gets every event in order, with the trace after it.

    `draw` is called often, on the same thread, and redraws what moves. `close` ends the output, also that of an
    interrupted run. Between `pause` and `resume` progress writes nothing: the answer uses the terminal.
    """

    def show(self, event: Event, trace: Trace) -> None: ...

    def draw(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


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
