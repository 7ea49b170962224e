"""The right to change files that other processes change, too: one holder at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

ASKS: Final = 0.02
"""Seconds between two looks at a lock that is held."""


def silent() -> None:
    """Waits without a word."""


@contextmanager
def exclusive_lock(path: Path, wait: Callable[[], None] = silent, *, mode: int = 0o600) -> Iterator[None]:
    """Hold a lock file, which is made where there is none and stays.

    `wait` is called every half second until it is free, and may raise. Where the disk has no locks nobody waits. Raises
    `OSError` for a file that cannot be made.
    """
    from filelock import FileLock, Timeout  # only where something is written

    path.parent.mkdir(parents=True, exist_ok=True)
    lock: Any = FileLock(path, mode=mode)
    while True:
        try:
            lock.acquire(timeout=0.5, poll_interval=ASKS)
        except Timeout:
            wait()
        except NotImplementedError:
            break
        else:
            break
    try:
        yield
    finally:
        with suppress(OSError):
            lock.release()
