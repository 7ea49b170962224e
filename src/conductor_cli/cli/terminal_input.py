"""What signals do while a run or a chat goes on, and questions to a person.

Yes or no, or a line of text.

Questions go to standard error, so that standard output holds results only. The end of input
(Ctrl-D) always means no.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from conductor_cli.cli.keypress import restore_terminal
from conductor_cli.cli.output import print_notice, stdout_problem, terminal_width, wrap_lines
from conductor_cli.core.errors import UsageError

if TYPE_CHECKING:
    from conductor_cli.run import Run


TWICE: Final = 2.0
"""Seconds in which a second Ctrl-C ends the process at once; in a chat, the time that a run may
take to stop.
"""

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that ask a chat to end. Windows has no SIGHUP."""


@contextmanager
def stop_on_signals(run: Run, *, chat: bool = False) -> Iterator[None]:
    """Have Ctrl-C, SIGTERM and a hang-up stop the run and keep what is finished.

    A second Ctrl-C ends the process.

    In a `chat` a second one soon after the first does nothing, since it would end the whole chat.
    These are plain signal handlers, since those of the event loop would wait while a full pipe
    blocks the loop. Needs a running loop.
    """
    loop = asyncio.get_running_loop()
    last: float | None = None

    def interrupt(*_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if last is not None and (now - last < TWICE) != chat:
            _end_process()
        last = now if last is None or not chat else last
        # A handler may interrupt any line of the program, so the loop stops the run when it is its
        # turn.
        loop.call_soon_threadsafe(lambda: run.stop("cancelled"))

    def terminate(*_: object) -> None:
        loop.call_soon_threadsafe(lambda: run.stop("terminated"))

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    # A process under nohup ignores SIGHUP, and goes on doing so.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        handlers[signal.SIGHUP] = terminate
    with ExitStack() as stack:
        for number, handler in handlers.items():
            # The kernel may deliver the signal to any thread; the loop's own handler makes sure
            # that the loop wakes up.
            stack.enter_context(on_signal(number, lambda: None))
            stack.enter_context(handle_signal(number, handler))
        yield


def _end_process() -> None:
    """End the process by SIGINT, as if it had no handler.

    A terminal gets its cursor and its mode back first.
    """
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), b"\r\n\x1b[?25h")  # shows the cursor
    restore_terminal()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


@contextmanager
def handle_signal(
    number: signal.Signals, handler: Callable[..., object] | signal.Handlers
) -> Iterator[None]:
    """Have `handler` called at a signal until the block ends.

    Not on a thread, where Python sets no handlers.
    """
    before = signal.getsignal(number)
    with suppress(ValueError):  # not the main thread
        signal.signal(number, handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(number, signal.SIG_DFL if before is None else before)


@contextmanager
def on_signal(number: signal.Signals, action: Callable[[], object]) -> Iterator[None]:
    """Have the running loop call `action` at a signal until the block ends."""
    loop = asyncio.get_running_loop()
    before = signal.getsignal(number)
    # Not on Windows, and not outside the main thread: there the program around this one handles
    # signals.
    unsupported = (NotImplementedError, RuntimeError, ValueError)
    with suppress(*unsupported):
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        with suppress(*unsupported):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if before is None else before)


@contextmanager
def default_signals() -> Iterator[None]:
    """Handle signals in a chat where no other block does.

    Ctrl-C does nothing, so that nothing breaks half-way.

    Those that end a chat raise `SystemExit`, so that the terminal is restored.
    """

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    with ExitStack() as handlers:
        for number in ENDING:
            handlers.enter_context(handle_signal(number, leave))
        handlers.enter_context(handle_signal(signal.SIGINT, lambda *_: None))
        yield


YES_NO: Final = {"y": True, "yes": True, "n": False, "no": False}


def can_ask() -> bool:
    """Return whether a person can read a question and answer it.

    Standard input and error are both a terminal.
    """
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, default: bool) -> bool:
    """A yes or a no; a bare Enter is the `default`, the end of input a no.

    Any other word is asked about again.
    """
    while True:
        answer = ask_line(f"{question} [{'Y/n' if default else 'y/N'}]")
        if answer is None:
            return False
        if not answer or answer.lower() in YES_NO:
            return YES_NO.get(answer.lower(), default)
        print_notice("answer with yes or no")


def ask_line(question: str) -> str | None:
    """A line from the terminal without the spaces around it; None at the end of input."""
    sys.stderr.write(f"{wrap_lines(question, terminal_width(sys.stderr))} ")
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        print_notice("")
        return None
    return line.strip()


def confirm_cost(estimate: Sequence[str], what: str, *, yes: bool, quiet: bool) -> bool:
    """Print what a long job will probably cost.

    Whether the user agrees, by `--yes` or at the prompt.

    Raises `UsageError` if there is no terminal to ask on, `ConductorError` if the result could not
    be printed.
    """
    if problem := stdout_problem():
        raise problem
    if not quiet:
        for line in estimate:
            print_notice(line)
    if yes:
        return True
    if not can_ask():
        hint = "check the estimate, then run it again with --yes"
        raise UsageError(f"{what} may cost money and needs a confirmation", hint=hint)
    # Inside an event loop, Ctrl-C would otherwise wait for the line to be read.
    with handle_signal(signal.SIGINT, signal.default_int_handler):
        return confirm("Continue?", default=False)
