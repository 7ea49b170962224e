"""Timeouts on the stream of a call, and the wait before it is retried, which honours a server's `Retry-After`.

`executor` and `planner` decide whether a call is retried at all.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Timeouts

BACKOFF: Final = 0.5
"""Seconds before the second attempt; doubled for each one after it, and jittered by a half either way."""
LONGEST_WAIT: Final = 30.0
"""The longest wait before another attempt, whatever a server asks for."""


@asynccontextmanager
async def with_timeouts(
    chunks: AsyncGenerator[Chunk, None], timeouts: Timeouts
) -> AsyncGenerator[AsyncIterator[Chunk], None]:
    """The chunks of one call, to be read inside the block; leaving the block closes them.

    Raises `ModelError` of reason `timeout` when the first chunk, the next one or the last is late.
    """
    timed = _TimedStream(chunks, timeouts)
    async with aclosing(chunks):  # closing may take long; by then the alarm and its timer have ended
        try:
            async with timed.alarm:
                yield timed
        except TimeoutError:
            raise ModelError("timeout", timed.describe_delay()) from None
        except asyncio.CancelledError:
            # A library may cancel its own task. Only a cancellation that somebody asked of this task is one.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ModelError("broken", "the call was cancelled from inside") from None
        finally:
            timed.timer.cancel()


class _TimedStream:
    """Chunks, each of which puts off the alarm.

    A chunk only notes when the alarm is due, because setting a timer for each chunk would cost more than all else here.
    One timer looks at the note, at least as often as the alarm could be due.
    """

    def __init__(self, chunks: AsyncGenerator[Chunk, None], timeouts: Timeouts) -> None:
        self.alarm = asyncio.timeout(None)
        self._chunks = chunks
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + timeouts.total
        self._first = True
        self._rang = 0.0
        self._due = min(self._loop.time() + timeouts.first_token, self._ends)
        interval = min(timeouts.first_token, timeouts.idle, timeouts.total)
        self.timer = self._loop.call_later(interval, self._check_alarm)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await anext(self._chunks)
        if self.alarm.expired():
            raise TimeoutError  # the model swallowed the cancellation, and there is no second one
        self._first = False
        self._due = min(self._loop.time() + self._timeouts.idle, self._ends)
        return _encodable(chunk)

    def _check_alarm(self) -> None:
        now = self._loop.time()
        if now < self._due:
            self.timer = self._loop.call_at(min(self._due, now + self._timeouts.idle), self._check_alarm)
        else:
            self._rang = now  # noted now, since the model may take its time to end
            self.alarm.reschedule(now)

    def describe_delay(self) -> str:
        """What did not come in time."""
        if self._rang >= self._ends:
            return f"the answer did not end within {self._timeouts.total:g} s"
        if self._first:
            return f"no first token within {self._timeouts.first_token:g} s"
        return f"no next token within {self._timeouts.idle:g} s"


def _encodable(chunk: Chunk) -> Chunk:
    """The chunk with a question mark for each lone surrogate, which no encoding can write."""
    if chunk.text.isascii() and chunk.thinking.isascii():
        return chunk
    text, thinking = (piece.encode("utf-8", "replace").decode() for piece in (chunk.text, chunk.thinking))
    return replace(chunk, text=text, thinking=thinking)


def retry_wait(attempt: int, retry_after: float | None, chance: random.Random) -> float:
    """Seconds before the attempt (2 or more): the server's `Retry-After`, else a backoff; at most `LONGEST_WAIT`."""
    if retry_after is not None and not math.isnan(retry_after):
        return min(max(retry_after, 0.0), LONGEST_WAIT)
    return round(min(BACKOFF * 2.0 ** (attempt - 2) * chance.uniform(0.5, 1.5), LONGEST_WAIT), 3)
