"""Work on what is large is done beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from conductor_cli.system.threads import LARGE_SIZE, VERY_LARGE_SIZE, run_in_thread_if_large


@pytest.mark.parametrize(
    ("size", "at_once"),
    [(LARGE_SIZE, 0), (LARGE_SIZE + 1, 2), (VERY_LARGE_SIZE, 2), (VERY_LARGE_SIZE + 1, 1)],
)
def test_what_is_large_is_worked_on_by_a_thread_and_what_is_very_large_alone(
    size: int, at_once: int
) -> None:
    """`at_once` is how many of two pieces of work are on threads together.

    0 where they are on the loop.
    """
    main = threading.get_ident()
    here = list[int]()
    most = 0
    both = threading.Event()

    def work() -> None:
        nonlocal most
        here.append(threading.get_ident())
        most = max(most, len(here) if main not in here else 0)
        if len(here) == 2:
            both.set()
        both.wait(5 if at_once == 2 else 0.1)
        here.pop()

    async def twice() -> None:
        await asyncio.gather(run_in_thread_if_large(size, work), run_in_thread_if_large(size, work))

    asyncio.run(twice())
    assert most == at_once
