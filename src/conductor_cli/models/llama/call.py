"""One call between the event loop and a model's thread: the work on its way there, its chunks on their way back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.models.llama.bindings import CancelToken

if TYPE_CHECKING:
    from conductor_cli.models.llama.engine import Engine

Work = Callable[["Engine", CancelToken], Iterable[Chunk]]
"""What the thread does for a call. It raises `ModelError`, or `Cancelled` soon after the token is set."""

STOP_TIMEOUT: Final = 5.0
"""Seconds that stopping a call waits for the thread, which on a CPU needs less than 0.2."""

WAKE_INTERVAL: Final = 0.004
"""Seconds between two wake-ups of the event loop. A tiny model writes thousands of tokens a second, and waking the loop
for each of them would take more time than the model does."""


class Call:
    """Made on the event loop. The thread calls `put` with chunks, perhaps with an error, and at last with None."""

    def __init__(self, work: Work, deadline: float | None) -> None:
        """`deadline` is in seconds from now."""
        self.work = work
        self.cancel = CancelToken()
        self._loop = asyncio.get_running_loop()
        self._seconds = deadline
        self._until = None if deadline is None else self._loop.time() + deadline
        self._results: deque[Chunk | ModelError | None] = deque()  # its ends are safe to use from two threads
        self._arrived = asyncio.Event()
        self._waking = False
        self._last_wake = 0.0
        self._started = False
        self._ended = False

    def start(self) -> bool:
        """From the thread, before it does anything else: whether there is still a reader."""
        self._started = True
        return not self.cancel.is_set

    def put(self, result: Chunk | ModelError | None) -> None:
        """From the thread: hand over a result. The loop is woken once for all that arrive before it has time."""
        self._results.append(result)
        ends = not isinstance(result, Chunk)
        if ends or not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._wake if ends else self._wake_soon)
            except RuntimeError:  # the loop has closed, so nobody will read this
                self.cancel.set()

    async def get(self) -> Chunk | None:
        """What the thread has handed over since the last time, joined; None at the end. Raises its error."""
        try:
            async with asyncio.timeout_at(self._until):
                while not self._results and not self._ended:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            raise ModelError("timeout", f"the model did not finish within {self._seconds:g} seconds") from None
        chunks: list[Chunk] = []
        while self._results and isinstance(self._results[0], Chunk):
            chunks.append(self._results.popleft())  # type: ignore[arg-type]  # it is a chunk: see the line above
        if chunks:
            return _join_chunks(chunks)
        result = self._results.popleft() if self._results else None
        if isinstance(result, ModelError):
            raise result
        self._ended = True
        return None

    async def stop(self) -> None:
        """Make the thread stop and wait until it has, at most `STOP_TIMEOUT`, and not at all if it has not started."""
        self.cancel.set()
        try:
            async with asyncio.timeout(STOP_TIMEOUT):
                while self._started and not self._ended:
                    self._ended = None in self._results
                    self._results.clear()
                    self._arrived.clear()
                    if not self._ended:
                        await self._arrived.wait()
        except TimeoutError:
            pass

    def _wake_soon(self) -> None:
        wait = self._last_wake + WAKE_INTERVAL - self._loop.time()
        if wait > 0:
            self._loop.call_later(wait, self._wake)
        else:
            self._wake()

    def _wake(self) -> None:
        self._waking = False
        self._last_wake = self._loop.time()
        self._arrived.set()


def _join_chunks(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    last = chunks[-1]
    return Chunk(
        text="".join(chunk.text for chunk in chunks), thinking="".join(chunk.thinking for chunk in chunks),
        usage=last.usage, finish=last.finish, choice_shares=last.choice_shares,
    )  # fmt: skip
