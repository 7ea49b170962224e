from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from conductor_cli.core.chat import Chunk
from conductor_cli.core.errors import ModelError
from conductor_cli.core.pool import Timeouts
from conductor_cli.run.attempt import with_timeouts
from tests.run.kit import now, virtually

PATIENCE = Timeouts(first_token=10, idle=5, total=12)


async def slow_to_close() -> AsyncGenerator[Chunk, None]:
    try:
        yield Chunk(text="a")
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(20)


async def deaf() -> AsyncGenerator[Chunk, None]:
    yield Chunk(text="a")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        yield Chunk(text="b")
    await asyncio.sleep(60)
    yield Chunk(text="c")


def heard(chunks: AsyncGenerator[Chunk, None], most: int = 9) -> tuple[list[str], float, list[Any]]:
    """The first `most` texts, or why there are no more; when that was; and what the loop had to complain of."""

    async def main() -> tuple[list[str], float, list[Any]]:
        texts: list[str] = []
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        try:
            async with with_timeouts(chunks, PATIENCE) as found:
                async for chunk in found:
                    texts.append(chunk.text)
                    if len(texts) == most:
                        break
        except ModelError as error:
            texts.append(error.message)
        return texts, now(), complaints

    return virtually(main())


@pytest.mark.parametrize(("most", "wanted", "end"), [(1, ["a"], 20), (9, ["a", "no next token within 5 s"], 25)])
def test_a_slow_close_is_not_a_timeout(most: int, wanted: list[str], end: float) -> None:
    """A stream that closes more slowly than a token may come is waited for; what was late is what was late before."""
    assert heard(slow_to_close(), most) == (wanted, end, [])


def test_a_model_that_does_not_heed_the_alarm_is_left_at_its_next_word() -> None:
    """It would otherwise be listened to without any end."""
    assert heard(deaf()) == (["a", "no next token within 5 s"], 5.0, [])
