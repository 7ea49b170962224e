"""Work in proportion to what others sent, on a thread where it is much.

Else every stream would stand still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

LARGE: Final = 32 << 10  # bytes or characters that take so long that streams would stutter

VERY_LARGE: Final = 1 << 20
"""Bytes or characters of which one piece is worked on at a time, so that they fill neither
processors nor memory.
"""

_TURNS: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

T = TypeVar("T")


async def run_in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Return what `work` makes of something of this size. Raises what it raises."""
    if size <= LARGE:
        return work()
    turn = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(1))
    async with turn if size > VERY_LARGE else nullcontext():
        return await asyncio.to_thread(work)
