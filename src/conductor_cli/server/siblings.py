"""What the processes of one server share, beside the state: a few numbers, and whom to stop.

All of it is made before the processes are, so each has it without being told an address.
"""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

NUMBER_BYTES: Final = 8
MAX_RUN_ID_BYTES: Final = 100


class SharedNumbers:
    """A whole number of each process, at least 0, which all of them can read."""

    def __init__(self, count: int) -> None:
        self._memory = mmap.mmap(-1, count * NUMBER_BYTES)
        self._count = count

    def set(self, index: int, number: int) -> None:
        """Write the number of a process, which nobody else writes while it is there."""
        start = index * NUMBER_BYTES
        self._memory[start : start + NUMBER_BYTES] = number.to_bytes(NUMBER_BYTES, "little")

    def get(self, index: int) -> int:
        start = index * NUMBER_BYTES
        return int.from_bytes(self._memory[start : start + NUMBER_BYTES], "little")

    def total(self) -> int:
        return sum(self.get(index) for index in range(self._count))


class Shared:
    """What `count` processes share, for the process that starts them. Made before they are."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.running = SharedNumbers(count)
        self.ready = SharedNumbers(count)
        # A datagram is a run to be stopped; each process reads those that are sent to it
        self.stops = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for pair in self.stops:
            for end in pair:
                end.settimeout(0)


@dataclass(frozen=True, slots=True)
class Siblings:
    """One of the processes of a server, by its `index` from 0, and the way to the others."""

    index: int
    shared: Shared

    def share_of(self, places: int) -> int:
        """Return how many of `places` this process has: together they have all, and no more."""
        share, rest = divmod(places, self.shared.count)
        return share + (self.index < rest)

    def is_ready(self) -> None:
        """Tell the process that started this one that requests are answered."""
        self.shared.ready.set(self.index, 1)

    def tell_running(self, runs: int) -> None:
        self.shared.running.set(self.index, runs)

    def running(self) -> int:
        """Return how many runs go on in all processes."""
        return self.shared.running.total()

    def processes(self) -> int:
        """Return how many processes answer requests."""
        return self.shared.ready.total()

    def stop(self, run: str) -> None:
        """Ask the other processes to stop a run that one of them has."""
        for index, (_, writing) in enumerate(self.shared.stops):
            if index != self.index:
                with suppress(OSError):  # one that reads nothing has no runs, or ends
                    writing.send(run.encode())

    def listen(self, stop: Callable[[str], object]) -> None:
        """Call `stop` with each run that another process asks to be stopped. On a running loop."""
        reading = self.shared.stops[self.index][0]

        def read() -> None:
            with suppress(BlockingIOError):
                stop(reading.recv(MAX_RUN_ID_BYTES).decode("ascii", "replace"))

        asyncio.get_running_loop().add_reader(reading, read)
