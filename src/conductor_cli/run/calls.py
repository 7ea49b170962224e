"""One call to one model: patience on its stream, waits before the next, and what it cost when it does not say."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Patience
from conductor_cli.core.prompts import CHARS_PER_TOKEN
from conductor_cli.core.usage import Usage

BACKOFF: Final = 0.5
"""Seconds before the second attempt; doubled for each one after it, and jittered by a half either way."""
LONGEST_WAIT: Final = 30.0
"""The longest wait before another attempt, whatever a server asks for."""


async def within(chunks: AsyncIterator[Chunk], patience: Patience) -> AsyncGenerator[Chunk, None]:
    """The same chunks; a `ModelError` of reason `timeout` when the first one, the next one or the last is late."""
    started = asyncio.get_running_loop().time()
    ends = started + patience.total
    wait, what = patience.first, "first"
    async with aclosing(chunks) as stream:  # type: ignore[type-var]  # adapters give generators
        while True:
            try:
                async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + wait, ends)):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                late = asyncio.get_running_loop().time() >= ends
                said = f"no end after {patience.total:g} s" if late else f"no {what} token within {wait:g} s"
                raise ModelError("timeout", said) from None
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                raise ModelError("broken", "the call was cancelled from inside") from None
            yield _sound(chunk)
            wait, what = patience.idle, "next"


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


def estimated(request: Request, written: str) -> Usage:
    """Tokens by length, for a call that ended before its model said what it used."""
    read = "".join(message.content for message in request.messages)
    return Usage(tokens_in=_tokens(read), tokens_out=_tokens(written), calls=1)


def _tokens(text: str) -> int:
    """Counted in bytes: scripts other than Latin take more tokens for a character, and more bytes."""
    return int(len(text.encode("utf-8", "replace")) / CHARS_PER_TOKEN)
