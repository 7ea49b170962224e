"""One call to one model: patience on its stream, and an estimate of what it cost when it does not say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from conductor_cli.core.chat import Chunk, Request
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Patience, Usage
from conductor_cli.core.prompts import CHARS_PER_TOKEN


async def within(chunks: AsyncIterator[Chunk], patience: Patience) -> AsyncIterator[Chunk]:
    """The same chunks; a `ModelError` of reason `timeout` when the first one, the next one or the last is late."""
    started = asyncio.get_running_loop().time()
    ends = started + patience.total
    wait, what = patience.first, "a first token"
    async with aclosing(chunks) as stream:  # type: ignore[type-var]  # adapters give generators
        while True:
            try:
                async with asyncio.timeout_at(min(asyncio.get_running_loop().time() + wait, ends)):
                    chunk = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                late = asyncio.get_running_loop().time() >= ends
                said = f"no end after {patience.total:g} s" if late else f"no {what[2:]} within {wait:g} s"
                raise ModelError("timeout", said) from None
            yield chunk
            wait, what = patience.idle, "a next token"


def estimated(request: Request, text: str) -> Usage:
    """Tokens by length, for a call that ended before its model said what it used."""
    read = sum(len(message.content) for message in request.messages)
    return Usage(tokens_in=int(read / CHARS_PER_TOKEN), tokens_out=int(len(text) / CHARS_PER_TOKEN), calls=1)
