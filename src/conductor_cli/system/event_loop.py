"""Runs coroutines on event loops that Ctrl-C never leaves half made.

Python cannot raise what goes wrong while it deletes a half-made loop, and writes a traceback.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import closing, contextmanager
from threading import current_thread, main_thread
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, as `asyncio.run` does. Raises what it raises.

    Raises `KeyboardInterrupt` after Ctrl-C, also for a coroutine that had not begun.
    """
    with closing(work), asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop. Ctrl-C is raised as soon as it is whole."""
    with _interrupt_afterwards():
        return asyncio.new_event_loop()


@contextmanager
def _interrupt_afterwards() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for a Ctrl-C within the block at its end, not before.

    Nothing changes on other threads than the first, which Ctrl-C does not interrupt, nor where
    Ctrl-C is handled in another way.
    """
    usual = signal.default_int_handler
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    was_pressed = False

    def note(*_: object) -> None:
        nonlocal was_pressed
        was_pressed = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if was_pressed:
        raise KeyboardInterrupt
