"""One call to one model: patience on its stream, waits before the next, and what it cost when it does not say."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final

from conductor_cli.core.chat import Chunk, Message
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Timeouts
from conductor_cli.core.prompts import CHARS_PER_TOKEN
from conductor_cli.core.usage import Usage

BACKOFF: Final = 0.5
"""Seconds before the second attempt; doubled for each one after it, and jittered by a half either way."""
LONGEST_WAIT: Final = 30.0
"""The longest wait before another attempt, whatever a server asks for."""


@asynccontextmanager
async def with_timeouts(
    chunks: AsyncGenerator[Chunk, None], timeouts: Timeouts
) -> AsyncGenerator[AsyncIterator[Chunk], None]:
    """The chunks of one call, to be read inside the block; they are closed behind it.

    Raises `ModelError` of reason `timeout` when the first one, the next one or the last is late.
    """
    heard = _Heard(chunks, timeouts)
    async with aclosing(chunks):  # however long that takes, the alarm and its timer have ended by then
        try:
            async with heard.alarm:
                yield heard
        except TimeoutError:
            raise ModelError("timeout", heard.late()) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ModelError("broken", "the call was cancelled from inside") from None
        finally:
            heard.timer.cancel()


class _Heard:
    """Chunks, each of which puts off the alarm.

    It only notes until when: to set a timer for each would cost more than all else here. One timer looks at the note,
    at least as often as the alarm could be due.
    """

    def __init__(self, chunks: AsyncGenerator[Chunk, None], timeouts: Timeouts) -> None:
        self.alarm = asyncio.timeout(None)
        self._chunks = chunks
        self._patience = timeouts
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + timeouts.total
        self._first = True
        self._rang = 0.0
        self._due = min(self._loop.time() + timeouts.first_token, self._ends)
        self.timer = self._loop.call_later(min(timeouts.first_token, timeouts.idle, timeouts.total), self._look)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await anext(self._chunks)
        if self.alarm.expired():
            raise TimeoutError  # the model did not heed it, and there is no second one
        self._first = False
        self._due = min(self._loop.time() + self._patience.idle, self._ends)
        return _sound(chunk)

    def _look(self) -> None:
        now = self._loop.time()
        if now < self._due:
            self.timer = self._loop.call_at(min(self._due, now + self._patience.idle), self._look)
        else:
            self._rang = now  # the model may take its time before it heeds that
            self.alarm.reschedule(now)

    def late(self) -> str:
        """What did not come in time."""
        if self._rang >= self._ends:
            return f"no end after {self._patience.total:g} s"
        what, wait = ("first", self._patience.first_token) if self._first else ("next", self._patience.idle)
        return f"no {what} token within {wait:g} s"


def _sound(chunk: Chunk) -> Chunk:
    """The chunk, with a question mark in place of each lone surrogate, which no encoding can write."""
    if chunk.text.isascii() and chunk.thinking.isascii():
        return chunk
    text, thinking = (piece.encode("utf-8", "replace").decode() for piece in (chunk.text, chunk.thinking))
    return replace(chunk, text=text, thinking=thinking)


def wait_before(turn: int, retry_after: float | None, chance: random.Random) -> float:
    """Seconds before attempt `turn` (2 or more): what the server asks for, else our own, at most `LONGEST_WAIT`."""
    if retry_after is not None and not math.isnan(retry_after):
        return min(max(retry_after, 0.0), LONGEST_WAIT)
    return round(min(BACKOFF * 2.0 ** (turn - 2) * chance.uniform(0.5, 1.5), LONGEST_WAIT), 3)


def estimated_usage(messages: Iterable[Message], written: str) -> Usage:
    """Tokens by length, for a call that ended before its model said what it used."""
    return Usage(tokens_in=estimated_tokens(messages), tokens_out=_tokens(written), calls=1)


def estimated_tokens(messages: Iterable[Message]) -> int:
    """Tokens of a prompt by its length, since its model's tokenizer is not at hand."""
    return _tokens("".join(message.content for message in messages))


def _tokens(text: str) -> int:
    """Counted in bytes: scripts other than Latin take more tokens for a character, and more bytes."""
    return int(len(text.encode("utf-8", "replace")) / CHARS_PER_TOKEN)
