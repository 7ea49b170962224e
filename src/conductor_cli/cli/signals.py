"""What signals do while a run or a chat goes on: Ctrl-C, Ctrl-Z, SIGTERM and a hang-up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from conductor_cli.cli.chat_banner import is_plain_terminal
from conductor_cli.cli.keypress import restore_terminal
from conductor_cli.system.suspension import SUSPENSIONS

if TYPE_CHECKING:
    from conductor_cli.run import Run


SHOW_CURSOR: Final = b"\x1b[?25h"
DRAWING_SECONDS: Final = 0.5  # For which Ctrl-Z waits for the end of a drawing

SECOND_INTERRUPT_SECONDS: Final = 2.0
"""Within this time a second Ctrl-C ends the process at once; in a chat it is the time that a run
may take to stop.
"""

ENDING_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that ask a chat to end. Windows has no SIGHUP."""


@dataclass(slots=True)
class StopSignals:
    """What signals have asked for since a run began."""

    terminated: bool = False
    """Whether SIGTERM or a hang-up came, which also ends a chat whose run had just finished."""


@contextmanager
def stop_on_signals(run: Run, *, chat: bool = False) -> Iterator[StopSignals]:
    """Have Ctrl-C, SIGTERM and a hang-up stop the run and keep what is finished.

    A second Ctrl-C soon after the first ends the process. In a `chat` it does nothing then, since
    it would end the whole chat; a later one, after which the run still has not stopped, ends it.
    These are plain signal handlers, since those of the event loop would wait while a full pipe
    blocks the loop. Needs a running loop.
    """
    loop = asyncio.get_running_loop()
    signals = StopSignals()
    previous: float | None = None  # When Ctrl-C was pressed; in a chat, for the first time

    def interrupt(*_: object) -> None:
        nonlocal previous
        now = time.monotonic()
        if previous is not None:
            is_soon = now - previous < SECOND_INTERRUPT_SECONDS
            if is_soon != chat:
                _end_process()
        if previous is None or not chat:
            previous = now
        # A handler may interrupt any line of the program, so the loop stops the run when it is its
        # turn.
        loop.call_soon_threadsafe(lambda: run.stop("cancelled"))

    def terminate(*_: object) -> None:
        signals.terminated = True
        loop.call_soon_threadsafe(lambda: run.stop("terminated"))

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    # A process under nohup ignores SIGHUP, and goes on doing so.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        handlers[signal.SIGHUP] = terminate
    with ExitStack() as stack:
        stack.enter_context(suspendable())
        for number, handler in handlers.items():
            # The kernel may deliver the signal to any thread; the loop's own handler makes sure
            # that the loop wakes up.
            stack.enter_context(on_signal(number, lambda: None))
            stack.enter_context(handle_signal(number, handler))
        yield signals


def _end_process() -> None:
    """End the process by SIGINT, as if it had no handler.

    A terminal gets its cursor and its mode back first.
    """
    _write_to_terminal(b"\r\n" + SHOW_CURSOR)
    restore_terminal()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


def _write_to_terminal(text: bytes) -> None:
    with suppress(OSError, ValueError):
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), text)


@contextmanager
def suspendable() -> Iterator[None]:
    """Have Ctrl-Z stop this process between two drawings, and show the cursor, which they hide.

    A process that ignores the signal goes on doing so.
    """
    number = getattr(signal, "SIGTSTP", None)  # Windows has none
    if number is None or signal.getsignal(number) != signal.SIG_DFL:
        yield
        return
    with handle_signal(number, _suspend):
        yield


def _suspend(number: int, _: object) -> None:
    """Stop this process until it is told to go on."""
    # A terminal that takes no text now holds up who draws, and the stop must not wait for that.
    is_held = SUSPENSIONS.drawing.acquire(timeout=DRAWING_SECONDS)
    try:
        if not is_plain_terminal():
            _write_to_terminal(SHOW_CURSOR)
        with handle_signal(signal.Signals(number), signal.SIG_DFL):
            signal.raise_signal(number)  # Here it waits until it is told to go on
        SUSPENSIONS.count += 1
    finally:
        if is_held:
            SUSPENSIONS.drawing.release()


@contextmanager
def handle_signal(
    number: signal.Signals, handler: Callable[..., object] | signal.Handlers
) -> Iterator[None]:
    """Have `handler` called at a signal until the block ends.

    Nothing changes on a thread, where Python sets no handlers.
    """
    before = signal.getsignal(number)
    with suppress(ValueError):  # not the main thread
        signal.signal(number, handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(number, _restorable(before))


def _restorable(before: Callable[..., object] | int | None) -> Any:  # noqa: ANN401 - as `signal` has it
    """Return the handler to set again; Python does not know one that a C library has set."""
    return signal.SIG_DFL if before is None else before


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
            signal.signal(number, _restorable(before))


@contextmanager
def default_signals() -> Iterator[None]:
    """Handle signals in a chat where no other block does.

    Ctrl-C does nothing, so that nothing breaks half-way. The signals that end a chat raise
    `SystemExit`, so that the terminal is restored.
    """

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    with ExitStack() as handlers:
        for number in ENDING_SIGNALS:
            handlers.enter_context(handle_signal(number, leave))
        handlers.enter_context(handle_signal(signal.SIGINT, lambda *_: None))
        yield
