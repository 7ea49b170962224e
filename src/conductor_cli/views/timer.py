"""A thread that calls something again and again, for what a view shows while nothing happens."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Timer:
    """Calls `tick` every so many seconds on a thread of its own, until it is stopped."""

    def __init__(self, tick: Callable[[], None], seconds: float, name: str = "conductor-tree") -> None:
        self._tick = tick
        self._seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return once no tick is going on and none will come."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._seconds):
            self._tick()
