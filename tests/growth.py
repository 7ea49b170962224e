"""How the work of a function grows with its input.

A test can refuse what grows with the square.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LINEAR_LIMIT: Final = 3.0
"""Twice the input takes twice the time where work is linear, and four times where it is
quadratic.
"""

NOISE_SECONDS: Final = 0.03
"""Below this, the clock and the caches say more than the function. Quadratic work takes longer at
these sizes.
"""

ROUNDS: Final = 5
"""The least of so many rounds counts: what disturbs a round makes it longer, never shorter."""


def assert_grows_linearly(
    work: Callable[[str], object], text_of: Callable[[int], str], size: int
) -> None:
    """Fail if `work` on a text of twice the size takes more than three times the processor time.

    `text_of` makes the text from a size. The size must be large enough that quadratic work would be
    slow: some 50,000 signs.
    """
    small = text_of(size)
    large = text_of(2 * size)
    small_seconds = float("inf")
    large_seconds = small_seconds
    for _ in range(ROUNDS):
        small_seconds = min(small_seconds, _processor_seconds(work, small))
        large_seconds = min(large_seconds, _processor_seconds(work, large))
        if large_seconds <= max(NOISE_SECONDS, LINEAR_LIMIT * small_seconds):
            return
    growth = large_seconds / small_seconds
    raise AssertionError(
        f"twice the text took {growth:.1f} times as long: {small_seconds:.3f} s, "
        f"{large_seconds:.3f} s"
    )


def _processor_seconds(work: Callable[[str], object], text: str) -> float:
    """Processor time of this thread, which other processes do not lengthen much."""
    began = time.thread_time()
    work(text)
    return time.thread_time() - began
