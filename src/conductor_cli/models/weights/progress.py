"""What the caller hears while model files are downloaded and checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["waiting", "asking", "downloading", "checking", "storing"]
"""Waiting for another process, asking the hub about the file, downloading, computing the SHA-256, naming the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one file is: `done` of `total` bytes, 0 while that is unknown. `note` says that something happened."""

    stage: Stage
    file: str
    done: int = 0
    total: int = 0
    note: str = ""


Report = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """For callers that want no progress."""


class ProgressMeter:
    """Reports on one file at one stage: counts at most ten times a second; notes and the last byte always."""

    def __init__(self, report: Report, stage: Stage, file: str, total: int = 0) -> None:
        self._report = report
        self._stage: Stage = stage
        self._file = file
        self._total = total
        self._done = 0
        self._next_time = 0.0
        self._last_note = ""

    def update(self, done: int) -> None:
        """So many bytes are done."""
        self._done = done
        now = time.monotonic()
        if now >= self._next_time or done == self._total:
            self._next_time = now + 0.1
            self._send("")

    def note(self, text: str) -> None:
        """Something happened."""
        self._last_note = text
        self._send(text)

    def note_once(self, text: str) -> None:
        """Like `note`, unless it is what was said last."""
        if text != self._last_note:
            self.note(text)

    def _send(self, note: str) -> None:
        self._report(Progress(stage=self._stage, file=self._file, done=self._done, total=self._total, note=note))
