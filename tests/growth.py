"""How the work of a function grows with its input.

A test can refuse what grows with the square.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LINEAR_LIMIT: Final = 8.0
"""Four times the input takes four times the time where work is linear, and sixteen times where it
is quadratic: a measurement may be wrong by two either way.
"""

NOISE_SECONDS: Final = 0.03
"""Below this, the clock and the caches say more than the function. Quadratic work takes longer at
these sizes.
"""

ROUNDS: Final = 5
"""The least of so many rounds counts: what disturbs a round makes it longer, never shorter."""

SMALL_ROUNDS: Final = 3
"""How often the short text is read in a round: one long time for it would let anything pass."""

CLEARLY_LINEAR: Final = 5.0
"""No further round is needed below this: the short text's time would have to be wrong by three."""


def assert_grows_linearly(
    work: Callable[[str], object],
    text_of: Callable[[int], str],
    size: int,
    clock: Callable[[], float] = time.thread_time,
) -> None:
    """Fail if `work` on a text of four times the size takes more than eight times as long.

    `text_of` makes the text from a size, here `size` and a quarter of it. It must be large enough
    that quadratic work would be slow: some 50,000 signs. The clock is the processor time of this
    thread, which other processes do not lengthen much.
    """
    small = text_of(size // 4)
    large = text_of(size)

    def seconds(text: str) -> float:
        began = clock()
        work(text)
        return clock() - began

    small_seconds = float("inf")
    large_seconds = float("inf")
    for _ in range(ROUNDS):
        large_seconds = min(large_seconds, seconds(large))
        if large_seconds <= NOISE_SECONDS:
            return
        for _ in range(SMALL_ROUNDS):
            small_seconds = min(small_seconds, seconds(small))
            if large_seconds <= CLEARLY_LINEAR * small_seconds:
                return
        if large_seconds <= LINEAR_LIMIT * small_seconds:
            return
    growth = large_seconds / small_seconds
    raise AssertionError(
        f"four times the text took {growth:.1f} times as long: {small_seconds:.3f} s, "
        f"{large_seconds:.3f} s"
    )
