"""Calls a person back to a run that waits for them, or that has ended after a while.

On a terminal only. The title says that the run waits, as long as it does. The terminal rings, or
shows a notification of the desktop, when the run has gone on for some seconds, or when nobody has
answered for as long: who sits before the run is not disturbed. Terminals that know notifications
show them only where their window has no focus.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from conductor_cli.core import events as ev
from conductor_cli.core.formatting import format_duration
from conductor_cli.core.terminal_text import one_line
from conductor_cli.core.trace import Trace
from conductor_cli.views.base import NotifyName, RunView, Stderr
from conductor_cli.views.run_text import describe_wait, question_line, shorten_line

ABSENT_SECONDS: Final = 10.0  # After so long a person is taken to look at something else
MAX_QUESTION: Final = 60  # Characters of the question in a notification

_BELL: Final = "\x07"
_KEEP_TITLE: Final = "\x1b[22;2t"
_TAKE_TITLE_BACK: Final = "\x1b[23;2t"
_FORMS: Final[Mapping[str, str]] = {
    "osc9": "\x1b]9;{}\x07",
    "osc777": "\x1b]777;notify;conductor;{}\x07",
}
_FORMS_OF_TERMINALS: Final[Mapping[str, NotifyName]] = {
    "iTerm.app": "osc9",
    "iTerm2": "osc9",
    "WezTerm": "osc9",
    "ghostty": "osc9",
    "xterm-ghostty": "osc9",
    "xterm-kitty": "osc9",
    "foot": "osc777",
    "rxvt-unicode": "osc777",
    "rxvt-unicode-256color": "osc777",
}
"""What `auto` is, by TERM_PROGRAM, LC_TERMINAL or TERM; any other terminal rings its bell."""

_WITHOUT_TITLE: Final = frozenset({"dumb", "linux", ""})  # Values of TERM


def choose_notification(notify: NotifyName, environ: Mapping[str, str]) -> NotifyName:
    """Return how a terminal calls a person, in place of `auto`."""
    if notify != "auto":
        return notify
    # These programs pass a bell on, and mark the window that rang.
    if environ.get("TMUX") or environ.get("STY"):
        return "bell"
    for variable in ("TERM_PROGRAM", "LC_TERMINAL", "TERM"):
        form = _FORMS_OF_TERMINALS.get(environ.get(variable, ""))
        if form is not None:
            return form
    return "bell"


class Attention(RunView):
    """Rings when the run that it is shown waits for a person, or ends."""

    def __init__(
        self,
        stderr: Stderr,
        notify: NotifyName,
        environ: Mapping[str, str],
        *,
        absent_seconds: float = ABSENT_SECONDS,
        sets_title: bool = True,
    ) -> None:
        """Without `sets_title` the terminal's title is left alone: other programs have it."""
        self._stderr = stderr
        self._form = choose_notification(notify, environ)
        self._in_tmux = bool(environ.get("TMUX"))
        self._has_title = sets_title and environ.get("TERM", "") not in _WITHOUT_TITLE
        self._absent_seconds = absent_seconds
        self._timer: threading.Timer | None = None
        self._waits = False

    def show(self, event: ev.Event, trace: Trace) -> None:
        inner = ev.innermost_event(event)
        if isinstance(inner, ev.PlanOffered | ev.ToolOffered | ev.InputAsked):
            self._begin_wait(trace)
            return
        if self._waits and trace.waits_for is None:
            self._end_wait()
        if isinstance(event, ev.RunFinished | ev.RunFailed) and event.at >= self._absent_seconds:
            took = format_duration(event.at)
            self._ring(f"{trace.outcome()} after {took}: {_question_of(trace)}")

    def close(self) -> None:
        self._end_wait()

    def _begin_wait(self, trace: Trace) -> None:
        self._end_wait()
        self._waits = True
        text = describe_wait(trace)
        if self._has_title:
            self._write(f"{_KEEP_TITLE}\x1b]2;conductor {_safe(text)}\x07")
        call = f"{text}: {_question_of(trace)}"
        if trace.at >= self._absent_seconds:
            self._ring(call)
            return
        self._timer = threading.Timer(self._absent_seconds, self._ring, [call])
        self._timer.daemon = True
        self._timer.start()

    def _end_wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waits and self._has_title:
            self._write(_TAKE_TITLE_BACK)
        self._waits = False

    def _ring(self, text: str) -> None:
        form = _FORMS.get(self._form)
        if form is None:
            self._write(_BELL)
            return
        sequence = form.format(_safe(f"conductor {text}"))
        if self._in_tmux:  # which hands on what is wrapped so, where the user allows it
            escaped = sequence.replace("\x1b", "\x1b\x1b")
            sequence = f"\x1bPtmux;{escaped}\x1b\\"
        self._write(sequence)

    def _write(self, text: str) -> None:
        self._stderr.write(text)
        self._stderr.flush()


def _question_of(trace: Trace) -> str:
    return shorten_line(question_line(trace), MAX_QUESTION)


def _safe(text: str) -> str:
    """Return a text of a run as it may stand inside a sequence, whose fields a semicolon parts."""
    return one_line(text).replace(";", ",")
