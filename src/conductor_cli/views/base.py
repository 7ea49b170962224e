"""What a view is, the streams and consoles that views write to, and whether these take colours."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TextIO, cast

from conductor_cli.core.events import Event
from conductor_cli.core.trace import Trace
from conductor_cli.system.known_secrets import KNOWN_SECRETS

if TYPE_CHECKING:
    from typing import IO

    from rich.console import Console

ColorName = Literal["auto", "always", "never"]
NotifyName = Literal["auto", "bell", "osc9", "osc777", "off"]
Clock = Callable[[], float]  # Seconds since some moment; never goes back
FRAME_SECONDS: Final = 1 / 8  # Between two drawings of what moves, however fast the workers write


class RunView:
    """Shows one run; does nothing by itself.

    `show` gets every event in order, with the trace after it.

    `draw` is called often, on the same thread, and redraws what moves. `close` ends the output,
    also that of an interrupted run. Between `pause` and `resume` progress writes nothing: the
    answer uses the terminal. `skip_to` gets the last event of a replay that was cut short: progress
    shows how the run ended, and the output stays cut. `leave` takes the place of `close` where a
    run of another process is not looked at any more.
    """

    def show(self, event: Event, trace: Trace) -> None: ...

    def draw(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def skip_to(self, event: Event, trace: Trace) -> None: ...

    def close(self) -> None: ...

    def leave(self) -> None:
        """End the output while the run goes on elsewhere; nothing is said of an end."""
        self.close()


class Stdout:
    """Standard output, without keys that this process has read, in its encoding.

    `BrokenPipeError` is raised.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            self.terminal = stream.isatty()
        except (OSError, ValueError):  # ValueError: the stream is closed
            self.terminal = False

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
    """Standard error.

    A run must not fail because nobody reads its progress, so errors of writes are ignored.
    """

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: the stream is closed
            return super().write(text)
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            super().flush()


def encodable(text: str, encoding: str) -> str:
    """Return `text` with a question mark in place of every character that `encoding` lacks."""
    return text.encode(encoding, "replace").decode(encoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContext:
    """Where a run is shown, and how."""

    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    color: ColorName = "auto"
    quiet: bool = False
    question_is_shown: bool = False  # On the terminal already: a log does not repeat it
    stored: bool = True  # The trace is on disk, so the run can be resumed
    trace_path: Callable[[str], str] | None = None  # Where it is, by the run's id
    notify: NotifyName = "off"  # How the terminal calls a person who looks at something else
    markdown: bool = True  # Answers are rendered where the terminal shows colours
    clock: Clock = time.monotonic
    width: int | None = None  # In tests, the terminal's size
    height: int | None = None

    def open_console(self, stream: Stdout) -> Console:
        """Return a Rich console that writes to one of the streams.

        It reads nothing from this process's environment.
        """
        from rich.console import Console  # loading Rich takes longer than many commands do

        color = uses_color(self)
        # `_environ` keeps Rich from reading COLUMNS, NO_COLOR and the like, which `uses_color` has
        # already decided.
        return Console(
            file=cast("IO[str]", stream),
            force_terminal=stream.terminal,
            _environ=self.environ,
            width=self.width,
            height=self.height,
            color_system={True: "standard", False: None, None: "auto"}[color],
            no_color=color is False,
            markup=False,
            highlight=False,
            emoji=False,
            soft_wrap=False,
        )


def uses_color(context: OutputContext) -> bool | None:
    """Return whether to use colours; None lets the terminal decide.

    The setting wins over the environment.
    """
    if context.color != "auto":
        return context.color == "always"
    if context.environ.get("NO_COLOR"):
        return False
    if _is_set(context.environ, "CLICOLOR_FORCE") or _is_set(context.environ, "FORCE_COLOR"):
        return True
    return None


def cannot_redraw(environ: Mapping[str, str]) -> bool:
    """Return whether nothing may be redrawn.

    The terminal cannot, or a screen reader would read it out every time.
    """
    return environ.get("TERM") == "dumb" or _is_set(environ, "ACCESSIBLE")


def is_in_background(stream: Stdout) -> bool:
    """Return whether the terminal belongs to another command now, as of `conductor … &`.

    Whoever redraws there erases what the shell shows and what is typed to it.
    """
    try:
        return os.tcgetpgrp(stream.fileno()) != os.getpgrp()
    except (AttributeError, OSError, ValueError):  # Windows; no terminal of this process
        return False


def reflows(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal that becomes narrower wraps the lines that it shows.

    The oldest ones cut them off.
    """
    is_xterm = bool(environ.get("XTERM_VERSION"))
    is_screen = bool(environ.get("STY"))
    return environ.get("TERM") != "linux" and not is_xterm and not is_screen


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "") not in ("", "0")
