"""Signals to a chat: while it waits for something, and in between."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

ENDING: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no second
"""Signals that ask a chat to leave."""


@contextmanager
def on_signal(number: signal.Signals, action: Callable[[], object]) -> Iterator[None]:
    """Have the running loop do something at a signal, until the block ends; then all is as before."""
    loop, before = asyncio.get_running_loop(), signal.getsignal(number)
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread
        loop.add_signal_handler(number, action)
    try:
        yield
    finally:
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL if before is None else before)


@contextmanager
def default_signals() -> Iterator[None]:
    """What signals mean where nobody hears them by itself: Ctrl-C nothing, so that nothing is broken off half-way.

    Those that end a chat raise `SystemExit`, so that the terminal is put back as it was.
    """

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in ENDING}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
