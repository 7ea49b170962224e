"""One call on its way from the event loop to a model's thread, and its chunks on their way back."""

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
"""What the thread does for a call: it raises `ModelError`, or `Stopped` soon after the flag is set."""

PATIENCE: Final = 5.0
"""Seconds that stopping a call waits for the thread, which on a CPU needs less than 0.2."""

PAUSE: Final = 0.004
"""Seconds between two readings. A tiny model writes thousands of tokens a second; to wake the loop for each would take
more time than the model does."""


class Call:
    """Made on the event loop. The thread calls `tell` with chunks, an error or neither, and at last with None."""

    def __init__(self, work: Work, deadline: float | None) -> None:
        """`deadline` is in seconds from now."""
        self.work = work
        self.flag = CancelToken()
        self._loop = asyncio.get_running_loop()
        self._seconds = deadline
        self._until = None if deadline is None else self._loop.time() + deadline
        self._told: deque[Chunk | ModelError | None] = deque()
        self._news = asyncio.Event()
        self._waking = False
        self._read = 0.0
        self._begun = False
        self._ended = False

    def tell(self, what: Chunk | ModelError | None) -> None:
        """From the thread. The loop is woken once for all that is told before it has time."""
        self._told.append(what)
        ends = not isinstance(what, Chunk)
        if ends or not self._waking:
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._deliver if ends else self._wake)
            except RuntimeError:  # the loop has closed, so nobody will read this
                self.flag.set()

    def begin(self) -> bool:
        """From the thread, before it does anything else: whether there is still a reader."""
        self._begun = True
        return not self.flag.is_set

    async def take(self) -> Chunk | None:
        """What the thread has told since the last time, joined; None at the end. Raises what it tells as an error."""
        try:
            async with asyncio.timeout_at(self._until):
                while not self._told and not self._ended:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ModelError("timeout", f"the model did not finish within {self._seconds:g} seconds") from None
        chunks: list[Chunk] = []
        while self._told and isinstance(self._told[0], Chunk):
            chunks.append(self._told.popleft())  # type: ignore[arg-type]  # seen to be one
        if chunks:
            return _joined(chunks)
        self._end()
        return None

    async def stop(self) -> None:
        """Make the thread stop, and wait for it; not for ever, and not where it has not begun."""
        self.flag.set()
        try:
            async with asyncio.timeout(PATIENCE):
                while self._begun and not self._ended:
                    self._ended = None in self._told
                    self._told.clear()
                    self._news.clear()
                    if not self._ended:
                        await self._news.wait()
        except TimeoutError:
            pass

    def _wake(self) -> None:
        """On the loop: let the reader read, but not more often than is worth while."""
        soon = self._read + PAUSE - self._loop.time()
        if soon > 0:
            self._loop.call_later(soon, self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        self._waking = False
        self._read = self._loop.time()
        self._news.set()

    def _end(self) -> None:
        told = self._told.popleft() if self._told else None
        if isinstance(told, ModelError):
            raise told
        self._ended = True


def _joined(chunks: list[Chunk]) -> Chunk:
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(
        text="".join(chunk.text for chunk in chunks),
        thinking="".join(chunk.thinking for chunk in chunks),
        usage=chunks[-1].usage,
        finish=chunks[-1].finish,
        odds=chunks[-1].odds,
    )
