"""One call between the event loop and a model's thread: the work on its way there, its chunks on their way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.core.formatting import format_duration
from conductor_cli.models.llama.bindings import CancelToken

if TYPE_CHECKING:
    from conductor_cli.models.llama.engine import Engine

Work = Callable[["Engine", CancelToken], Iterable[Chunk]]
"""What the thread does for a call. It raises `ModelError`, or `Cancelled` soon after the token is set."""

STOP_TIMEOUT: Final = 5.0
"""Seconds that stopping a call waits for the thread, which on a CPU needs less than 0.2."""

HAND_OVER_INTERVAL: Final = 0.004
"""Seconds between two chunks that the event loop is given. A tiny model writes thousands of tokens a second, and waking
the loop for each of them would take more time than the model does."""


class Call:
    """Made on the event loop. The thread calls `put` with chunks, perhaps with an error, and at last with None."""

    def __init__(self, work: Work, deadline: float | None) -> None:
        """`deadline` is in seconds from now."""
        self.work = work
        self.cancel = CancelToken()
        self._loop = asyncio.get_running_loop()
        self._seconds = deadline
        self._until = None if deadline is None else self._loop.time() + deadline
        self._results: asyncio.Queue[Chunk | ModelError | None] = asyncio.Queue()
        self._held: list[Chunk] = []  # only the thread uses this and the next
        self._handed_over = 0.0
        self._started = False
        self._ended = False

    def start(self) -> bool:
        """From the thread, before it does anything else: whether there is still a reader."""
        self._started = True
        return not self.cancel.is_set

    def put(self, result: Chunk | ModelError | None) -> None:
        """From the thread: hand over a result. A chunk may be held back until the next one, and is joined with it."""
        joins = isinstance(result, Chunk) and result.tool_call is None
        if isinstance(result, Chunk) and joins:
            self._held.append(result)
            now = time.monotonic()
            if now - self._handed_over < HAND_OVER_INTERVAL:
                return
            self._handed_over = now
        if self._held:
            self._send(_join_chunks(self._held))
            self._held = []
        if not joins:
            self._send(result)

    def _send(self, result: Chunk | ModelError | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._results.put_nowait, result)
        except RuntimeError:  # the loop has closed, so nobody will read this
            self.cancel.set()

    async def get(self) -> Chunk | None:
        """The next chunk; None at the end. Raises the thread's error."""
        if self._ended:
            return None
        try:
            async with asyncio.timeout_at(self._until):
                result = await self._results.get()
        except TimeoutError:
            limit = format_duration(self._seconds or 0)
            raise ModelError("timeout", f"the model did not finish within {limit}") from None
        if isinstance(result, ModelError):
            raise result
        self._ended = result is None
        return result

    async def stop(self) -> None:
        """Make the thread stop and wait until it has, at most `STOP_TIMEOUT`, and not at all if it has not started."""
        self.cancel.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT):
                # What the thread still hands over is dropped, up to its None.
                while self._started and not self._ended:
                    self._ended = await self._results.get() is None


def _join_chunks(chunks: list[Chunk]) -> Chunk:
    last = chunks[-1]
    return Chunk(
        text="".join(chunk.text for chunk in chunks), thinking="".join(chunk.thinking for chunk in chunks),
        usage=last.usage, finish=last.finish, choice_shares=last.choice_shares, confidence=last.confidence,
    )  # fmt: skip
