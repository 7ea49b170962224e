"""What the caller of a pull hears of it, and how long the pull waits for what."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["waiting", "asking", "fetching", "checking", "storing"]
"""For another process; the hub for size and hash; the bytes; the SHA-256; the name in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one file is: `done` of `total` bytes, 0 if that is unknown. `note` is set when something happened."""

    stage: Stage
    file: str
    done: int = 0
    total: int = 0
    note: str = ""


Tell = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Seconds. `stall`: without a new byte, until a transfer is started again in another way.

    `start`: for the child process to begin. `waits`: before each further try of what may pass. `longest`: that a server
    may ask to wait.
    """

    stall: float = 30.0
    start: float = 60.0
    waits: tuple[float, ...] = (1.0, 4.0, 15.0)
    longest: float = 120.0


PACE = RetryPolicy()


class Meter:
    """Tells of one file at one stage, bytes at most ten times a second, notes and the end always."""

    def __init__(self, tell: Tell, stage: Stage, file: str, total: int = 0) -> None:
        self._tell = tell
        self._stage: Stage = stage
        self._file = file
        self._total = total
        self._done = 0
        self._next = 0.0
        self._said = ""

    def at(self, done: int) -> None:
        """So many bytes are done."""
        self._done = done
        now = time.monotonic()
        if now >= self._next or done == self._total:
            self._next = now + 0.1
            self._say("")

    def note(self, words: str) -> None:
        """Something happened."""
        self._say(words)

    def once(self, words: str) -> None:
        """The same again, which is said the first time only."""
        if words != self._said:
            self._said = words
            self._say(words)

    def _say(self, note: str) -> None:
        done, total = self._done, self._total
        self._tell(Progress(stage=self._stage, file=self._file, done=done, total=total, note=note))
