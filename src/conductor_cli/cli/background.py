"""`ask --bg`: a run in a process of its own, which goes on when the terminal is closed.

The command starts itself again, in a session of its own, and waits until the run has begun: what is
wrong with the question or the settings is told at once, with its exit code. Then it prints the id
of the run. What needs a person waits, and `trace attach` or the page of `serve` answers it.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

from conductor_cli.core.errors import UsageError
from conductor_cli.core.input_requests import InputReply
from conductor_cli.views.attention import Attention
from conductor_cli.views.base import OutputContext, RunView, Stderr

if TYPE_CHECKING:
    from conductor_cli.core.events import Event, InputAsked, ToolOffered
    from conductor_cli.core.plan import Decision
    from conductor_cli.core.trace import Offer, Trace
    from conductor_cli.run import Run
    from conductor_cli.run.orchestra import ToolVerdict

_VARIABLE: Final = "_CONDUCTOR_BACKGROUND"
"""Names the descriptor on which the process in the background tells the id of its run."""

BACKGROUND_SETTINGS: Final[Mapping[str, Any]] = {"traces.keep": "always", "output.progress": "none"}
"""Settings of a run in the background: nobody sees it but by its trace."""


def start_in_background() -> tuple[int, str]:
    """Start this command again in the background.

    Returns its exit code and the id of its run, which is empty where none has begun. Raises
    `UsageError` on Windows.
    """
    if sys.platform == "win32":
        hint = "open another window for it, or: Start-Process conductor -ArgumentList ask, …"
        raise UsageError("--bg does not work on Windows", hint=hint)
    # A process of another session cannot read from this terminal
    given = None
    if sys.stdin is None or sys.stdin.isatty():
        given = subprocess.DEVNULL
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="ascii") as announcement:
        try:
            process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-P", "-m", "conductor_cli", *sys.argv[1:]],
                stdin=given,
                stdout=subprocess.DEVNULL,
                env={**os.environ, _VARIABLE: str(writing)},
                pass_fds=[writing],
                start_new_session=True,
            )
        finally:
            os.close(writing)
        run = announcement.readline().strip()
    if run:
        process.returncode = 0  # nobody waits for it, and Python shall not warn of that
        return 0, run
    return process.wait(), ""


def take_background() -> BackgroundView | None:
    """Return the view of a process in the background; None in any other.

    It is asked once: programs that the run starts are not told.
    """
    descriptor = os.environ.pop(_VARIABLE, "")
    if not descriptor.isdecimal():
        return None
    return BackgroundView(int(descriptor))


class LeftTerminal(io.TextIOBase):
    """The terminal that a run was begun on and has left: what is written goes there, or nowhere.

    It is opened for each text, so that it may be closed meanwhile. Nothing but bells and
    notifications is written, since other programs use it.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._path, flags)
        try:
            # Its number may belong to somebody else by now
            if os.isatty(descriptor) and os.fstat(descriptor).st_uid == os.getuid():
                os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
        return len(text)


class BackgroundView(RunView):
    """Tells the command that started this process that its run has begun; leaves the terminal.

    That is rung when the run waits for a person or ends, once `ring_by` has been called.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)
        self._terminal = ""
        with suppress(OSError):
            self._terminal = os.ttyname(2)
        self._attention = RunView()

    def ring_by(self, context: OutputContext) -> None:
        """Have the terminal rung as the settings say: nobody looks at this run."""
        if not self._terminal or context.quiet or context.notify == "off":
            return
        stderr = Stderr(cast("TextIO", LeftTerminal(self._terminal)))
        self._attention = Attention(
            stderr, context.notify, context.environ, absent_seconds=0, sets_title=False
        )

    def show(self, event: Event, trace: Trace) -> None:
        self._leave_terminal(trace)
        self._attention.show(event, trace)

    def close(self) -> None:
        self._attention.close()

    def _leave_terminal(self, trace: Trace) -> None:
        if self._descriptor < 0 or not trace.run:
            return
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        os.close(nowhere)
        with suppress(OSError):  # the command was ended meanwhile
            os.write(self._descriptor, f"{trace.run}\n".encode("ascii", "replace"))
        os.close(self._descriptor)
        self._descriptor = -1


class AbsentPerson:
    """Stands for the person in a process without a terminal: others decide by messages."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._dismissed: list[Offer] = []
        self._is_over = False

    def wake(self) -> None:
        """Say that nobody waits for an answer any more."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def dismiss(self, offer: Offer) -> None:
        """Say that another process has decided about an offer."""
        with self._changed:
            self._dismissed.append(offer)
            self._changed.notify_all()

    def decide_plan(self, run: Run) -> Decision | None:
        """Wait until the plan is decided about. Raises `DecidedElsewhere`; None at the end."""
        self._wait_for(run.trace.offer)
        return None

    def decide_tool(self, offered: ToolOffered) -> ToolVerdict:
        """Wait until the call is decided about. Raises `DecidedElsewhere`; `no` at the end."""
        self._wait_for(offered)
        return "no"

    def give_input(self, _: InputAsked) -> InputReply:
        """Decline: what a server of tools asks cannot be answered from elsewhere."""
        return InputReply(action="decline")

    def _wait_for(self, offer: Offer | None) -> None:
        from conductor_cli.app.driver import DecidedElsewhere  # loads everything that a run needs

        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or offer is None or offer in self._dismissed
            )
            if not self._is_over:
                raise DecidedElsewhere
