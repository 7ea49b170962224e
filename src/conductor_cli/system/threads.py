"""Work on a thread, beside the event loop: what others sent much of, and what takes long.

Else every stream would stand still. Each kind of work has threads of its own, which clients get by
turns, so that none of it keeps those waiting that everything else needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

from conductor_cli.programs.turns import CHILDREN, SharedPlaces

LARGE_SIZE: Final = 32 << 10  # bytes or characters that take so long that streams would stutter

VERY_LARGE_SIZE: Final = 1 << 20
"""Bytes or characters of which one piece is worked on at a time, so that they fill neither
processors nor memory.
"""

T = TypeVar("T")


class SharedThreads:
    """So many threads for one kind of work, which clients get by turns."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._executor: ThreadPoolExecutor | None = None
        self._places = SharedPlaces(count)

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, once a thread has done it. Raises what it raises."""
        context = copy_context()
        give_back = await self._places.take()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._count, self._name)
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._executor, lambda: context.run(work))
        # A thread cannot be stopped: where its task is cancelled, it keeps its place to its end
        working.add_done_callback(lambda _: give_back())
        return await asyncio.shield(working)

    def close(self) -> None:
        """End the threads; a later call of `run` starts new ones."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None


LARGE_WORK: Final = SharedThreads("large", 8)
FILE_WORK: Final = SharedThreads("files", 4)
"""Threads that read, check and write whole files: uploads, those of batches."""

DOCUMENT_WORK: Final = SharedThreads("documents", CHILDREN)
"""Threads that wait for the processes which read documents."""


def close_threads() -> None:
    """End all of these threads, so that nothing remains of a server that has ended."""
    for threads in (LARGE_WORK, FILE_WORK, DOCUMENT_WORK):
        threads.close()


_VERY_LARGE_PLACE: Final = SharedPlaces(1)


async def run_in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Return what `work` makes of something of this size. Raises what it raises."""
    if size <= LARGE_SIZE:
        return work()
    if size <= VERY_LARGE_SIZE:
        return await LARGE_WORK.run(work)
    async with _VERY_LARGE_PLACE.held():
        return await LARGE_WORK.run(work)
